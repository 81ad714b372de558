//! A halted shard stands still, keeps its lease, says why, and goes on with a new version or
//! another start.

use std::time::Duration;

use harness::fleet::{TestFleet, until};
use shardmill_core::lease::Checkpoint;
use shardmill_core::pipeline::{FailurePolicy, GiveUp};
use shardmill_core::ports::ProcessorFactory;
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::ShardId;
use shardmill_worker::ShardState;

use crate::poison::{
    Bad, came_out_once_and_in_order, dead_lettering, deliveries, number, only_shard, plugin,
    shard_status,
};

#[tokio::test(start_paused = true)]
async fn a_halted_shard_keeps_its_lease_delivers_nothing_says_why_and_goes_on_with_a_new_version() {
    let mut fleet = TestFleet::new(2);
    fleet.options.failure = FailurePolicy {
        then: Some(GiveUp::Halt),
        ..dead_lettering(2)
    };
    fleet.put(0..100);
    let plugin_of = |version| {
        plugin(version, |record, _| {
            (number(record) == 50).then_some(Bad::Traps)
        })
    };
    let broken = plugin_of(1);
    let history = broken.history();
    let host = fleet.start("a", broken);
    let of_poison = |shard: &ShardId| {
        fleet
            .stream
            .records(shard)
            .iter()
            .any(|record| number(record) == 50)
    };
    let shard = fleet
        .stream
        .shards()
        .into_iter()
        .map(|shard| shard.id)
        .find(of_poison)
        .unwrap();
    let is_halted =
        || shard_status(&host, &shard).is_some_and(|shard| shard.state == ShardState::Halted);
    until("halted", is_halted).await;
    let (epoch, count) = (
        fleet.row(&shard).unwrap().counter,
        deliveries(&history).len(),
    );
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(deliveries(&history).len(), count, "nothing is delivered");
    let row = fleet.row(&shard).unwrap();
    assert_eq!(
        row.owner.as_ref().map(ToString::to_string).as_deref(),
        Some("a")
    );
    let stuck = row.stuck.unwrap();
    assert!(
        stuck.contains("halted at 51") && stuck.contains("the plugin trapped: poison"),
        "{stuck}"
    );
    assert!(
        shard_status(&host, &shard)
            .unwrap()
            .blocked
            .unwrap()
            .reason
            .contains("a new version of the plugin or a restart")
    );
    assert!(
        row.counter.0 < epoch.0 + 5,
        "the heartbeat holds it, not renewals"
    );
    // Another version gets the record with all attempts, and one that works goes on.
    host.offer(plugin_of(2).sharing(&history));
    until("tried by the second", || {
        deliveries(&history).len() == count + 2
    })
    .await;
    until("halted", is_halted).await;
    host.offer(plugin(3, |_, _| None));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(&fleet, 0..100));
    until("the row says so", || {
        fleet.row(&shard).unwrap().stuck.is_none()
    })
    .await;
    assert!(shard_status(&host, &shard).unwrap().blocked.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_halted_shard_is_given_up_at_once_when_the_host_stops_and_tried_anew_by_the_next() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = FailurePolicy {
        then: Some(GiveUp::Halt),
        ..dead_lettering(2)
    };
    fleet.put(0..30);
    let host = fleet.start(
        "a",
        plugin(1, |record, _| (number(record) == 13).then_some(Bad::Traps)),
    );
    let shard = only_shard(&fleet);
    until("halted", || {
        shard_status(&host, &shard).is_some_and(|shard| shard.state == ShardState::Halted)
    })
    .await;
    let stopping = tokio::time::Instant::now();
    host.stop().await;
    assert!(
        stopping.elapsed() < Duration::from_secs(2),
        "{:?}",
        stopping.elapsed()
    );
    let row = fleet.row(&shard).unwrap();
    assert_eq!(row.owner, None);
    assert_eq!(
        row.checkpoint,
        Checkpoint::At(fleet.stream.records(&shard)[12].position.clone())
    );
    let _next = fleet.start("b", plugin(1, |_, _| None));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(&fleet, 0..30));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_does_not_start_gives_no_attempts_and_leaves_a_halted_shard_halted() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = FailurePolicy {
        then: Some(GiveUp::Halt),
        ..dead_lettering(2)
    };
    fleet.put(0..30);
    let broken = plugin(1, |record, _| (number(record) == 13).then_some(Bad::Traps));
    let history = broken.history();
    let host = fleet.start("a", broken);
    let shard = only_shard(&fleet);
    let is_halted =
        || shard_status(&host, &shard).is_some_and(|shard| shard.state == ShardState::Halted);
    until("halted", is_halted).await;
    let count = deliveries(&history).len();
    host.offer(plugin(2, |_, _| None).failing_init());
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(is_halted(), "the version at work is the one that halted");
    assert_eq!(deliveries(&history).len(), count, "nothing is delivered");
    host.offer(plugin(3, |_, _| None));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(came_out_once_and_in_order(&fleet, 0..30));
}

#[tokio::test(start_paused = true)]
async fn a_new_version_gets_all_attempts() {
    let mut fleet = TestFleet::new(1);
    // A version under trial is charged nothing.
    fleet.options.rollout = RolloutPolicy::off();
    fleet.options.failure = dead_lettering(5);
    fleet.put(0..1);
    let always = |version| plugin(version, |_, _| Some(Bad::Retry));
    let first = always(1);
    let history = first.history();
    let host = fleet.start("a", first);
    until("tried", || deliveries(&history).len() == 3).await;
    host.offer(always(2).sharing(&history));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let (_, letter) = fleet.dead_letters.stored().remove(0);
    assert_eq!(letter.digest, *always(2).digest());
    assert_eq!((deliveries(&history).len(), letter.attempts), (8, 8));
}
