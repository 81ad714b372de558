//! Subscriptions that stand and bring nothing: a shard never rests for want of a word from them.

use std::time::Duration;

use harness::fake_fan_out::Break;
use harness::fake_stream::ReadOp;
use harness::fleet::until;
use harness::native::NativePlugin;
use shardmill_core::lease::Checkpoint;
use shardmill_worker::ShardRetrieval;

use crate::fan_out::{is_all_once_in_order, retrieval, subscribing};

#[tokio::test(start_paused = true)]
async fn records_that_a_subscription_does_not_bring_are_polled() {
    let fleet = subscribing(1);
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.put(0..30);
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    until("some are out", || fleet.has_exactly(0..30)).await;
    assert!(fleet.fan_out.break_off(&shard, Break::Mute), "subscribed");
    fleet.put(30..60);
    until("the rest is out", || fleet.has_exactly(0..60)).await;
    until("the shard is polled", || {
        retrieval(&host, &shard) == Some(ShardRetrieval::PollingForNow)
    })
    .await;
    until("subscribed again", || {
        fleet.fan_out.starts(&shard).len() == 2
    })
    .await;
    fleet.put(60..90);
    until("all checkpointed", || {
        fleet.has_exactly(0..90) && fleet.is_all_checkpointed()
    })
    .await;
    assert!(is_all_once_in_order(&fleet, &history));
}

#[tokio::test(start_paused = true)]
async fn a_closed_shard_whose_subscription_never_ends_is_followed_by_its_children() {
    let fleet = subscribing(1);
    let parent = fleet.stream.shards()[0].clone();
    fleet.put(0..30);
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until("some are out", || fleet.has_exactly(0..30)).await;
    assert!(
        fleet.fan_out.break_off(&parent.id, Break::Mute),
        "subscribed"
    );
    fleet
        .stream
        .split(&parent.id, parent.hash_range.start() + 1_000);
    fleet.put(30..60);
    until("the children are read", || fleet.has_exactly(0..60)).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(
        fleet.row(&parent.id).unwrap().checkpoint,
        Checkpoint::ShardEnd
    );
    assert!(is_all_once_in_order(&fleet, &history));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_only_quiet_keeps_its_subscription_and_costs_a_read_a_minute() {
    let fleet = subscribing(1);
    let shard = fleet.stream.shards()[0].id.clone();
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("subscribed", || !fleet.fan_out.starts(&shard).is_empty()).await;
    tokio::time::sleep(Duration::from_mins(31)).await;
    let subscriptions = fleet.fan_out.starts(&shard).len();
    assert!(
        (6..=7).contains(&subscriptions),
        "only renewed every five minutes: {subscriptions}"
    );
    let reads = fleet.stream.calls(ReadOp::Fetch);
    assert!((20..=31).contains(&reads), "{reads}");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_subscription_is_no_failed_read_however_short_the_leases_are() {
    let mut fleet = subscribing(1);
    let leases = &mut fleet.options.leases;
    leases.duration = Duration::from_secs(3);
    leases.renew_every = Duration::from_secs(1);
    leases.read_deadline = leases.duration;
    let shard = fleet.stream.shards()[0].id.clone();
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("subscribed", || !fleet.fan_out.starts(&shard).is_empty()).await;
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(fleet.fan_out.starts(&shard).len(), 1);
}
