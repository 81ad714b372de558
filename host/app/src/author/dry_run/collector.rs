//! Keeps a plugin's output, in memory and in order.

use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::ports::{DeadLetter, DeadLetters, Origin, PortFuture, Sink, SinkError};
use shardmill_core::stream::Emitted;

/// Output that is kept at most, in bytes: a dry run is for samples, and its output is compared in
/// memory.
const KEPT_BYTES_MAX: usize = 512 << 20;

/// The output of a plugin, and the records that were given up.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Its output, in the order in which it was stored.
    pub(crate) output: Vec<(Arc<Origin>, Emitted)>,
    /// Records that were given up.
    pub(crate) failed: Vec<DeadLetter>,
    bytes: usize,
}

/// Takes everything that any sink would.
#[derive(Debug, Default)]
pub(super) struct Collector {
    // Shards write to it in turn; never held across an await.
    kept: Mutex<Kept>,
}

impl Collector {
    /// All of it, once.
    pub(super) fn take(&self) -> Kept {
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Collector {
    fn write(
        &self,
        origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += emitted
            .iter()
            .map(|piece| piece.data.len() + piece.key.len())
            .sum::<usize>();
        if kept.bytes > KEPT_BYTES_MAX {
            let message = format!(
                "a test keeps at most {} MiB of output: use less input",
                KEPT_BYTES_MAX >> 20
            );
            return Box::pin(async {
                Err(SinkError {
                    sink: "test".to_owned(),
                    message,
                })
            });
        }
        kept.output.extend(
            emitted
                .iter()
                .map(|piece| (Arc::clone(&origin), piece.clone())),
        );
        Box::pin(async { Ok(()) })
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async { Ok(()) })
    }
}

impl DeadLetters for Collector {
    fn store<'a>(
        &'a self,
        _target: &'a str,
        letters: Arc<Vec<DeadLetter>>,
    ) -> PortFuture<'a, Result<(), SinkError>> {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .failed
            .extend(letters.iter().cloned());
        Box::pin(async { Ok(()) })
    }
}
