//! From the guest's outcome to core's, checking everything: it comes from untrusted code.

use std::time::Duration;

use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Commit, FailureKind, Outcome, RecordFailure};

use crate::bindings::shardmill::processor::types as wit;
use crate::failure::MESSAGE_BYTES_MAX;
use crate::host_functions::clean;
use crate::redactor::Redactor;

/// Longest wait that a guest may ask for. An hour is a long outage of what it depends on; more is a mistake in units.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// Checks an outcome against the batch that it is about.
pub(crate) fn checked(outcome: &wit::Outcome, records: usize, redactor: &Redactor) -> Result<Outcome, ProcessorError> {
    let invalid = |message: String| ProcessorError::InvalidOutcome { message };
    let mut next = 0;
    for failure in &outcome.failures {
        if failure.index as usize >= records {
            return Err(invalid(format!("failure index {} is beyond the batch of {records}", failure.index)));
        }
        if failure.index < next {
            return Err(invalid(format!("failure index {} does not rise", failure.index)));
        }
        next = failure.index + 1;
    }
    let commit = match outcome.commit {
        wit::Commit::All => None,
        wit::Commit::Nothing => Some(Commit::Nothing),
        wit::Commit::Through(index) if (index as usize) < records => Some(Commit::Through(index)),
        wit::Commit::Through(index) => {
            return Err(invalid(format!("commit index {index} is beyond the batch of {records}")));
        }
    };
    let retry_after = outcome.retry_after_ms.map(|ms| Duration::from_millis(ms).min(RETRY_AFTER_MAX));
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
        message: clean(&redactor.redact(&failure.message), MESSAGE_BYTES_MAX),
    }
}
