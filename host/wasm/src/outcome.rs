//! From the guest's outcome to core's, checking everything: it comes from untrusted code.

use std::time::Duration;

use shardmill_core::pipeline::check_outcome;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Commit, FailureKind, Outcome, RecordFailure};

use crate::bindings::shardmill::processor::types as wit;
use crate::failure::MESSAGE_BYTES_MAX;
use crate::redactor::Redactor;

/// Checks an outcome against the batch that it is about, before anything of it is copied.
pub(crate) fn checked(outcome: &wit::Outcome, records: usize, redactor: &Redactor) -> Result<Outcome, ProcessorError> {
    let commit = match outcome.commit {
        wit::Commit::All => None,
        wit::Commit::Nothing => Some(Commit::Nothing),
        wit::Commit::Through(index) => Some(Commit::Through(index)),
    };
    check_outcome(records, outcome.failures.iter().map(|failure| failure.index), commit)?;
    let retry_after = outcome.retry_after_ms.map(Duration::from_millis);
    let failures = outcome.failures.iter().map(|one| failure(one, redactor)).collect();
    Ok(Outcome { failures, commit, retry_after })
}

fn failure(failure: &wit::Failure, redactor: &Redactor) -> RecordFailure {
    RecordFailure {
        index: failure.index,
        kind: match failure.kind {
            wit::FailureKind::Retry => FailureKind::Retry,
            wit::FailureKind::Reject => FailureKind::Reject,
        },
        message: redactor.shown(&failure.message, MESSAGE_BYTES_MAX),
    }
}
