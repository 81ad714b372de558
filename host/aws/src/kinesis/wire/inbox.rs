//! Holds what a call decoded.

use std::sync::{Arc, Mutex, PoisonError};

use shardmill_wire::{PutResult, Reply};

/// What was decoded.
#[derive(Debug)]
pub(in crate::kinesis) enum Decoded {
    /// A reply of `GetRecords`, or an event.
    Reply(Reply),
    /// A reply of `PutRecords`.
    Puts(Vec<PutResult>),
}

/// Holds the newest reply or event; empty if the SDK decoded it.
#[derive(Debug, Clone, Default)]
pub(in crate::kinesis) struct Inbox {
    newest: Arc<Mutex<Option<Decoded>>>,
}

impl Inbox {
    pub(super) fn put(&self, decoded: Option<Decoded>) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = decoded;
    }

    pub(in crate::kinesis) fn take(&self) -> Option<Decoded> {
        self.newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
