//! The plugin's state and the shard's checkpoint never disagree: whatever fails, moves or is
//! replaced, each record counts once in the state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use harness::fake_lease_store::StoreOp;
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::{Event, NativePlugin};
use shardmill_core::lease::Checkpoint;
use shardmill_core::pipeline::{CheckpointPolicy, FailurePolicy, GiveUp};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{
    Commit, FailureKind, Outcome, Processed, ProcessorFactory, RecordFailure,
};
use shardmill_core::stream::{LeaseKey, ShardId};

use crate::poison::{dead_lettering, number};

fn stateful(shards: u32) -> TestFleet {
    let mut fleet = TestFleet::new(shards);
    fleet.options.keeps_state = true;
    fleet
}

fn only_shard(fleet: &TestFleet) -> ShardId {
    fleet.stream.shards()[0].id.clone()
}

fn state(fleet: &TestFleet, shard: &ShardId) -> Vec<String> {
    let saved = fleet.store.saved_state(&LeaseKey::of_shard(shard));
    let text =
        String::from_utf8(saved.map(|saved| saved.bytes.to_vec()).unwrap_or_default()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Whether the states hold each record of the stream once, but for those of `without`.
fn counts_each_once(fleet: &TestFleet, without: &[u32]) -> bool {
    fleet.stream.shards().iter().all(|shard| {
        let mut counted = state(fleet, &shard.id);
        counted.sort();
        let records = fleet.stream.records(&shard.id);
        let wanted = records
            .iter()
            .filter(|record| !without.contains(&number(record)));
        let mut wanted: Vec<String> = wanted.map(|record| record.position.to_string()).collect();
        wanted.sort();
        counted == wanted
    })
}

fn blocked_because(host: &TestHost, shard: &ShardId) -> String {
    host.shard(shard)
        .and_then(|shard| shard.blocked)
        .map(|blocked| blocked.reason)
        .unwrap_or_default()
}

fn trap() -> ProcessorError {
    ProcessorError::Trapped {
        message: "unreachable".to_owned(),
    }
}

/// Traps at each seventh call.
fn trapping(version: u64) -> NativePlugin {
    let calls = AtomicU32::new(0);
    let behaviour = move |_: &ShardId, _: &shardmill_core::stream::Batch| match calls
        .fetch_add(1, Ordering::Relaxed)
    {
        call if call % 7 == 6 => Err(trap()),
        _ => Ok(Processed::default()),
    };
    NativePlugin::new(version, behaviour).keeping_state()
}

#[tokio::test(start_paused = true)]
async fn each_record_counts_once_though_instances_die_with_what_they_had_not_saved() {
    let fleet = stateful(2);
    let host = fleet.start("a", trapping(1));
    for round in 0..20 {
        fleet.put(round * 50..(round + 1) * 50);
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(counts_each_once(&fleet, &[]));
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_host_goes_on_from_the_state_of_the_checkpoint_after_a_crash_and_after_a_hand_over()
 {
    let fleet = stateful(2);
    for life in 0..12_u32 {
        let host = fleet.start(&format!("host-{life}"), trapping(1));
        fleet.put(life * 100..(life + 1) * 100);
        let rows = || fleet.store.history().len();
        let before = rows();
        until("something is written", || rows() > before + 3).await;
        tokio::time::sleep(Duration::from_millis(u64::from(life) * 97)).await;
        // Half of the lives end in a crash.
        if life % 2 == 0 {
            drop(host);
        } else {
            host.stop().await;
        }
    }
    let host = fleet.start("last", NativePlugin::no_op(1).keeping_state());
    host.stop_when(|| fleet.is_all_checkpointed()).await;
    assert!(counts_each_once(&fleet, &[]));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stops_while_a_sink_refuses_finishes_the_batch_in_hand() {
    for keeps_state in [true, false] {
        let mut fleet = stateful(1);
        fleet.options.keeps_state = keeps_state;
        let plugin = || {
            if keeps_state {
                NativePlugin::echo(1).keeping_state()
            } else {
                NativePlugin::echo(1)
            }
        };
        let host = fleet.start("a", plugin());
        fleet.put(0..20);
        until("checkpointed", || fleet.is_all_checkpointed()).await;
        fleet.sink.is_broken.store(true, Ordering::Relaxed);
        fleet.put(20..21);
        until("refused", || {
            !blocked_because(&host, &only_shard(&fleet)).is_empty()
        })
        .await;
        let mend = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            fleet.sink.is_broken.store(false, Ordering::Relaxed);
        };
        tokio::join!(host.stop(), mend);
        fleet.put(21..30);
        let next = fleet.start("b", plugin());
        next.stop_when(|| fleet.is_all_checkpointed()).await;
        assert!(
            fleet.has_exactly(0..30),
            "keeps state: {keeps_state}, {:?}",
            fleet.sink.lines()
        );
        assert!(!keeps_state || counts_each_once(&fleet, &[]));
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_swaps_take_the_state_along() {
    let fleet = stateful(2);
    let host = fleet.start("a", trapping(1));
    for version in 2..52_u32 {
        fleet.put((version - 2) * 20..(version - 1) * 20);
        host.offer(trapping(u64::from(version)));
        tokio::time::sleep(Duration::from_millis(130)).await;
    }
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(counts_each_once(&fleet, &[]));
    assert!(host.status.snapshot().refused.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_swap_without_failures_repeats_nothing() {
    let fleet = stateful(1);
    let host = fleet.start("a", NativePlugin::echo(1).keeping_state());
    for version in 2..22_u32 {
        fleet.put((version - 2) * 20..(version - 1) * 20);
        host.offer(NativePlugin::echo(u64::from(version)).keeping_state());
        tokio::time::sleep(Duration::from_millis(130)).await;
    }
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..400));
    assert!(counts_each_once(&fleet, &[]));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_refuses_the_state_or_keeps_none_is_not_activated() {
    let fleet = stateful(1);
    let shard = only_shard(&fleet);
    let host = fleet.start("a", NativePlugin::echo(1).keeping_state());
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    for (version, reason) in [
        (NativePlugin::echo(2).refusing_state(), "not mine"),
        (
            NativePlugin::echo(3),
            "this version exports no save and load",
        ),
    ] {
        host.offer(version);
        until("refused", || {
            host.status
                .snapshot()
                .refused
                .is_some_and(|refused| refused.reason.contains(reason))
        })
        .await;
    }
    fleet.put(20..40);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert_eq!(
        fleet.row(&shard).unwrap().plugin_digest,
        Some(NativePlugin::no_op(1).digest().clone())
    );
    assert!(
        fleet.has_exactly(0..40),
        "the old one went on, and repeated nothing"
    );
    assert!(counts_each_once(&fleet, &[]));
}

#[tokio::test(start_paused = true)]
async fn state_without_a_grant_is_refused_and_not_lost_in_silence() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1).keeping_state());
    fleet.put(0..20);
    let shard = only_shard(&fleet);
    until("blocked", || {
        blocked_because(&host, &shard).contains("set state = true under [grants]")
    })
    .await;
    assert!(fleet.sink.lines().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_save_that_fails_holds_the_shard_back_visibly_until_it_works() {
    let fleet = stateful(1);
    let shard = only_shard(&fleet);
    let error = ProcessorError::State {
        message: "it has 300000 bytes".to_owned(),
    };
    let host = fleet.start("a", NativePlugin::echo(1).failing_to_save(8, error));
    fleet.put(0..20);
    until("blocked", || {
        blocked_because(&host, &shard).contains("cannot save the plugin's state")
    })
    .await;
    let out = fleet.sink.lines().len();
    fleet.put(20..40);
    until("tried again", || {
        host.shard(&shard)
            .and_then(|shard| shard.blocked)
            .is_some_and(|b| b.attempts > 3)
    })
    .await;
    assert_eq!(
        fleet.sink.lines().len(),
        out,
        "what follows would only be repeated"
    );
    assert_eq!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::TrimHorizon
    );
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..40), "nothing is repeated");
    until("shown as mended", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.blocked.is_none())
    })
    .await;
    assert!(counts_each_once(&fleet, &[]));
}

#[tokio::test(start_paused = true)]
async fn a_trap_in_save_takes_the_shard_back_to_its_checkpoint() {
    let fleet = stateful(1);
    let host = fleet.start("a", NativePlugin::no_op(1).failing_to_save(3, trap()));
    fleet.put(0..20);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(counts_each_once(&fleet, &[]));
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_version_takes_over_from_one_that_cannot_save() {
    let fleet = stateful(1);
    let shard = only_shard(&fleet);
    let error = ProcessorError::State {
        message: "too large".to_owned(),
    };
    let host = fleet.start("a", NativePlugin::no_op(1).failing_to_save(u32::MAX, error));
    fleet.put(0..20);
    until("blocked", || {
        blocked_because(&host, &shard).contains("too large")
    })
    .await;
    host.offer(NativePlugin::no_op(2).keeping_state());
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(counts_each_once(&fleet, &[]));
}

#[tokio::test(start_paused = true)]
async fn records_that_are_given_up_are_not_in_the_state_and_those_that_were_retried_are_once() {
    let mut fleet = stateful(1);
    fleet.options.failure = FailurePolicy {
        then: Some(GiveUp::Skip),
        ..dead_lettering(3)
    };
    let tries = Arc::new(AtomicU32::new(0));
    let plugin = NativePlugin::new(1, move |_, batch| {
        let mut failures = Vec::new();
        for (index, record) in (0..).zip(batch.records.iter()) {
            let kind = match number(record) {
                number if number % 17 == 3 => FailureKind::Reject,
                number if number % 11 == 5 && tries.fetch_add(1, Ordering::Relaxed) % 3 < 2 => {
                    FailureKind::Retry
                }
                _ => continue,
            };
            failures.push(RecordFailure {
                index,
                kind,
                message: "not this one".to_owned(),
            });
        }
        Ok(Processed {
            outcome: Outcome {
                failures,
                ..Outcome::default()
            },
            emitted: Vec::new(),
        })
    });
    let host = fleet.start("a", plugin.keeping_state());
    fleet.put(0..300);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let rejected: Vec<u32> = (0..300).filter(|number| number % 17 == 3).collect();
    assert!(counts_each_once(&fleet, &rejected));
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_last_record_that_was_given_up_before_a_rewind_is_checkpointed_too() {
    let mut fleet = stateful(1);
    fleet.options.failure = FailurePolicy {
        then: Some(GiveUp::Skip),
        ..dead_lettering(1)
    };
    fleet.options.batches.records = 1;
    // Due by count when all but the last record, which traps, were handled for the second time.
    fleet.options.checkpoints = CheckpointPolicy {
        records: 19,
        age: Duration::from_secs(10),
        ..Default::default()
    };
    let plugin = NativePlugin::new(1, |_, batch| match number(&batch.records[0]) {
        9 => Err(trap()),
        _ => Ok(Processed::default()),
    });
    fleet.put(0..10);
    let host = fleet.start("a", plugin.keeping_state());
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(counts_each_once(&fleet, &[9]));
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn writes_without_answers_leave_state_and_checkpoint_together() {
    let fleet = stateful(2);
    let mut dice = fastrand::Rng::with_seed(7);
    fleet
        .store
        .faults
        .draw_from(move |op| match (op, dice.u32(0..6)) {
            (StoreOp::Checkpoint, 0) => Some(Fault::UnknownApplied),
            (StoreOp::Checkpoint, 1) => Some(Fault::UnknownNotApplied),
            (StoreOp::Checkpoint | StoreOp::State, 2) => Some(Fault::Throttle),
            _ => None,
        });
    let host = fleet.start("a", trapping(1));
    for round in 0..10 {
        fleet.put(round * 50..(round + 1) * 50);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    for shard in fleet.stream.shards() {
        let saved = fleet
            .store
            .saved_state(&LeaseKey::of_shard(&shard.id))
            .unwrap();
        assert_eq!(saved.checkpoint, fleet.row(&shard.id).unwrap().checkpoint);
    }
    assert!(counts_each_once(&fleet, &[]));
    drop(host);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_something_else_moved_is_reported_and_nothing_is_counted_on_it() {
    let fleet = stateful(1);
    let shard = only_shard(&fleet);
    fleet.put(0..20);
    let host = fleet.start("a", NativePlugin::no_op(1).keeping_state());
    host.stop_when(|| fleet.is_all_checkpointed()).await;
    let earlier = Checkpoint::At(fleet.stream.records(&shard)[4].position.clone());
    fleet.store.put_row(shardmill_core::lease::Lease {
        checkpoint: earlier,
        ..fleet.row(&shard).unwrap()
    });
    let host = fleet.start("b", NativePlugin::no_op(1).keeping_state());
    until("blocked", || {
        blocked_because(&host, &shard).contains("something else moved the checkpoint")
    })
    .await;
    let reason = blocked_because(&host, &shard);
    assert!(
        reason.contains("delete the shard's row from table plugin-state"),
        "{reason}"
    );
    assert_eq!(state(&fleet, &shard).len(), 20, "the state is untouched");
}

#[tokio::test(start_paused = true)]
async fn state_ends_with_its_shard() {
    let fleet = stateful(1);
    let shard = only_shard(&fleet);
    let host = fleet.start("a", NativePlugin::no_op(1).keeping_state());
    fleet.put(0..20);
    until("saved", || !state(&fleet, &shard).is_empty()).await;
    fleet.stream.split(&shard, u128::MAX / 2);
    fleet.put(20..60);
    until("ended", || {
        fleet
            .row(&shard)
            .is_none_or(|row| row.checkpoint == Checkpoint::ShardEnd)
    })
    .await;
    assert!(
        fleet
            .store
            .saved_state(&LeaseKey::of_shard(&shard))
            .is_none()
    );
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let children = fleet
        .stream
        .shards()
        .into_iter()
        .filter(|child| child.id != shard);
    assert_eq!(
        children
            .map(|child| state(&fleet, &child.id).len())
            .sum::<usize>(),
        40
    );
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_state_is_a_state() {
    let fleet = stateful(1);
    let shard = only_shard(&fleet);
    let silent = || {
        NativePlugin::new(1, |_, batch| {
            let failures =
                (0..u32::try_from(batch.records.len()).unwrap()).map(|index| RecordFailure {
                    index,
                    kind: FailureKind::Reject,
                    message: String::new(),
                });
            Ok(Processed {
                outcome: Outcome {
                    failures: failures.collect(),
                    ..Outcome::default()
                },
                ..Processed::default()
            })
        })
    };
    let mut fleet_ = fleet;
    fleet_.options.failure = FailurePolicy {
        then: Some(GiveUp::Skip),
        ..dead_lettering(1)
    };
    let fleet = fleet_;
    let host = fleet.start("a", silent().keeping_state());
    fleet.put(0..5);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(
        fleet
            .store
            .saved_state(&LeaseKey::of_shard(&shard))
            .unwrap()
            .bytes,
        Bytes::new()
    );
    host.stop().await;
}

/// The simulator's seed 361: the save failed, the new version loaded the state of the checkpoint,
/// and a second save worked.
#[tokio::test(start_paused = true)]
async fn a_new_version_never_starts_below_a_checkpoint_that_the_old_one_still_writes() {
    let fleet = stateful(1);
    let error = ProcessorError::State {
        message: "not now".to_owned(),
    };
    let host = fleet.start("a", NativePlugin::no_op(1).failing_to_save(1, error));
    fleet.put(0..5);
    let shard = only_shard(&fleet);
    until("delivered", || {
        host.shard(&shard).is_some_and(|shard| shard.records == 5)
    })
    .await;
    host.offer(NativePlugin::no_op(2).keeping_state());
    fleet.put(5..10);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(counts_each_once(&fleet, &[]));
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_holds_records_back_keeps_them_when_the_reader_is_made_anew() {
    let fleet = TestFleet::new(1);
    let plugin = NativePlugin::new(1, |_, _| {
        let outcome = Outcome {
            commit: Some(Commit::Nothing),
            ..Outcome::default()
        };
        Ok(Processed {
            outcome,
            emitted: Vec::new(),
        })
    });
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    let happened = |wanted: fn(&Event) -> bool| {
        let history = history.lock().unwrap();
        history.iter().filter(|(_, _, event)| wanted(event)).count()
    };
    let is_made = |event: &Event| matches!(event, Event::Init);
    let is_delivered = |event: &Event| matches!(event, Event::Delivered { .. });
    fleet.put(0..10);
    until("it holds them back", || happened(is_delivered) > 0).await;
    let instances = happened(is_made);
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::Fetch).then_some(Fault::UnknownNotApplied));
    let iterators = fleet.stream.calls(ReadOp::Iterator);
    until("the reader is made anew", || {
        fleet.stream.calls(ReadOp::Iterator) > iterators
    })
    .await;
    let deliveries = happened(is_delivered);
    fleet.stream.faults.clear();
    fleet.put(10..11);
    until("it goes on", || happened(is_delivered) > deliveries).await;
    assert_eq!(
        happened(is_delivered),
        deliveries + 1,
        "nothing comes twice"
    );
    assert_eq!(happened(is_made), instances);
}
