//! With `order = "key"`, records of other keys flow while those of one are tried again; the bounds
//! and the checkpoint hold.

use std::sync::atomic::Ordering;
use std::time::Duration;

use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::lease::Checkpoint;
use shardmill_core::pipeline::{FailurePolicy, Order};
use shardmill_core::ports::{FailureKind, Processed, RecordFailure};
use shardmill_core::stream::{Emitted, Record};
use shardmill_worker::BatchLimits;

use crate::poison::{Bad, dead_lettering, deliveries, flag, number, only_shard, plugin};

/// Puts numbers with one key for each remainder by `keys`.
fn put(fleet: &TestFleet, numbers: std::ops::Range<u32>, keys: u32) {
    for number in numbers {
        fleet
            .stream
            .put_at(0, &format!("key-{}", number % keys), number.to_string());
    }
}

fn by_key() -> TestFleet {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = FailurePolicy {
        order: Order::Key,
        bisect: true,
        ..FailurePolicy::default()
    };
    fleet
}

fn out(fleet: &TestFleet) -> Vec<u32> {
    fleet
        .sink
        .lines()
        .iter()
        .map(|line| line.parse().unwrap())
        .collect()
}

/// Whether each of `numbers` came out once, in order within its key.
fn is_whole_and_in_order(fleet: &TestFleet, numbers: impl Iterator<Item = u32>, keys: u32) -> bool {
    let out = out(fleet);
    let mut sorted = out.clone();
    sorted.sort_unstable();
    let is_in_order = |key: u32| {
        out.iter()
            .filter(|number| *number % keys == key)
            .is_sorted()
    };
    (0..keys).all(is_in_order) && sorted == numbers.collect::<Vec<_>>()
}

fn is_of_key(record: &Record, key: u32) -> bool {
    record.partition_key == format!("key-{key}")
}

#[tokio::test(start_paused = true)]
async fn other_keys_flow_while_one_is_tried_again_and_the_checkpoint_stays_below_it() {
    for bad in [Bad::Traps, Bad::Retry] {
        let fleet = by_key();
        put(&fleet, 0..1_000, 10);
        let (mended, is_mended) = flag();
        let host = fleet.start(
            "a",
            plugin(1, move |record, _| {
                (number(record) == 123 && !is_mended.load(Ordering::Relaxed)).then_some(bad)
            }),
        );
        let shard = only_shard(&fleet);
        // All of the other nine keys, and of this one what comes before.
        until("others flow", || out(&fleet).len() == 900 + 12).await;
        let below = fleet.stream.records(&shard)[122].position.clone();
        until("below it", || {
            fleet.row(&shard).unwrap().checkpoint == Checkpoint::At(below.clone())
        })
        .await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(out(&fleet).len(), 912);
        let status = host.status.snapshot().shards[shard.as_str()].clone();
        assert_eq!((status.parked.keys, status.parked.records), (1, 88));
        assert!(status.blocked.is_some() && fleet.row(&shard).unwrap().stuck.is_some());
        assert_eq!(fleet.row(&shard).unwrap().checkpoint, Checkpoint::At(below));
        mended.store(true, Ordering::Relaxed);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        assert!(is_whole_and_in_order(&fleet, 0..1_000, 10), "{bad:?}");
        let status = host.status.snapshot().shards[shard.as_str()].clone();
        assert!(status.parked.keys == 0 && status.blocked.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn what_flowed_past_a_key_that_is_tried_again_is_not_read_again_when_reading_stalls() {
    let fleet = by_key();
    put(&fleet, 0..100, 10);
    let (mended, is_mended) = flag();
    let fails = move |record: &Record| number(record) == 3 && !is_mended.load(Ordering::Relaxed);
    let _host = fleet.start(
        "a",
        plugin(1, move |record, _| fails(record).then_some(Bad::Retry)),
    );
    until("others flow", || out(&fleet).len() == 90).await;
    let iterators = fleet.stream.calls(ReadOp::Iterator);
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::Fetch).then_some(Fault::UnknownNotApplied));
    until("the reader is made anew", || {
        fleet.stream.calls(ReadOp::Iterator) > iterators
    })
    .await;
    fleet.stream.faults.clear();
    mended.store(true, Ordering::Relaxed);
    put(&fleet, 100..110, 10);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_whole_and_in_order(&fleet, 0..110, 10));
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_tried_again_apart_and_each_keeps_its_order() {
    let mut fleet = by_key();
    fleet.options.failure = FailurePolicy {
        order: Order::Key,
        ..dead_lettering(3)
    };
    fleet.options.batches = BatchLimits {
        records: 100,
        ..BatchLimits::default()
    };
    put(&fleet, 0..5_000, 7);
    // Each key has records that fail some times, some that never work, and some that take their
    // whole batch with them. What is reported never works: a plugin that handles later records of a
    // key in one call has chosen their order.
    let plugin = plugin(1, |record, before| match number(record) {
        number if number % 501 == 500 => Some(Bad::Traps),
        number if number % 333 == 100 && before < 2 => Some(Bad::Traps),
        number if number % 401 == 400 => Some(Bad::Retry),
        number if number % 703 == 700 => Some(Bad::Reject),
        _ => None,
    });
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let is_bad = |number: u32| number % 501 == 500 || number % 401 == 400 || number % 703 == 700;
    assert!(is_whole_and_in_order(
        &fleet,
        (0..5_000).filter(|number| !is_bad(*number)),
        7
    ));
    let mut dead: Vec<u32> = fleet
        .dead_letters
        .lines()
        .iter()
        .map(|line| line.parse().unwrap())
        .collect();
    dead.sort_unstable();
    assert_eq!(
        dead,
        (0..5_000)
            .filter(|number| is_bad(*number))
            .collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_reports_what_follows_a_failed_record_costs_it_no_attempts() {
    let mut fleet = by_key();
    fleet.options.failure = FailurePolicy {
        order: Order::Key,
        ..dead_lettering(3)
    };
    put(&fleet, 0..100, 2);
    // As a plugin that keeps the order of its keys: nothing of a key after a record of it that
    // failed.
    let plugin = NativePlugin::new(1, |_, batch| {
        let mut failed = Vec::new();
        let mut processed = Processed::default();
        for (index, record) in batch.records.iter().enumerate() {
            if number(record) == 11 || failed.contains(&&record.partition_key) {
                failed.push(&record.partition_key);
                let index = u32::try_from(index).unwrap();
                let failure = RecordFailure {
                    index,
                    kind: FailureKind::Retry,
                    message: "in order".to_owned(),
                };
                processed.outcome.failures.push(failure);
            } else {
                let (key, data) = (record.partition_key.clone(), record.data.clone());
                processed.emitted.push(Emitted {
                    destination: "out".to_owned(),
                    key,
                    data,
                });
            }
        }
        Ok(processed)
    });
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(fleet.dead_letters.lines(), ["11"]);
    assert!(is_whole_and_in_order(
        &fleet,
        (0..100).filter(|number| *number != 11),
        2
    ));
}

#[tokio::test(start_paused = true)]
async fn parked_records_are_bounded_and_then_the_shard_waits() {
    let mut fleet = by_key();
    fleet.options.batches = BatchLimits {
        records: 500,
        ..BatchLimits::default()
    };
    fleet.options.reads.records_per_call = 1_000;
    // Every second record is of the key that fails.
    put(&fleet, 0..40_000, 2);
    let (mended, is_mended) = flag();
    let plugin = plugin(1, move |record, _| {
        (is_of_key(record, 1) && !is_mended.load(Ordering::Relaxed)).then_some(Bad::Retry)
    });
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    let shard = only_shard(&fleet);
    let parked = || {
        host.status
            .snapshot()
            .shards
            .get(shard.as_str())
            .map_or(0, |shard| shard.parked.records)
    };
    until("at the bound", || parked() >= 10_000).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(parked() <= 10_500, "{}", parked());
    assert!(
        out(&fleet).len() < 11_000,
        "the other key waits too: {}",
        out(&fleet).len()
    );
    assert!(
        deliveries(&history).len() > 40,
        "and the record is still tried"
    );
    mended.store(true, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_whole_and_in_order(&fleet, 0..40_000, 2));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stops_with_parked_records_gives_the_lease_up_at_once_below_them() {
    let fleet = by_key();
    put(&fleet, 0..200, 10);
    let host = fleet.start(
        "a",
        plugin(1, |record, _| (number(record) == 57).then_some(Bad::Retry)),
    );
    until("others flow", || out(&fleet).len() == 180 + 5).await;
    let stopping = tokio::time::Instant::now();
    host.stop().await;
    assert!(
        stopping.elapsed() < Duration::from_secs(2),
        "{:?}",
        stopping.elapsed()
    );
    let shard = only_shard(&fleet);
    let row = fleet.row(&shard).unwrap();
    assert_eq!(row.owner, None);
    assert_eq!(
        row.checkpoint,
        Checkpoint::At(fleet.stream.records(&shard)[56].position.clone())
    );
    let _next = fleet.start("b", plugin(1, |_, _| None));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let mut found = out(&fleet);
    found.sort_unstable();
    found.dedup();
    assert_eq!(
        found,
        (0..200).collect::<Vec<_>>(),
        "what flowed past comes again, and nothing is lost"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shard_ends_only_when_nothing_is_parked() {
    let fleet = by_key();
    put(&fleet, 0..100, 10);
    let shard = only_shard(&fleet);
    fleet.stream.split(&shard, u128::MAX / 2);
    let (mended, is_mended) = flag();
    let _host = fleet.start(
        "a",
        plugin(1, move |record, _| {
            (number(record) == 57 && !is_mended.load(Ordering::Relaxed)).then_some(Bad::Retry)
        }),
    );
    until("others flow", || out(&fleet).len() == 90 + 5).await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(matches!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::At(_)
    ));
    mended.store(true, Ordering::Relaxed);
    until("ended", || {
        fleet
            .row(&shard)
            .is_some_and(|row| row.checkpoint == Checkpoint::ShardEnd)
    })
    .await;
    assert!(is_whole_and_in_order(&fleet, 0..100, 10));
}

#[tokio::test(start_paused = true)]
async fn a_new_version_takes_up_parked_records_at_once() {
    let fleet = by_key();
    put(&fleet, 0..200, 10);
    let host = fleet.start(
        "a",
        plugin(1, |record, _| (number(record) == 57).then_some(Bad::Retry)),
    );
    until("others flow", || out(&fleet).len() == 180 + 5).await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    host.offer(plugin(2, |_, _| None));
    let offered_at = tokio::time::Instant::now();
    until("all out", || out(&fleet).len() == 200).await;
    assert!(
        offered_at.elapsed() < Duration::from_secs(1),
        "{:?}",
        offered_at.elapsed()
    );
    assert!(
        is_whole_and_in_order(&fleet, 0..200, 10),
        "and nothing repeats"
    );
}

#[tokio::test(start_paused = true)]
async fn keys_that_fail_slowly_however_many_leave_the_others_half_of_the_time() {
    let mut fleet = by_key();
    fleet.options.batches = BatchLimits {
        records: 1,
        ..BatchLimits::default()
    };
    // Thirty keys of which each try takes five seconds: at the longest back-off, one of them is
    // always due.
    put(&fleet, 0..30, 10_000);
    let slow = plugin(1, |record, _| (number(record) < 30).then_some(Bad::Hangs));
    let history = slow.history();
    let host = fleet.start("a", slow);
    let shard = only_shard(&fleet);
    until("all parked", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.parked.keys == 30)
    })
    .await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    for round in 1..=10 {
        put(&fleet, round * 100..round * 100 + 40, 10_000);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(
            u32::try_from(out(&fleet).len()),
            Ok(round * 40),
            "a minute is enough, in round {round}"
        );
    }
    let before = deliveries(&history).len();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(
        deliveries(&history).len() - before > 100,
        "and they are tried as often as that allows"
    );
}

#[tokio::test(start_paused = true)]
async fn keys_that_fail_slowly_leave_the_others_half_of_the_time_though_each_read_brings_little() {
    let mut fleet = by_key();
    fleet.options.reads.records_per_call = 16;
    put(&fleet, 0..30, 10_000);
    let host = fleet.start(
        "a",
        plugin(1, |record, _| (number(record) < 30).then_some(Bad::Hangs)),
    );
    let shard = only_shard(&fleet);
    until("all parked", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.parked.keys == 30)
    })
    .await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    // Five reads a second are 4,800 records in a minute; half of that is more than enough.
    put(&fleet, 100..2_100, 10_000);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(out(&fleet).len(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn records_without_a_partition_key_do_not_wait_for_each_other() {
    for bad in [Bad::Retry, Bad::Traps] {
        let fleet = by_key();
        for number in 0..200 {
            fleet.stream.put_at(0, "", number.to_string());
        }
        let host = fleet.start(
            "a",
            plugin(1, move |record, _| {
                (number(record) % 50 == 7).then_some(bad)
            }),
        );
        until("the others are out", || out(&fleet).len() == 196).await;
        let shard = only_shard(&fleet);
        let parked = || host.shard(&shard).unwrap().parked;
        until("each that fails waits alone", || {
            (parked().keys, parked().records) == (4, 4)
        })
        .await;
        let below = fleet.stream.records(&shard)[6].position.clone();
        until("below the first", || {
            fleet.row(&shard).unwrap().checkpoint == Checkpoint::At(below.clone())
        })
        .await;
    }
}
