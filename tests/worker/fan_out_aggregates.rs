//! KPL aggregates that are pushed: opened as those that are polled, and let go of as any event if
//! there is no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::aggregates::{aggregate, aggregate_of_copies};
use harness::fake_fan_out::Break;
use harness::fake_stream::ReadOp;
use harness::fleet::{TestFleet, until};
use harness::native::{Event, History, NativePlugin};
use shardmill_core::lease::Checkpoint;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::Processed;
use shardmill_core::stream::{Position, ShardId};

use crate::fan_out::subscribing;

fn shard(fleet: &TestFleet) -> ShardId {
    fleet.stream.shards()[0].id.clone()
}

/// Positions delivered with success, in order.
fn handled(history: &History) -> Vec<Position> {
    let handled = |event: &Event| match event {
        Event::Delivered {
            positions,
            is_ok: true,
            ..
        } => positions.clone(),
        Event::Delivered { .. } | Event::Init | Event::Ticked { .. } | Event::Closed(_) => {
            Vec::new()
        }
    };
    history
        .lock()
        .unwrap()
        .iter()
        .flat_map(|(_, _, event)| handled(event))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn user_records_that_are_pushed_come_once_and_in_order_whatever_breaks_in_between() {
    for how in [Break::Cut, Break::OutOfOrder, Break::Repeats] {
        let fleet = subscribing(1);
        fleet.fan_out.set_event_records(3);
        let put = |numbers: std::ops::Range<u32>| {
            for first in numbers.clone().step_by(7) {
                let last = (first + 7).min(numbers.end);
                fleet.stream.put_at(
                    0,
                    "key",
                    aggregate((first..last).map(|number| number.to_string())),
                );
            }
        };
        put(0..45);
        let plugin = NativePlugin::echo(1);
        let history = plugin.history();
        let host = fleet.start("a", plugin);
        until("the first are out", || fleet.sink.lines().len() == 45).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(fleet.fan_out.break_off(&shard(&fleet), how), "subscribed");
        put(45..100);
        until("the rest is out", || fleet.sink.lines().len() >= 100).await;
        assert_eq!(
            fleet.stream.calls(ReadOp::Fetch),
            0,
            "{how:?}: nothing is polled"
        );
        host.stop().await;
        let _next = fleet.start("b", NativePlugin::echo(1).sharing(&history));
        put(100..120);
        until("all out", || fleet.sink.lines().len() >= 120).await;
        assert_eq!(
            fleet.sink.lines(),
            (0..120)
                .map(|number| number.to_string())
                .collect::<Vec<_>>(),
            "{how:?}"
        );
        assert!(handled(&history).is_sorted_by(|a, b| a < b), "{how:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_outgrows_the_budget_is_opened_in_parts_and_its_subscription_let_go_of() {
    const OF_ONE: usize = 20_000;
    const AGGREGATES: usize = 24;
    let mut fleet = subscribing(1);
    fleet.options.batches.records = 10_000;
    fleet.options.batches.window = Duration::from_millis(100);
    // 3 MiB opened, from 200 KB: an event of all of them is more than the 64 MiB of a test host.
    let dense = aggregate_of_copies(OF_ONE, b"1");
    let mut last = None;
    for _ in 0..AGGREGATES {
        last = Some(fleet.stream.put_at(0, "key", dense.clone()).1);
    }
    let is_open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&is_open);
    let plugin = NativePlugin::new(1, move |_, _| {
        let stuck = || ProcessorError::Trapped {
            message: "stuck".to_owned(),
        };
        gate.load(Ordering::Relaxed)
            .then(Processed::default)
            .ok_or_else(stuck)
    });
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    until("the event is there, and a part of it", || {
        host.shard(&shard(&fleet))
            .is_some_and(|s| s.blocked.is_some())
    })
    .await;
    assert_eq!(
        (
            fleet.fan_out.events_pushed(),
            fleet.fan_out.open_subscriptions()
        ),
        (1, 1)
    );
    let opened = || {
        host.shard(&shard(&fleet))
            .and_then(|shard| shard.fetched)
            .map(|position| position.sequence)
    };
    assert!(
        opened() < last,
        "opened only as far as it is asked for: {:?}",
        opened()
    );
    until("let go of", || fleet.fan_out.open_subscriptions() == 0).await;
    assert!(opened() < last, "{:?}", opened());
    is_open.store(true, Ordering::Relaxed);
    let end = Checkpoint::At(Position {
        sequence: last.clone().unwrap(),
        sub_sequence: OF_ONE as u64 - 1,
    });
    until("all checkpointed", || {
        fleet
            .row(&shard(&fleet))
            .is_some_and(|row| row.checkpoint == end)
    })
    .await;
    let handled = handled(&history);
    assert_eq!(handled.len(), AGGREGATES * OF_ONE);
    assert!(handled.is_sorted_by(|a, b| a < b), "each once, in order");
    assert_eq!(
        fleet.fan_out.events_pushed(),
        2,
        "what was let go of is pulled once more"
    );
    until("subscribed again", || {
        fleet.fan_out.starts(&shard(&fleet)).len() == 2
    })
    .await;
}
