//! What a new version does wrong is held against it, and against no record and no other version.

use std::sync::atomic::Ordering;
use std::time::Duration;

use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::lease::Checkpoint;
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::{Lack, ProcessorError};
use shardmill_core::ports::{Processed, ProcessorFactory};
use shardmill_core::rollout::{Quarantined, RolloutPolicy};

use crate::poison::{dead_lettering, number};

fn merciless(shards: u32) -> TestFleet {
    let mut fleet = TestFleet::new(shards);
    fleet.options.failure = dead_lettering(1);
    fleet
}

fn states(host: &TestHost) -> Vec<String> {
    host.status
        .snapshot()
        .versions
        .into_iter()
        .map(|version| version.state)
        .collect()
}

/// Is cut off with such a record, ten seconds after the call began.
fn hanging_on(version: u64, bad: u32) -> NativePlugin {
    let cut_off = ProcessorError::DeadlineExceeded {
        call: "process",
        limit: Duration::from_secs(10),
    };
    NativePlugin::new(version, move |_, batch| {
        let is_bad = batch.records.iter().any(|record| number(record) == bad);
        if is_bad {
            Err(cut_off.clone())
        } else {
            Ok(Processed::default())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_version_that_was_replaced_meanwhile_costs_no_record() {
    let fleet = merciless(4);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..40);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(hanging_on(2, 40));
    until("promoted", || states(&host) == ["probation"]).await;
    // In a call on one shard. The others go back to what worked at once.
    fleet.put(40..41);
    tokio::time::sleep(Duration::from_secs(3)).await;
    host.offer(NativePlugin::echo(1));
    until("all out", || fleet.has_exactly(0..41)).await;
    assert!(
        fleet.dead_letters.stored().is_empty(),
        "its only failure was that of a version that is gone"
    );
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cannot_save_its_state_is_rolled_back_and_each_record_counts_once() {
    let mut fleet = merciless(2);
    fleet.options.keeps_state = true;
    let host = fleet.start("a", NativePlugin::echo(1).keeping_state());
    fleet.put(0..40);
    until("all out", || fleet.is_all_checkpointed()).await;
    let too_large = ProcessorError::State {
        message: "too large".to_owned(),
    };
    host.offer(NativePlugin::echo(2).failing_to_save(u32::MAX, too_large));
    fleet.put(40..200);
    until("rolled back", || states(&host) == ["active", "quarantined"]).await;
    until("all out", || fleet.is_all_checkpointed()).await;
    let reason = host.status.snapshot().versions[1].reason.clone().unwrap();
    assert!(
        reason.contains("it cannot save its state") && reason.contains("too large"),
        "{reason}"
    );
    let v1 = NativePlugin::no_op(1).digest().clone();
    assert!(
        fleet
            .stream
            .shards()
            .iter()
            .all(|shard| fleet.row(&shard.id).unwrap().plugin_digest == Some(v1.clone()))
    );
    assert!(fleet.dead_letters.stored().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_state_only_the_new_version_can_read_is_not_kept_in_a_trial_for_ever() {
    let mut fleet = merciless(1);
    fleet.options.keeps_state = true;
    let host = fleet.start("a", NativePlugin::echo(1).refusing_state());
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    let shard = fleet.stream.shards()[0].id.clone();
    host.offer(
        NativePlugin::new(2, |_, batch| {
            let is_bad = batch.records.iter().any(|record| number(record) == 30);
            let trap = ProcessorError::Trapped {
                message: "unreachable".to_owned(),
            };
            if is_bad {
                Err(trap)
            } else {
                Ok(Processed::default())
            }
        })
        .keeping_state(),
    );
    fleet.put(20..25);
    until("settled with its state", || fleet.is_all_checkpointed()).await;
    fleet.put(25..40);
    until("all settled", || fleet.is_all_checkpointed()).await;
    assert_eq!(
        fleet.dead_letters.lines(),
        ["30"],
        "as the policy says of what no version that fits the shard can handle"
    );
    assert!(matches!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::At(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_bad_again_after_its_quarantine_is_written_down_again() {
    let mut fleet = merciless(1);
    fleet.options.rollout = RolloutPolicy {
        quarantine_for: Duration::from_mins(2),
        ..fleet.options.rollout
    };
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(NativePlugin::new(2, |_, _| {
        Err(ProcessorError::Trapped {
            message: "unreachable".to_owned(),
        })
    }));
    fleet.put(20..40);
    until("written down", || {
        !fleet.coordinator.rows().quarantined.is_empty()
    })
    .await;
    let first = fleet.coordinator.rows().quarantined[0].at_ms;
    fleet.wall_ms.store(first + 180_000, Ordering::Relaxed);
    fleet.put(40..60);
    let again = || {
        fleet
            .coordinator
            .rows()
            .quarantined
            .iter()
            .any(|entry| entry.at_ms > first)
    };
    until("written down again", again).await;
    until("all out", || fleet.has_exactly(0..60)).await;
    assert!(fleet.dead_letters.stored().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_version_that_lacks_what_is_not_its_own_is_waited_for_and_the_one_before_it_runs_on() {
    let not_ready = || ProcessorError::NotReady {
        lack: Lack::Service,
        message: "unavailable: the service is away".to_owned(),
    };
    let hosts = || ProcessorError::Host {
        message: "the secret cannot be had".to_owned(),
    };
    for (error, rollout) in [
        (not_ready(), RolloutPolicy::default()),
        (hosts(), RolloutPolicy::default()),
        (not_ready(), RolloutPolicy::off()),
        (hosts(), RolloutPolicy::off()),
    ] {
        let mut fleet = merciless(2);
        fleet.options.rollout = rollout;
        let host = fleet.start("a", NativePlugin::echo(1));
        fleet.put(0..40);
        until("all out", || fleet.is_all_checkpointed()).await;
        host.offer(NativePlugin::echo(2).failing_init_with(error));
        for next in [40, 80, 120] {
            tokio::time::sleep(Duration::from_secs(30)).await;
            fleet.put(next..next + 40);
        }
        until("all out", || fleet.has_exactly(0..160)).await;
        assert!(
            fleet.coordinator.rows().quarantined.is_empty()
                && fleet.dead_letters.stored().is_empty()
        );
        assert!(host.status.snapshot().refused.is_some(), "and that is told");
        // What it lacked is there.
        host.offer(NativePlugin::echo(3));
        fleet.put(160..200);
        until("all out", || fleet.has_exactly(0..200)).await;
        host.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_hosts_verdict_does_not_stop_others_from_starting_a_version_that_runs_as_active() {
    let fleet = merciless(2);
    let _proven = fleet.start("a", NativePlugin::echo(2));
    let is_told = || {
        fleet
            .coordinator
            .rows()
            .workers
            .iter()
            .any(|row| !row.versions.is_empty())
    };
    until("told", is_told).await;
    let (digest, host) = (
        NativePlugin::no_op(2).digest().clone(),
        WorkerId::new("c").unwrap(),
    );
    let entry = Quarantined {
        digest,
        host,
        reason: "it takes longer".to_owned(),
        at_ms: 1,
    };
    fleet
        .coordinator
        .change(|rows| rows.quarantined.push(entry));
    let other = fleet.start("b", NativePlugin::echo(2));
    let takes_part = || {
        fleet
            .coordinator
            .rows()
            .workers
            .iter()
            .any(|row| row.worker.as_str() == "b")
    };
    until("it takes part", takes_part).await;
    assert_eq!(other.status.snapshot().pass_error, None);
}
