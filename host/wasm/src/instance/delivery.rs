//! From core's values to the contract's. Everything is borrowed: a record's bytes are copied once,
//! into the guest.

use shardmill_core::ports::{CloseReason, InstanceContext};
use shardmill_core::stream::{Batch, Record};

use crate::bindings::shardmill::processor::types as wit;

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
