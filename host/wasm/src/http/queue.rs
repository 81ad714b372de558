//! Waiting in order for one of few places.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

type Acquired = Result<OwnedSemaphorePermit, AcquireError>;

/// A place, or one's number in the queue for it, from the moment that it was asked for.
///
/// A guest that sends several requests reads their answers in that order, and each holds its place
/// until it is read. Were a later one given the only place first, the guest would wait for the
/// earlier one until its call's deadline.
pub(super) enum Queued {
    First(Acquired),
    Waiting(Pin<Box<dyn Future<Output = Acquired> + Send>>),
}

impl Queued {
    pub(super) fn new(places: &Arc<Semaphore>) -> Self {
        let mut acquire = Box::pin(Arc::clone(places).acquire_owned());
        // The semaphore serves waiting requests in the order in which they arrived.
        match acquire
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(acquired) => Self::First(acquired),
            Poll::Pending => Self::Waiting(acquire),
        }
    }

    pub(super) async fn turn(self) -> Acquired {
        match self {
            Self::First(acquired) => acquired,
            Self::Waiting(acquire) => acquire.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_asked_first_is_served_first_whoever_waits_first() {
        let places = Arc::new(Semaphore::new(1));
        let (first, second, third) = (
            Queued::new(&places),
            Queued::new(&places),
            Queued::new(&places),
        );
        let held = first.turn().await.unwrap();
        let mut third = Box::pin(third.turn());
        assert!(
            third
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        drop(held);
        assert!(
            third
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending(),
            "it is the second's turn"
        );
        drop(second.turn().await.unwrap());
        drop(third.await.unwrap());
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test]
    async fn who_leaves_the_queue_keeps_nobody_waiting() {
        let places = Arc::new(Semaphore::new(1));
        let (first, second, third) = (
            Queued::new(&places),
            Queued::new(&places),
            Queued::new(&places),
        );
        drop(second);
        drop(first);
        drop(third.turn().await.unwrap());
        assert_eq!(places.available_permits(), 1);
    }
}
