//! Calls of `process`, as they come from the host: in one frame of bytes from a host that knows
//! `bulk`, in lists from another one.

use shardmill_layout as layout;

use crate::bindings::shardmill::processor::types as lists;
use crate::{Batch, Commit, Error, FailureKind, Outcome, Record, emit};

/// A batch whose records are borrowed from the lists that it came in.
pub fn of_lists(batch: &lists::Batch) -> Batch<'_> {
    Batch {
        records: batch.records.iter().map(record).collect(),
        attempt: batch.attempt,
        millis_behind_latest: batch.millis_behind_latest,
    }
}

fn record(record: &lists::Record) -> Record<'_> {
    Record {
        data: &record.data,
        partition_key: &record.partition_key,
        explicit_hash_key: record.explicit_hash_key.as_deref(),
        sequence_number: &record.sequence_number,
        sub_sequence_number: record.sub_sequence_number,
        arrival_ms: record.arrival_ms,
    }
}

/// One call with a batch in a frame. What it emits is collected, and has reached the host when
/// this returns.
pub fn in_one_frame(
    frame: &[u8],
    process: impl FnOnce(Batch<'_>) -> Result<Outcome, Error>,
) -> Result<Vec<u8>, Error> {
    let batch = Batch::read(frame)
        .map_err(|problem| Error::Other(format!("the batch that the host gave {problem}")))?;
    let outcome = collected(|| process(batch))?;
    in_frame(&outcome)
}

/// A call whose output is collected, and has reached the host when this returns.
pub fn collected<T>(call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    emit::collect();
    let result = call();
    // After an error the host drops what was emitted.
    let emitted = emit::hand_over();
    let result = result?;
    emitted?;
    Ok(result)
}

fn in_frame(outcome: &Outcome) -> Result<Vec<u8>, Error> {
    let failures = outcome.failures.iter().map(|failure| layout::Failure {
        index: failure.index,
        kind: match failure.kind {
            FailureKind::Retry => layout::FailureKind::Retry,
            FailureKind::Reject => layout::FailureKind::Reject,
        },
        message: &failure.message,
    });
    let outcome = layout::Outcome {
        failures: failures.collect(),
        commit: match outcome.commit {
            Commit::All => layout::Commit::All,
            Commit::Nothing => layout::Commit::Nothing,
            Commit::Through(index) => layout::Commit::Through(index),
        },
        retry_after_ms: outcome.retry_after_ms,
    };
    outcome
        .write()
        .map_err(|problem| Error::Other(format!("the outcome is {problem}")))
}
