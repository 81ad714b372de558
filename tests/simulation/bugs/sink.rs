//! Dead letters with a bug. (The bugs of sinks for outputs are in [`crate::sink`], which knows what
//! is stored.)

use std::sync::Arc;

use shardmill_core::ports::{DeadLetter, DeadLetters, PortFuture, SinkError};

use super::PortBug;

/// The decorator.
pub struct WrongDeadLetters {
    letters: Arc<dyn DeadLetters>,
    bug: PortBug,
}

impl WrongDeadLetters {
    /// `letters` with `bug`.
    pub fn new(letters: Arc<dyn DeadLetters>, bug: PortBug) -> Self {
        Self { letters, bug }
    }
}

impl DeadLetters for WrongDeadLetters {
    fn store<'a>(
        &'a self,
        sink: &'a str,
        letters: Arc<Vec<DeadLetter>>,
    ) -> PortFuture<'a, Result<(), SinkError>> {
        if self.bug != PortBug::LastLetterIsLost {
            return self.letters.store(sink, letters);
        }
        let kept = letters[..letters.len().saturating_sub(1)].to_vec();
        self.letters.store(sink, Arc::new(kept))
    }
}
