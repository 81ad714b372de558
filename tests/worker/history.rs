//! What hosts do by themselves is in the application's history, within limits, and nothing waits for
//! it.

use std::time::Duration;

use harness::fake_coordinator::CoordinatorOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::control::{Deed, HistoryEntry};
use shardmill_core::pipeline::{FailurePolicy, GiveUp};
use shardmill_core::rollout::RolloutPolicy;

use crate::poison::{Bad, dead_lettering, number, only_shard, plugin};

fn of(fleet: &TestFleet, deed: Deed) -> Vec<HistoryEntry> {
    let mut history = fleet.coordinator.history();
    history.retain(|entry| entry.deed == deed);
    history
}

#[tokio::test(start_paused = true)]
async fn a_host_that_takes_the_leases_of_a_dead_one_says_so_in_few_entries_that_name_it() {
    let fleet = TestFleet::new(8);
    fleet.put(0..100);
    let first = fleet.start("a", NativePlugin::echo(1));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(of(&fleet, Deed::Took).is_empty(), "nobody had them before");
    drop(first);
    let second = fleet.start("b", NativePlugin::echo(1));
    fleet.put(100..200);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    until("written", || !of(&fleet, Deed::Took).is_empty()).await;
    let entries = of(&fleet, Deed::Took);
    assert!(entries.len() < 8, "{entries:?}");
    for entry in &entries {
        assert_eq!(entry.by, "b");
        assert!(entry.details.contains('a'), "{entry:?}");
        assert!(entry.details.contains("shardId-"), "{entry:?}");
    }
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_records_given_up_is_few_entries_that_count_the_others() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = dead_lettering(1);
    fleet.options.batches.records = 1;
    fleet.put(0..300);
    let host = fleet.start("a", plugin(1, |_, _| Some(Bad::Reject)));
    until("all given up", || fleet.is_all_checkpointed()).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    fleet.put(300..301);
    until("the last one too", || fleet.is_all_checkpointed()).await;
    until("written", || {
        of(&fleet, Deed::GaveUpRecords)
            .last()
            .is_some_and(|entry| entry.details.contains("were left out"))
    })
    .await;
    let entries = of(&fleet, Deed::GaveUpRecords);
    assert!(entries.len() < 20, "{}", entries.len());
    assert_eq!(fleet.dead_letters.stored().len(), 301);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn versions_tried_promoted_and_rolled_back_and_shards_halted_are_told() {
    let mut fleet = TestFleet::new(2);
    fleet.options.rollout = RolloutPolicy {
        canary_records: 10,
        ..RolloutPolicy::default()
    };
    fleet.options.failure = FailurePolicy {
        then: Some(GiveUp::Halt),
        ..dead_lettering(2)
    };
    fleet.put(0..200);
    let host = fleet.start(
        "a",
        plugin(1, |record, _| {
            (number(record) == 350).then_some(Bad::Reject)
        }),
    );
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    host.offer(plugin(2, |_, _| Some(Bad::Traps)));
    fleet.put(200..300);
    until("rolled back", || !of(&fleet, Deed::RolledBack).is_empty()).await;
    assert!(!of(&fleet, Deed::Tried).is_empty());
    fleet.put(300..400);
    until("halted", || !of(&fleet, Deed::Halted).is_empty()).await;
    let halted = of(&fleet, Deed::Halted);
    assert!(halted[0].details.contains("halted at"), "{halted:?}");
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_history_that_cannot_be_written_holds_nothing_up() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = dead_lettering(1);
    for _ in 0..20 {
        let faults = &fleet.coordinator.faults;
        faults.queue(CoordinatorOp::Record, Fault::Hang);
    }
    fleet.put(0..100);
    let host = fleet.start("a", plugin(1, |_, _| Some(Bad::Reject)));
    until("all given up", || fleet.is_all_checkpointed()).await;
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hosts_that_are_to_write_only_about_commands_write_nothing_else() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = dead_lettering(1);
    fleet.options.records_own_deeds = false;
    fleet.put(0..100);
    let host = fleet.start("a", plugin(1, |_, _| Some(Bad::Reject)));
    until("all given up", || fleet.is_all_checkpointed()).await;
    host.stop().await;
    let _ = only_shard(&fleet);
    assert!(fleet.coordinator.history().is_empty());
}
