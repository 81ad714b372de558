//! Records are delivered in order, retried until handled, and checkpointed only when settled and
//! stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::{Event, History, NativePlugin};
use shardmill_core::lease::Checkpoint;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Commit, FailureKind, Outcome, Processed, RecordFailure};
use shardmill_core::stream::{Emitted, Position, ShardId};
use shardmill_worker::ShardState;

/// Positions handled on `shard`, in order.
fn handled(history: &History, shard: &ShardId) -> Vec<Position> {
    let history = history.lock().unwrap();
    let of_shard = history.iter().filter(|(of, ..)| of == shard);
    of_shard
        .filter_map(|(_, _, event)| match event {
            Event::Delivered {
                positions,
                is_ok: true,
                ..
            } => Some(positions.clone()),
            Event::Delivered { .. } | Event::Init | Event::Ticked { .. } | Event::Closed(_) => None,
        })
        .flatten()
        .collect()
}

fn trapped() -> ProcessorError {
    ProcessorError::Trapped {
        message: "by the test".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn every_record_is_delivered_once_in_order_and_checkpointed() {
    let fleet = TestFleet::new(4);
    fleet.put(0..500);
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..500));
    for shard in fleet.stream.shards() {
        let put: Vec<_> = fleet
            .stream
            .records(&shard.id)
            .into_iter()
            .map(|record| record.position)
            .collect();
        assert_eq!(handled(&history, &shard.id), put);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_batch_is_retried_visibly_and_never_skipped_while_other_shards_flow() {
    let fleet = TestFleet::new(2);
    fleet.put(0..40);
    let bad = fleet.stream.shards()[0].id.clone();
    let bad_shard = bad.clone();
    let failures_left = Arc::new(AtomicU32::new(12));
    let left = Arc::clone(&failures_left);
    let host = fleet.start(
        "a",
        NativePlugin::new(1, move |shard, batch| {
            let is_bad = *shard == bad_shard && left.load(Ordering::Relaxed) > 0;
            if is_bad {
                left.fetch_sub(1, Ordering::Relaxed);
                return Err(trapped());
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
        }),
    );
    until("the shard is shown as blocked", || {
        host.status
            .snapshot()
            .shards
            .get(bad.as_str())
            .is_some_and(|shard| shard.blocked.as_ref().is_some_and(|b| b.attempts >= 8))
    })
    .await;
    let reason = host.status.snapshot().shards[bad.as_str()]
        .blocked
        .clone()
        .unwrap()
        .reason;
    assert!(reason.contains("trapped"), "{reason}");
    assert_eq!(
        fleet.row(&bad).unwrap().checkpoint,
        Checkpoint::TrimHorizon,
        "nothing unsettled is checkpointed"
    );
    let other = fleet.stream.shards()[1].id.clone();
    assert!(
        matches!(fleet.row(&other).unwrap().checkpoint, Checkpoint::At(_)),
        "the other shard flows"
    );
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..40));
    assert!(
        host.status.snapshot().shards[bad.as_str()]
            .blocked
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn only_the_failed_records_of_a_batch_are_delivered_again() {
    let fleet = TestFleet::new(1);
    fleet.put(0..10);
    let plugin = NativePlugin::new(1, |_, batch| {
        let fails = |index: u32| RecordFailure {
            index,
            kind: FailureKind::Retry,
            message: "not yet".into(),
        };
        let failures = match (batch.attempt, batch.records.len()) {
            (1, 10) => vec![fails(3), fails(7)],
            (2, 2) => vec![fails(1)],
            _ => Vec::new(),
        };
        Ok(Processed {
            outcome: Outcome {
                failures,
                ..Outcome::default()
            },
            emitted: Vec::new(),
        })
    });
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let sizes: Vec<_> = history
        .lock()
        .unwrap()
        .iter()
        .filter_map(|(_, _, event)| match event {
            Event::Delivered {
                positions, attempt, ..
            } => Some((positions.len(), *attempt)),
            Event::Init | Event::Ticked { .. } | Event::Closed(_) => None,
        })
        .collect();
    assert_eq!(sizes, [(10, 1), (2, 2), (1, 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_stops_below_a_record_that_still_fails() {
    let fleet = TestFleet::new(1);
    fleet.put(0..10);
    let _host = fleet.start(
        "a",
        NativePlugin::new(1, |_, batch| {
            let poison = batch.records.iter().position(|record| record.data == "4");
            let fails = |index| RecordFailure {
                index,
                kind: FailureKind::Reject,
                message: "poison".into(),
            };
            let failures = poison
                .map(|index| fails(u32::try_from(index).unwrap()))
                .into_iter()
                .collect();
            Ok(Processed {
                outcome: Outcome {
                    failures,
                    ..Outcome::default()
                },
                emitted: Vec::new(),
            })
        }),
    );
    let shard = fleet.stream.shards()[0].id.clone();
    let before_poison = fleet.stream.records(&shard)[3].position.clone();
    until("what is settled is checkpointed", || {
        fleet
            .row(&shard)
            .is_some_and(|row| row.checkpoint == Checkpoint::At(before_poison.clone()))
    })
    .await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::At(before_poison)
    );
}

#[tokio::test(start_paused = true)]
async fn records_handled_between_two_failed_ones_are_checkpointed_as_soon_as_the_first_is() {
    // In the second attempt, of 2 and 8, the latter fails again, or is held back.
    for is_held_back in [false, true] {
        let fleet = TestFleet::new(1);
        fleet.put(0..10);
        let plugin = NativePlugin::new(1, move |_, batch| {
            let fails = |index| RecordFailure {
                index,
                kind: FailureKind::Retry,
                message: "not yet".into(),
            };
            let (failures, commit) = match (batch.attempt, is_held_back) {
                (1, _) => (vec![fails(2), fails(8)], None),
                (_, true) => (Vec::new(), Some(Commit::Through(0))),
                (_, false) => (
                    vec![fails(u32::try_from(batch.records.len()).unwrap() - 1)],
                    None,
                ),
            };
            Ok(Processed {
                outcome: Outcome {
                    failures,
                    commit,
                    ..Outcome::default()
                },
                emitted: Vec::new(),
            })
        });
        let _host = fleet.start("a", plugin);
        let shard = fleet.stream.shards()[0].id.clone();
        let between = fleet.stream.records(&shard)[7].position.clone();
        until("what lies between is checkpointed", || {
            fleet
                .row(&shard)
                .is_some_and(|row| row.checkpoint == Checkpoint::At(between.clone()))
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_from_its_first_record_on_commits_what_an_earlier_one_held_back() {
    let fleet = TestFleet::new(1);
    fleet.put(0..20);
    let plugin = NativePlugin::new(1, |_, batch| {
        let is_first = batch.records[0].data == "0";
        let failure = RecordFailure {
            index: 0,
            kind: FailureKind::Retry,
            message: "not yet".into(),
        };
        let failures = if is_first { Vec::new() } else { vec![failure] };
        let commit = is_first.then_some(Commit::Nothing);
        Ok(Processed {
            outcome: Outcome {
                failures,
                commit,
                ..Outcome::default()
            },
            emitted: Vec::new(),
        })
    });
    let _host = fleet.start("a", plugin);
    let shard = fleet.stream.shards()[0].id.clone();
    let held_back = fleet.stream.records(&shard)[9].position.clone();
    until("what was held back is checkpointed", || {
        fleet
            .row(&shard)
            .is_some_and(|row| row.checkpoint == Checkpoint::At(held_back.clone()))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_makes_no_sense_settles_nothing() {
    let fleet = TestFleet::new(1);
    fleet.put(0..5);
    let host = fleet.start(
        "a",
        NativePlugin::new(1, |_, _| {
            let outcome = Outcome {
                commit: Some(Commit::Through(99)),
                ..Outcome::default()
            };
            Ok(Processed {
                outcome,
                emitted: Vec::new(),
            })
        }),
    );
    let shard = fleet.stream.shards()[0].id.clone();
    until("blocked", || {
        host.status
            .snapshot()
            .shards
            .get(shard.as_str())
            .is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    assert_eq!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::TrimHorizon
    );
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_down_blocks_the_checkpoint_and_loses_nothing() {
    let fleet = TestFleet::new(1);
    fleet.sink.is_broken.store(true, Ordering::Relaxed);
    fleet.put(0..30);
    let host = fleet.start("a", NativePlugin::echo(1));
    let shard = fleet.stream.shards()[0].id.clone();
    until("blocked", || {
        host.status
            .snapshot()
            .shards
            .get(shard.as_str())
            .is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::TrimHorizon
    );
    fleet.sink.is_broken.store(false, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..30));
}

#[tokio::test(start_paused = true)]
async fn records_held_back_are_not_checkpointed_and_come_again_after_a_trap() {
    let fleet = TestFleet::new(1);
    fleet.put(0..20);
    let calls = AtomicU32::new(0);
    let plugin = NativePlugin::new(1, move |_, _| {
        let commit = match calls.fetch_add(1, Ordering::Relaxed) {
            0 => Some(Commit::Nothing),
            1 => return Err(trapped()),
            _ => None,
        };
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
    let shard = fleet.stream.shards()[0].id.clone();
    // The first ten were delivered, held back, lost with the instance, and delivered again with the
    // rest.
    assert_eq!(handled(&history, &shard).len(), 30);
}

#[tokio::test(start_paused = true)]
async fn an_expired_iterator_leaves_no_gap_and_no_repeat() {
    let fleet = TestFleet::new(1);
    let plugin = NativePlugin::echo(1);
    let _host = fleet.start("a", plugin);
    for round in 0..5 {
        fleet.put(round * 10..round * 10 + 10);
        until("checkpointed", || fleet.is_all_checkpointed()).await;
        fleet.stream.expire_iterators();
    }
    assert!(fleet.has_exactly(0..50));
}

#[tokio::test(start_paused = true)]
async fn reads_that_throttle_fail_hang_or_find_nothing_are_tried_again_and_never_end_a_shard() {
    let fleet = TestFleet::new(1);
    for fault in [
        Fault::Throttle,
        Fault::UnknownNotApplied,
        Fault::Hang,
        Fault::NotFound,
        Fault::Refuse,
        Fault::ExpiredIterator,
    ] {
        fleet.stream.faults.queue(ReadOp::Fetch, fault);
        fleet.stream.faults.queue(ReadOp::Iterator, fault);
    }
    fleet.put(0..20);
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..20));
    let shard = fleet.stream.shards()[0].id.clone();
    assert!(matches!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::At(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn calls_stay_within_the_shards_rate() {
    let fleet = TestFleet::new(1);
    fleet.put(0..100);
    let _host = fleet.start("a", NativePlugin::no_op(1));
    until("reading", || fleet.stream.calls(ReadOp::Fetch) > 0).await;
    let before = fleet.stream.calls(ReadOp::Fetch);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let calls = fleet.stream.calls(ReadOp::Fetch) - before;
    assert!(calls <= 51, "{calls} calls in ten seconds");
}

#[test]
fn reads_that_would_outlast_an_iterator_are_refused_before_anything_is_read() {
    let refused = |change: fn(&mut shardmill_worker::ReadLimits)| {
        let mut options = TestFleet::new(1).options;
        change(&mut options.reads);
        options.validate().unwrap_err().setting
    };
    assert_eq!(
        refused(|reads| reads.calls_per_second = 1e-30),
        "reads.calls-per-second"
    );
    assert_eq!(
        refused(|reads| reads.calls_per_second = f64::NAN),
        "reads.calls-per-second"
    );
    assert_eq!(
        refused(|reads| reads.bytes_per_second = 0.0),
        "reads.bytes-per-second"
    );
    assert_eq!(
        refused(|reads| reads.idle_every = Duration::MAX),
        "reads.idle-every"
    );
    assert_eq!(
        refused(|reads| reads.idle_max = Duration::from_secs(301)),
        "reads.idle-max"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_shard_that_is_asked_seldom_counts_as_read() {
    let mut fleet = TestFleet::new(1);
    fleet.options.reads.idle_max = Duration::from_mins(5);
    let host = fleet.start("a", NativePlugin::echo(1));
    let shard = fleet.stream.shards()[0].id.clone();
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert!(
        fleet.options.leases.read_deadline < fleet.options.reads.idle_max,
        "as by default"
    );
    assert_eq!(
        fleet.stream.calls(ReadOp::Iterator),
        1,
        "its reader is the first one"
    );
    let state = host.status.snapshot().shards[shard.as_str()].state;
    assert_eq!(state, ShardState::Processing);
}

#[tokio::test(start_paused = true)]
async fn idle_shards_keep_no_bytes_from_each_other() {
    // The budget of a test host allows six replies at once; the shards are ten times as many.
    let mut fleet = TestFleet::new(64);
    fleet.options.reads.idle_max = fleet.options.reads.idle_every;
    let _host = fleet.start("a", NativePlugin::no_op(1));
    until("every shard was read", || {
        fleet.stream.calls(ReadOp::Iterator) >= 64
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = fleet.stream.calls(ReadOp::Fetch);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let calls = fleet.stream.calls(ReadOp::Fetch) - before;
    assert!(calls >= 64 * 9, "{calls} reads in ten idle seconds");
}

#[tokio::test(start_paused = true)]
async fn bytes_stay_within_the_shards_rate() {
    let mut fleet = TestFleet::new(1);
    fleet.options.reads.records_per_call = 4;
    for number in 0..40 {
        fleet
            .stream
            .put_at(0, &number.to_string(), vec![b'x'; 512 << 10]);
    }
    let started = tokio::time::Instant::now();
    let _host = fleet.start("a", NativePlugin::no_op(1));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    // Ten replies of 2 MiB at 2 MiB a second; the last one need not be waited for.
    assert!(
        started.elapsed() > Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_batch_fails_for_ever_fetches_no_more_than_it_may_hold() {
    let mut fleet = TestFleet::new(1);
    fleet.options.reads.records_per_call = 10;
    let host = fleet.start("a", NativePlugin::new(1, |_, _| Err(trapped())));
    fleet.put(0..500);
    let shard = fleet.stream.shards()[0].id.clone();
    let is_blocked = || {
        host.status
            .snapshot()
            .shards
            .get(shard.as_str())
            .is_some_and(|shard| shard.blocked.is_some())
    };
    until("blocked", is_blocked).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    let calls = fleet.stream.calls(ReadOp::Fetch);
    assert!(
        calls <= 4,
        "one batch in delivery, one reply waiting, one on its way: {calls} calls"
    );
}

#[tokio::test(start_paused = true)]
async fn lag_is_what_kinesis_said_last_and_the_age_of_what_was_settled_last() {
    let mut fleet = TestFleet::new(1);
    fleet.options.reads.records_per_call = 10;
    let shard = fleet.stream.shards()[0].id.clone();
    for _ in 0..3 {
        fleet.put(0..10);
        fleet.stream.advance_ms(60_000);
    }
    let is_open = Arc::new(AtomicU32::new(0));
    let opened = Arc::clone(&is_open);
    // The first batch goes, the others fail until the gate opens.
    let host = fleet.start(
        "a",
        NativePlugin::new(1, move |_, batch| {
            let is_first = batch.records[0].arrival_ms < 60_000;
            if is_first || opened.load(Ordering::Relaxed) > 0 {
                Ok(Processed::default())
            } else {
                Err(trapped())
            }
        }),
    );
    let status = || host.status.snapshot().shards.get(shard.as_str()).cloned();
    until("blocked at the second batch", || {
        status().is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    let stuck = status().unwrap();
    assert_eq!(
        stuck.settled_arrival_ms,
        Some(1),
        "the last settled record, however far was read"
    );
    let row = || fleet.row(&shard).unwrap();
    until("the row says so", || row().settled_arrival_ms == Some(1)).await;
    assert!(
        row()
            .millis_behind_latest
            .is_some_and(|behind| behind >= 60_000),
        "{:?}",
        row()
    );
    is_open.store(1, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(row().settled_arrival_ms, Some(120_001));
    until("at the tip", || {
        status().is_some_and(|shard| shard.millis_behind_latest == Some(0))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_not_said_to_be_at_its_tip_before_it_was_read() {
    let fleet = TestFleet::new(1);
    fleet.put(0..5);
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::Fetch).then_some(Fault::Throttle));
    let host = fleet.start("a", NativePlugin::no_op(1));
    let shard = fleet.stream.shards()[0].id.clone();
    until("read errors", || {
        host.status
            .snapshot()
            .shards
            .get(shard.as_str())
            .is_some_and(|s| s.read_error.is_some())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(fleet.row(&shard).unwrap().millis_behind_latest, None);
    host.stop().await;
    assert_eq!(
        fleet.row(&shard).unwrap().millis_behind_latest,
        None,
        "nothing was heard of the tip"
    );
}
