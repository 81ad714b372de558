//! Conveniences on the contract's values.

use crate::{EmitError, Error, Failure, FailureKind, Outcome};

impl Default for Outcome {
    /// Success: no failures, commit everything.
    fn default() -> Self {
        Self {
            failures: Vec::new(),
            commit: crate::Commit::All,
            retry_after_ms: None,
        }
    }
}

impl Outcome {
    /// Marks one record as failed for ever. Call with rising indexes.
    pub fn reject(&mut self, index: usize, message: impl Into<String>) {
        self.fail(index, FailureKind::Reject, message.into());
    }

    /// Marks one record as failed for now, to be delivered again. Call with rising indexes.
    pub fn retry(&mut self, index: usize, message: impl Into<String>) {
        self.fail(index, FailureKind::Retry, message.into());
    }

    fn fail(&mut self, index: usize, kind: FailureKind, message: String) {
        // An index beyond u32 is beyond any batch, and the host refuses it as such.
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.failures.push(Failure {
            index,
            kind,
            message,
        });
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::Other(message)
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Self {
        Self::Other(message.to_owned())
    }
}

impl From<EmitError> for Error {
    fn from(error: EmitError) -> Self {
        match error {
            EmitError::UnknownDestination(known) => Self::Misconfigured(format!(
                "emitted to a destination that is not configured; known: {known}"
            )),
            EmitError::TooMuch(limit) => {
                Self::Other(format!("emitted too much in one call: {limit}"))
            }
            EmitError::Other(message) => Self::Other(message),
        }
    }
}
