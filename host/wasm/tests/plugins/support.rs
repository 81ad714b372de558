//! What these tests share: a runtime with tight limits, instances, batches.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs, reason = "each test uses a part of it")]

#[path = "../../../../tests/harness/guests.rs"]
pub mod guests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::{GuestLimits, PluginGrants, PluginName, ProcessorError};
use shardmill_core::ports::{InstanceContext, ProcessorFactory, RecordProcessor};
use shardmill_core::stream::{Batch, Position, Record, SequenceNumber, ShardId, StreamName};
use shardmill_wasm::{Plugin, Runtime, RuntimeOptions};

pub use guests::guest;

pub const DEADLINE: Duration = Duration::from_millis(300);

/// Deadlines that a test can wait for; everything else as in production.
pub fn tight_limits() -> GuestLimits {
    GuestLimits { process_deadline: DEADLINE, init_deadline: DEADLINE, ..GuestLimits::default() }
}

pub fn runtime(limits: GuestLimits) -> Runtime {
    Runtime::new(RuntimeOptions { limits, ..RuntimeOptions::default() }).unwrap()
}

pub fn name(text: &str) -> PluginName {
    PluginName::new(text).unwrap()
}

pub async fn plugin(runtime: &Runtime, guest_name: &str) -> Plugin {
    runtime.load(name(guest_name), guest(guest_name).into()).await.unwrap()
}

pub fn context(config: &[(&str, &str)]) -> Arc<InstanceContext> {
    Arc::new(InstanceContext {
        plugin: name("plugin-under-test"),
        application: "application".to_owned(),
        stream: StreamName::new("stream").unwrap(),
        shard: ShardId::new("shardId-000000000000").unwrap(),
        worker: WorkerId::new("worker").unwrap(),
        epoch: LeaseCounter(7),
        destinations: vec!["stdout".to_owned()],
        limits: None,
        grants: Arc::default(),
        config: config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
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
    let records = (0..records).map(|n| record(n, format!("data-{n}"))).collect();
    Batch { records: Arc::new(records), attempt: 1, millis_behind_latest: 0 }
}

pub async fn instance(plugin: &Plugin, config: &[(&str, &str)]) -> Result<Box<dyn RecordProcessor>, ProcessorError> {
    plugin.instantiate(context(config), None).await
}

/// An instance of the guest that asks for what can be granted.
pub async fn asking(
    runtime: &Runtime,
    grants: PluginGrants,
    config: &[(&str, &str)],
) -> Result<Box<dyn RecordProcessor>, ProcessorError> {
    let context = InstanceContext { grants: Arc::new(grants), ..InstanceContext::clone(&context(config)) };
    plugin(runtime, "asking").await.instantiate(Arc::new(context), None).await
}

/// Records that say what to ask for.
pub fn batch_of(questions: &[String]) -> Batch {
    let records = questions.iter().enumerate().map(|(n, question)| record(n, question.clone())).collect();
    Batch { records: Arc::new(records), attempt: 1, millis_behind_latest: 0 }
}

/// What the guest emits for each question.
pub async fn ask_all(processor: &mut dyn RecordProcessor, questions: &[String]) -> Result<Vec<String>, ProcessorError> {
    let processed = processor.process(batch_of(questions)).await?;
    Ok(processed.emitted.iter().map(|piece| String::from_utf8(piece.data.to_vec()).unwrap()).collect())
}

pub async fn ask(processor: &mut dyn RecordProcessor, question: &str) -> Result<String, ProcessorError> {
    Ok(ask_all(processor, &[question.to_owned()]).await?.remove(0))
}

/// A component that fits the contract and never gets through its start function.
pub fn looping_at_start() -> Vec<u8> {
    starting_with("(func $start (loop br 0)) (start $start)")
}

/// A component that fits the contract, with these fields in its module.
pub fn starting_with(fields: &str) -> Vec<u8> {
    wat::parse_str(CONTRACT_IN_TEXT.replace("(;start;)", fields)).unwrap()
}

/// The contract's export, by hand: what the host compares types with. Its functions are never reached.
pub const CONTRACT_IN_TEXT: &str = r#"
(component
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
    (func (export "init") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32) unreachable)
    (func (export "process") (param i32 i32 i32 i64) (result i32) unreachable)
    (func (export "close") (param i32 i32 i32) (result i32) unreachable)
    (;start;)
  )
  (core instance $i (instantiate $m))
  (type $types (instance
    (type $context' (record (field "plugin" string) (field "application" string) (field "stream" string)
      (field "shard" string) (field "worker" string) (field "grant-epoch" u64)))
    (export "context" (type $context (eq $context')))
    (type $record' (record (field "data" (list u8)) (field "partition-key" string)
      (field "explicit-hash-key" (option string)) (field "sequence-number" string)
      (field "sub-sequence-number" u64) (field "arrival-ms" u64)))
    (export "record" (type $record (eq $record')))
    (type $batch' (record (field "records" (list $record)) (field "attempt" u32) (field "millis-behind-latest" u64)))
    (export "batch" (type $batch (eq $batch')))
    (type $failure-kind' (enum "retry" "reject"))
    (export "failure-kind" (type $failure-kind (eq $failure-kind')))
    (type $failure' (record (field "index" u32) (field "kind" $failure-kind) (field "message" string)))
    (export "failure" (type $failure (eq $failure')))
    (type $commit' (variant (case "all") (case "nothing") (case "through" u32)))
    (export "commit" (type $commit (eq $commit')))
    (type $outcome' (record (field "failures" (list $failure)) (field "commit" $commit)
      (field "retry-after-ms" (option u64))))
    (export "outcome" (type $outcome (eq $outcome')))
    (type $error' (variant (case "misconfigured" string) (case "unavailable" string) (case "other" string)))
    (export "error" (type $error (eq $error')))
    (type $close-reason' (variant (case "lease-lost") (case "shard-ended") (case "shutdown") (case "reload")
      (case "other" string)))
    (export "close-reason" (type $close-reason (eq $close-reason')))
  ))
  (import "shardmill:processor/types@0.1.0" (instance $t (type $types)))
  (alias export $t "context" (type $context))
  (alias export $t "batch" (type $batch))
  (alias export $t "outcome" (type $outcome))
  (alias export $t "error" (type $error))
  (alias export $t "close-reason" (type $close-reason))
  (func $init (param "context" $context) (result (result (error $error)))
    (canon lift (core func $i "init") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (func $process (param "batch" $batch) (result (result $outcome (error $error)))
    (canon lift (core func $i "process") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (func $close (param "reason" $close-reason) (result (result (error $error)))
    (canon lift (core func $i "close") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (instance $p (export "init" (func $init)) (export "process" (func $process)) (export "close" (func $close)))
  (export "shardmill:processor/processor@0.1.0" (instance $p))
)
"#;
