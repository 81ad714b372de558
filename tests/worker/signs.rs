//! What a shard shows of itself: what is in its way, what it does, how far behind it is; and never
//! less than the truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use harness::fake_coordinator::CoordinatorOp;
use harness::fake_lease_store::StoreOp;
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::control::{Place, SeekState};
use shardmill_core::pipeline::{FailurePolicy, GiveUp};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Commit, Outcome, Processed, ProcessorFactory, Ticked};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_worker::{ShardState, Why};

use crate::control::operator::Operator;
use crate::poison::{Bad, dead_lettering, number, only_shard, plugin};

fn trapped() -> ProcessorError {
    ProcessorError::Trapped {
        message: "poison".to_owned(),
    }
}

/// One shard of a plugin that keeps state, which takes up each version at once.
fn stateful() -> TestFleet {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    fleet.options.rollout = RolloutPolicy::off();
    fleet
}

fn refuse_state(fleet: &TestFleet) {
    fleet
        .store
        .faults
        .draw_from(|op| (op == StoreOp::State).then_some(Fault::Refuse));
}

/// The kind of what blocks the only shard, and what its row says.
fn signs(fleet: &TestFleet, host: &TestHost) -> (Option<Why>, Option<String>) {
    let shard = only_shard(fleet);
    let blocked = host.shard(&shard).and_then(|shard| shard.blocked);
    let stuck = fleet.row(&shard).and_then(|row| row.stuck);
    (blocked.map(|blocked| blocked.why), stuck)
}

/// Returns once status and row show that.
async fn until_shown(fleet: &TestFleet, host: &TestHost, why: Why, what: &str) {
    until(what, || {
        let (blocked, stuck) = signs(fleet, host);
        blocked == Some(why) && stuck.is_some_and(|stuck| stuck.contains(what))
    })
    .await;
}

/// Returns once status and row show nothing any more.
async fn until_over(fleet: &TestFleet, host: &TestHost) {
    until("over", || signs(fleet, host) == (None, None)).await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_fails_is_reported_by_the_status_and_the_row_until_it_stores_again() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    fleet.sink.is_broken.store(true, Ordering::Relaxed);
    fleet.put(0..20);
    let host = fleet.start("a", NativePlugin::echo(1));
    let blocked = || host.shard(&shard).and_then(|shard| shard.blocked);
    until("told", || {
        blocked().is_some_and(|blocked| blocked.attempts >= 3)
    })
    .await;
    assert_eq!(blocked().unwrap().why, Why::Sink);
    assert!(
        host.shard(&shard)
            .unwrap()
            .stage
            .what
            .starts_with("storing output in out")
    );
    let stuck = || fleet.row(&shard).unwrap().stuck;
    until("the row says so", || {
        stuck().is_some_and(|stuck| stuck.contains("broken by the test"))
    })
    .await;
    fleet.sink.is_broken.store(false, Ordering::Relaxed);
    until("stored", || fleet.is_all_checkpointed()).await;
    until("over", || blocked().is_none() && stuck().is_none()).await;
    assert!(fleet.has_exactly(0..20));
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_slow_and_well_shows_as_slow() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    fleet.sink.write_seconds.store(20, Ordering::Relaxed);
    fleet.put(0..10);
    let host = fleet.start("a", NativePlugin::echo(1));
    let blocked = || host.shard(&shard).and_then(|shard| shard.blocked);
    until("told", || blocked().is_some()).await;
    let slow = blocked().unwrap();
    assert_eq!((slow.why, slow.attempts), (Why::Sink, 0));
    assert!(
        slow.reason
            .contains("storing output in out has taken more than 5s"),
        "{}",
        slow.reason
    );
    assert!(host.shard(&shard).unwrap().stage.since.elapsed() >= Duration::from_secs(5));
    until("the row says so", || {
        fleet
            .row(&shard)
            .unwrap()
            .stuck
            .is_some_and(|stuck| stuck == slow.reason)
    })
    .await;
    until("stored", || fleet.is_all_checkpointed()).await;
    until("over", || {
        blocked().is_none() && fleet.row(&shard).unwrap().stuck.is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_stuck_shows_the_age_of_its_oldest_record_though_its_reader_is_at_the_tip()
{
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    let is_bad = Arc::new(AtomicBool::new(true));
    let bad = Arc::clone(&is_bad);
    fleet.put(0..20);
    let host = fleet.start(
        "a",
        NativePlugin::new(1, move |_, _| {
            if bad.load(Ordering::Relaxed) {
                Err(trapped())
            } else {
                Ok(Processed::default())
            }
        }),
    );
    until("stuck", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    // All arrived at 1 ms.
    fleet.wall_ms.store(1 + 600_000, Ordering::Relaxed);
    until("told", || {
        host.shard(&shard).unwrap().lag_ms == Some(600_000)
    })
    .await;
    assert_eq!(
        host.shard(&shard).unwrap().millis_behind_latest,
        Some(0),
        "of the reader"
    );
    until("the row says so", || {
        fleet.row(&shard).unwrap().millis_behind_latest == Some(600_000)
    })
    .await;
    fleet.wall_ms.store(1 + 900_000, Ordering::Relaxed);
    until("the row goes on", || {
        fleet.row(&shard).unwrap().millis_behind_latest == Some(900_000)
    })
    .await;
    is_bad.store(false, Ordering::Relaxed);
    until("settled", || fleet.is_all_checkpointed()).await;
    until("over", || host.shard(&shard).unwrap().lag_ms == Some(0)).await;
    assert_eq!(fleet.row(&shard).unwrap().millis_behind_latest, Some(0));
}

#[tokio::test(start_paused = true)]
async fn records_that_a_plugin_holds_back_are_counted_and_named_as_what_the_checkpoint_waits_for() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    let is_open = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&is_open);
    fleet.put(0..7);
    let host = fleet.start(
        "a",
        NativePlugin::new(1, move |_, _| {
            let commit = (!opened.load(Ordering::Relaxed)).then_some(Commit::Nothing);
            Ok(Processed {
                outcome: Outcome {
                    commit,
                    ..Outcome::default()
                },
                ..Processed::default()
            })
        }),
    );
    until("counted", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.held_back_records == 7)
    })
    .await;
    assert!(
        host.shard(&shard).unwrap().blocked.is_none(),
        "windows are ordinary"
    );
    fleet.wall_ms.store(1 + 40_000, Ordering::Relaxed);
    let stuck = || fleet.row(&shard).unwrap().stuck;
    until("the row says so", || {
        stuck().is_some_and(|stuck| stuck.contains("holds back at least 4 record(s)"))
    })
    .await;
    is_open.store(true, Ordering::Relaxed);
    fleet.put(7..8);
    until("settled", || fleet.is_all_checkpointed()).await;
    until("over", || {
        host.shard(&shard).unwrap().held_back_records == 0 && stuck().is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_read_that_hangs_is_reported_long_before_it_fails_and_no_more_once_it_is_answered() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    let host = fleet.start("a", NativePlugin::echo(1));
    let blocked = || host.shard(&shard).and_then(|shard| shard.blocked);
    until("it reads", || {
        host.shard(&shard).is_some_and(|shard| shard.is_at_tip)
    })
    .await;
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::Fetch).then_some(Fault::Hang));
    let cut_at = tokio::time::Instant::now();
    until("told", || blocked().is_some()).await;
    assert!(
        cut_at.elapsed() < Duration::from_secs(15),
        "after {:?}",
        cut_at.elapsed()
    );
    assert_eq!(blocked().unwrap().why, Why::Reading);
    until("the row says so", || {
        fleet
            .row(&shard)
            .unwrap()
            .stuck
            .is_some_and(|stuck| stuck.contains("no answer"))
    })
    .await;
    fleet.stream.faults.clear();
    until("over", || {
        blocked().is_none() && fleet.row(&shard).unwrap().stuck.is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_look_after_leases_says_why_in_its_own_row() {
    let fleet = TestFleet::new(1);
    let (host, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    until("it serves", || host.status.snapshot().passes > 0).await;
    tables
        .store
        .faults
        .draw_from(|op| (op == StoreOp::List).then_some(Fault::Refuse));
    let told = || {
        fleet
            .coordinator
            .rows()
            .workers
            .iter()
            .find_map(|row| row.cannot_look.clone())
    };
    // Whoever is alone looks at the leases when it leads, and then for what changed.
    fleet.coordinator.change(|rows| rows.bulletin += 1);
    until("told", || {
        told().is_some_and(|why| why.contains("fault on List"))
    })
    .await;
    tables.store.faults.clear();
    until("over", || {
        told().is_none() && host.status.snapshot().pass_error.is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_a_pass_can_do_without_is_shown_when_it_is_refused() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    let (host, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    until("it serves", || host.status.snapshot().passes > 0).await;
    let error = || host.status.snapshot().pass_error;
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::ListShards).then_some(Fault::Refuse));
    until("told", || {
        error().is_some_and(|why| why.contains("new shards are not found"))
    })
    .await;
    fleet.stream.faults.clear();
    until("over", || error().is_none()).await;
    tables
        .coordinator
        .faults
        .draw_from(|op| (op == CoordinatorOp::Announce).then_some(Fault::Refuse));
    fleet.stream.split(&shard, 1 << 100);
    until("told", || {
        error().is_some_and(|why| why.contains("cannot announce changes to other hosts"))
    })
    .await;
    tables.coordinator.faults.clear();
    until("over", || error().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_waits_for_kinesis_at_its_start_says_so_and_one_whose_heartbeat_fails_says_why()
{
    let fleet = TestFleet::new(1);
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::Identity).then_some(Fault::Hang));
    let (host, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    let waits_on = || host.status.snapshot().waits_on.map(|stage| stage.what);
    until("told", || {
        waits_on().is_some_and(|what| what == "asking kinesis for the stream")
    })
    .await;
    drop(host);
    fleet.stream.faults.clear();
    let host = fleet.start("b", NativePlugin::echo(1));
    until("it serves", || {
        host.status.snapshot().passes > 0 && host.status.snapshot().waits_on.is_none()
    })
    .await;
    drop((host, tables));
    let (host, tables) = fleet.start_apart("c", NativePlugin::echo(1));
    until("it serves", || host.status.snapshot().passes > 0).await;
    tables
        .coordinator
        .faults
        .draw_from(|op| (op == CoordinatorOp::Heartbeat).then_some(Fault::Refuse));
    let error = || host.status.snapshot().heartbeat_error;
    until("told", || {
        error().is_some_and(|why| why.contains("fault on Heartbeat"))
    })
    .await;
    tables.coordinator.faults.clear();
    until("over", || error().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_only_follows_errands_does_not_hide_that_the_look_before_it_failed() {
    let fleet = TestFleet::new(1);
    let (host, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    until("it serves", || host.status.snapshot().passes > 0).await;
    tables
        .coordinator
        .faults
        .draw_from(|op| (op == CoordinatorOp::Fleet).then_some(Fault::Refuse));
    let error = || host.status.snapshot().pass_error;
    until("told", || error().is_some()).await;
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(error().is_some(), "nothing is mended");
    }
    tables.coordinator.faults.clear();
    until("over", || error().is_none()).await;
}

// What is over is not shown any more, also on a shard that gets no record from then on.

#[tokio::test(start_paused = true)]
async fn an_instance_that_could_not_be_made_for_a_while_leaves_no_sign_on_a_silent_shard() {
    let fleet = TestFleet::new(1);
    let places = Arc::new(AtomicUsize::new(0));
    let host = fleet.start("a", NativePlugin::echo(1).with_places(&places));
    until_shown(&fleet, &host, Why::Memory, "cannot create an instance").await;
    let attempts = || {
        let shard = host.shard(&only_shard(&fleet));
        shard.and_then(|shard| shard.blocked).map(|b| b.attempts)
    };
    until("tried again", || attempts() >= Some(4)).await;
    places.store(1, Ordering::SeqCst);
    until_over(&fleet, &host).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(signs(&fleet, &host), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_state_that_could_not_be_read_for_a_new_version_leaves_no_sign_on_a_silent_shard() {
    let fleet = stateful();
    let host = fleet.start("a", NativePlugin::echo(1).keeping_state());
    let shard = only_shard(&fleet);
    until("processing", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.state == ShardState::Processing)
    })
    .await;
    refuse_state(&fleet);
    let second = NativePlugin::echo(2).keeping_state();
    let digest = second.digest().as_str().to_owned();
    host.offer(second);
    until_shown(&fleet, &host, Why::State, "a new version is waiting").await;
    fleet.store.faults.clear();
    until("swapped", || {
        host.shard(&shard).unwrap().plugin_digest.as_ref() == Some(&digest)
    })
    .await;
    until_over(&fleet, &host).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_could_not_save_takes_its_sign_along_when_another_takes_over() {
    let fleet = stateful();
    let error = ProcessorError::State {
        message: "too large".to_owned(),
    };
    let ticking = |plugin: NativePlugin| plugin.ticking(|_, _| Ok(Ticked::default()));
    let broken = NativePlugin::no_op(1).failing_to_save(u32::MAX, error);
    let host = fleet.start("a", ticking(broken));
    until_shown(&fleet, &host, Why::State, "too large").await;
    // It has saved nothing when it takes over, and ticks only later.
    host.offer(NativePlugin::no_op(2).keeping_state());
    until_over(&fleet, &host).await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_waited_for_the_state_leaves_no_sign_if_the_shard_stays_where_it_is() {
    let fleet = stateful();
    let shard = only_shard(&fleet);
    fleet.put(0..20);
    let host = fleet.start("a", NativePlugin::echo(1).keeping_state());
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    refuse_state(&fleet);
    let operator = Operator::of(&fleet);
    operator
        .seek(&shard, Place::Horizon, SeekState::Absent)
        .await;
    until_shown(&fleet, &host, Why::State, "that is to be kept").await;
    fleet.store.faults.clear();
    until("it stays", || {
        fleet.row(&shard).unwrap().directives.seek.is_none()
    })
    .await;
    until_over(&fleet, &host).await;
    assert!(fleet.has_exactly(0..20));
}

#[tokio::test(start_paused = true)]
async fn a_halted_shard_says_so_again_once_what_kept_another_version_away_is_over() {
    let mut fleet = stateful();
    fleet.options.failure = FailurePolicy {
        then: Some(GiveUp::Halt),
        ..dead_lettering(2)
    };
    fleet.put(0..30);
    let of = |version| {
        plugin(version, |record, _| {
            (number(record) == 13).then_some(Bad::Traps)
        })
        .keeping_state()
    };
    let host = fleet.start("a", of(1));
    until_shown(&fleet, &host, Why::Halted, "halted at").await;
    refuse_state(&fleet);
    host.offer(of(2).failing_init());
    until_shown(&fleet, &host, Why::State, "a new version is waiting").await;
    fleet.store.faults.clear();
    until_shown(&fleet, &host, Why::Halted, "halted at").await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_can_be_read_again_by_another_reader_is_not_shown_as_unreadable() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("it reads", || {
        host.shard(&shard).is_some_and(|shard| shard.is_at_tip)
    })
    .await;
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::Fetch).then_some(Fault::KeyUnusable));
    until("the row says so", || {
        signs(&fleet, &host)
            .1
            .is_some_and(|stuck| stuck.starts_with("cannot be read"))
    })
    .await;
    // A paused shard has no reader, and gets another one when it goes on.
    let operator = Operator::of(&fleet);
    operator.pause(&shard, None).await;
    until("paused", || signs(&fleet, &host).0 == Some(Why::Paused)).await;
    fleet.stream.faults.clear();
    operator.resume(&shard).await;
    until_over(&fleet, &host).await;
    assert_eq!(host.shard(&shard).unwrap().read_error, None);
}
