//! With parallel keys, several instances work on a shard: keys keep their order, the checkpoint
//! stays below what is not settled, and all else holds as with one instance.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::fleet::{TestFleet, until};
use harness::native::{Event, NativePlugin};
use shardmill_core::lease::Checkpoint;
use shardmill_core::pipeline::{FailurePolicy, GiveUp, Order, Parallelism, Spread};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{CloseReason, Commit, Outcome, Processed};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::{Batch, Emitted};
use shardmill_worker::{BatchLimits, Why};
use tokio::time::Instant;

use crate::poison::{Bad, dead_lettering, flag, number, only_shard, plugin, shard_status};

const KEYS: u32 = 100;

/// A fleet whose hosts have `instances` for a shard; one call brings one record.
fn parallel(instances: u32) -> TestFleet {
    let mut fleet = TestFleet::new(1);
    fleet.options.parallelism = Parallelism::new(instances).unwrap();
    fleet.options.failure = FailurePolicy {
        order: Order::Key,
        bisect: true,
        ..FailurePolicy::default()
    };
    fleet.options.batches = BatchLimits {
        records: 1,
        ..BatchLimits::default()
    };
    fleet
}

fn put(fleet: &TestFleet, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let key = format!("key-{}", number % KEYS);
        fleet.stream.put_at(0, &key, number.to_string());
    }
}

fn echo(_: &shardmill_core::stream::ShardId, batch: &Batch) -> Processed {
    let emit = |record: &shardmill_core::stream::Record| Emitted {
        destination: "out".to_owned(),
        key: record.partition_key.clone(),
        data: record.data.clone(),
    };
    Processed {
        emitted: batch.records.iter().map(emit).collect(),
        ..Processed::default()
    }
}

/// Emits each record after as long as `takes` says.
fn slow(version: u64, takes: impl Fn(&Batch) -> Duration + Send + Sync + 'static) -> NativePlugin {
    NativePlugin::new(version, |shard, batch| Ok(echo(shard, batch))).taking_by(takes)
}

fn out(fleet: &TestFleet) -> Vec<u32> {
    let lines = fleet.sink.lines();
    lines.iter().map(|line| line.parse().unwrap()).collect()
}

/// Whether each of `numbers` came out once, in order within its key.
fn is_whole_and_in_order(fleet: &TestFleet, numbers: impl Iterator<Item = u32>) -> bool {
    let out = out(fleet);
    let of_key = |key| out.iter().filter(move |number| *number % KEYS == key);
    let is_in_order = (0..KEYS).all(|key| of_key(key).is_sorted());
    let mut sorted = out.clone();
    sorted.sort_unstable();
    is_in_order && sorted == numbers.collect::<Vec<_>>()
}

/// The strand of a record that [`put`] puts.
fn strand_of(number: u32, instances: u32) -> usize {
    let record = shardmill_core::stream::Record {
        data: bytes::Bytes::new(),
        partition_key: format!("key-{}", number % KEYS),
        explicit_hash_key: None,
        position: shardmill_core::stream::Position::plain(
            shardmill_core::stream::SequenceNumber::parse("1").unwrap(),
        ),
        arrival_ms: 0,
    };
    Spread::new(Parallelism::new(instances).unwrap()).strand_of(&record)
}

async fn takes_for(instances: u32, records: u32) -> Duration {
    let fleet = parallel(instances);
    put(&fleet, 0..records);
    let host = fleet.start("a", slow(1, |_| Duration::from_millis(10)));
    until("the first came out", || !out(&fleet).is_empty()).await;
    let started = Instant::now();
    until("all came out", || out(&fleet).len() >= records as usize).await;
    let took = started.elapsed();
    assert!(is_whole_and_in_order(&fleet, 0..records));
    host.stop().await;
    took
}

#[tokio::test(start_paused = true)]
async fn a_slow_plugin_gets_through_nearly_as_many_times_faster_as_it_has_instances() {
    let alone = takes_for(1, 2_000).await.as_secs_f64();
    for (instances, least) in [(2, 1.8), (4, 3.0), (8, 5.0)] {
        let times = alone / takes_for(instances, 2_000).await.as_secs_f64();
        assert!(
            times >= least && times <= f64::from(instances) + 0.1,
            "{instances} instances: {times:.2} times"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_key_holds_back_its_strand_and_the_checkpoint_and_no_other_strand() {
    let fleet = parallel(4);
    put(&fleet, 0..1_000);
    let slow_strand = strand_of(7, 4);
    let host = fleet.start(
        "a",
        slow(1, |batch| match number(&batch.records[0]) {
            7 => Duration::from_mins(10),
            _ => Duration::from_millis(1),
        }),
    );
    let flows: Vec<u32> = (0..1_000)
        .filter(|number| *number < 7 || strand_of(*number, 4) != slow_strand)
        .collect();
    until("other strands flow", || out(&fleet).len() >= flows.len()).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut out_so_far = out(&fleet);
    out_so_far.sort_unstable();
    assert_eq!(out_so_far, flows);
    let shard = only_shard(&fleet);
    let below = fleet.stream.records(&shard)[6].position.clone();
    assert_eq!(fleet.row(&shard).unwrap().checkpoint, Checkpoint::At(below));
    let status = shard_status(&host, &shard).unwrap();
    assert_eq!(status.stage.what, "in the plugin");
    assert!(status.stage.since.elapsed() >= Duration::from_secs(30));
    assert_eq!(status.blocked.map(|blocked| blocked.why), Some(Why::Plugin));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_whole_and_in_order(&fleet, 0..1_000));
    let status = shard_status(&host, &shard).unwrap();
    assert!(status.blocked.is_none(), "{:?}", status.blocked);
}

#[tokio::test(start_paused = true)]
async fn short_calls_that_never_cease_are_not_shown_as_one_that_takes_long() {
    let fleet = parallel(4);
    put(&fleet, 0..10_000);
    let host = fleet.start("a", slow(1, |_| Duration::from_millis(20)));
    let shard = only_shard(&fleet);
    until("it is half done", || out(&fleet).len() >= 5_000).await;
    let status = shard_status(&host, &shard).unwrap();
    assert!(status.blocked.is_none(), "{:?}", status.blocked);
    assert!(status.stage.since.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_slow_strand_lets_others_run_ahead_up_to_a_bound() {
    let fleet = parallel(2);
    put(&fleet, 0..30_000);
    let slow_strand = strand_of(0, 2);
    let _host = fleet.start(
        "a",
        slow(1, move |batch| {
            let is_slow = strand_of(number(&batch.records[0]), 2) == slow_strand;
            Duration::from_secs(if is_slow { 100_000 } else { 0 })
        }),
    );
    until("others are ahead", || out(&fleet).len() > 5_000).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let ahead = out(&fleet).len();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(out(&fleet).len(), ahead, "it waits");
    assert!(ahead < 15_000, "{ahead}");
}

#[tokio::test(start_paused = true)]
async fn a_poison_record_holds_back_its_key_and_is_given_up_as_with_one_instance() {
    for bad in [Bad::Traps, Bad::Retry, Bad::Hangs, Bad::Reject] {
        let mut fleet = parallel(4);
        fleet.options.batches.records = 10;
        fleet.options.failure = FailurePolicy {
            order: Order::Key,
            ..dead_lettering(3)
        };
        put(&fleet, 0..1_000);
        let plugin = plugin(1, move |record, _| {
            (number(record) % 250 == 123).then_some(bad)
        });
        let host = fleet.start("a", plugin.taking(Duration::from_millis(5)));
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        let good = (0..1_000).filter(|number| number % 250 != 123);
        assert!(is_whole_and_in_order(&fleet, good), "{bad:?}");
        let letters = fleet.dead_letters.stored();
        assert_eq!(letters.len(), 4, "{bad:?}");
        host.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn other_keys_of_a_strand_flow_while_one_is_tried_again() {
    let fleet = parallel(2);
    put(&fleet, 0..1_000);
    let (mended, is_mended) = flag();
    let host = fleet.start(
        "a",
        plugin(1, move |record, _| {
            (number(record) == 7 && !is_mended.load(Ordering::Relaxed)).then_some(Bad::Retry)
        }),
    );
    // Of its key nothing comes out but what is before.
    until("others flow", || out(&fleet).len() == 990).await;
    let shard = only_shard(&fleet);
    let status = shard_status(&host, &shard).unwrap();
    assert_eq!((status.parked.keys, status.parked.records), (1, 10));
    mended.store(true, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_whole_and_in_order(&fleet, 0..1_000));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_halts_ends_the_calls_first_and_another_version_continues() {
    let mut fleet = parallel(4);
    fleet.options.rollout = RolloutPolicy::off();
    fleet.options.failure = FailurePolicy {
        order: Order::Key,
        attempts: Some(1),
        then: Some(GiveUp::Halt),
        ..FailurePolicy::default()
    };
    put(&fleet, 0..200);
    let host = fleet.start(
        "a",
        plugin(1, |record, _| (number(record) == 50).then_some(Bad::Reject))
            .taking(Duration::from_millis(30)),
    );
    let shard = only_shard(&fleet);
    until("it is halted", || {
        let blocked = shard_status(&host, &shard).and_then(|status| status.blocked);
        blocked.is_some_and(|blocked| blocked.why == Why::Halted)
    })
    .await;
    let so_far = out(&fleet).len();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(out(&fleet).len(), so_far, "nothing comes out");
    host.offer(plugin(2, |_, _| None));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_whole_and_in_order(&fleet, 0..200));
}

#[tokio::test(start_paused = true)]
async fn a_swap_waits_for_the_calls_under_way_and_repeats_nothing() {
    let mut fleet = parallel(4);
    fleet.options.rollout = RolloutPolicy::off();
    put(&fleet, 0..2_000);
    let first = slow(1, |batch| {
        Duration::from_millis(u64::from(number(&batch.records[0]) % 50))
    });
    let history = first.history();
    let host = fleet.start("a", first);
    until("it is at work", || out(&fleet).len() > 300).await;
    host.offer(slow(2, |_| Duration::from_millis(3)).sharing(&history));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_whole_and_in_order(&fleet, 0..2_000));
    host.stop().await;
    let history = history.lock().unwrap();
    let delivered = history
        .iter()
        .filter(|(_, _, event)| matches!(event, Event::Delivered { .. }));
    let digests: Vec<_> = delivered.map(|(_, digest, _)| digest).collect();
    let swapped = digests.iter().position(|digest| *digest != digests[0]);
    assert!(
        digests[swapped.unwrap()..]
            .iter()
            .all(|it| *it != digests[0]),
        "no call of the old version ends after one of the new"
    );
    let count = |wanted: &Event| {
        history
            .iter()
            .filter(|(_, _, event)| event == wanted)
            .count()
    };
    assert_eq!(count(&Event::Init), 8);
    assert_eq!(count(&Event::Closed(CloseReason::Reload)), 4);
    assert_eq!(count(&Event::Closed(CloseReason::Shutdown)), 4);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stops_settles_the_calls_under_way() {
    let fleet = parallel(8);
    put(&fleet, 0..1_000);
    let host = fleet.start("a", slow(1, |_| Duration::from_millis(700)));
    until("it is at work", || out(&fleet).len() > 20).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    host.stop().await;
    let at_stop = out(&fleet);
    assert!(at_stop.len() < 1_000);
    let _next = fleet.start("b", slow(1, |_| Duration::from_millis(1)));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    // What was handed out behind a slower strand comes again, nothing before the checkpoint does.
    let seen: BTreeSet<u32> = out(&fleet).into_iter().collect();
    assert_eq!(seen.len(), 1_000);
    let repeats = out(&fleet).len() - 1_000;
    assert!(repeats < at_stop.len(), "{repeats} of {}", at_stop.len());
}

#[tokio::test(start_paused = true)]
async fn what_a_canary_fails_on_goes_to_the_version_before_and_no_record_is_charged() {
    let mut fleet = parallel(4);
    fleet.options.failure = FailurePolicy {
        order: Order::Key,
        ..dead_lettering(1)
    };
    put(&fleet, 0..500);
    let host = fleet.start("a", slow(1, |_| Duration::from_millis(5)));
    until("it is at work", || out(&fleet).len() > 100).await;
    host.offer(plugin(2, |_, _| Some(Bad::Traps)).taking(Duration::from_millis(5)));
    put(&fleet, 500..1_000);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_whole_and_in_order(&fleet, 0..1_000));
    assert!(fleet.dead_letters.stored().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_holds_records_back_is_blocked_and_shown_and_loses_none() {
    let mut fleet = parallel(4);
    fleet.options.failure.then = Some(GiveUp::Skip);
    fleet.options.failure.attempts = Some(1);
    put(&fleet, 0..100);
    let (mended, is_mended) = flag();
    let host = fleet.start(
        "a",
        NativePlugin::new(1, move |shard, batch| {
            let mut processed = echo(shard, batch);
            if !is_mended.load(Ordering::Relaxed) {
                processed.outcome = Outcome {
                    commit: Some(Commit::Nothing),
                    ..Outcome::default()
                };
            }
            Ok(processed)
        }),
    );
    let shard = only_shard(&fleet);
    until("it is shown", || {
        let blocked = shard_status(&host, &shard).and_then(|status| status.blocked);
        blocked.is_some_and(|it| {
            it.why == Why::Misconfigured && it.reason.contains("set parallelism = 1")
        })
    })
    .await;
    assert!(out(&fleet).is_empty());
    mended.store(true, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_whole_and_in_order(&fleet, 0..100));
}

#[tokio::test(start_paused = true)]
async fn with_memory_for_fewer_instances_the_shard_goes_on_with_those() {
    let fleet = parallel(4);
    put(&fleet, 0..200);
    let places = Arc::new(AtomicUsize::new(2));
    let plugin = slow(1, |_| Duration::from_millis(5)).with_places(&places);
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_whole_and_in_order(&fleet, 0..200));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_comes_back_costs_its_instance_and_then_the_lease() {
    let fleet = parallel(2);
    put(&fleet, 0..10);
    let host = fleet.start("a", NativePlugin::hanging(1));
    let shard = only_shard(&fleet);
    until("it is given up", || {
        let stuck = fleet.row(&shard).and_then(|row| row.stuck);
        stuck.is_some_and(|stuck| stuck.contains("nor did a new instance of it"))
    })
    .await;
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_strand_never_overlap_and_those_of_others_do() {
    let fleet = parallel(4);
    put(&fleet, 0..1_000);
    let running: Arc<Mutex<Vec<usize>>> = Arc::default();
    let most = Arc::new(AtomicUsize::new(0));
    let (begins, ends, peak) = (Arc::clone(&running), running, Arc::clone(&most));
    let plugin = NativePlugin::new(1, move |shard, batch| {
        let strand = strand_of(number(&batch.records[0]), 4);
        ends.lock().unwrap().retain(|one| *one != strand);
        Ok(echo(shard, batch))
    });
    let plugin = plugin.taking_by(move |batch| {
        let strand = strand_of(number(&batch.records[0]), 4);
        let mut running = begins.lock().unwrap();
        assert!(!running.contains(&strand), "strand {strand}");
        running.push(strand);
        peak.fetch_max(running.len(), Ordering::Relaxed);
        Duration::from_millis(u64::from(number(&batch.records[0]) % 13))
    });
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_whole_and_in_order(&fleet, 0..1_000));
    assert_eq!(most.load(Ordering::Relaxed), 4);
}

#[test]
fn the_order_of_the_shard_and_state_are_refused() {
    let mut options = parallel(2).options;
    assert_eq!(options.validate(), Ok(()));
    options.keeps_state = true;
    assert_eq!(options.validate().unwrap_err().setting, "parallelism");
    options.keeps_state = false;
    options.failure.order = Order::Shard;
    let refused = options.validate().unwrap_err();
    assert!(
        refused.problem.contains("failure.order = \"key\""),
        "{refused}"
    );
    options.parallelism = Parallelism::ONE;
    assert_eq!(options.validate(), Ok(()));
}

#[test]
fn an_error_that_names_the_setting_is_not_an_attempt() {
    assert_eq!(ProcessorError::HoldsBack.code(), "misconfigured");
}
