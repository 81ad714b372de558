//! How often a record allocates on its way from Kinesis through a component, checkpoint included.
//! In a program of its own, since the count is of the whole process; the stack is another one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::System;
use std::sync::Arc;

use bytes::Bytes;
use harness::guests::guest;
use harness::rig::{Rig, options, unlimited};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::ProcessorFactory;
use shardmill_wasm::{Runtime, RuntimeOptions};
use shardmill_worker::Retrieval;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The difference between two streams leaves out the start of the host.
const FEW: u64 = 5_000;
const MANY: u64 = 25_000;
const REPLY_RECORDS: u32 = 5_000;
/// Its partition key; the rest is for replies, batches and checkpoints, and for the heartbeats of a
/// run that takes longer. One more for each record would be 2.
const OF_A_RECORD_MAX: f64 = 1.5;

#[tokio::test(flavor = "multi_thread")]
async fn a_record_allocates_once_between_the_wire_and_the_checkpoint() {
    let rig = Rig::start().await;
    let engine = Runtime::new(RuntimeOptions::default()).unwrap();
    let name = PluginName::new("noop").unwrap();
    let plugin = engine.load(name, Bytes::from(guest("noop"))).await;
    let plugin: Arc<dyn ProcessorFactory> = Arc::new(plugin.unwrap());
    let few = allocations(&rig, &plugin, "few", FEW).await;
    let many = allocations(&rig, &plugin, "many", MANY).await;
    let of_a_record = many.saturating_sub(few) as f64 / (MANY - FEW) as f64;
    eprintln!("{of_a_record:.3} allocations a record");
    assert!(
        of_a_record > 0.5,
        "{of_a_record}: the key is one, so this does not count"
    );
    assert!(of_a_record <= OF_A_RECORD_MAX, "{of_a_record}");
}

async fn allocations(
    rig: &Rig,
    plugin: &Arc<dyn ProcessorFactory>,
    name: &str,
    records: u64,
) -> usize {
    let stream = rig.stream(name, 1).await;
    rig.fill(&stream, records, 100).await;
    let options = options(&stream, name, unlimited(REPLY_RECORDS), Retrieval::Polling);
    let counted = Region::new(ALLOCATOR);
    rig.work_off(options, plugin, records).await;
    let change = counted.change();
    change.allocations + change.reallocations
}
