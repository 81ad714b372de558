//! A plugin that wants it is called because time has passed: also on a silent shard, never at the
//! wrong moment, and what it emits is covered as the output of a batch is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use harness::fake_lease_store::StoreOp;
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::{Event, History, NativePlugin};
use shardmill_core::lease::Checkpoint;
use shardmill_core::pipeline::{FailurePolicy, Order, Parallelism, TickInterval};
use shardmill_core::plugin::{Lack, ProcessorError};
use shardmill_core::ports::{Commit, HeldBack, Outcome, Processed, TickTime, Ticked};
use shardmill_core::stream::{Emitted, LeaseKey};
use shardmill_worker::{ShardState, Why};
use tokio::time::Instant;

use crate::control::operator::Operator;
use crate::poison::only_shard;

const EVERY: Duration = Duration::from_secs(10);

fn emitting(text: &str) -> Ticked {
    Ticked {
        emitted: vec![Emitted {
            destination: "out".to_owned(),
            key: String::new(),
            data: Bytes::from(text.to_owned()),
        }],
        ..Ticked::default()
    }
}

/// Emits `tick` and its number at each.
fn counting(version: u64) -> NativePlugin {
    let ticks = AtomicU32::new(0);
    NativePlugin::no_op(version).ticking(move |_, _| {
        let number = ticks.fetch_add(1, Ordering::Relaxed);
        Ok(emitting(&format!("tick {number}")))
    })
}

/// Does nothing at a tick.
fn idling(version: u64) -> NativePlugin {
    NativePlugin::no_op(version).ticking(|_, _| Ok(Ticked::default()))
}

fn failing(version: u64) -> NativePlugin {
    NativePlugin::echo(version).ticking(|_, _| Err(trap()))
}

fn trap() -> ProcessorError {
    ProcessorError::Trapped {
        message: "unreachable".to_owned(),
    }
}

/// The times of all ticks so far, and whether they worked.
fn ticks(history: &History) -> Vec<(TickTime, bool)> {
    let history = history.lock().unwrap();
    let ticks = history.iter().filter_map(|(_, _, event)| match event {
        Event::Ticked { time, is_ok } => Some((*time, *is_ok)),
        _ => None,
    });
    ticks.collect()
}

fn state(fleet: &TestFleet) -> Option<(Checkpoint, String)> {
    let saved = fleet
        .store
        .saved_state(&LeaseKey::of_shard(&only_shard(fleet)))?;
    let text = String::from_utf8(saved.bytes.to_vec()).unwrap();
    Some((saved.checkpoint, text))
}

fn blocked(host: &TestHost, fleet: &TestFleet) -> Option<(Why, u32)> {
    let blocked = host.shard(&only_shard(fleet))?.blocked?;
    Some((blocked.why, blocked.attempts))
}

fn processing(host: &TestHost, fleet: &TestFleet) -> bool {
    let shard = host.shard(&only_shard(fleet));
    shard.is_some_and(|shard| shard.state == ShardState::Processing)
}

#[tokio::test(start_paused = true)]
async fn a_silent_shard_ticks_at_each_interval() {
    let fleet = TestFleet::new(1);
    let plugin = idling(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    until("processing", || processing(&host, &fleet)).await;
    tokio::time::sleep(EVERY * 6 + Duration::from_secs(1)).await;
    assert_eq!(ticks(&history).len(), 6);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_without_ticks_gets_none() {
    let fleet = TestFleet::new(1);
    let plugin = NativePlugin::no_op(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    until("processing", || processing(&host, &fleet)).await;
    tokio::time::sleep(EVERY * 3).await;
    assert_eq!(ticks(&history), []);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_shard_ticks_between_batches_and_neither_keeps_the_other_from_its_turn() {
    let mut fleet = TestFleet::new(1);
    fleet.options.tick = TickInterval::new(TickInterval::MIN).unwrap();
    fleet.options.batches.records = 1;
    let plugin = idling(1).taking(Duration::from_millis(300));
    let history = plugin.history();
    fleet.put(0..100);
    let host = fleet.start("a", plugin);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    let history = history.lock().unwrap();
    let is_delivery = |event: &Event| matches!(event, Event::Delivered { .. });
    let first = history.iter().position(|(_, _, event)| is_delivery(event));
    let last = history.iter().rposition(|(_, _, event)| is_delivery(event));
    let mut batches_between = 3;
    let mut ticks = 0;
    for (_, _, event) in &history[first.unwrap()..last.unwrap()] {
        match event {
            Event::Delivered { .. } => batches_between += 1,
            Event::Ticked { .. } => {
                assert!(batches_between > 2, "records starve");
                (batches_between, ticks) = (0, ticks + 1);
            }
            _ => {}
        }
        assert!(batches_between < 8, "ticks starve");
    }
    assert!(ticks > 10, "{ticks}");
    drop(host);
}

#[tokio::test(start_paused = true)]
async fn a_paused_shard_does_not_tick_and_ticks_once_when_it_goes_on() {
    let fleet = TestFleet::new(1);
    let plugin = idling(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    let shard = only_shard(&fleet);
    until("processing", || processing(&host, &fleet)).await;
    let operator = Operator::of(&fleet);
    operator.pause(&shard, None).await;
    until("paused", || {
        host.shard(&shard).unwrap().state == ShardState::Paused
    })
    .await;
    let before = ticks(&history).len();
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(ticks(&history).len(), before);
    operator.resume(&shard).await;
    until("it ticks", || ticks(&history).len() > before).await;
    tokio::time::sleep(EVERY / 2).await;
    assert_eq!(ticks(&history).len(), before + 1, "no storm");
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_halted_shard_does_not_tick() {
    let mut fleet = TestFleet::new(1);
    fleet.options.failure = FailurePolicy {
        attempts: Some(1),
        then: Some(shardmill_core::pipeline::GiveUp::Halt),
        ..FailurePolicy::default()
    };
    let plugin = NativePlugin::new(1, |_, _| Err(trap())).ticking(|_, _| Ok(Ticked::default()));
    let history = plugin.history();
    fleet.put(0..1);
    let host = fleet.start("a", plugin);
    until("halted", || {
        let shard = host.shard(&only_shard(&fleet));
        shard.is_some_and(|shard| shard.state == ShardState::Halted)
    })
    .await;
    tokio::time::sleep(EVERY * 5).await;
    assert_eq!(ticks(&history), []);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_suspended_ticks_once_by_a_clock_that_never_goes_back() {
    let fleet = TestFleet::new(1);
    let plugin = idling(1);
    let history = plugin.history();
    fleet.wall_ms.store(1_000_000, Ordering::Relaxed);
    let host = fleet.start("a", plugin);
    until("a tick", || ticks(&history).len() == 1).await;
    fleet.suspended_seconds.store(3, Ordering::Relaxed);
    fleet.wall_ms.store(400_000, Ordering::Relaxed);
    until("another", || ticks(&history).len() == 2).await;
    fleet.wall_ms.store(2_000_000, Ordering::Relaxed);
    until("a third", || ticks(&history).len() == 3).await;
    let times: Vec<u64> = ticks(&history)
        .iter()
        .map(|(time, _)| time.now_ms)
        .collect();
    assert_eq!(times, [1_000_000, 1_000_000, 2_000_000]);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_tick_knows_since_when_nothing_waits_and_says_nothing_while_the_shard_is_not_read() {
    let fleet = TestFleet::new(1);
    let plugin = idling(1);
    let history = plugin.history();
    fleet.wall_ms.store(1_000_000, Ordering::Relaxed);
    let host = fleet.start("a", plugin);
    let delivered_until = || {
        let last = ticks(&history).last().copied();
        last.and_then(|(time, _)| time.delivered_until_ms)
    };
    until("known", || delivered_until().is_some()).await;
    let read_at = delivered_until().unwrap();
    assert!((990_000..=1_000_000).contains(&read_at), "{read_at}");
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::Fetch).then_some(Fault::Refuse));
    let before = ticks(&history).len();
    until("two more", || ticks(&history).len() > before + 1).await;
    // The wall clock of the test stands: what is known gets older by as much as time passes.
    let now = delivered_until().unwrap();
    assert!(now + 15_000 < read_at, "{now}");
    fleet.stream.faults.clear();
    drop(host);
}

#[tokio::test(start_paused = true)]
async fn a_tick_knows_of_nothing_while_a_record_waits_to_be_tried_again() {
    let fleet = TestFleet::new(1);
    let plugin = NativePlugin::new(1, |_, _| {
        Err(ProcessorError::NotReady {
            lack: Lack::Service,
            message: "away".to_owned(),
        })
    });
    let plugin = plugin.ticking(|_, _| Ok(Ticked::default()));
    let history = plugin.history();
    fleet.put(0..1);
    let host = fleet.start("a", plugin);
    until("ticks", || ticks(&history).len() > 3).await;
    let known: Vec<u64> = ticks(&history)
        .iter()
        .filter_map(|(time, _)| time.delivered_until_ms)
        .collect();
    assert_eq!(known, [0_u64; 0]);
    drop(host);
}

#[tokio::test(start_paused = true)]
async fn what_a_tick_commits_is_checkpointed_after_its_output_is_stored() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    let plugin = NativePlugin::new(1, |_, _| {
        Ok(Processed {
            outcome: Outcome {
                commit: Some(Commit::Nothing),
                ..Outcome::default()
            },
            ..Processed::default()
        })
    });
    let plugin = plugin.ticking(|_, _| {
        Ok(Ticked {
            held_back: HeldBack::Commit,
            ..emitting("window")
        })
    });
    fleet.sink.is_broken.store(true, Ordering::Relaxed);
    fleet.put(0..30);
    let host = fleet.start("a", plugin);
    until("it waits for the sink", || {
        blocked(&host, &fleet).is_some_and(|(why, _)| why == Why::Sink)
    })
    .await;
    assert_eq!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::TrimHorizon
    );
    fleet.sink.is_broken.store(false, Ordering::Relaxed);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(fleet.sink.lines()[0], "window");
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_state_that_only_time_has_changed_is_saved_even_before_the_first_record() {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    let host = fleet.start("a", counting(1).keeping_state());
    until("saved", || state(&fleet).is_some()).await;
    assert_eq!(
        state(&fleet),
        Some((Checkpoint::TrimHorizon, "tick 1".to_owned()))
    );
    fleet.put(0..5);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    let (checkpoint, _) = state(&fleet).unwrap();
    let lines = || state(&fleet).unwrap().1.lines().count();
    let before = lines();
    until("two more ticks are saved", || lines() >= before + 2).await;
    assert_eq!(
        state(&fleet).unwrap().0,
        checkpoint,
        "no record came meanwhile"
    );
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_host_goes_on_from_what_the_last_tick_has_saved() {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    fleet.put(0..5);
    for life in 0..6 {
        let host = fleet.start(&format!("host-{life}"), counting(1).keeping_state());
        let before = state(&fleet).map_or(0, |(_, text)| text.lines().count());
        until("a tick is saved", || {
            state(&fleet).is_some_and(|(_, text)| {
                let ticks = text.lines().filter(|line| line.starts_with("tick")).count();
                ticks > life && text.lines().count() > before
            })
        })
        .await;
        if life % 2 == 0 {
            drop(host);
        } else {
            host.stop().await;
        }
    }
    let (_, text) = state(&fleet).unwrap();
    let records = text
        .lines()
        .filter(|line| !line.starts_with("tick"))
        .count();
    assert_eq!(records, 5, "each record once: {text}");
}

/// A crash between the output of a tick and the state that is past it: the tick comes again, and
/// no record is lost or counted twice.
#[tokio::test(start_paused = true)]
async fn after_a_crash_between_output_and_state_the_next_instance_has_neither_lost_nor_counted_twice()
 {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    fleet.put(0..5);
    let plugin = || counting(1).keeping_state();
    let first = fleet.start("a", plugin());
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    let ticks_in_state = || {
        let text = state(&fleet).unwrap().1;
        text.lines().filter(|line| line.starts_with("tick")).count()
    };
    let before = ticks_in_state();
    let emitted = fleet.sink.lines().len();
    fleet
        .store
        .faults
        .draw_from(|op| (op == StoreOp::Checkpoint).then_some(Fault::Refuse));
    until("emitted", || fleet.sink.lines().len() > emitted).await;
    drop(first);
    fleet.store.faults.clear();
    assert_eq!(ticks_in_state(), before);
    let second = fleet.start("b", plugin());
    until("the tick came again", || ticks_in_state() > before).await;
    let text = state(&fleet).unwrap().1;
    let mut records: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with("tick"))
        .collect();
    records.sort_unstable();
    records.dedup();
    assert_eq!(records.len(), 5);
    assert_eq!(text.lines().count(), 5 + ticks_in_state());
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_state_that_ticks_leave_as_it_was_costs_no_write() {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    fleet.put(0..5);
    let plugin = NativePlugin::no_op(1).keeping_state_without_ticks();
    let plugin = plugin.ticking(|_, _| Ok(Ticked::default()));
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    let checkpoints = || fleet.store.calls(StoreOp::Checkpoint);
    let before = checkpoints();
    let ticked = ticks(&history).len();
    until("ticks", || ticks(&history).len() > ticked + 10).await;
    assert_eq!(checkpoints(), before);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_tick_is_shown_and_tried_again_ever_later_while_records_flow() {
    let fleet = TestFleet::new(1);
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let plugin = NativePlugin::echo(1).ticking(move |_, _| {
        if well.load(Ordering::Relaxed) {
            return Ok(Ticked::default());
        }
        Err(ProcessorError::Reported {
            message: "no luck".to_owned(),
        })
    });
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    until("three failures", || {
        blocked(&host, &fleet) == Some((Why::Tick, 3))
    })
    .await;
    let reason = host.shard(&only_shard(&fleet)).unwrap().blocked.unwrap();
    assert!(reason.reason.contains("no luck"), "{reason:?}");
    fleet.put(0..20);
    until("delivered", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..20));
    assert_eq!(
        blocked(&host, &fleet),
        Some((Why::Tick, 3)),
        "records settle nothing about ticks"
    );
    until("the row says so", || {
        let stuck = fleet.row(&only_shard(&fleet)).unwrap().stuck;
        stuck.is_some_and(|stuck| stuck.contains("a tick failed"))
    })
    .await;
    let failed = ticks(&history).len();
    let began = Instant::now();
    until("tried again", || ticks(&history).len() > failed).await;
    let waited = began.elapsed();
    assert!(waited > EVERY, "{waited:?}");
    is_well.store(true, Ordering::Relaxed);
    until("well again", || blocked(&host, &fleet).is_none()).await;
    let worked = ticks(&history).len();
    tokio::time::sleep(EVERY + Duration::from_secs(1)).await;
    assert_eq!(ticks(&history).len(), worked + 1, "as often as before");
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_instance_held_back_comes_again_if_it_dies_at_a_tick() {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    let deaths = AtomicU32::new(0);
    let plugin = NativePlugin::no_op(1).keeping_state().ticking(move |_, _| {
        match deaths.fetch_add(1, Ordering::Relaxed) {
            0..3 => Err(trap()),
            _ => Ok(Ticked::default()),
        }
    });
    fleet.options.checkpoints.age = Duration::from_mins(10);
    fleet.put(0..10);
    let host = fleet.start("a", plugin);
    until("a tick worked", || {
        state(&fleet).is_some_and(|(_, text)| text.contains("tick"))
    })
    .await;
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    let (_, text) = state(&fleet).unwrap();
    let records = text
        .lines()
        .filter(|line| !line.starts_with("tick"))
        .count();
    assert_eq!(records, 10, "{text}");
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_fails_at_ticks_does_not_replace_one_that_does_not() {
    let fleet = TestFleet::new(1);
    let good = idling(1);
    let history = good.history();
    fleet.put(0..5);
    let host = fleet.start("a", good);
    until("a tick", || !ticks(&history).is_empty()).await;
    host.offer(failing(2));
    let digest = || host.shard(&only_shard(&fleet)).unwrap().plugin_digest;
    until("the new version is tried", || {
        digest().is_some_and(|digest| digest.ends_with('2'))
    })
    .await;
    until("the old version is back", || {
        digest().unwrap().ends_with('1')
    })
    .await;
    until("well", || blocked(&host, &fleet).is_none()).await;
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_with_several_instances_for_a_shard_refuses_a_version_that_wants_ticks() {
    let mut fleet = TestFleet::new(1);
    fleet.options.parallelism = Parallelism::new(2).unwrap();
    fleet.options.failure.order = Order::Key;
    let host = fleet.start("a", idling(1));
    until("refused", || {
        let shard = host.shard(&only_shard(&fleet));
        let blocked = shard.and_then(|shard| shard.blocked);
        blocked.is_some_and(|blocked| blocked.reason.contains("set parallelism = 1"))
    })
    .await;
    drop(host);
}

#[tokio::test(start_paused = true)]
async fn after_the_lease_was_lost_no_tick_comes() {
    let fleet = TestFleet::new(1);
    let plugin = idling(1);
    let history = plugin.history();
    let (first, tables) = fleet.start_apart("a", plugin);
    until("a tick", || !ticks(&history).is_empty()).await;
    tables.store.faults.draw_from(|_| Some(Fault::Refuse));
    tables.coordinator.faults.draw_from(|_| Some(Fault::Refuse));
    let second = fleet.start("b", NativePlugin::no_op(1));
    until("taken over", || {
        let owner = fleet.row(&only_shard(&fleet)).unwrap().owner;
        owner.is_some_and(|owner| owner.as_str() == "b")
    })
    .await;
    let before = ticks(&history).len();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(ticks(&history).len(), before);
    drop(first);
    second.stop().await;
}
