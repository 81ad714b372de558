//! The host lacks memory for instances: shards wait and take turns, and no record pays for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::fleet::{TestFleet, until};
use harness::native::{Event, NativePlugin};
use shardmill_core::ports::{CloseReason, ProcessorFactory};

#[tokio::test(start_paused = true)]
async fn an_instance_that_makes_room_is_closed_between_batches_and_made_again_for_the_next() {
    let fleet = TestFleet::new(1);
    let plugin = NativePlugin::echo(1).making_room();
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    for round in 0..5 {
        fleet.put(round * 10..(round + 1) * 10);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
    }
    assert!(fleet.has_exactly(0..50));
    let history = history.lock().unwrap().clone();
    let count = |wanted: Event| {
        history
            .iter()
            .filter(|(_, _, event)| *event == wanted)
            .count()
    };
    assert!(count(Event::Init) >= 5, "one a batch");
    assert!(count(Event::Closed(CloseReason::Reload)) >= 5);
    drop(host);
}

#[tokio::test(start_paused = true)]
async fn four_shards_with_room_for_one_instance_take_turns_and_lose_nothing() {
    let fleet = TestFleet::new(4);
    let places = Arc::new(AtomicUsize::new(1));
    let _host = fleet.start(
        "a",
        NativePlugin::echo(1).making_room().with_places(&places),
    );
    for round in 0..5 {
        fleet.put(round * 40..(round + 1) * 40);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..200));
}

#[tokio::test(start_paused = true)]
async fn a_swap_for_which_there_is_no_memory_closes_the_old_version_first() {
    let fleet = TestFleet::new(1);
    let places = Arc::new(AtomicUsize::new(1));
    let host = fleet.start("a", NativePlugin::echo(1).with_places(&places));
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.put(0..10);
    until("the first version at work", || fleet.is_all_checkpointed()).await;
    host.offer(NativePlugin::echo(2).with_places(&places));
    fleet.put(10..20);
    until("the second version at work", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..20));
    assert_eq!(
        fleet.row(&shard).unwrap().plugin_digest,
        Some(NativePlugin::no_op(2).digest().clone())
    );
    assert_eq!(places.load(Ordering::SeqCst), 0, "one instance lives");
}

#[tokio::test(start_paused = true)]
async fn what_an_instance_emitted_when_it_was_closed_takes_memory_until_it_is_stored() {
    let fleet = TestFleet::new(1);
    let places = Arc::new(AtomicUsize::new(1));
    let plugin = NativePlugin::echo(1).with_places(&places).emitting_last();
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    fleet.put(0..10);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    fleet.sink.is_broken.store(true, Ordering::Relaxed);
    let mut stopping = tokio::task::JoinSet::new();
    stopping.spawn(host.stop());
    until("closed", || {
        let history = history.lock().unwrap();
        let is_closed = |event: &Event| matches!(event, Event::Closed(_));
        history.iter().any(|(_, _, event)| is_closed(event))
    })
    .await;
    // Less than a host waits for a sink at its end.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(places.load(Ordering::SeqCst), 0, "the sink is down");
    fleet.sink.is_broken.store(false, Ordering::Relaxed);
    stopping.join_next().await.unwrap().unwrap();
    assert_eq!(places.load(Ordering::SeqCst), 1);
    assert_eq!(fleet.sink.lines().last().unwrap(), "last");
}
