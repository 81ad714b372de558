//! From the guest's outcome to core's. It comes from untrusted code, and is checked here and nowhere
//! else.

use std::time::Duration;

use shardmill_core::pipeline::check_outcome;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Commit, FailureKind, Outcome, RecordFailure};

use super::failure::MESSAGE_BYTES_MAX;
use crate::bindings::shardmill::processor::types as wit;
use crate::output::UnknownDestination;
use crate::secrets::redactor::Redactor;
use crate::text::clean;

/// Checks an outcome against the batch that it is about, before anything of it is copied.
/// `unknown` is set if the call emitted to a destination that does not exist.
pub(crate) fn checked(
    outcome: &wit::Outcome,
    records: usize,
    redactor: &Redactor,
    unknown: Option<&UnknownDestination>,
) -> Result<Outcome, ProcessorError> {
    let commit = match outcome.commit {
        wit::Commit::All => None,
        wit::Commit::Nothing => Some(Commit::Nothing),
        wit::Commit::Through(index) => Some(Commit::Through(index)),
    };
    check_outcome(
        records,
        outcome.failures.iter().map(|failure| failure.index),
        commit,
    )?;
    let retry_after = outcome.retry_after_ms.map(Duration::from_millis);
    let failures = outcome
        .failures
        .iter()
        .map(|one| failure(one, redactor, unknown))
        .collect();
    Ok(Outcome {
        failures,
        commit,
        retry_after,
    })
}

fn failure(
    failure: &wit::Failure,
    redactor: &Redactor,
    unknown: Option<&UnknownDestination>,
) -> RecordFailure {
    let message = redactor.shown(&failure.message, MESSAGE_BYTES_MAX);
    let (kind, message) = match (failure.kind, unknown) {
        (wit::FailureKind::Reject, _) => (FailureKind::Reject, message),
        (wit::FailureKind::Retry, None) => (FailureKind::Retry, message),
        // Most likely what the plugin made of that answer; a record must not be given up for a name
        // in a file.
        (wit::FailureKind::Retry, Some(unknown)) => (
            FailureKind::Misconfigured,
            clean(&unknown.explains(&message), MESSAGE_BYTES_MAX),
        ),
    };
    RecordFailure {
        index: failure.index,
        kind,
        message,
    }
}
