//! Dead letters in memory, with faults to order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::ports::{DeadLetter, DeadLetters, PortFuture, SinkError};

use crate::faults::{Fault, Faults};

/// The only operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store;

/// The fake.
#[derive(Default)]
pub struct FakeDeadLetters {
    /// What goes wrong with single calls.
    pub faults: Faults<Store>,
    /// While true, every call fails and stores nothing.
    pub is_broken: AtomicBool,
    refused: AtomicUsize,
    stored: Mutex<Vec<(String, DeadLetter)>>,
}

impl FakeDeadLetters {
    /// Everything stored so far, each with its target.
    pub fn stored(&self) -> Vec<(String, DeadLetter)> {
        self.stored
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The data of everything stored so far, as text.
    pub fn lines(&self) -> Vec<String> {
        self.stored()
            .iter()
            .map(|(_, letter)| String::from_utf8_lossy(&letter.record.data).into_owned())
            .collect()
    }

    /// Calls that failed.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    fn refuse(&self, target: &str) -> SinkError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        SinkError {
            sink: target.to_owned(),
            message: "broken by the test".to_owned(),
        }
    }
}

impl DeadLetters for FakeDeadLetters {
    fn store<'a>(
        &'a self,
        target: &'a str,
        letters: Arc<Vec<DeadLetter>>,
    ) -> PortFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.is_broken.load(Ordering::Relaxed) {
                return Err(self.refuse(target));
            }
            let fault = self.faults.next(Store);
            if fault == Some(Fault::Hang) {
                std::future::pending::<()>().await;
            }
            if fault.is_none() || fault == Some(Fault::UnknownApplied) {
                let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
                stored.extend(
                    letters
                        .iter()
                        .map(|letter| (target.to_owned(), letter.clone())),
                );
            }
            if fault.is_some() {
                Err(self.refuse(target))
            } else {
                Ok(())
            }
        })
    }
}
