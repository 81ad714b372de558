//! Faults for the fakes: queued for the next calls of an operation, or drawn by a function for
//! every call.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_core::ports::StoreError;

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused for its rate; nothing is applied.
    Throttle,
    /// No answer, though a write is applied.
    UnknownApplied,
    /// No answer, and nothing is applied.
    UnknownNotApplied,
    /// Refused for good; nothing is applied.
    Refuse,
    /// The stream's key cannot be used (reads only; a store refuses).
    KeyUnusable,
    /// Stream or shard not known (reads only; a store refuses).
    NotFound,
    /// The iterator is too old (fetches only; anything else is unavailable).
    ExpiredIterator,
    /// Never answers; nothing is applied.
    Hang,
    /// Applied at once, and answered after so long (a table; anything else is unavailable).
    AnswersAfter(Duration),
}

type Source<Op> = Box<dyn FnMut(Op) -> Option<Fault> + Send>;

/// The faults that one fake has in store.
pub struct Faults<Op> {
    inner: Mutex<Inner<Op>>,
}

struct Inner<Op> {
    queue: VecDeque<(Op, Fault)>,
    source: Option<Source<Op>>,
}

impl<Op: Copy + PartialEq> Default for Faults<Op> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                queue: VecDeque::new(),
                source: None,
            }),
        }
    }
}

impl<Op: Copy + PartialEq> Faults<Op> {
    /// The next call of `op` that has no fault queued yet goes wrong.
    pub fn queue(&self, op: Op, fault: Fault) {
        self.lock().queue.push_back((op, fault));
    }

    /// Every call asks `source`, once its operation's queue is empty.
    pub fn draw_from(&self, source: impl FnMut(Op) -> Option<Fault> + Send + 'static) {
        self.lock().source = Some(Box::new(source));
    }

    /// Nothing goes wrong any more.
    pub fn clear(&self) {
        let mut inner = self.lock();
        inner.queue.clear();
        inner.source = None;
    }

    /// The fault for a call of `op`.
    pub fn next(&self, op: Op) -> Option<Fault> {
        let mut inner = self.lock();
        match inner.queue.iter().position(|(queued, _)| *queued == op) {
            Some(at) => inner.queue.remove(at).map(|(_, fault)| fault),
            None => inner.source.as_mut().and_then(|source| source(op)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<Op>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a table answers to a call of `op` that meets `fault`. `act` is what it does, unless the
/// fault forbids that.
pub(crate) async fn answer<T>(
    fault: Option<Fault>,
    op: impl Debug,
    act: impl FnOnce() -> T,
) -> Result<T, StoreError> {
    let message = || format!("fault on {op:?}");
    match fault {
        None => Ok(act()),
        Some(Fault::Throttle) => Err(StoreError::Throttled { message: message() }),
        Some(Fault::UnknownApplied) => {
            act();
            Err(StoreError::Unknown { message: message() })
        }
        Some(Fault::UnknownNotApplied | Fault::ExpiredIterator) => {
            Err(StoreError::Unknown { message: message() })
        }
        Some(Fault::Refuse | Fault::KeyUnusable | Fault::NotFound) => {
            Err(StoreError::Refused { message: message() })
        }
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::AnswersAfter(time)) => {
            let answer = act();
            tokio::time::sleep(time).await;
            Ok(answer)
        }
    }
}
