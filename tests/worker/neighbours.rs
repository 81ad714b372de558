//! A plugin that gets nowhere, beside one that works, on one host: each has its share of the host's
//! buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use harness::fake_lease_store::StoreOp;
use harness::fake_stream::ReadOp;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::lease::Checkpoint;
use shardmill_core::pipeline::{FailurePolicy, GiveUp};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::Processed;
use shardmill_core::stream::{Emitted, Record};
use shardmill_worker::{ByteBudget, ShardStatus};

use crate::poison::flag;

/// The default of `host.buffer`.
const BUFFER: usize = 256 << 20;
const MIB: usize = 1 << 20;

/// Two streams, each read by one plugin, of one host with `bytes` of buffer.
fn one_host(bytes: usize, shards: u32) -> [TestFleet; 2] {
    let budget = ByteBudget::new(bytes).unwrap();
    [(); 2].map(|()| {
        let mut fleet = TestFleet::new(shards);
        fleet.budget = Some(budget.clone());
        fleet
    })
}

/// A backlog on each shard that many full replies do not empty.
fn put_backlog(fleet: &TestFleet, replies: usize) {
    let megabyte = Bytes::from(vec![b'x'; MIB]);
    for shard in fleet.stream.shards() {
        for number in 0..replies * 10 {
            fleet.stream.put_at(
                shard.hash_range.start(),
                &number.to_string(),
                megabyte.clone(),
            );
        }
    }
}

fn failing() -> NativePlugin {
    NativePlugin::new(1, |_, _| {
        Err(ProcessorError::Trapped {
            message: "on everything".to_owned(),
        })
    })
}

fn statuses(host: &TestHost) -> Vec<ShardStatus> {
    host.status.snapshot().shards.into_values().collect()
}

fn is_blocked_everywhere(host: &TestHost, shards: usize) -> bool {
    statuses(host)
        .iter()
        .filter(|shard| shard.blocked.is_some())
        .count()
        == shards
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_fails_on_a_backlog_stops_no_other_plugin_of_its_host() {
    let [failed, healthy] = one_host(BUFFER, 16);
    put_backlog(&failed, 4);
    let failing = failed.start("a", failing());
    until("blocked", || is_blocked_everywhere(&failing, 16)).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let host = healthy.start("a", NativePlugin::echo(1));
    for round in 0..10 {
        healthy.put(round * 100..(round + 1) * 100);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(
            healthy.is_all_checkpointed(),
            "a minute is enough, in round {round}"
        );
    }
    assert!(healthy.has_exactly(0..1_000));
    assert_eq!(
        healthy.store.calls(StoreOp::Take),
        16,
        "each lease was kept"
    );
    assert!(
        statuses(&host)
            .iter()
            .all(|shard| shard.read_error.is_none() && shard.waits_for.is_none())
    );
}

#[tokio::test(start_paused = true)]
async fn a_plugin_whose_calls_do_not_come_back_holds_nothing_of_what_another_is_guaranteed() {
    let [stuck, healthy] = one_host(BUFFER, 16);
    let _host = healthy.start("a", NativePlugin::echo(1));
    until("both are there", || {
        healthy.store.calls(StoreOp::Take) == 16
    })
    .await;
    put_backlog(&stuck, 4);
    // No failure, so that nothing is let go of before the deadline for a call.
    let _stuck = stuck.start("a", NativePlugin::hanging(1));
    for round in 0..10 {
        healthy.put(round * 100..(round + 1) * 100);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(
            healthy.is_all_checkpointed(),
            "a minute is enough, in round {round}"
        );
    }
    assert_eq!(
        healthy.store.calls(StoreOp::Take),
        16,
        "each lease was kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_waits_for_its_hosts_buffer_says_so_and_is_not_given_up_as_unreadable() {
    let [fleet, _] = one_host(20 * MIB, 1);
    // It was alone, and borrowed all there is; what it holds now comes back when it is settled.
    let other = fleet.budget.as_ref().unwrap().share().unwrap();
    let held = other.reserve(20 * MIB).await;
    fleet.put(0..10);
    let host = fleet.start("a", NativePlugin::echo(1));
    let shard = fleet.stream.shards()[0].id.clone();
    let stuck = || fleet.row(&shard).and_then(|row| row.stuck);
    until("the row says so", || {
        stuck().is_some_and(|why| why.contains("host.buffer"))
    })
    .await;
    let status = host.shard(&shard).unwrap();
    assert!(
        status
            .waits_for
            .is_some_and(|why| why.contains("host.buffer"))
    );
    assert_eq!(status.read_error, None, "nobody asked Kinesis");
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(
        fleet.store.calls(StoreOp::Take),
        1,
        "no other host would be told that the shard cannot be read"
    );
    drop(held);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..10));
    until("the row is clean again", || stuck().is_none()).await;
    assert_eq!(host.shard(&shard).unwrap().waits_for, None);
}

/// Records of 200 KiB, each its number in front: a reply of ten, and a batch of two of them.
const RECORD_BYTES: usize = 200 << 10;

fn lines_of_numbers(fleet: &mut TestFleet, numbers: std::ops::Range<u32>) {
    fleet.options.reads.records_per_call = 10;
    fleet.options.batches.records = 2;
    for number in numbers {
        let mut line = number.to_string().into_bytes();
        line.resize(RECORD_BYTES, b' ');
        fleet.stream.put_at(0, &number.to_string(), line);
    }
}

fn numbers_out(fleet: &TestFleet) -> Vec<u32> {
    fleet
        .sink
        .lines()
        .iter()
        .map(|line| line.trim().parse().unwrap())
        .collect()
}

/// Waits until far more than a batch is held.
async fn reads_ahead(fleet: &TestFleet) {
    let budget = fleet.budget.clone().unwrap();
    until("read ahead", || budget.held_bytes() > 10 * RECORD_BYTES).await;
}

/// Lets a host of `fleet` get stuck at its first batches; then it must hold a batch at most, and
/// nothing may be lost or repeated once it is `mended`.
async fn holds_little(fleet: &TestFleet, host: &TestHost, mend: impl FnOnce()) {
    let budget = fleet.budget.clone().unwrap();
    let shard = fleet.stream.shards()[0].id.clone();
    until("blocked", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        budget.held_bytes() <= 2 * RECORD_BYTES + (8 << 10),
        "{} bytes are held",
        budget.held_bytes()
    );
    let calls = fleet.stream.calls(ReadOp::Fetch);
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(
        fleet.stream.calls(ReadOp::Fetch),
        calls,
        "nothing is read meanwhile"
    );
    mend();
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(
        numbers_out(fleet),
        (0..100).collect::<Vec<_>>(),
        "in order, each once"
    );
    assert_eq!(budget.held_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_records_fail_holds_a_batch_and_reads_the_rest_again() {
    for is_shared in [false, true] {
        let [mut fleet, _] = one_host(BUFFER, 1);
        if is_shared {
            fleet = fleet.sharing_reads();
        }
        lines_of_numbers(&mut fleet, 0..100);
        let (mended, is_mended) = flag();
        let host = fleet.start(
            "a",
            NativePlugin::new(1, move |_, batch| {
                let is_bad = batch
                    .records
                    .iter()
                    .any(|record| record.data.starts_with(b"4 "));
                if is_bad && !is_mended.load(Ordering::Relaxed) {
                    return Err(ProcessorError::Trapped {
                        message: "on the fifth".to_owned(),
                    });
                }
                let emit = |record: &Record| Emitted {
                    destination: "out".to_owned(),
                    key: String::new(),
                    data: record.data.clone(),
                };
                Ok(Processed {
                    emitted: batch.records.iter().map(emit).collect(),
                    ..Processed::default()
                })
            }),
        );
        reads_ahead(&fleet).await;
        holds_little(&fleet, &host, || mended.store(true, Ordering::Relaxed)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_sink_fails_holds_a_batch_and_reads_the_rest_again() {
    let [mut fleet, _] = one_host(BUFFER, 1);
    fleet.options.leases.checkpoint_deadline = Duration::from_hours(1);
    lines_of_numbers(&mut fleet, 0..100);
    fleet.sink.is_broken.store(true, Ordering::Relaxed);
    let host = fleet.start("a", NativePlugin::echo(1));
    reads_ahead(&fleet).await;
    holds_little(&fleet, &host, || {
        fleet.sink.is_broken.store(false, Ordering::Relaxed);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_without_an_instance_holds_a_batch_and_reads_the_rest_again() {
    let [mut fleet, _] = one_host(BUFFER, 1);
    lines_of_numbers(&mut fleet, 0..100);
    let places = Arc::new(AtomicUsize::new(0));
    let host = fleet.start("a", NativePlugin::echo(1).with_places(&places));
    reads_ahead(&fleet).await;
    holds_little(&fleet, &host, || places.store(1, Ordering::SeqCst)).await;
}

#[tokio::test(start_paused = true)]
async fn a_halted_shard_holds_a_batch_and_reads_the_rest_again() {
    let [mut fleet, _] = one_host(BUFFER, 1);
    fleet.options.failure = FailurePolicy {
        attempts: Some(1),
        then: Some(GiveUp::Halt),
        ..FailurePolicy::default()
    };
    lines_of_numbers(&mut fleet, 0..100);
    let host = fleet.start("a", failing());
    holds_little(&fleet, &host, || host.offer(NativePlugin::echo(2))).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_reads_again_sees_its_end() {
    let [mut fleet, _] = one_host(BUFFER, 1);
    lines_of_numbers(&mut fleet, 0..100);
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.stream.split(&shard, u128::MAX / 2);
    fleet.options.reads.records_per_call = 1_000;
    let (mended, is_mended) = flag();
    let host = fleet.start(
        "a",
        NativePlugin::new(1, move |_, _| {
            let fails = || ProcessorError::Trapped {
                message: "on everything".to_owned(),
            };
            is_mended
                .load(Ordering::Relaxed)
                .then(Processed::default)
                .ok_or_else(fails)
        }),
    );
    until("blocked", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    mended.store(true, Ordering::Relaxed);
    until("ended", || {
        fleet
            .row(&shard)
            .is_some_and(|row| row.checkpoint == Checkpoint::ShardEnd)
    })
    .await;
}
