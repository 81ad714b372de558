//! A new version is tried on one shard; what it fails on is no record's fault until the one before
//! it failed on it too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use harness::fake_lease_store::StoreOp;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::{Event, NativePlugin};
use shardmill_core::pipeline::{FailurePolicy, GiveUp};
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::{FailureKind, Outcome, Processed, ProcessorFactory, RecordFailure};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::{Batch, Emitted, ShardId};

fn digest(version: u64) -> PluginDigest {
    NativePlugin::no_op(version).digest().clone()
}

fn emitted(shard: &ShardId, batch: &Batch) -> Processed {
    let emit = |record: &shardmill_core::stream::Record| Emitted {
        destination: "out".to_owned(),
        key: shard.to_string(),
        data: record.data.clone(),
    };
    Processed {
        emitted: batch.records.iter().map(emit).collect(),
        ..Processed::default()
    }
}

fn number(record: &shardmill_core::stream::Record) -> u32 {
    String::from_utf8_lossy(&record.data).parse().unwrap()
}

fn trap() -> ProcessorError {
    ProcessorError::Trapped {
        message: "unreachable".to_owned(),
    }
}

/// Traps on batches that hold such a record.
fn trapping_on(version: u64, is_bad: impl Fn(u32) -> bool + Send + Sync + 'static) -> NativePlugin {
    NativePlugin::new(version, move |shard, batch| {
        if batch.records.iter().any(|record| is_bad(number(record))) {
            Err(trap())
        } else {
            Ok(emitted(shard, batch))
        }
    })
}

/// Rejects such records, and handles the others of the batch.
fn rejecting(version: u64, is_bad: impl Fn(u32) -> bool + Send + Sync + 'static) -> NativePlugin {
    NativePlugin::new(version, move |shard, batch| {
        let mut processed = emitted(shard, batch);
        let bad = (0..)
            .zip(batch.records.iter())
            .filter(|(_, record)| is_bad(number(record)));
        let failure = |index| RecordFailure {
            index,
            kind: FailureKind::Reject,
            message: "never".to_owned(),
        };
        let failures: Vec<_> = bad.map(|(index, _)| failure(index)).collect();
        processed
            .emitted
            .retain(|emitted| !is_bad(String::from_utf8_lossy(&emitted.data).parse().unwrap()));
        processed.outcome = Outcome {
            failures,
            ..Outcome::default()
        };
        Ok(processed)
    })
}

/// Gives up at the first failure, so that a failure held against a record would show.
fn merciless(shards: u32) -> TestFleet {
    let mut fleet = TestFleet::new(shards);
    let then = Some(GiveUp::DeadLetter("letters".to_owned()));
    fleet.options.failure = FailurePolicy {
        attempts: Some(1),
        bisect: true,
        then,
        ..FailurePolicy::default()
    };
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

#[tokio::test(start_paused = true)]
async fn a_good_version_is_tried_on_one_shard_promoted_and_proven() {
    let mut fleet = TestFleet::new(3);
    fleet.options.rollout = RolloutPolicy {
        canary_records: 60,
        probation: Duration::from_secs(30),
        ..fleet.options.rollout
    };
    let first = NativePlugin::echo(1);
    let history = first.history();
    let host = fleet.start("a", first);
    fleet.put(0..100);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(NativePlugin::echo(2).sharing(&history));
    fleet.put(100..160);
    until("the canary got some", || fleet.has_exactly(0..160)).await;
    let tried_on: std::collections::BTreeSet<ShardId> = {
        let history = history.lock().unwrap();
        let is_new = |(_, of, event): &&(ShardId, PluginDigest, Event)| {
            *of == digest(2) && matches!(event, Event::Delivered { .. })
        };
        history
            .iter()
            .filter(is_new)
            .map(|(shard, ..)| shard.clone())
            .collect()
    };
    assert_eq!(tried_on.len(), 1, "{tried_on:?}");
    until("shown", || {
        states(&host)
            .iter()
            .any(|state| state.starts_with("canary(shardId-"))
    })
    .await;
    fleet.put(160..400);
    until("promoted", || states(&host) == ["probation"]).await;
    fleet.put(400..500);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..500));
    for shard in fleet.stream.shards() {
        assert_eq!(fleet.row(&shard.id).unwrap().plugin_digest, Some(digest(2)));
    }
    until("proven", || states(&host) == ["active"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_traps_on_its_first_batch_gives_nothing_up_and_is_not_taken_again() {
    let fleet = merciless(2);
    let first = NativePlugin::echo(1);
    let history = first.history();
    let host = fleet.start("a", first);
    fleet.put(0..40);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(trapping_on(2, |_| true).sharing(&history));
    fleet.put(40..200);
    until("all out", || fleet.has_exactly(0..200)).await;
    until("shown", || states(&host) == ["active", "quarantined"]).await;
    let refused = host.status.snapshot().refused.unwrap();
    assert!(
        refused.reason.contains("unreachable")
            && refused.digest.as_deref() == Some(digest(2).as_str())
    );
    assert!(fleet.dead_letters.stored().is_empty(), "no record's fault");
    let entries = fleet.coordinator.rows().quarantined;
    assert!(
        entries.len() == 1 && entries[0].digest == digest(2) && entries[0].host.as_str() == "a",
        "{entries:?}"
    );
    host.offer(NativePlugin::echo(1).sharing(&history));
    host.offer(trapping_on(2, |_| true).sharing(&history));
    fleet.put(200..300);
    until("all out", || fleet.has_exactly(0..300)).await;
    let calls = history.lock().unwrap();
    let of_bad = calls
        .iter()
        .filter(|(_, of, event)| *of == digest(2) && matches!(event, Event::Delivered { .. }));
    assert_eq!(of_bad.count(), 1, "one call, ever");
    let writes = fleet.store.history();
    assert_eq!(
        writes
            .iter()
            .filter(|write| write.op == StoreOp::Take)
            .count(),
        2,
        "no lease moved"
    );
}

#[tokio::test(start_paused = true)]
async fn a_version_that_rejects_a_record_in_a_thousand_is_rolled_back_and_no_letter_is_written() {
    let fleet = merciless(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..100);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(rejecting(2, |number| number % 1_000 == 999));
    let mut next = 100;
    while fleet.coordinator.rows().quarantined.is_empty() {
        fleet.put(next..next + 200);
        next += 200;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(next < 40_000, "never rolled back");
    }
    until("all out", || fleet.has_exactly(0..next)).await;
    assert!(fleet.dead_letters.stored().is_empty());
    assert!(states(&host).contains(&"quarantined".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_fails_both_versions_is_given_up_as_the_policy_says_and_the_good_version_is_promoted()
 {
    let mut fleet = merciless(1);
    fleet.options.rollout = RolloutPolicy {
        canary_records: 100,
        ..fleet.options.rollout
    };
    let host = fleet.start("a", trapping_on(1, |number| number == 57));
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(trapping_on(2, |number| number == 57));
    fleet.put(20..400);
    until("all settled", || fleet.is_all_checkpointed()).await;
    until("promoted", || states(&host) == ["probation"]).await;
    let letters = fleet.dead_letters.stored();
    assert!(
        letters.len() == 1 && letters[0].1.digest == digest(1),
        "the version before had the last word"
    );
    assert_eq!(
        fleet.sink.lines().len(),
        399,
        "and everything else came out once"
    );
    assert!(fleet.coordinator.rows().quarantined.is_empty());
}

#[tokio::test(start_paused = true)]
async fn in_probation_what_the_version_before_handles_costs_no_record_and_three_times_is_too_often()
{
    let mut fleet = merciless(2);
    fleet.options.rollout = RolloutPolicy {
        canary_records: 50,
        ..fleet.options.rollout
    };
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..40);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(trapping_on(2, |number| number > 1_000 && number % 100 == 0));
    fleet.put(40..400);
    until("promoted", || states(&host) == ["probation"]).await;
    fleet.put(400..1_150);
    until("all out", || fleet.has_exactly(0..1_150)).await;
    assert_eq!(states(&host), ["probation"], "one is not too often");
    fleet.put(1_150..1_400);
    until("all out", || fleet.has_exactly(0..1_400)).await;
    until("rolled back", || states(&host) == ["active", "quarantined"]).await;
    assert!(fleet.dead_letters.stored().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_the_canary_settled_is_checkpointed_by_its_name_and_not_delivered_again_after_the_rollback()
 {
    let fleet = merciless(1);
    let first = NativePlugin::echo(1);
    let history = first.history();
    let host = fleet.start("a", first);
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(trapping_on(2, |number| number >= 60).sharing(&history));
    fleet.put(20..100);
    until("all out", || fleet.has_exactly(0..100)).await;
    let writes = fleet.store.history();
    let mut by: Vec<_> = writes
        .iter()
        .filter(|write| write.op == StoreOp::Checkpoint)
        .map(|write| write.row.plugin_digest.clone())
        .collect();
    by.dedup();
    assert_eq!(
        by[..2],
        [Some(digest(1)), Some(digest(2))],
        "then the version before again"
    );
    let calls = history.lock().unwrap();
    let delivered = |of: u64| -> usize {
        let len = |(_, version, event): &(ShardId, PluginDigest, Event)| match event {
            Event::Delivered {
                positions,
                is_ok: true,
                ..
            } if *version == digest(of) => positions.len(),
            _ => 0,
        };
        calls.iter().map(len).sum()
    };
    assert_eq!((delivered(1), delivered(2)), (60, 40));
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_version_is_not_taken_by_other_hosts_nor_after_a_restart_until_it_is_released()
 {
    let fleet = merciless(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..40);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(trapping_on(2, |_| true));
    fleet.put(40..100);
    until("all out", || fleet.has_exactly(0..100)).await;
    until("written down", || {
        !fleet.coordinator.rows().quarantined.is_empty()
    })
    .await;
    // A host that has nothing else takes nothing, and says why.
    let fixed = NativePlugin::new(2, |shard, batch| Ok(emitted(shard, batch)));
    let other = fleet.start("b", fixed);
    let blocked = || {
        other
            .status
            .snapshot()
            .pass_error
            .is_some_and(|error| error.contains("is quarantined"))
    };
    until("blocked", blocked).await;
    assert!(
        !fleet
            .coordinator
            .rows()
            .workers
            .iter()
            .any(|row| row.worker.as_str() == "b"),
        "nor counts for any share"
    );
    host.stop().await;
    fleet.put(100..140);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(fleet.has_exactly(0..100), "blocked rather than harmed");
    fleet.coordinator.change(|rows| rows.quarantined.clear());
    until("released", || fleet.has_exactly(0..140)).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_lets_a_running_host_try_the_version_again() {
    let fleet = merciless(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    // Bad once: what it needed was not there.
    let calls = Arc::new(AtomicU32::new(0));
    host.offer(NativePlugin::new(2, move |shard, batch| {
        match calls.fetch_add(1, Ordering::Relaxed) {
            0 => Err(trap()),
            _ => Ok(emitted(shard, batch)),
        }
    }));
    fleet.put(20..40);
    until("written down", || {
        !fleet.coordinator.rows().quarantined.is_empty()
    })
    .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(states(&host), ["active", "quarantined"]);
    fleet.coordinator.change(|rows| rows.quarantined.clear());
    until("tried again", || {
        states(&host).len() == 2 && !states(&host).contains(&"quarantined".to_owned())
    })
    .await;
    fleet.put(40..60);
    until("all out", || fleet.has_exactly(0..60)).await;
    let shard = fleet.stream.shards()[0].id.clone();
    until("by the new version", || {
        fleet.row(&shard).unwrap().plugin_digest == Some(digest(2))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_of_the_only_version_is_shown_and_ends_with_its_cause() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", trapping_on(1, |_| true));
    fleet.put(0..10);
    until("shown", || states(&host) == ["crash-looping"]).await;
    let version = host.status.snapshot().versions.remove(0);
    assert!(version.reason.unwrap().contains("unreachable"));
    until("in its row", || {
        let rows = fleet.coordinator.rows().workers;
        rows.iter().any(|row| {
            row.versions
                .first()
                .is_some_and(|version| version.state == "crash-looping")
        })
    })
    .await;
    host.offer(NativePlugin::echo(2));
    until("mended", || fleet.has_exactly(0..10)).await;
    until("shown", || {
        states(&host) == ["probation"] || states(&host) == ["active"]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn hosts_wait_until_those_whose_turn_it_is_run_the_version() {
    let mut fleet = TestFleet::new(4);
    let rollout = RolloutPolicy {
        share: 0.5,
        canary_for: Duration::from_secs(5),
        probation: Duration::from_secs(20),
        ..fleet.options.rollout
    };
    fleet.options.rollout = rollout;
    let hosts = [
        fleet.start("a", NativePlugin::echo(1)),
        fleet.start("b", NativePlugin::echo(1)),
    ];
    until("both told theirs", || {
        fleet
            .coordinator
            .rows()
            .workers
            .iter()
            .filter(|row| !row.versions.is_empty())
            .count()
            == 2
    })
    .await;
    for host in &hosts {
        host.offer(NativePlugin::echo(2));
    }
    let waits = |host: &TestHost| states(host).contains(&"waiting".to_owned());
    until("one waits", || {
        hosts.iter().filter(|host| waits(host)).count() == 1
    })
    .await;
    let runs = |host: &TestHost| {
        host.status
            .snapshot()
            .versions
            .first()
            .is_some_and(|version| version.digest == digest(2).as_str())
    };
    until("the other runs it", || hosts.iter().any(&runs)).await;
    assert!(!hosts.iter().all(runs));
    assert_eq!(
        hosts[0].status.snapshot().fleet_versions.len(),
        1,
        "as told at the last beat, or two"
    );
    until("then both", || hosts.iter().all(runs)).await;
}

#[tokio::test(start_paused = true)]
async fn with_rollout_off_every_shard_takes_the_version_at_once_as_it_came() {
    let mut fleet = TestFleet::new(3);
    fleet.options.rollout = RolloutPolicy::off();
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..60);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(NativePlugin::echo(2));
    fleet.put(60..120);
    until("all out", || fleet.is_all_checkpointed()).await;
    for shard in fleet.stream.shards() {
        assert_eq!(fleet.row(&shard.id).unwrap().plugin_digest, Some(digest(2)));
    }
}
