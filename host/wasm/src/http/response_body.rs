//! The body of a response on its way to the guest, within its limits.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use wasmtime_wasi_http::Error;

use super::exchange::{meaning, outcome_of};
use super::tally::Tally;

/// Gives what comes until a limit is reached, the call ends, or all was given; lets go of the connection then.
pub(super) struct ResponseBody {
    open: Option<Open>,
}

/// A body that goes on.
struct Open {
    body: reqwest::Body,
    bytes_left: usize,
    bytes_max: usize,
    between_bytes: Duration,
    silent_until: Pin<Box<Sleep>>,
    deadline: Pin<Box<Sleep>>,
    call_ended: Pin<Box<WaitForCancellationFutureOwned>>,
    tally: Tally,
    _permit: OwnedSemaphorePermit,
}

/// What a body is held to.
pub(super) struct Bounds {
    pub(super) bytes_max: usize,
    pub(super) between_bytes: Duration,
    pub(super) deadline: Instant,
    pub(super) call: CancellationToken,
}

impl ResponseBody {
    pub(super) fn new(body: reqwest::Body, bounds: Bounds, tally: Tally, permit: OwnedSemaphorePermit) -> Self {
        if body.is_end_stream() {
            return Self { open: None };
        }
        let Bounds { bytes_max, between_bytes, deadline, call } = bounds;
        let open = Open {
            body,
            bytes_left: bytes_max,
            bytes_max,
            between_bytes,
            silent_until: Box::pin(tokio::time::sleep(between_bytes)),
            deadline: Box::pin(tokio::time::sleep_until(deadline)),
            call_ended: Box::pin(call.cancelled_owned()),
            tally,
            _permit: permit,
        };
        Self { open: Some(open) }
    }
}

impl Open {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.call_ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(Error::ConnectionTerminated)));
        }
        if self.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(Error::HttpResponseTimeout)));
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.silent_until.as_mut().reset(Instant::now() + self.between_bytes);
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                match self.bytes_left.checked_sub(bytes) {
                    Some(left) => {
                        self.bytes_left = left;
                        Poll::Ready(Some(Ok(frame)))
                    }
                    None => Poll::Ready(Some(Err(Error::HttpResponseBodySize(Some(self.bytes_max as u64))))),
                }
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(meaning(&error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending if self.silent_until.as_mut().poll(context).is_ready() => {
                Poll::Ready(Some(Err(Error::ConnectionReadTimeout)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(open) = &mut self.open else { return Poll::Ready(None) };
        let polled = open.poll(context);
        match &polled {
            Poll::Ready(Some(Err(error))) => open.tally.tell(outcome_of(error)),
            Poll::Ready(None) => {}
            Poll::Ready(Some(Ok(_))) | Poll::Pending => return polled,
        }
        self.open = None;
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.open.is_none()
    }
}
