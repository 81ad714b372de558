//! Between core's values and the contract's. What goes in is borrowed: a record's bytes are copied
//! once, into the guest. What comes out is from untrusted code, and is checked here and nowhere
//! else.

use std::time::Duration;

use shardmill_core::pipeline::check_outcome;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{
    CloseReason, Commit, FailureKind, InstanceContext, Outcome, RecordFailure,
};
use shardmill_core::stream::{Batch, Record};
use shardmill_layout as layout;

use super::failure::MESSAGE_BYTES_MAX;
use crate::bindings::shardmill::processor::types as wit;
use crate::output::UnknownDestination;
use crate::secrets::redactor::Redactor;
use crate::text::clean;

pub(crate) fn wit_context(context: &InstanceContext) -> wit::ContextParam<'_> {
    wit::ContextParam {
        plugin: context.plugin.as_str(),
        application: &context.application,
        stream: context.stream.as_str(),
        shard: context.shard.as_str(),
        worker: context.worker.as_str(),
        grant_epoch: context.epoch.0,
    }
}

/// The records in the contract's shape, to be borrowed by a batch.
pub(crate) fn wit_records(batch: &Batch) -> Vec<wit::Record<'_>> {
    batch.records.iter().map(wit_record).collect()
}

fn wit_record(record: &Record) -> wit::Record<'_> {
    wit::Record {
        data: &record.data,
        partition_key: &record.partition_key,
        explicit_hash_key: record.explicit_hash_key.as_deref(),
        sequence_number: record.position.sequence.as_str(),
        sub_sequence_number: record.position.sub_sequence,
        arrival_ms: record.arrival_ms,
    }
}

pub(crate) fn wit_batch<'a>(batch: &Batch, records: &'a [wit::Record<'a>]) -> wit::Batch<'a> {
    wit::Batch {
        records,
        attempt: batch.attempt,
        millis_behind_latest: batch.millis_behind_latest,
    }
}

pub(crate) fn wit_reason(reason: CloseReason) -> wit::CloseReason<'static> {
    match reason {
        CloseReason::LeaseLost => wit::CloseReason::LeaseLost,
        CloseReason::ShardEnded => wit::CloseReason::ShardEnded,
        CloseReason::Shutdown => wit::CloseReason::Shutdown,
        CloseReason::Reload => wit::CloseReason::Reload,
    }
}

/// The batch in one frame, for a component that exports `bulk`.
pub(crate) fn frame_of(batch: &Batch) -> Result<Vec<u8>, ProcessorError> {
    let records = batch.records.iter().map(|record| layout::Record {
        data: &record.data,
        partition_key: &record.partition_key,
        explicit_hash_key: record.explicit_hash_key.as_deref(),
        sequence_number: record.position.sequence.as_str(),
        sub_sequence_number: record.position.sub_sequence,
        arrival_ms: record.arrival_ms,
    });
    let frame = layout::write_batch(records, batch.attempt, batch.millis_behind_latest);
    frame.map_err(|problem| ProcessorError::Host {
        message: format!("a record of the batch is {problem}"),
    })
}

/// An outcome that came in lists, in the form that both have here.
pub(crate) fn outcome_of_lists(outcome: &wit::Outcome) -> layout::Outcome<'_> {
    let failures = outcome.failures.iter().map(|failure| layout::Failure {
        index: failure.index,
        kind: match failure.kind {
            wit::FailureKind::Retry => layout::FailureKind::Retry,
            wit::FailureKind::Reject => layout::FailureKind::Reject,
        },
        message: &failure.message,
    });
    layout::Outcome {
        failures: failures.collect(),
        commit: match outcome.commit {
            wit::Commit::All => layout::Commit::All,
            wit::Commit::Nothing => layout::Commit::Nothing,
            wit::Commit::Through(index) => layout::Commit::Through(index),
        },
        retry_after_ms: outcome.retry_after_ms,
    }
}

/// An outcome that came in one frame.
pub(crate) fn outcome_of_frame(
    frame: &[u8],
    records: usize,
) -> Result<layout::Outcome<'_>, ProcessorError> {
    layout::Outcome::read_of(frame, records).map_err(|problem| ProcessorError::InvalidOutcome {
        message: format!("its frame {problem}"),
    })
}

/// Checks an outcome against the batch that it is about, before anything of it is copied.
/// `unknown` is set if the call emitted to a destination that does not exist.
pub(crate) fn checked(
    outcome: &layout::Outcome<'_>,
    records: usize,
    redactor: &Redactor,
    unknown: Option<&UnknownDestination>,
) -> Result<Outcome, ProcessorError> {
    let commit = match outcome.commit {
        layout::Commit::All => None,
        layout::Commit::Nothing => Some(Commit::Nothing),
        layout::Commit::Through(index) => Some(Commit::Through(index)),
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
    failure: &layout::Failure<'_>,
    redactor: &Redactor,
    unknown: Option<&UnknownDestination>,
) -> RecordFailure {
    let message = redactor.shown(failure.message, MESSAGE_BYTES_MAX);
    let (kind, message) = match (failure.kind, unknown) {
        (layout::FailureKind::Reject, _) => (FailureKind::Reject, message),
        (layout::FailureKind::Retry, None) => (FailureKind::Retry, message),
        // Most likely what the plugin made of that answer; a record must not be given up for a name
        // in a file.
        (layout::FailureKind::Retry, Some(unknown)) => (
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
