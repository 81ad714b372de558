//! A running fleet does what operators want, between two batches, once, and wherever the lease goes.

mod at_the_end;
pub(crate) mod operator;
mod overtaken;
mod state_edits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use harness::fake_lease_store::StoreOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::control::{Deed, Place, SeekState};
use shardmill_core::lease::{Checkpoint, Sought, WorkerId};
use shardmill_core::pipeline::{FailurePolicy, GiveUp, Order, Parallelism};
use shardmill_core::ports::Processed;
use shardmill_core::stream::{Emitted, LeaseKey, ShardId};
use shardmill_worker::{ShardState, Why};
use tokio::time::Instant;

use self::operator::Operator;
use crate::poison::{Bad, came_out_once_and_in_order, dead_lettering, number, only_shard, plugin};

/// How soon a fleet does what is wanted.
const SOON: Duration = Duration::from_secs(2);

fn numbers(fleet: &TestFleet) -> Vec<u32> {
    let lines = fleet.sink.lines();
    lines.iter().map(|line| line.parse().unwrap()).collect()
}

/// Emits every record.
fn copying() -> NativePlugin {
    plugin(1, |_, _| None)
}

async fn within(limit: Duration, what: &str, is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    until(what, is_so).await;
    assert!(
        began.elapsed() <= limit,
        "{what} after {:?}",
        began.elapsed()
    );
}

// Pause.

#[tokio::test(start_paused = true)]
async fn a_paused_shard_keeps_its_lease_delivers_nothing_and_repeats_nothing_when_it_goes_on() {
    let fleet = TestFleet::new(2);
    fleet.put(0..100);
    let host = fleet.start("a", copying());
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    let shard = fleet.stream.shards()[0].id.clone();
    operator.pause(&shard, None).await;
    within(SOON, "paused", || {
        host.shard(&shard).unwrap().state == ShardState::Paused
    })
    .await;
    let owner_and_take = || {
        let row = fleet.row(&shard).unwrap();
        (row.owner, row.held_since_ms)
    };
    let before = owner_and_take();
    fleet.put(100..200);
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(owner_and_take(), before, "the lease is held");
    let of_shard = |number: &u32| {
        let records = fleet.stream.records(&shard);
        records
            .iter()
            .any(|record| crate::poison::number(record) == *number)
    };
    let delivered = numbers(&fleet);
    assert!(
        !delivered
            .iter()
            .any(|number| *number >= 100 && of_shard(number))
    );
    assert!(
        delivered.iter().any(|number| *number >= 100),
        "the other shard goes on"
    );
    let blocked = host.shard(&shard).unwrap().blocked.unwrap();
    assert_eq!(blocked.why, Why::Paused);
    assert!(
        blocked.reason.contains("by ops at") && blocked.reason.contains(": a test"),
        "{blocked:?}"
    );
    let stuck = fleet.row(&shard).unwrap().stuck.unwrap();
    assert!(stuck.starts_with("paused "), "{stuck}");
    operator.resume(&shard).await;
    within(SOON, "processing", || {
        host.shard(&shard).unwrap().state == ShardState::Processing
    })
    .await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(&fleet, 0..200));
    assert_eq!(fleet.row(&shard).unwrap().stuck, None);
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_all_shards_holds_hosts_that_come_later_too_and_ends_when_it_says() {
    let fleet = TestFleet::new(4);
    let operator = Operator::of(&fleet);
    let first = fleet.start("a", copying());
    until("leases are held", || {
        fleet.is_all_checkpointed() && first.status.snapshot().shards.len() == 4
    })
    .await;
    operator.pause_all(Some(60_000)).await;
    let second = fleet.start("b", copying());
    until("shared", || second.status.snapshot().shards.len() == 2).await;
    fleet.put(0..100);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(numbers(&fleet), Vec::<u32>::new());
    drop(first);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        second.status.snapshot().shards.len(),
        4,
        "leases move meanwhile"
    );
    assert_eq!(numbers(&fleet), Vec::<u32>::new());
    fleet.wall_ms.store(60_000, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..100));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_takes_a_lease_knows_of_a_pause_that_its_listing_did_not_show() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    let (host, own) = fleet.start_apart("a", copying());
    // The take is sent on what was listed before; it arrives after the pause was written.
    own.store.faults.queue(StoreOp::Take, Fault::Throttle);
    until("listed", || own.store.calls(StoreOp::Take) > 0).await;
    Operator::of(&fleet).pause_silently(&shard).await;
    fleet.put(0..10);
    until("taken", || host.shard(&shard).is_some()).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(host.shard(&shard).unwrap().state, ShardState::Paused);
    assert_eq!(numbers(&fleet), Vec::<u32>::new());
}

#[tokio::test(start_paused = true)]
async fn hosts_that_do_not_watch_the_fleet_stand_soon_too_after_a_nudge() {
    let fleet = TestFleet::new(8);
    let hosts: Vec<_> = (0..8)
        .map(|number| fleet.start(&format!("host-{number}"), copying()))
        .collect();
    let owners = || {
        let rows = fleet.store.rows();
        let owners = rows.iter().filter_map(|row| row.owner.as_ref());
        owners.map(ToString::to_string).collect::<Vec<String>>()
    };
    until("each has one", || {
        let mut owners = owners();
        owners.sort_unstable();
        owners.dedup();
        owners.len() == 8
    })
    .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let are_paused = || {
        let rows = fleet.store.rows();
        rows.iter().all(|row| {
            let owner = row.owner.as_ref().map(ToString::to_string);
            let host = owner.and_then(|id| id.strip_prefix("host-")?.parse::<usize>().ok());
            let shard = host.and_then(|host| hosts[host].shard(&row.key.shard_id()));
            shard.is_some_and(|shard| shard.state == ShardState::Paused)
        })
    };
    let operator = Operator::of(&fleet);
    operator.pause_all(None).await;
    within(SOON, "all stand", are_paused).await;
    operator.resume_all().await;
    within(SOON, "all go on", || !are_paused()).await;
    for shard in fleet.stream.shards() {
        operator.pause(&shard.id, None).await;
    }
    within(SOON, "all stand", are_paused).await;
}

// Seek.

#[tokio::test(start_paused = true)]
async fn a_shard_is_sent_back_and_forward_exactly_and_once_though_the_answer_is_lost() {
    let fleet = TestFleet::new(1);
    fleet.put(0..100);
    let host = fleet.start("a", copying());
    let shard = only_shard(&fleet);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    let records = fleet.stream.records(&shard);
    let place = |index: usize| Place::Sequence(records[index].position.sequence.clone());
    fleet
        .store
        .faults
        .queue(StoreOp::Obey, Fault::UnknownApplied);
    fleet
        .store
        .faults
        .queue(StoreOp::Obey, Fault::UnknownNotApplied);
    operator.seek(&shard, place(90), SeekState::Drop).await;
    until("there again", || numbers(&fleet).len() >= 110).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(numbers(&fleet)[100..], (90..100).collect::<Vec<u32>>());
    operator.pause(&shard, None).await;
    fleet.put(100..200);
    until("paused", || {
        host.shard(&shard).unwrap().state == ShardState::Paused
    })
    .await;
    let records = fleet.stream.records(&shard);
    let to = Place::Sequence(records[150].position.sequence.clone());
    operator.seek(&shard, to, SeekState::Drop).await;
    within(SOON, "obeyed while paused", || {
        fleet.row(&shard).unwrap().directives.seek.is_none()
    })
    .await;
    assert_eq!(numbers(&fleet).len(), 110);
    operator.resume(&shard).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(numbers(&fleet)[110..], (150..200).collect::<Vec<u32>>());
    let deeds: Vec<Deed> = fleet
        .coordinator
        .history()
        .iter()
        .map(|entry| entry.deed)
        .collect();
    assert_eq!(deeds, [Deed::Sought, Deed::Sought]);
}

#[tokio::test(start_paused = true)]
async fn a_seek_waits_for_a_host_and_a_shard_that_was_sent_away_stays_there_through_crashes() {
    let fleet = TestFleet::new(1);
    fleet.put(0..50);
    let host = fleet.start("a", copying());
    let shard = only_shard(&fleet);
    host.stop_when(|| fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    operator.seek(&shard, Place::Horizon, SeekState::Drop).await;
    operator.pause(&shard, None).await;
    let host = fleet.start("b", copying());
    until("obeyed", || {
        fleet.row(&shard).unwrap().directives.seek.is_none()
    })
    .await;
    drop(host);
    assert_eq!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::Sought(Sought::Horizon)
    );
    let number = fleet.stream.records(&shard)[40].position.sequence.clone();
    operator
        .seek(&shard, Place::Sequence(number), SeekState::Drop)
        .await;
    let host = fleet.start("c", copying());
    until("obeyed", || {
        fleet.row(&shard).unwrap().directives.seek.is_none()
    })
    .await;
    drop(host);
    let _host = fleet.start("d", copying());
    operator.resume(&shard).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(numbers(&fleet)[50..], (40..50).collect::<Vec<u32>>());
}

#[tokio::test(start_paused = true)]
async fn a_seek_that_is_taken_back_before_it_is_done_changes_nothing() {
    let fleet = TestFleet::new(1);
    fleet.put(0..50);
    let host = fleet.start("a", copying());
    let shard = only_shard(&fleet);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    // The write is on its way when the operator thinks better of it.
    fleet
        .store
        .faults
        .queue(StoreOp::Obey, Fault::UnknownNotApplied);
    fleet.store.faults.queue(
        StoreOp::Get,
        Fault::AnswersAfter(Duration::from_millis(100)),
    );
    operator.seek(&shard, Place::Horizon, SeekState::Drop).await;
    until("sent", || fleet.store.calls(StoreOp::Obey) == 1).await;
    operator.change(&shard, |next| next.seek = None).await;
    fleet.put(50..100);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(&fleet, 0..100));
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_with_parallel_keys_is_paused_and_sent_back_like_any_other() {
    let mut fleet = TestFleet::new(1);
    fleet.options.parallelism = Parallelism::new(4).unwrap();
    fleet.options.failure = FailurePolicy {
        order: Order::Key,
        bisect: true,
        ..FailurePolicy::default()
    };
    fleet.put(0..100);
    let host = fleet.start("a", copying().taking(Duration::from_millis(300)));
    let shard = only_shard(&fleet);
    let operator = Operator::of(&fleet);
    until("some are delivered", || numbers(&fleet).len() > 10).await;
    operator.pause(&shard, None).await;
    within(SOON, "paused", || {
        host.shard(&shard).unwrap().state == ShardState::Paused
    })
    .await;
    let count = numbers(&fleet).len();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(numbers(&fleet).len(), count);
    operator.resume(&shard).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..100), "nothing repeats");
    operator.seek(&shard, Place::Horizon, SeekState::Drop).await;
    until("again", || numbers(&fleet).len() == 200).await;
}

#[tokio::test(start_paused = true)]
async fn state_goes_with_the_shard_or_is_dropped_as_the_seek_says() {
    for (state, expected) in [(SeekState::Keep, 70), (SeekState::Drop, 20)] {
        let mut fleet = TestFleet::new(1);
        fleet.options.keeps_state = true;
        fleet.put(0..50);
        let host = fleet.start("a", copying().keeping_state());
        let shard = only_shard(&fleet);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        let number = fleet.stream.records(&shard)[30].position.sequence.clone();
        let operator = Operator::of(&fleet);
        operator.seek(&shard, Place::Sequence(number), state).await;
        until("again", || numbers(&fleet).len() == 70).await;
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        host.stop().await;
        let saved = fleet
            .store
            .saved_state(&LeaseKey::of_shard(&shard))
            .unwrap();
        let counted = String::from_utf8(saved.bytes.to_vec())
            .unwrap()
            .lines()
            .count();
        assert_eq!(counted, expected, "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_parent_is_read_again_waits_for_it_and_starts_over_after_it() {
    let fleet = TestFleet::new(1);
    let parent = only_shard(&fleet);
    fleet.put(0..50);
    let host = fleet.start("a", copying());
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let children = fleet.stream.split(&parent, u128::MAX / 2);
    until("the parent has ended", || {
        fleet
            .row(&parent)
            .is_some_and(|row| row.checkpoint == Checkpoint::ShardEnd)
    })
    .await;
    fleet.put(50..100);
    until("all delivered", || numbers(&fleet).len() == 100).await;
    let operator = Operator::of(&fleet);
    operator.reopen(&parent).await;
    for child in &children {
        operator.seek(child, Place::Horizon, SeekState::Drop).await;
    }
    until("all again", || numbers(&fleet).len() == 200).await;
    let again = &numbers(&fleet)[100..];
    let of_parent = again.iter().rposition(|number| *number < 50).unwrap();
    let of_children = again.iter().position(|number| *number >= 50).unwrap();
    assert!(of_parent < of_children, "{again:?}");
    host.stop().await;
}

// Skip.

fn skipping_letters(fleet: &TestFleet) -> Vec<(String, u32, String)> {
    let stored = fleet.dead_letters.stored();
    let letter = |(sink, letter): (String, shardmill_core::ports::DeadLetter)| {
        (sink, number(&letter.record), letter.reason)
    };
    stored.into_iter().map(letter).collect()
}

#[tokio::test(start_paused = true)]
async fn records_are_skipped_stored_first_and_no_other_is_given_up_or_repeated() {
    for (order, parallelism) in [(Order::Shard, 1), (Order::Key, 1), (Order::Key, 3)] {
        let mut fleet = TestFleet::new(1);
        fleet.options.parallelism = Parallelism::new(parallelism).unwrap();
        fleet.options.failure = FailurePolicy {
            order,
            bisect: true,
            ..FailurePolicy::default()
        };
        fleet.put(0..100);
        let poison = |number: u32| (40..43).contains(&number);
        let host = fleet.start(
            "a",
            plugin(1, move |record, _| {
                poison(number(record)).then_some(Bad::Retry)
            }),
        );
        let shard = only_shard(&fleet);
        let records = fleet.stream.records(&shard);
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(!fleet.is_all_checkpointed());
        let operator = Operator::of(&fleet);
        let at = |index: usize| records[index].position.sequence.clone();
        operator.skip(&shard, at(40), at(42), Some("dead")).await;
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        let mut letters = skipping_letters(&fleet);
        letters.sort();
        let told: Vec<(&str, u32)> = letters
            .iter()
            .map(|(sink, number, _)| (sink.as_str(), *number))
            .collect();
        assert_eq!(
            told,
            [("dead", 40), ("dead", 41), ("dead", 42)],
            "{order:?}"
        );
        assert!(
            letters[0].2.contains("skipped by command: by ops at"),
            "{letters:?}"
        );
        let mut out = numbers(&fleet);
        out.sort_unstable();
        let others: Vec<u32> = (0..100).filter(|number| !poison(*number)).collect();
        assert_eq!(out, others, "{order:?} {parallelism}");
        until("done", || {
            fleet.row(&shard).unwrap().directives.skip.is_none()
        })
        .await;
        let given_up = host.shard(&shard).unwrap().given_up;
        assert_eq!(given_up.dead_lettered, 3);
        host.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_halted_at_a_record_goes_on_when_that_is_skipped_and_not_when_another_is() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = FailurePolicy {
        then: Some(GiveUp::Halt),
        ..dead_lettering(2)
    };
    fleet.put(0..100);
    let host = fleet.start(
        "a",
        plugin(1, |record, _| (number(record) == 50).then_some(Bad::Retry)),
    );
    let shard = only_shard(&fleet);
    let is_halted = || {
        host.shard(&shard)
            .is_some_and(|shard| shard.state == ShardState::Halted)
    };
    until("halted", is_halted).await;
    let operator = Operator::of(&fleet);
    let at = |index: usize| {
        fleet.stream.records(&shard)[index]
            .position
            .sequence
            .clone()
    };
    operator.skip(&shard, at(60), at(60), None).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(is_halted(), "at the record before");
    operator.change(&shard, |next| next.skip = None).await;
    operator.skip(&shard, at(50), at(50), None).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let mut out = numbers(&fleet);
    out.sort_unstable();
    assert_eq!(
        out,
        (0..100)
            .filter(|number| *number != 50)
            .collect::<Vec<u32>>()
    );
    assert_eq!(fleet.dead_letters.stored().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn records_that_were_not_read_yet_are_skipped_when_they_come_also_by_the_next_holder() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    fleet.put(0..10);
    let first = fleet.start("a", copying());
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    operator.pause(&shard, None).await;
    until("paused", || {
        first.shard(&shard).unwrap().state == ShardState::Paused
    })
    .await;
    fleet.put(10..30);
    let at = |index: usize| {
        fleet.stream.records(&shard)[index]
            .position
            .sequence
            .clone()
    };
    operator.skip(&shard, at(12), at(17), Some("dead")).await;
    drop(first);
    let _second = fleet.start("b", copying());
    operator.resume(&shard).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let expected: Vec<u32> = (0..30)
        .filter(|number| !(12..18).contains(number))
        .collect();
    assert_eq!(numbers(&fleet), expected);
    assert_eq!(fleet.dead_letters.stored().len(), 6);
}

// Drain.

#[tokio::test(start_paused = true)]
async fn a_drained_host_hands_over_all_it_has_takes_nothing_and_stays_up_until_it_may_again() {
    let fleet = TestFleet::new(4);
    let first = fleet.start("a", copying());
    let second = fleet.start("b", copying());
    let held = |host: &str| {
        let rows = fleet.store.rows();
        let id = WorkerId::new(host);
        rows.iter().filter(|row| row.owner == id).count()
    };
    until("shared", || held("a") == 2 && held("b") == 2).await;
    let operator = Operator::of(&fleet);
    operator.drain("a", true).await;
    until("handed over", || held("b") == 4).await;
    assert!(
        first
            .status
            .snapshot()
            .drained
            .unwrap()
            .contains("by ops at")
    );
    fleet.put(0..100);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    second.stop().await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(
        held("a"),
        0,
        "it takes nothing, even if nobody else is there"
    );
    operator.drain("a", false).await;
    until("taken", || held("a") == 4).await;
    fleet.put(100..200);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(&fleet, 0..200));
    assert_eq!(first.status.snapshot().drained, None);
}

#[tokio::test(start_paused = true)]
async fn a_drained_host_that_starts_again_under_its_name_takes_nothing() {
    let fleet = TestFleet::new(2);
    let operator = Operator::of(&fleet);
    let host = fleet.start("a", copying());
    until("taken", || host.status.snapshot().shards.len() == 2).await;
    drop(host);
    operator.drain("a", true).await;
    let host = fleet.start("a", copying());
    tokio::time::sleep(Duration::from_mins(2)).await;
    let rows = fleet.store.rows();
    assert!(rows.iter().all(|row| row.owner.is_none()), "{rows:?}");
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_look_at_the_small_rows_does_not_end_a_drain() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", copying());
    until("taken", || host.status.snapshot().shards.len() == 2).await;
    let operator = Operator::of(&fleet);
    operator.drain("a", true).await;
    let is_free = || fleet.store.rows().iter().all(|row| row.owner.is_none());
    until("handed over", is_free).await;
    operator.show_outdated_control().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(is_free(), "{:?}", fleet.store.rows());
    assert!(host.status.snapshot().drained.is_some());
    host.stop().await;
}

// What is in the way.

#[tokio::test(start_paused = true)]
async fn a_pause_waits_for_the_batch_in_hand_and_nothing_of_it_repeats() {
    let fleet = TestFleet::new(1);
    fleet.put(0..30);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let slow = NativePlugin::new(1, move |_: &ShardId, batch| {
        counted.fetch_add(1, Ordering::Relaxed);
        let emit = |record: &shardmill_core::stream::Record| Emitted {
            destination: "out".to_owned(),
            key: record.partition_key.clone(),
            data: Bytes::clone(&record.data),
        };
        Ok(Processed {
            emitted: batch.records.iter().map(emit).collect(),
            ..Processed::default()
        })
    })
    .taking(Duration::from_secs(8));
    let host = fleet.start("a", slow);
    let shard = only_shard(&fleet);
    until("in the plugin", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.stage.what == "in the plugin")
    })
    .await;
    let operator = Operator::of(&fleet);
    operator.pause(&shard, None).await;
    until("paused", || {
        host.shard(&shard).unwrap().state == ShardState::Paused
    })
    .await;
    let count = calls.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(calls.load(Ordering::Relaxed), count);
    drop(host);
    let _next = fleet.start("b", copying());
    operator.resume(&shard).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(
        came_out_once_and_in_order(&fleet, 0..30),
        "the batch was checkpointed"
    );
}
