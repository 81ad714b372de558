//! Stops all tasks of a host at once, as SIGSTOP does, while the clocks go on: the seam that lets a
//! simulator pause one host among several in a process. In production it is absent and costs
//! nothing.

use std::pin::Pin;

use tokio::sync::watch;
use tokio_util::either::Either;

/// Guards the futures of one host. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Freezer(Option<watch::Receiver<bool>>);

impl Freezer {
    /// A freezer that never stops anything, as in production.
    pub fn never() -> Self {
        Self(None)
    }

    /// Stops everything while `is_frozen` holds true.
    pub fn by(is_frozen: watch::Receiver<bool>) -> Self {
        Self(Some(is_frozen))
    }

    /// Runs `future`, but never polls it while frozen.
    ///
    /// Not an `async fn`: that kept room for `future` three times, and a host has several of some
    /// 10 KiB for each shard.
    pub fn guard<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        match self.0 {
            None => Either::Left(future),
            Some(is_frozen) => Either::Right(unless_frozen(is_frozen, Box::pin(future))),
        }
    }
}

async fn unless_frozen<F: Future>(
    mut is_frozen: watch::Receiver<bool>,
    mut future: Pin<Box<F>>,
) -> F::Output {
    loop {
        while *is_frozen.borrow_and_update() {
            // The sender is gone: the host stays frozen, as a stopped process would.
            if is_frozen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        tokio::select! {
            biased;
            Ok(()) = is_frozen.changed() => {}
            output = &mut future => return output,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarded_task_takes_as_much_room_as_the_task_and_no_copy_of_it() {
        let task = async {
            let kept = [7_u8; 10_000];
            tokio::task::yield_now().await;
            kept.len()
        };
        let alone = size_of_val(&task);
        let guarded = size_of_val(&Freezer::never().guard(task));
        assert!(
            alone >= 10_000 && guarded < alone + 100,
            "{alone}, {guarded}"
        );
    }
}
