//! Records that retention took before they were read: reading goes on, and it is told, since
//! Kinesis does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Processed, ReadError};
use shardmill_core::stream::{Emitted, ReadFrom, ShardId};

use crate::fan_out::subscribing;
use crate::shared_read::scene::Scene;

const HOUR_MS: u64 = 3_600_000;

fn shard(fleet: &TestFleet) -> ShardId {
    fleet.stream.shards()[0].id.clone()
}

fn gaps(host: &TestHost, fleet: &TestFleet) -> (u64, Option<String>) {
    let gaps = host.shard(&shard(fleet)).unwrap().gaps;
    (gaps.count, gaps.last)
}

fn numbers(fleet: &TestFleet) -> Vec<u32> {
    fleet
        .sink
        .lines()
        .iter()
        .map(|line| line.parse().unwrap())
        .collect()
}

/// Puts records an hour apart, ten at a time: whoever has not read the last ten is behind.
fn put_for_hours(fleet: &TestFleet, hours: u32) {
    for hour in 0..hours {
        fleet.put(hour * 10..hour * 10 + 10);
        fleet.stream.advance_ms(HOUR_MS);
    }
}

/// Echoes while its gate is open, and fails otherwise.
fn gated() -> (NativePlugin, Arc<AtomicBool>) {
    let gate = Arc::new(AtomicBool::new(true));
    let is_open = Arc::clone(&gate);
    let plugin = NativePlugin::new(1, move |_, batch| {
        if !is_open.load(Ordering::Relaxed) {
            return Err(ProcessorError::Trapped {
                message: "stuck".to_owned(),
            });
        }
        let emit = |record: &shardmill_core::stream::Record| Emitted {
            destination: "out".into(),
            key: String::new(),
            data: record.data.clone(),
        };
        Ok(Processed {
            emitted: batch.records.iter().map(emit).collect(),
            ..Processed::default()
        })
    });
    (plugin, gate)
}

/// What is out rises, and ends with these.
fn assert_went_on(fleet: &TestFleet, rest: std::ops::Range<u32>) {
    let numbers = numbers(fleet);
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let (before, after) = numbers.split_at(numbers.len() - rest.len());
    assert_eq!(after, rest.clone().collect::<Vec<_>>());
    assert!(
        before.last().is_some_and(|last| *last < rest.start - 1),
        "nothing was lost: {before:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_that_comes_back_too_late_goes_on_at_the_oldest_record_and_shows_the_gap() {
    for is_shared in [false, true] {
        let fleet = TestFleet::new(1);
        let fleet = if is_shared {
            fleet.sharing_reads()
        } else {
            fleet
        };
        fleet.put(0..10);
        fleet
            .start("a", NativePlugin::echo(1))
            .stop_when(|| fleet.is_all_checkpointed())
            .await;
        fleet.put(10..30);
        fleet.stream.trim(&shard(&fleet), 20);
        let host = fleet.start("b", NativePlugin::echo(1));
        until("all that is left is out", || fleet.sink.lines().len() == 20).await;
        assert_went_on(&fleet, 20..30);
        let (count, last) = gaps(&host, &fleet);
        let last = last.unwrap();
        assert!(
            count == 1 && last.starts_with("10 was trimmed") && last.contains("continues at 21"),
            "{count} {last}"
        );
        until("and checkpointed", || fleet.is_all_checkpointed()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_trimmed_from_the_end_of_a_closed_shard_is_reported() {
    for is_shared in [false, true] {
        let fleet = TestFleet::new(1);
        let fleet = if is_shared {
            fleet.sharing_reads()
        } else {
            fleet
        };
        fleet.put(0..10);
        fleet
            .start("a", NativePlugin::echo(1))
            .stop_when(|| fleet.is_all_checkpointed())
            .await;
        fleet.put(10..30);
        let parent = shard(&fleet);
        fleet.stream.split(&parent, u128::MAX / 2);
        fleet.stream.trim(&parent, 30);
        let host = fleet.start("b", NativePlugin::echo(1));
        until("ended", || {
            host.shard(&parent)
                .is_some_and(|shard| shard.gaps.count == 1)
        })
        .await;
        let told = host.shard(&parent).unwrap().gaps.last.unwrap();
        assert!(told.contains("the shard has ended"), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_checkpoint_is_still_there_shows_no_gap() {
    let fleet = TestFleet::new(1).sharing_reads();
    fleet.put(0..10);
    fleet
        .start("a", NativePlugin::echo(1))
        .stop_when(|| fleet.is_all_checkpointed())
        .await;
    fleet.put(10..30);
    // All but the record of the checkpoint itself.
    fleet.stream.trim(&shard(&fleet), 9);
    let host = fleet.start("b", NativePlugin::echo(1));
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..30));
    assert_eq!(gaps(&host, &fleet), (0, None));
}

#[tokio::test(start_paused = true)]
async fn what_is_trimmed_while_a_shard_is_stuck_is_reported_once_it_goes_on() {
    for is_shared in [false, true] {
        let mut fleet = TestFleet::new(1);
        fleet.options.reads.records_per_call = 10;
        let fleet = if is_shared {
            fleet.sharing_reads()
        } else {
            fleet
        };
        let (plugin, gate) = gated();
        gate.store(false, Ordering::Relaxed);
        put_for_hours(&fleet, 10);
        let host = fleet.start("a", plugin);
        until("stuck", || {
            host.shard(&shard(&fleet))
                .is_some_and(|shard| shard.blocked.is_some())
        })
        .await;
        // Longer than an iterator lives.
        tokio::time::sleep(Duration::from_mins(6)).await;
        fleet.stream.expire_iterators();
        fleet.stream.trim(&shard(&fleet), 70);
        gate.store(true, Ordering::Relaxed);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        assert_went_on(&fleet, 70..100);
        assert_eq!(gaps(&host, &fleet).0, 1, "shared: {is_shared}");
    }
}

/// A host that is days behind, and stuck after some records.
async fn stuck_days_behind(fleet: &TestFleet) -> (TestHost, Arc<AtomicBool>) {
    let (plugin, gate) = gated();
    put_for_hours(fleet, 60);
    let host = fleet.start("a", plugin);
    until("on its way", || fleet.sink.lines().len() >= 50).await;
    assert_eq!(gaps(&host, fleet).0, 0);
    gate.store(false, Ordering::Relaxed);
    until("stuck", || {
        host.shard(&shard(fleet))
            .is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    (host, gate)
}

#[tokio::test(start_paused = true)]
async fn a_reader_a_day_behind_sees_what_is_trimmed_in_front_of_it_though_its_iterator_stands() {
    let mut fleet = TestFleet::new(1);
    fleet.options.reads.records_per_call = 10;
    let fleet = fleet.sharing_reads();
    let (host, gate) = stuck_days_behind(&fleet).await;
    fleet.stream.trim(&shard(&fleet), 300);
    gate.store(true, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_went_on(&fleet, 300..600);
    assert_eq!(gaps(&host, &fleet).0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_a_day_behind_is_told_of_what_is_trimmed_between_it_and_the_shards_end() {
    let mut fleet = TestFleet::new(1);
    fleet.options.reads.records_per_call = 10;
    let fleet = fleet.sharing_reads();
    let (host, gate) = stuck_days_behind(&fleet).await;
    let parent = shard(&fleet);
    fleet.stream.split(&parent, u128::MAX / 2);
    fleet.stream.trim(&parent, 600);
    gate.store(true, Ordering::Relaxed);
    until("told", || {
        host.shard(&parent)
            .is_some_and(|shard| shard.gaps.count == 1)
    })
    .await;
    let told = host.shard(&parent).unwrap().gaps.last.unwrap();
    assert!(told.contains("the shard has ended"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn plugins_that_share_a_read_are_all_told_that_it_does_not_follow() {
    let scene = Scene::new();
    scene.put(10);
    scene.stream.advance_ms(24 * HOUR_MS);
    scene.put(50);
    scene.stream.advance_ms(24 * HOUR_MS);
    let mut walkers: Vec<_> = (0..2)
        .map(|_| scene.walker(ReadFrom::TrimHorizon))
        .collect();
    for walker in &mut walkers {
        walker.read_to(20).await;
    }
    scene.stream.trim(&scene.shard, 40);
    for walker in &mut walkers {
        let seen = walker.seen.len();
        assert_eq!(walker.read().await, Err(ReadError::ExpiredIterator));
        walker.read_to(seen + 20).await;
        assert_eq!(
            (&walker.seen[..seen], &walker.seen[seen..]),
            (&scene.all()[..seen], &scene.all()[40..])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_trimmed_before_a_subscription_is_made_again_is_reported() {
    let fleet = subscribing(1);
    fleet.fan_out.set_event_records(10);
    let (plugin, gate) = gated();
    gate.store(false, Ordering::Relaxed);
    put_for_hours(&fleet, 10);
    let host = fleet.start("a", plugin);
    until("stuck", || {
        host.shard(&shard(&fleet))
            .is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    until("let go of", || fleet.fan_out.open_subscriptions() == 0).await;
    fleet.stream.trim(&shard(&fleet), 70);
    gate.store(true, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_went_on(&fleet, 70..100);
    assert_eq!(gaps(&host, &fleet).0, 1);
    assert_eq!(fleet.stream.calls(ReadOp::Fetch), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_at_the_tip_takes_no_expired_record_for_a_gap() {
    for is_shared in [false, true] {
        let fleet = TestFleet::new(1);
        let fleet = if is_shared {
            fleet.sharing_reads()
        } else {
            fleet
        };
        fleet.put(0..10);
        let host = fleet.start("a", NativePlugin::echo(1));
        until("all out", || fleet.is_all_checkpointed()).await;
        tokio::time::sleep(Duration::from_hours(2)).await;
        // The last record expires, though all was read; then reading begins again there.
        fleet.stream.trim(&shard(&fleet), 10);
        fleet.stream.faults.queue(ReadOp::Fetch, Fault::NotFound);
        fleet.stream.expire_iterators();
        tokio::time::sleep(Duration::from_mins(1)).await;
        fleet.put(10..20);
        until("all out", || fleet.is_all_checkpointed()).await;
        assert!(fleet.has_exactly(0..20));
        assert_eq!(gaps(&host, &fleet), (0, None), "shared: {is_shared}");
    }
}
