//! The body of a response on its way to the guest, within its limits.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use wasmtime_wasi_http::Error;

use super::meaning::{meaning, outcome_of};
use super::tally::Tally;

/// Bytes that are given at once, copied from what was read of the connection: a guest may read one
/// of them and keep the rest.
pub(crate) const PIECE_BYTES_MAX: usize = 16 << 10;

/// Gives what comes until a limit is reached, the call ends, or all was given; lets go of the
/// connection then.
pub(super) struct ResponseBody {
    slot: Arc<Mutex<Slot>>,
}

/// Shared with the call, which ends what it holds. Locked for no longer than one poll takes.
enum Slot {
    Open(Box<Open>),
    Done,
    /// The call ended first.
    Cut,
}

/// The responses of one call that are not read to their end. A guest may keep them for as long as
/// it lives; what they hold must not live as long.
#[derive(Default)]
pub(super) struct CallBodies(Mutex<Bodies>);

#[derive(Default)]
struct Bodies {
    is_closed: bool,
    open: Vec<Weak<Mutex<Slot>>>,
}

/// A body that goes on.
struct Open {
    body: reqwest::Body,
    /// What was read and not given yet.
    read: Bytes,
    bytes_left: usize,
    bytes_max: usize,
    between_bytes: Duration,
    silent_until: Pin<Box<Sleep>>,
    deadline: Pin<Box<Sleep>>,
    call_ended: Pin<Box<WaitForCancellationFutureOwned>>,
    tally: Tally,
    /// Of the instance, the plugin and the host.
    _permits: [OwnedSemaphorePermit; 3],
}

/// What a body is held to.
pub(super) struct Bounds {
    pub(super) bytes_max: usize,
    pub(super) between_bytes: Duration,
    pub(super) deadline: Instant,
    pub(super) call: CancellationToken,
}

impl CallBodies {
    fn add(&self, slot: &Arc<Mutex<Slot>>) {
        let mut bodies = locked(&self.0);
        if bodies.is_closed {
            *locked(slot) = Slot::Cut;
            return;
        }
        // So it never holds more than the requests of one call.
        bodies.open.retain(|slot| slot.strong_count() > 0);
        bodies.open.push(Arc::downgrade(slot));
    }

    /// Lets go of all of them, and of whatever comes later.
    pub(super) fn close(&self) {
        let open = {
            let mut bodies = locked(&self.0);
            bodies.is_closed = true;
            std::mem::take(&mut bodies.open)
        };
        for slot in open.iter().filter_map(Weak::upgrade) {
            let mut slot = locked(&slot);
            if matches!(*slot, Slot::Open(_)) {
                *slot = Slot::Cut;
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ResponseBody {
    pub(super) fn new(
        body: reqwest::Body,
        bounds: Bounds,
        tally: Tally,
        permits: [OwnedSemaphorePermit; 3],
        call: &CallBodies,
    ) -> Self {
        if body.is_end_stream() {
            return Self {
                slot: Arc::new(Mutex::new(Slot::Done)),
            };
        }
        let Bounds {
            bytes_max,
            between_bytes,
            deadline,
            call: call_end,
        } = bounds;
        let open = Open {
            body,
            read: Bytes::new(),
            bytes_left: bytes_max,
            bytes_max,
            between_bytes,
            silent_until: Box::pin(tokio::time::sleep(between_bytes)),
            deadline: Box::pin(tokio::time::sleep_until(deadline)),
            call_ended: Box::pin(call_end.cancelled_owned()),
            tally,
            _permits: permits,
        };
        let slot = Arc::new(Mutex::new(Slot::Open(Box::new(open))));
        call.add(&slot);
        Self { slot }
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, Error>>>;

impl Open {
    fn poll(&mut self, context: &mut Context<'_>) -> Polled {
        if self.call_ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(Error::ConnectionTerminated)));
        }
        if self.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(Error::HttpResponseTimeout)));
        }
        if !self.read.is_empty() {
            return Poll::Ready(Some(Ok(self.next_piece())));
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(self.take(frame))),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(meaning(&error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending if self.silent_until.as_mut().poll(context).is_ready() => {
                Poll::Ready(Some(Err(Error::ConnectionReadTimeout)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn take(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Error> {
        let silent_until = Instant::now() + self.between_bytes;
        self.silent_until.as_mut().reset(silent_until);
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(left) = self.bytes_left.checked_sub(bytes) else {
            let most = self.bytes_max as u64;
            return Err(Error::HttpResponseBodySize(Some(most)));
        };
        self.bytes_left = left;
        match frame.into_data() {
            Ok(data) => {
                self.read = data;
                Ok(self.next_piece())
            }
            Err(trailers) => Ok(trailers),
        }
    }

    fn next_piece(&mut self) -> Frame<Bytes> {
        let piece = self.read.split_to(self.read.len().min(PIECE_BYTES_MAX));
        Frame::data(Bytes::copy_from_slice(&piece))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let mut slot = locked(&self.slot);
        let open = match &mut *slot {
            Slot::Open(open) => open,
            Slot::Done => return Poll::Ready(None),
            Slot::Cut => return Poll::Ready(Some(Err(Error::ConnectionTerminated))),
        };
        let polled = open.poll(context);
        match &polled {
            Poll::Ready(Some(Err(error))) => open.tally.note(outcome_of(error)),
            Poll::Ready(None) => {}
            Poll::Ready(Some(Ok(_))) | Poll::Pending => return polled,
        }
        *slot = Slot::Done;
        polled
    }

    fn is_end_stream(&self) -> bool {
        matches!(*locked(&self.slot), Slot::Done)
    }
}
