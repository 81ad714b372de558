//! What fails is isolated, tried as often as it may be, and then stored, skipped or stopped at;
//! nothing else suffers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::fake_dead_letters::Store;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::{Event, NativePlugin};
use shardmill_core::lease::Checkpoint;
use shardmill_core::pipeline::{FailurePolicy, GiveUp};
use shardmill_core::plugin::{Lack, ProcessorError};
use shardmill_core::ports::{
    Commit, FailureKind, Outcome, Processed, ProcessorFactory, RecordFailure,
};
use shardmill_core::stream::{Emitted, Position, Record, ShardId};
use shardmill_worker::{BatchLimits, ShardState};

use crate::poison::{
    Bad, came_out_once_and_in_order, dead_lettering, deliveries, flag, number, only_shard, plugin,
    shard_status,
};

const HANGS_AT: u32 = 31_234;

/// The stream of the issue: 1 in 10,000 always traps, 1 in 5,000 fails twice and then works, one
/// hangs.
fn of_the_issue(number: u32, before: u32) -> Option<Bad> {
    match number {
        HANGS_AT => Some(Bad::Hangs),
        number if is_poison(number) => Some(Bad::Traps),
        number if number % 5_000 == 2_345 && before < 2 => Some(Bad::Traps),
        _ => None,
    }
}

fn out(record: &Record) -> Emitted {
    Emitted {
        destination: "out".to_owned(),
        key: record.partition_key.clone(),
        data: record.data.clone(),
    }
}

fn is_poison(number: u32) -> bool {
    number == HANGS_AT || number % 10_000 == 7_777
}

fn fleet_of_the_issue() -> TestFleet {
    let mut fleet = TestFleet::new(2);
    fleet.options.batches = BatchLimits {
        records: 1_000,
        ..BatchLimits::default()
    };
    fleet.options.failure = dead_lettering(3);
    fleet.put(0..40_000);
    fleet
}

#[tokio::test(start_paused = true)]
async fn every_good_record_is_settled_once_in_order_and_each_poison_record_is_a_dead_letter_once() {
    let fleet = fleet_of_the_issue();
    let plugin = plugin(1, |record, before| of_the_issue(number(record), before));
    let (history, digest) = (plugin.history(), plugin.digest().clone());
    let host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(
        &fleet,
        (0..40_000).filter(|number| !is_poison(*number))
    ));
    let mut letters = fleet.dead_letters.stored();
    letters.sort_by_key(|(_, letter)| number(&letter.record));
    let numbers: Vec<u32> = letters
        .iter()
        .map(|(_, letter)| number(&letter.record))
        .collect();
    assert_eq!(numbers, [7_777, 17_777, 27_777, HANGS_AT, 37_777]);
    for (target, letter) in &letters {
        let put = fleet.stream.records(&letter.shard);
        assert!(
            put.contains(&letter.record),
            "the whole record, of its shard"
        );
        assert_eq!(
            (
                target.as_str(),
                letter.stream.as_str(),
                letter.application.as_str()
            ),
            ("dead", "stream", "plugin")
        );
        assert_eq!((&letter.digest, letter.failed_at_ms), (&digest, 1));
        let is_hanging = number(&letter.record) == HANGS_AT;
        let why = if is_hanging {
            "did not return from process within 5s"
        } else {
            "the plugin trapped: poison"
        };
        assert!(
            letter.reason.starts_with("out of attempts: ") && letter.reason.contains(why),
            "{}",
            letter.reason
        );
        // Three alone, and those of the batches it was cut out of.
        assert!(
            (3 + 1..=3 + 10).contains(&letter.attempts),
            "{}",
            letter.attempts
        );
    }
    // 40 batches; for each of 5 poison records 2 log2(1000) deliveries and 3 attempts; for each of
    // 8 records that fail twice the same without the attempts. Without cutting in halves it would
    // be thousands.
    let count = deliveries(&history).len();
    assert!(count <= 44 + 5 * (20 + 3) + 8 * 6, "{count} deliveries");
    let given_up: u64 = fleet
        .stream
        .shards()
        .iter()
        .map(|shard| {
            shard_status(&host, &shard.id)
                .unwrap()
                .given_up
                .dead_lettered
        })
        .sum();
    assert_eq!(given_up, 5);
    for shard in fleet.stream.shards() {
        let status = shard_status(&host, &shard.id).unwrap();
        assert!(status.blocked.is_none() && status.given_up.last.is_some());
        let row = fleet.row(&shard.id).unwrap();
        assert_eq!(row.stuck, None);
        assert!(
            row.given_up.unwrap().starts_with("dead-letter of "),
            "for whoever asks later"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_store_that_is_down_blocks_visibly_and_loses_nothing() {
    let fleet = fleet_of_the_issue();
    fleet.dead_letters.is_broken.store(true, Ordering::Relaxed);
    let host = fleet.start(
        "a",
        plugin(1, |record, before| of_the_issue(number(record), before)),
    );
    let shards: Vec<ShardId> = fleet
        .stream
        .shards()
        .into_iter()
        .map(|shard| shard.id)
        .collect();
    let before_poison: HashMap<&ShardId, Position> = shards
        .iter()
        .map(|shard| {
            let records = fleet.stream.records(shard);
            let at = records
                .iter()
                .position(|record| is_poison(number(record)))
                .unwrap();
            (shard, records[at - 1].position.clone())
        })
        .collect();
    let is_below = |shard: &ShardId| {
        fleet
            .row(shard)
            .is_some_and(|row| row.checkpoint == Checkpoint::At(before_poison[shard].clone()))
    };
    until("all below the first poison record is checkpointed", || {
        shards.iter().all(is_below)
    })
    .await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    for shard in &shards {
        assert!(is_below(shard), "nothing is settled that is not stored");
        let blocked = shard_status(&host, shard).unwrap().blocked.unwrap();
        assert!(blocked.reason.contains("sink dead"), "{}", blocked.reason);
        let stuck = fleet.row(shard).unwrap().stuck.unwrap();
        assert!(stuck.contains("dead"), "{stuck}");
    }
    fleet.dead_letters.is_broken.store(false, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(
        &fleet,
        (0..40_000).filter(|number| !is_poison(*number))
    ));
    let mut lines: Vec<u32> = fleet
        .dead_letters
        .lines()
        .iter()
        .map(|line| line.parse().unwrap())
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, [7_777, 17_777, 27_777, HANGS_AT, 37_777]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_whose_answer_is_lost_is_stored_again_and_then_settled() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = dead_lettering(1);
    fleet.put(0..30);
    fleet
        .dead_letters
        .faults
        .queue(Store, Fault::UnknownApplied);
    let _host = fleet.start(
        "a",
        plugin(1, |record, _| (number(record) == 13).then_some(Bad::Traps)),
    );
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(fleet.dead_letters.lines(), ["13", "13"]);
    assert!(came_out_once_and_in_order(
        &fleet,
        (0..30).filter(|number| *number != 13)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_store_that_never_answers_costs_the_lease_and_not_the_record() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = dead_lettering(1);
    fleet.options.leases.checkpoint_deadline = Duration::from_secs(30);
    fleet.put(0..30);
    fleet.dead_letters.faults.queue(Store, Fault::Hang);
    let host = fleet.start(
        "a",
        plugin(1, |record, _| (number(record) == 13).then_some(Bad::Traps)),
    );
    let shard = only_shard(&fleet);
    until("given up", || {
        shard_status(&host, &shard).is_some_and(|shard| shard.state == ShardState::GaveUp)
    })
    .await;
    assert!(fleet.dead_letters.lines().is_empty());
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(fleet.dead_letters.lines(), ["13"]);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_what_the_plugin_needs_holds_the_shard_visibly_and_gives_no_record_up() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = FailurePolicy {
        max_age: Some(Duration::from_secs(1)),
        then: Some(GiveUp::Skip),
        ..dead_lettering(1)
    };
    fleet.put(0..20);
    let is_away = Arc::new(AtomicBool::new(true));
    let away = Arc::clone(&is_away);
    let host = fleet.start(
        "a",
        NativePlugin::new(1, move |_, batch| {
            if away.load(Ordering::Relaxed) {
                let message = "unavailable: the pricing service answers 503".to_owned();
                return Err(ProcessorError::NotReady {
                    lack: Lack::Service,
                    message,
                });
            }
            Ok(Processed {
                emitted: batch.records.iter().map(out).collect(),
                ..Processed::default()
            })
        }),
    );
    let shard = only_shard(&fleet);
    let blocked = || shard_status(&host, &shard).and_then(|shard| shard.blocked);
    until("shown", || {
        blocked().is_some_and(|blocked| blocked.attempts >= 20)
    })
    .await;
    assert!(blocked().unwrap().reason.contains("answers 503"));
    assert!(
        fleet
            .row(&shard)
            .unwrap()
            .stuck
            .unwrap()
            .contains("answers 503")
    );
    is_away.store(false, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(&fleet, 0..20));
    let given_up = shard_status(&host, &shard).unwrap().given_up;
    assert_eq!((given_up.skipped, given_up.dead_lettered), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn bisecting_costs_two_deliveries_for_each_halving_and_waits_are_short() {
    let mut fleet = TestFleet::new(1);
    fleet.options.batches = BatchLimits {
        records: 1_000,
        ..BatchLimits::default()
    };
    fleet.options.failure = dead_lettering(1);
    fleet.put(0..1_000);
    let plugin = plugin(1, |record, _| (number(record) == 333).then_some(Bad::Traps));
    let history = plugin.history();
    let started = tokio::time::Instant::now();
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let sizes = deliveries(&history);
    assert!((15..=21).contains(&sizes.len()), "{sizes:?}");
    assert_eq!(
        (
            sizes[0],
            sizes.iter().filter(|size| **size == 1).count() <= 2
        ),
        (1_000, true),
        "{sizes:?}"
    );
    assert!(came_out_once_and_in_order(
        &fleet,
        (0..1_000).filter(|number| *number != 333)
    ));
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn without_bisect_a_batch_that_always_fails_is_given_up_whole() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = FailurePolicy {
        bisect: false,
        then: Some(GiveUp::Skip),
        ..dead_lettering(4)
    };
    fleet.put(0..30);
    let plugin = plugin(1, |record, _| (number(record) == 13).then_some(Bad::Traps));
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(&fleet, (0..10).chain(20..30)));
    assert_eq!(deliveries(&history), [10, 10, 10, 10, 10, 10]);
    let given_up = shard_status(&host, &only_shard(&fleet)).unwrap().given_up;
    assert_eq!((given_up.skipped, given_up.dead_lettered), (10, 0));
    assert!(
        given_up
            .last
            .unwrap()
            .contains("skip of 20, out of attempts after 4 deliveries")
    );
}

#[tokio::test(start_paused = true)]
async fn bisect_alone_gives_up_nothing_but_lets_all_before_the_bad_record_through() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = FailurePolicy {
        bisect: true,
        ..FailurePolicy::default()
    };
    fleet.put(0..10);
    let (mended, is_mended) = flag();
    let _host = fleet.start(
        "a",
        plugin(1, move |record, _| {
            (number(record) == 6 && !is_mended.load(Ordering::Relaxed)).then_some(Bad::Traps)
        }),
    );
    let shard = only_shard(&fleet);
    let before = fleet.stream.records(&shard)[5].position.clone();
    until("below it", || {
        fleet
            .row(&shard)
            .is_some_and(|row| row.checkpoint == Checkpoint::At(before.clone()))
    })
    .await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(fleet.sink.lines().len(), 6, "later records wait");
    mended.store(true, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(&fleet, 0..10));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_record_is_given_up_at_once_and_one_to_retry_gets_its_attempts() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = dead_lettering(3);
    fleet.put(0..10);
    let plugin = plugin(1, |record, _| match number(record) {
        2 => Some(Bad::Reject),
        5 => Some(Bad::Retry),
        _ => None,
    });
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let letters = fleet.dead_letters.stored();
    let told: Vec<_> = letters
        .iter()
        .map(|(_, letter)| {
            (
                number(&letter.record),
                letter.attempts,
                letter.reason.as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (2, 1, "rejected: reported by the test"),
            (5, 3, "out of attempts: reported by the test")
        ]
    );
    assert_eq!(deliveries(&history), [10, 1, 1]);
    assert!(came_out_once_and_in_order(
        &fleet,
        (0..10).filter(|number| ![2, 5].contains(number))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_record_older_than_it_may_be_is_given_up_when_it_fails_and_not_before() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = FailurePolicy {
        attempts: None,
        max_age: Some(Duration::from_mins(10)),
        ..dead_lettering(1)
    };
    fleet.stream.set_now_ms(1_000_000);
    fleet.wall_ms.store(1_000_000 + 600_000, Ordering::Relaxed);
    fleet.put(0..30);
    let host = fleet.start(
        "a",
        plugin(1, |record, _| (number(record) == 13).then_some(Bad::Retry)),
    );
    let shard = only_shard(&fleet);
    until("failing", || {
        shard_status(&host, &shard)
            .and_then(|shard| shard.blocked)
            .is_some_and(|b| b.attempts > 5)
    })
    .await;
    assert!(fleet.dead_letters.lines().is_empty());
    fleet.wall_ms.fetch_add(1, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let letters = fleet.dead_letters.stored();
    assert_eq!(
        (letters.len(), letters[0].1.reason.as_str()),
        (1, "too old: reported by the test")
    );
    assert_eq!(letters[0].1.failed_at_ms, 1_600_001);
    assert!(
        came_out_once_and_in_order(&fleet, (0..30).filter(|number| *number != 13)),
        "old records that work are kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_poison_record_among_held_back_ones_is_given_up_once_though_each_trap_repeats_them() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = dead_lettering(3);
    fleet.put(0..100);
    // Commits only once it has seen the last record.
    let plugin = NativePlugin::new(1, |_, batch| {
        if batch.records.iter().any(|record| number(record) == 57) {
            return Err(ProcessorError::Trapped {
                message: "poison".to_owned(),
            });
        }
        let is_last = batch.records.iter().any(|record| number(record) == 99);
        let commit = (!is_last).then_some(Commit::Nothing);
        Ok(Processed {
            outcome: Outcome {
                commit,
                ..Outcome::default()
            },
            emitted: Vec::new(),
        })
    });
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(fleet.dead_letters.lines(), ["57"]);
    // The instance that committed had got every record but the poison one, in order, since it was
    // made.
    let history = history.lock().unwrap();
    let made_at = history
        .iter()
        .rposition(|(_, _, event)| *event == Event::Init)
        .unwrap();
    let positions = history[made_at..]
        .iter()
        .filter_map(|(_, _, event)| match event {
            Event::Delivered { positions, .. } => Some(positions.clone()),
            Event::Init | Event::Ticked { .. } | Event::Closed(_) => None,
        });
    let good = fleet
        .stream
        .records(&only_shard(&fleet))
        .into_iter()
        .filter(|record| number(record) != 57);
    assert_eq!(
        positions.flatten().collect::<Vec<_>>(),
        good.map(|record| record.position).collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn what_an_instance_held_back_of_a_batch_comes_again_if_it_dies_on_the_rest_of_it() {
    let fleet = TestFleet::new(1);
    fleet.put(0..10);
    // Of the first batch one record fails and what follows 4 is held back; then it dies.
    let plugin = NativePlugin::new(1, |_, batch| match (batch.attempt, batch.records.len()) {
        (1, 10) => {
            let failure = RecordFailure {
                index: 8,
                kind: FailureKind::Retry,
                message: "no".into(),
            };
            let outcome = Outcome {
                failures: vec![failure],
                commit: Some(Commit::Through(4)),
                retry_after: None,
            };
            Ok(Processed {
                outcome,
                emitted: Vec::new(),
            })
        }
        (2, 1) => Err(ProcessorError::Trapped {
            message: "once".to_owned(),
        }),
        _ => Ok(Processed::default()),
    });
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let sizes = deliveries(&history);
    assert_eq!(
        (sizes[..2].to_vec(), sizes[2..].iter().sum()),
        (vec![10, 1], 5),
        "five to nine again: {sizes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_a_plugin_asks_for_is_kept() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = dead_lettering(3);
    fleet.put(0..1);
    let plugin = NativePlugin::new(1, |_, _| {
        let failure = RecordFailure {
            index: 0,
            kind: FailureKind::Retry,
            message: "no".into(),
        };
        let retry_after = Some(Duration::from_secs(40));
        Ok(Processed {
            outcome: Outcome {
                failures: vec![failure],
                commit: None,
                retry_after,
            },
            emitted: Vec::new(),
        })
    });
    let started = tokio::time::Instant::now();
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(
        (80..100).contains(&started.elapsed().as_secs()),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn empty_windows_never_wake_the_plugin() {
    let mut fleet = TestFleet::new(1);
    fleet.options.batches = BatchLimits {
        records: 10,
        window: Duration::from_secs(2),
        ..BatchLimits::default()
    };
    let plugin = NativePlugin::no_op(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(deliveries(&history).is_empty());
    fleet.put(0..13);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(
        deliveries(&history),
        [10, 3],
        "one full batch, and one that the window closed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_which_every_record_fails_releases_what_was_held_back_before_it() {
    let mut fleet = TestFleet::new(1);
    fleet.options.batches = BatchLimits {
        records: 1,
        ..BatchLimits::default()
    };
    fleet.put(0..2);
    let _host = fleet.start(
        "a",
        NativePlugin::new(1, |_, batch| {
            let is_first = number(&batch.records[0]) == 0;
            let failure = RecordFailure {
                index: 0,
                kind: FailureKind::Retry,
                message: "not yet".to_owned(),
            };
            let failures = if is_first { Vec::new() } else { vec![failure] };
            let commit = is_first.then_some(Commit::Nothing);
            Ok(Processed {
                outcome: Outcome {
                    failures,
                    commit,
                    ..Outcome::default()
                },
                ..Processed::default()
            })
        }),
    );
    let shard = only_shard(&fleet);
    let first = fleet.stream.records(&shard)[0].position.clone();
    let started = tokio::time::Instant::now();
    until("the first is checkpointed", || {
        fleet
            .row(&shard)
            .is_some_and(|row| row.checkpoint == Checkpoint::At(first.clone()))
    })
    .await;
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "though the second fails for ever"
    );
}
