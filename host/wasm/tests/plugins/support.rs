//! What these tests share: a runtime with tight limits, instances, batches.

#![allow(
    clippy::unwrap_used,
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    reason = "each test uses a part of it"
)]

#[path = "../../../../tests/harness/corpus.rs"]
pub mod corpus;
#[path = "../../../../tests/harness/guests.rs"]
pub mod guests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::{GuestLimits, Permissions, PluginName, ProcessorError};
use shardmill_core::ports::{InstanceContext, ProcessorFactory, RecordProcessor, StartPosition};
use shardmill_core::stream::{Batch, Position, Record, SequenceNumber, ShardId, StreamName};
use shardmill_wasm::{Plugin, Runtime, RuntimeOptions};

pub use guests::guest;

pub const DEADLINE: Duration = Duration::from_millis(300);

/// Deadlines that a test can wait for; everything else as in production.
pub fn tight_limits() -> GuestLimits {
    GuestLimits {
        process_deadline: DEADLINE,
        init_deadline: DEADLINE,
        ..GuestLimits::default()
    }
}

pub fn runtime(limits: GuestLimits) -> Runtime {
    Runtime::new(RuntimeOptions {
        limits,
        ..RuntimeOptions::default()
    })
    .unwrap()
}

pub fn name(text: &str) -> PluginName {
    PluginName::new(text).unwrap()
}

pub async fn plugin(runtime: &Runtime, guest_name: &str) -> Plugin {
    runtime
        .load(name(guest_name), guest(guest_name).into())
        .await
        .unwrap()
}

pub fn context(config: &[(&str, &str)]) -> Arc<InstanceContext> {
    Arc::new(InstanceContext {
        start: StartPosition::default(),
        plugin: name("plugin-under-test"),
        application: "application".to_owned(),
        stream: StreamName::new("stream").unwrap(),
        shard: ShardId::new("shardId-000000000000").unwrap(),
        worker: WorkerId::new("worker").unwrap(),
        epoch: LeaseCounter(7),
        destinations: vec!["stdout".to_owned()],
        limits: None,
        permissions: Arc::default(),
        config: config
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    })
}

pub fn record(sequence: usize, data: impl Into<Bytes>) -> Record {
    Record {
        data: data.into(),
        partition_key: format!("key-{sequence}"),
        explicit_hash_key: None,
        position: Position::plain(SequenceNumber::parse(&sequence.to_string()).unwrap()),
        arrival_ms: 1,
    }
}

pub fn batch(records: usize) -> Batch {
    let records = (0..records)
        .map(|n| record(n, format!("data-{n}")))
        .collect();
    Batch {
        records: Arc::new(records),
        attempt: 1,
        millis_behind_latest: 0,
        trace: None,
    }
}

pub async fn instance(
    plugin: &Plugin,
    config: &[(&str, &str)],
) -> Result<Box<dyn RecordProcessor>, ProcessorError> {
    plugin.instantiate(context(config), None).await
}

/// An instance of the guest that asks for what can be granted.
pub async fn asking(
    runtime: &Runtime,
    permissions: Permissions,
    config: &[(&str, &str)],
) -> Result<Box<dyn RecordProcessor>, ProcessorError> {
    let context = InstanceContext {
        permissions: Arc::new(permissions),
        ..InstanceContext::clone(&context(config))
    };
    plugin(runtime, "asking")
        .await
        .instantiate(Arc::new(context), None)
        .await
}

/// Records that say what to ask for.
pub fn batch_of(questions: &[String]) -> Batch {
    let records = questions
        .iter()
        .enumerate()
        .map(|(n, question)| record(n, question.clone()))
        .collect();
    Batch {
        records: Arc::new(records),
        attempt: 1,
        millis_behind_latest: 0,
        trace: None,
    }
}

/// What the guest emits for each question.
pub async fn ask_all(
    processor: &mut dyn RecordProcessor,
    questions: &[String],
) -> Result<Vec<String>, ProcessorError> {
    let processed = processor.process(batch_of(questions)).await?;
    Ok(processed
        .emitted
        .iter()
        .map(|piece| String::from_utf8(piece.data.to_vec()).unwrap())
        .collect())
}

pub async fn ask(
    processor: &mut dyn RecordProcessor,
    question: &str,
) -> Result<String, ProcessorError> {
    Ok(ask_all(processor, &[question.to_owned()]).await?.remove(0))
}
