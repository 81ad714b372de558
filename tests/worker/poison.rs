//! Plugins that fail on some records, and what came out of them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::fleet::{TestFleet, TestHost};
use harness::native::{Event, History, NativePlugin};
use shardmill_core::pipeline::{FailurePolicy, GiveUp};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{FailureKind, Processed, RecordFailure};
use shardmill_core::stream::{Emitted, Record, ShardId};
use shardmill_worker::ShardStatus;

/// How a record fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    /// The whole call traps.
    Traps,
    /// The whole call hangs until it is cut off.
    Hangs,
    /// The record is reported, worth another try.
    Retry,
    /// The record is reported, not worth another try.
    Reject,
}

/// The number that a record of [`TestFleet::put`] says.
pub(crate) fn number(record: &Record) -> u32 {
    std::str::from_utf8(&record.data).unwrap().parse().unwrap()
}

/// Emits each record, but fails on those of which `bad` says so, given how often they were
/// delivered before.
pub(crate) fn plugin(
    version: u64,
    bad: impl Fn(&Record, u32) -> Option<Bad> + Send + Sync + 'static,
) -> NativePlugin {
    let seen: Mutex<HashMap<(ShardId, u32), u32>> = Mutex::default();
    NativePlugin::new(version, move |shard, batch| {
        let mut seen = seen.lock().unwrap();
        let mut worst = Vec::new();
        for record in batch.records.iter() {
            let before = seen.entry((shard.clone(), number(record))).or_default();
            worst.push(bad(record, *before));
            *before += 1;
        }
        if worst.contains(&Some(Bad::Hangs)) {
            return Err(ProcessorError::DeadlineExceeded {
                call: "process",
                limit: Duration::from_secs(5),
            });
        }
        if worst.contains(&Some(Bad::Traps)) {
            return Err(ProcessorError::Trapped {
                message: "poison".to_owned(),
            });
        }
        let mut processed = Processed::default();
        for (index, (record, bad)) in batch.records.iter().zip(worst).enumerate() {
            match bad {
                None => processed.emitted.push(Emitted {
                    destination: "out".to_owned(),
                    key: record.partition_key.clone(),
                    data: record.data.clone(),
                }),
                Some(bad) => processed.outcome.failures.push(RecordFailure {
                    index: u32::try_from(index).unwrap(),
                    kind: if bad == Bad::Reject {
                        FailureKind::Reject
                    } else {
                        FailureKind::Retry
                    },
                    message: "reported by the test".to_owned(),
                }),
            }
        }
        Ok(processed)
    })
}

/// Isolate, try `attempts` times, then store in the sink `dead`.
pub(crate) fn dead_lettering(attempts: u32) -> FailurePolicy {
    FailurePolicy {
        attempts: Some(attempts),
        bisect: true,
        then: Some(GiveUp::DeadLetter("dead".to_owned())),
        ..FailurePolicy::default()
    }
}

/// Sizes of the batches delivered so far, whether handled or not.
pub(crate) fn deliveries(history: &History) -> Vec<usize> {
    let history = history.lock().unwrap();
    let size = |event: &Event| match event {
        Event::Delivered { positions, .. } => Some(positions.len()),
        Event::Init | Event::Ticked { .. } | Event::Closed(_) => None,
    };
    history
        .iter()
        .filter_map(|(_, _, event)| size(event))
        .collect()
}

/// Whether the output holds each of `numbers` once, in order within each shard.
pub(crate) fn came_out_once_and_in_order(
    fleet: &TestFleet,
    numbers: impl Iterator<Item = u32>,
) -> bool {
    let out: Vec<u32> = fleet
        .sink
        .lines()
        .iter()
        .map(|line| line.parse().unwrap())
        .collect();
    let mut sorted = out.clone();
    sorted.sort_unstable();
    let is_in_order = fleet.stream.shards().iter().all(|shard| {
        let of_shard: HashSet<u32> = fleet.stream.records(&shard.id).iter().map(number).collect();
        out.iter()
            .filter(|number| of_shard.contains(number))
            .is_sorted()
    });
    is_in_order && sorted == numbers.collect::<Vec<_>>()
}

/// The shard of a fleet that has one.
pub(crate) fn only_shard(fleet: &TestFleet) -> ShardId {
    fleet.stream.shards()[0].id.clone()
}

/// What a host says of a shard.
pub(crate) fn shard_status(host: &TestHost, shard: &ShardId) -> Option<ShardStatus> {
    host.status.snapshot().shards.get(shard.as_str()).cloned()
}

/// A flag to turn while hosts run.
pub(crate) fn flag() -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let flag = Arc::new(AtomicBool::new(false));
    (Arc::clone(&flag), flag)
}
