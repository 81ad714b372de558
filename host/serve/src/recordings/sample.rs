//! Recordings for tests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::{Permissions, PluginDigest, PluginName};
use shardmill_core::ports::{InstanceContext, StartPosition};
use shardmill_core::recording::{FailureRecord, Recording};
use shardmill_core::stream::{Batch, Position, Record, SequenceNumber, ShardId, StreamName};

/// An application that nobody would name so who means well.
pub(super) const HOSTILE_NAME: &str = "orders\u{1b}]0;owned\u{7}/../..";

/// A recording of a batch with one record.
pub(super) fn recording(shard: &str, sequence: u64, attempt: u32) -> Recording {
    Recording {
        context: Arc::new(context(shard)),
        secrets: Vec::new(),
        digest: PluginDigest::from_hex(&"ab".repeat(32)).unwrap(),
        state: None,
        is_state_missing: false,
        run_up: Vec::new(),
        missing_batches: 0,
        batch: Batch {
            records: Arc::new(vec![record(sequence)]),
            attempt,
            millis_behind_latest: 0,
            trace: None,
        },
        failure: FailureRecord {
            code: "trapped".to_owned(),
            message: "unreachable".to_owned(),
            records: Vec::new(),
        },
        took: Duration::ZERO,
        at_ms: sequence,
    }
}

fn record(sequence: u64) -> Record {
    Record {
        data: Bytes::from_static(b"x"),
        partition_key: "\u{1b}[31m\n".to_owned(),
        explicit_hash_key: None,
        position: Position::plain(SequenceNumber::parse(&sequence.to_string()).unwrap()),
        arrival_ms: 9,
    }
}

fn context(shard: &str) -> InstanceContext {
    InstanceContext {
        plugin: PluginName::new("orders").unwrap(),
        application: HOSTILE_NAME.to_owned(),
        stream: StreamName::new("s").unwrap(),
        shard: ShardId::new(shard).unwrap(),
        worker: WorkerId::new("host-1").unwrap(),
        epoch: LeaseCounter(1),
        start: StartPosition::Oldest,
        destinations: Vec::new(),
        config: Vec::new(),
        limits: None,
        permissions: Arc::new(Permissions::default()),
    }
}
