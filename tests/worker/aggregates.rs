//! User records of KPL aggregates are delivered, settled and checkpointed each for itself.

use std::ops::Range;
use std::time::Duration;

use harness::aggregates::{aggregate, aggregate_of_copies, sealed, with_a_lost_key};
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::{Event, History, NativePlugin};
use shardmill_core::lease::Checkpoint;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Commit, FailureKind, Outcome, Processed, RecordFailure};
use shardmill_core::stream::{Batch, Emitted, Position, SequenceNumber, ShardId};

use crate::poison::dead_lettering;

/// Puts one aggregate of `numbers` to the shard that `hash_key` falls in.
fn put_aggregate(
    fleet: &TestFleet,
    hash_key: u128,
    numbers: Range<u32>,
) -> (ShardId, SequenceNumber) {
    fleet.stream.put_at(
        hash_key,
        "aggregate",
        aggregate(numbers.map(|number| number.to_string())),
    )
}

/// One with keys and without records; without either it would be too short to be one.
fn put_empty_aggregate(fleet: &TestFleet) {
    fleet
        .stream
        .put_at(0, "aggregate", aggregate_of_copies(0, b""));
}

fn at(sequence: &SequenceNumber, sub_sequence: u64) -> Position {
    Position {
        sequence: sequence.clone(),
        sub_sequence,
    }
}

/// Positions delivered with success, in order.
fn handled(history: &History) -> Vec<Position> {
    let handled = |event: &Event| match event {
        Event::Delivered {
            positions,
            is_ok: true,
            ..
        } => positions.clone(),
        Event::Delivered { .. } | Event::Init | Event::Ticked { .. } | Event::Closed(_) => {
            Vec::new()
        }
    };
    history
        .lock()
        .unwrap()
        .iter()
        .flat_map(|(_, _, event)| handled(event))
        .collect()
}

fn echo(batch: &Batch) -> Processed {
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

/// Echoes what comes before this number, and fails on all from there on.
fn stopping_at(number: u32) -> NativePlugin {
    NativePlugin::new(1, move |_, batch| {
        let is_good =
            |data: &[u8]| std::str::from_utf8(data).unwrap().parse::<u32>().unwrap() < number;
        let good = batch
            .records
            .iter()
            .take_while(|record| is_good(&record.data))
            .count();
        let mut processed = echo(batch);
        processed.emitted.truncate(good);
        let failure = |index| RecordFailure {
            index,
            kind: FailureKind::Retry,
            message: "not here".to_owned(),
        };
        let (from, to) = (
            u32::try_from(good).unwrap(),
            u32::try_from(batch.records.len()).unwrap(),
        );
        processed.outcome.failures = (from..to).map(failure).collect();
        Ok(processed)
    })
}

async fn until_checkpoint(fleet: &TestFleet, shard: &ShardId, position: Position) {
    let expected = Checkpoint::At(position);
    until(&format!("{shard} is checkpointed at {expected}"), || {
        fleet
            .row(shard)
            .is_some_and(|row| row.checkpoint == expected)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn user_records_come_once_and_in_order_though_batches_end_inside_aggregates() {
    let fleet = TestFleet::new(1);
    // Batches of ten; aggregates of seven, three and none between plain records, and records with
    // the same arrival.
    put_aggregate(&fleet, 0, 0..7);
    fleet.put(7..9);
    put_aggregate(&fleet, 0, 9..12);
    put_empty_aggregate(&fleet);
    put_aggregate(&fleet, 0, 12..19);
    fleet.put(19..20);
    let (shard, last) = put_aggregate(&fleet, 0, 20..45);
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until_checkpoint(&fleet, &shard, at(&last, 24)).await;
    assert_eq!(
        fleet.sink.lines(),
        (0..45).map(|number| number.to_string()).collect::<Vec<_>>()
    );
    let handled = handled(&history);
    assert!(handled.is_sorted_by(|a, b| a < b), "{handled:?}");
    let sizes: Vec<_> = handled
        .chunk_by(|a, b| a.sequence == b.sequence)
        .map(<[Position]>::len)
        .collect();
    assert_eq!(sizes, [7, 1, 1, 3, 7, 1, 25]);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_inside_an_aggregate_the_next_user_record_comes_first() {
    let fleet = TestFleet::new(1);
    let (shard, sequence) = put_aggregate(&fleet, 0, 0..40);
    let crashed = fleet.start("a", stopping_at(17));
    until_checkpoint(&fleet, &shard, at(&sequence, 16)).await;
    drop(crashed);
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("b", plugin);
    until_checkpoint(&fleet, &shard, at(&sequence, 39)).await;
    assert_eq!(handled(&history).first(), Some(&at(&sequence, 17)));
    assert!(fleet.has_exactly(0..40));
}

#[tokio::test(start_paused = true)]
async fn a_planned_end_inside_an_aggregate_repeats_nothing() {
    let fleet = TestFleet::new(1);
    let (shard, sequence) = put_aggregate(&fleet, 0, 0..40);
    let host = fleet.start("a", stopping_at(25));
    host.stop_when(|| fleet.sink.lines().len() == 25).await;
    assert_eq!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::At(at(&sequence, 24))
    );
    let _host = fleet.start("b", NativePlugin::echo(1));
    until_checkpoint(&fleet, &shard, at(&sequence, 39)).await;
    assert!(fleet.has_exactly(0..40));
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_inside_an_aggregate_repeats_nothing() {
    let fleet = TestFleet::new(2);
    let (left, left_sequence) = put_aggregate(&fleet, 0, 0..40);
    let (right, right_sequence) = put_aggregate(&fleet, u128::MAX, 40..80);
    // Fails on the left shard's from 15 on and on all of the right shard's.
    let first = fleet.start("a", stopping_at(15));
    until_checkpoint(&fleet, &left, at(&left_sequence, 14)).await;
    let plugin = NativePlugin::echo(2);
    let history = plugin.history();
    let second = fleet.start("b", plugin);
    until("one shard was handed over and read to its end", || {
        handled(&history).len() >= 25
    })
    .await;
    first.stop().await;
    until_checkpoint(&fleet, &left, at(&left_sequence, 39)).await;
    until_checkpoint(&fleet, &right, at(&right_sequence, 39)).await;
    assert!(handled(&history).contains(&at(&left_sequence, 15)));
    assert!(!handled(&history).contains(&at(&left_sequence, 14)));
    assert!(fleet.has_exactly(0..80));
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn user_records_held_back_come_again_after_a_trap_and_those_before_them_do_not() {
    let fleet = TestFleet::new(1);
    let (shard, sequence) = put_aggregate(&fleet, 0, 0..30);
    let calls = std::sync::atomic::AtomicU32::new(0);
    let plugin = NativePlugin::new(1, move |_, _| {
        match calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => {
                let outcome = Outcome {
                    commit: Some(Commit::Through(4)),
                    ..Outcome::default()
                };
                Ok(Processed {
                    outcome,
                    ..Processed::default()
                })
            }
            1 => Err(ProcessorError::Trapped {
                message: "by the test".to_owned(),
            }),
            _ => Ok(Processed::default()),
        }
    });
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until_checkpoint(&fleet, &shard, at(&sequence, 29)).await;
    let subs: Vec<_> = handled(&history)
        .into_iter()
        .map(|position| position.sub_sequence)
        .collect();
    assert_eq!(subs, (0..10).chain(5..30).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_reader_made_anew_inside_an_aggregate_neither_skips_nor_repeats() {
    let mut fleet = TestFleet::new(1);
    fleet.options.leases.read_deadline = Duration::from_secs(30);
    // Longer than that, so that the rest of the aggregate waits while nothing can be read.
    fleet.options.batches.window = Duration::from_mins(5);
    let (shard, _) = put_aggregate(&fleet, 0, 0..15);
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("the first batch is out", || fleet.sink.lines().len() == 10).await;
    fleet.stream.faults.queue(ReadOp::Fetch, Fault::Hang);
    let (_, last) = put_aggregate(&fleet, 0, 15..35);
    until("the reader was made anew while five were waiting", || {
        let is_made_anew = fleet.stream.calls(ReadOp::Iterator) == 2;
        assert!(is_made_anew || fleet.sink.lines().len() == 10);
        is_made_anew
    })
    .await;
    until_checkpoint(&fleet, &shard, at(&last, 19)).await;
    assert!(fleet.has_exactly(0..35), "{:?}", fleet.sink.lines());
}

#[tokio::test(start_paused = true)]
async fn aggregates_that_cannot_be_opened_are_delivered_whole_and_the_rest_flows() {
    let fleet = TestFleet::new(1);
    let mut broken = aggregate((0..3).map(|number| number.to_string()));
    *broken.last_mut().unwrap() ^= 1;
    let no_message = sealed(b"this is not protobuf");
    let magic_alone = vec![0xf3, 0x89, 0x9a, 0xc2];
    let nested = aggregate_of_copies(1, b"inner");
    // As text, since that is what the sink gives back; the inner one is what an aggregate around it
    // gives.
    let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
    let expected: Vec<_> = [&broken, &no_message, &with_a_lost_key(), &magic_alone]
        .map(|data| text(data))
        .into();
    for data in [&broken, &no_message, &with_a_lost_key(), &magic_alone] {
        fleet.stream.put_at(0, "key", data.clone());
    }
    fleet.put(0..1);
    let (shard, last) = put_aggregate(&fleet, 0, 1..6);
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until_checkpoint(&fleet, &shard, at(&last, 4)).await;
    let lines = fleet.sink.lines();
    assert_eq!(lines[..4], expected);
    assert_eq!(
        lines[4..],
        (0..6).map(|number| number.to_string()).collect::<Vec<_>>()
    );
    assert!(
        handled(&history)[..5]
            .iter()
            .all(|position| position.sub_sequence == 0)
    );
    assert!(!lines.contains(&text(&nested)));
}

#[tokio::test(start_paused = true)]
async fn an_aggregate_without_user_records_stalls_nothing() {
    let fleet = TestFleet::new(1);
    let (shard, sequence) = fleet.stream.put_at(0, "key", "0");
    put_empty_aggregate(&fleet);
    let host = fleet.start("a", NativePlugin::echo(1));
    until_checkpoint(&fleet, &shard, at(&sequence, 0)).await;
    until("idle", || host.status.snapshot().is_idle()).await;
    // A host that resumes before it makes progress too, and what comes later covers it.
    host.stop().await;
    let _host = fleet.start("b", NativePlugin::echo(1));
    let (_, last) = fleet.stream.put_at(0, "key", "1");
    until_checkpoint(&fleet, &shard, at(&last, 0)).await;
    assert!(fleet.has_exactly(0..2));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_ends_with_an_aggregate_ends_after_its_last_user_record() {
    let fleet = TestFleet::new(1);
    let (shard, _) = put_aggregate(&fleet, 0, 0..25);
    put_empty_aggregate(&fleet);
    let children = fleet.stream.split(&shard, 1 << 127);
    put_aggregate(&fleet, 0, 25..35);
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("the shard has ended", || {
        fleet
            .row(&shard)
            .is_none_or(|row| row.checkpoint == Checkpoint::ShardEnd)
    })
    .await;
    until("its child is read", || fleet.has_exactly(0..35)).await;
    until("and has a lease", || fleet.row(&children[0]).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn aggregates_that_grow_many_times_when_opened_flow_through_a_small_budget() {
    const OF_ONE: usize = 20_000;
    let mut fleet = TestFleet::new(4);
    fleet.options.batches.records = 10_000;
    fleet.options.batches.window = Duration::from_millis(100);
    // 3 MiB opened, from 200 KB: four shards of six of them are more than the 64 MiB of a test
    // host.
    let dense = aggregate_of_copies(OF_ONE, b"1");
    let mut last = Vec::new();
    for shard in fleet.stream.shards() {
        for _ in 0..6 {
            last.push(
                fleet
                    .stream
                    .put_at(shard.hash_range.start(), "key", dense.clone()),
            );
        }
    }
    let plugin = NativePlugin::no_op(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    for (shard, sequence) in last.iter().rev().step_by(6) {
        until_checkpoint(&fleet, shard, at(sequence, OF_ONE as u64 - 1)).await;
    }
    let mut handled = handled(&history);
    assert_eq!(handled.len(), 4 * 6 * OF_ONE);
    handled.sort_unstable();
    handled.dedup();
    assert_eq!(handled.len(), 4 * 6 * OF_ONE, "each once");
}

#[tokio::test(start_paused = true)]
async fn an_aggregate_that_a_plugin_cannot_open_either_is_a_dead_letter_whole() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = dead_lettering(3);
    fleet.stream.put_at(0, "key", with_a_lost_key());
    let (shard, last) = put_aggregate(&fleet, 0, 0..5);
    let rejecting = NativePlugin::new(1, |_, batch| {
        let reject = |index| RecordFailure {
            index,
            kind: FailureKind::Reject,
            message: "no record of ours".to_owned(),
        };
        let is_closed =
            |record: &shardmill_core::stream::Record| record.data[..] == with_a_lost_key();
        let failures = (0..)
            .zip(batch.records.iter())
            .filter(|(_, record)| is_closed(record))
            .map(|(index, _)| reject(index));
        let outcome = Outcome {
            failures: failures.collect(),
            ..Outcome::default()
        };
        Ok(Processed {
            outcome,
            ..Processed::default()
        })
    });
    let _host = fleet.start("a", rejecting);
    until_checkpoint(&fleet, &shard, at(&last, 4)).await;
    let letters = fleet.dead_letters.stored();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].1.record, fleet.stream.records(&shard)[0]);
}
