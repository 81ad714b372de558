//! An application begins at one moment of the stream's own clock, and nothing that arrives after it
//! is skipped, whatever happens before the first checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use harness::fake_coordinator::CoordinatorOp;
use harness::fake_fan_out::Break;
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::fleet::ApplicationStart;
use shardmill_core::lease::{Checkpoint, Lease, Sought};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Commit, Outcome, Processed, StartPosition};
use shardmill_core::stream::{
    InitialPosition, LeaseKey, Position, ReadFrom, SequenceNumber, Shard, ShardId,
};

use crate::fan_out::subscribing;

/// When the application begins, by the stream's clock; what is put first arrived a minute before.
pub(crate) const BEGIN_MS: u64 = 60_001;

/// A fleet that begins at the tip of a stream that has records 0 to 9.
pub(crate) fn at_latest(shards: u32) -> TestFleet {
    let mut fleet = TestFleet::new(shards);
    fleet.options.initial_position = InitialPosition::Latest;
    fleet.put(0..10);
    fleet.stream.advance_ms(BEGIN_MS - 1);
    fleet
}

/// Fails on everything.
fn failing(version: u64) -> NativePlugin {
    NativePlugin::new(version, |_, _| {
        Err(ProcessorError::Reported {
            message: "cannot do it yet".to_owned(),
        })
    })
}

/// Takes everything and lets none of it be checkpointed.
pub(crate) fn holding_back(version: u64) -> NativePlugin {
    NativePlugin::new(version, |_, _| {
        let outcome = Outcome {
            commit: Some(Commit::Nothing),
            ..Outcome::default()
        };
        Ok(Processed {
            outcome,
            emitted: Vec::new(),
        })
    })
}

/// Puts records in the name of the time that passes.
fn put_later(fleet: &TestFleet, numbers: std::ops::Range<u32>) {
    fleet.stream.advance_ms(3_600_000);
    fleet.put(numbers);
}

pub(crate) async fn until_begun(fleet: &TestFleet) {
    until("it reads", || fleet.stream.calls(ReadOp::Fetch) > 0).await;
}

fn is_unread(fleet: &TestFleet) -> bool {
    fleet
        .store
        .rows()
        .iter()
        .all(|row| row.checkpoint == Checkpoint::Latest)
}

fn has_all(fleet: &TestFleet, numbers: std::ops::Range<u32>) -> bool {
    let lines = fleet.sink.lines();
    numbers
        .into_iter()
        .all(|number| lines.contains(&number.to_string()))
}

#[tokio::test(start_paused = true)]
async fn what_failed_from_the_start_comes_again_on_the_next_host() {
    let fleet = at_latest(2);
    let plugin = failing(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    until_begun(&fleet).await;
    put_later(&fleet, 10..40);
    until("both shards fail", || {
        fleet
            .stream
            .shards()
            .iter()
            .all(|s| host.shard(&s.id).is_some_and(|s| s.blocked.is_some()))
    })
    .await;
    assert!(!history.lock().unwrap().is_empty());
    assert!(is_unread(&fleet));
    host.stop().await;
    put_later(&fleet, 40..50);
    let _next = fleet.start("b", NativePlugin::echo(2));
    until("all out", || fleet.has_exactly(10..50)).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_handed_over_before_its_first_checkpoint_skips_nothing() {
    let fleet = at_latest(2);
    let host = fleet.start("a", failing(1));
    until_begun(&fleet).await;
    put_later(&fleet, 10..40);
    until("both shards fail", || {
        fleet
            .stream
            .shards()
            .iter()
            .all(|s| host.shard(&s.id).is_some_and(|s| s.blocked.is_some()))
    })
    .await;
    let second = fleet.start("b", failing(1));
    let is_spread = || {
        ["a", "b"].iter().all(|id| {
            fleet
                .store
                .rows()
                .iter()
                .any(|row| row.owner.as_ref().is_some_and(|o| o.as_str() == *id))
        })
    };
    until("one shard each", is_spread).await;
    assert!(is_unread(&fleet));
    put_later(&fleet, 40..50);
    host.offer(NativePlugin::echo(2));
    second.offer(NativePlugin::echo(2));
    until("all out", || fleet.has_exactly(10..50)).await;
}

#[tokio::test(start_paused = true)]
async fn outputs_that_could_not_be_stored_from_the_start_come_out_once_the_sink_is_back() {
    let fleet = at_latest(1);
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.sink.is_broken.store(true, Ordering::Relaxed);
    let host = fleet.start("a", NativePlugin::echo(1));
    until_begun(&fleet).await;
    put_later(&fleet, 10..30);
    until("given up", || {
        fleet
            .row(&shard)
            .is_some_and(|row| row.owner.is_none() && row.stuck.is_some())
    })
    .await;
    assert!(is_unread(&fleet));
    put_later(&fleet, 30..40);
    fleet.sink.is_broken.store(false, Ordering::Relaxed);
    until("all out", || fleet.has_exactly(10..40)).await;
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_swap_brings_again_what_the_old_version_held_back_since_the_start() {
    let fleet = at_latest(1);
    let plugin = holding_back(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    until_begun(&fleet).await;
    put_later(&fleet, 10..20);
    until("held back", || history.lock().unwrap().len() > 1).await;
    host.offer(NativePlugin::echo(2));
    until("all out", || fleet.has_exactly(10..20)).await;
}

#[tokio::test(start_paused = true)]
async fn a_trap_before_the_first_state_is_saved_costs_no_record() {
    let mut fleet = at_latest(1);
    fleet.options.keeps_state = true;
    fleet.options.batches.records = 5;
    let shard = fleet.stream.shards()[0].id.clone();
    let calls = AtomicU32::new(0);
    let plugin = NativePlugin::new(1, move |_, _| match calls.fetch_add(1, Ordering::Relaxed) {
        1 => Err(ProcessorError::Trapped {
            message: "unreachable".to_owned(),
        }),
        _ => Ok(Processed::default()),
    });
    let _host = fleet.start("a", plugin.keeping_state());
    until_begun(&fleet).await;
    put_later(&fleet, 10..20);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let saved = fleet
        .store
        .saved_state(&LeaseKey::of_shard(&shard))
        .unwrap();
    let counted = String::from_utf8(saved.bytes.to_vec()).unwrap();
    assert_eq!(counted.lines().count(), 10, "{counted}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_first_checkpoint_costs_no_record() {
    let mut fleet = at_latest(1);
    fleet.options.checkpoints.age = Duration::from_mins(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    until_begun(&fleet).await;
    put_later(&fleet, 10..20);
    until("delivered", || fleet.has_exactly(10..20)).await;
    drop(host);
    put_later(&fleet, 20..30);
    let _next = fleet.start("b", NativePlugin::echo(1));
    until("all out", || has_all(&fleet, 10..30)).await;
    assert!(!has_all(&fleet, 0..1), "what came before is not delivered");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_shard_loses_nothing_while_nobody_reads_it() {
    let fleet = at_latest(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    until_begun(&fleet).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(is_unread(&fleet));
    host.stop().await;
    put_later(&fleet, 10..20);
    let crashed = fleet.start("b", failing(2));
    until("reading", || {
        crashed
            .shard(&fleet.stream.shards()[0].id)
            .is_some_and(|s| s.blocked.is_some())
    })
    .await;
    drop(crashed);
    put_later(&fleet, 20..30);
    let _last = fleet.start("c", NativePlugin::echo(3));
    until("all out", || fleet.has_exactly(10..30)).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_made_anew_begins_where_the_first_one_did() {
    let fleet = at_latest(1);
    let _host = fleet.start("a", NativePlugin::echo(1));
    until_begun(&fleet).await;
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::Fetch).then_some(Fault::UnknownNotApplied));
    put_later(&fleet, 10..20);
    let iterators = fleet.stream.calls(ReadOp::Iterator);
    until("the reader is made anew", || {
        fleet.stream.calls(ReadOp::Iterator) > iterators
    })
    .await;
    put_later(&fleet, 20..30);
    fleet.stream.faults.clear();
    until("all out", || fleet.has_exactly(10..30)).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_clock_is_wrong_by_years_begins_by_the_streams_clock() {
    for wall_ms in [1, 4_102_444_800_000] {
        let fleet = at_latest(1);
        fleet.wall_ms.store(wall_ms, Ordering::Relaxed);
        let host = fleet.start("a", NativePlugin::echo(1));
        until_begun(&fleet).await;
        fleet.stream.faults.queue(ReadOp::Fetch, Fault::NotFound);
        fleet.stream.expire_iterators();
        put_later(&fleet, 10..20);
        until("all out", || fleet.has_exactly(10..20)).await;
        host.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_stream_does_not_tell_its_time_a_host_begins_some_seconds_early_by_its_own() {
    let fleet = at_latest(1);
    fleet.stream.hide_time();
    fleet.wall_ms.store(BEGIN_MS + 4_000, Ordering::Relaxed);
    let _host = fleet.start("a", NativePlugin::echo(1));
    until_begun(&fleet).await;
    assert_eq!(
        fleet.coordinator.rows().start.unwrap().looked_at_ms,
        BEGIN_MS - 1_000
    );
    fleet.put(10..20);
    until("all out", || fleet.has_exactly(10..20)).await;
}

#[tokio::test(start_paused = true)]
async fn the_moment_is_written_down_before_any_row_and_never_looked_up_again() {
    let mut fleet = at_latest(2);
    let begun = ApplicationStart {
        position: InitialPosition::Latest,
        looked_at_ms: BEGIN_MS,
        found_leases: false,
    };
    // The answer of the write is lost, as is the next one's.
    fleet
        .coordinator
        .faults
        .queue(CoordinatorOp::WriteStart, Fault::UnknownNotApplied);
    fleet
        .coordinator
        .faults
        .queue(CoordinatorOp::WriteStart, Fault::UnknownApplied);
    let stream = Arc::clone(&fleet.stream);
    fleet.store.faults.draw_from(move |op| {
        if op == harness::fake_lease_store::StoreOp::Create {
            stream.advance_ms(1_000);
        }
        None
    });
    let host = fleet.start("a", NativePlugin::echo(1));
    until_begun(&fleet).await;
    assert_eq!(fleet.coordinator.rows().start, Some(begun));
    host.stop().await;
    put_later(&fleet, 10..20);
    // Another position is configured: what was chosen once is kept, and shown.
    fleet.options.initial_position = InitialPosition::TrimHorizon;
    let host = fleet.start("b", NativePlugin::echo(1));
    until("all out", || fleet.has_exactly(10..20)).await;
    assert_eq!(fleet.coordinator.rows().start, Some(begun));
    assert_eq!(fleet.stream.calls(ReadOp::Now), 1);
    let shown = host.status.snapshot().starts_at.unwrap();
    assert_eq!(
        shown,
        "1970-01-01T00:01:00.001Z (latest when the application started)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reshard_between_the_moment_and_the_first_rows_costs_no_record() {
    let fleet = at_latest(1);
    let parent = fleet.stream.shards()[0].id.clone();
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::ListShards).then_some(Fault::UnknownNotApplied));
    let host = fleet.start("a", NativePlugin::echo(1));
    until("begun", || fleet.coordinator.rows().start.is_some()).await;
    put_later(&fleet, 10..20);
    fleet.stream.split(&parent, u128::MAX / 2);
    put_later(&fleet, 20..30);
    drop(host);
    assert_eq!(fleet.store.rows(), []);
    fleet.stream.faults.clear();
    let _next = fleet.start("b", NativePlugin::echo(1));
    until("all out", || fleet.has_exactly(10..30)).await;
}

#[tokio::test(start_paused = true)]
async fn shards_that_were_closed_before_the_start_are_never_read() {
    for position in [
        InitialPosition::Latest,
        InitialPosition::AtTimestamp(BEGIN_MS - 10),
    ] {
        let mut fleet = at_latest(1);
        fleet.options.initial_position = position;
        fleet.stream.set_now_ms(1_000);
        let first = fleet.stream.shards()[0].id.clone();
        let [left, right] = fleet.stream.split(&first, u128::MAX / 2);
        let merged = fleet.stream.merge(&left, &right);
        fleet.stream.set_now_ms(BEGIN_MS);
        let host = fleet.start("a", holding_back(1));
        until_begun(&fleet).await;
        fleet.put(10..20);
        // Many listings, none of which finds a checkpoint.
        tokio::time::sleep(Duration::from_mins(10)).await;
        let rows: Vec<ShardId> = fleet
            .store
            .rows()
            .iter()
            .map(|row| row.key.shard_id())
            .collect();
        assert_eq!(rows, [merged], "{position:?}");
        host.stop().await;
        let _next = fleet.start("b", NativePlugin::echo(1));
        until("all out", || fleet.has_exactly(10..20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_at_a_time_reads_closed_shards_that_have_records_after_it() {
    let mut fleet = at_latest(1);
    fleet.options.initial_position = InitialPosition::AtTimestamp(BEGIN_MS);
    let first = fleet.stream.shards()[0].id.clone();
    fleet.put(10..20);
    let [left, _] = fleet.stream.split(&first, u128::MAX / 2);
    put_later(&fleet, 20..40);
    fleet.stream.split(&left, 1_000);
    put_later(&fleet, 40..50);
    let host = fleet.start("a", failing(1));
    until("the first shard fails", || {
        host.shard(&first)
            .is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    drop(host);
    let _next = fleet.start("b", NativePlugin::echo(1));
    until("all out", || fleet.has_exactly(10..50)).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
}

#[tokio::test(start_paused = true)]
async fn a_kcl_table_at_latest_is_read_from_the_first_look_on() {
    let mut fleet = at_latest(1);
    // The KCL began at the tip after a split, and nothing came since. Here, another position is
    // configured.
    fleet.options.initial_position = InitialPosition::TrimHorizon;
    fleet.stream.set_now_ms(2);
    let parent = fleet.stream.shards()[0].id.clone();
    let children = fleet.stream.split(&parent, u128::MAX / 2);
    fleet.put(50..60);
    fleet.stream.set_now_ms(BEGIN_MS);
    let is_child = |shard: &Shard| children.contains(&shard.id);
    for shard in fleet.stream.shards().iter().filter(|shard| is_child(shard)) {
        fleet.store.put_row(Lease::fresh(shard, Checkpoint::Latest));
    }
    let host = fleet.start("a", failing(1));
    until("it has both", || {
        children.iter().all(|child| host.shard(child).is_some())
    })
    .await;
    put_later(&fleet, 10..20);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(fleet.row(&parent), None, "history is not read");
    drop(host);
    put_later(&fleet, 20..30);
    let _next = fleet.start("b", NativePlugin::echo(1));
    until("all out", || fleet.has_exactly(10..30)).await;
    let found = fleet.coordinator.rows().start.unwrap();
    assert!(found.found_leases);
    assert_eq!(found.looked_at_ms, BEGIN_MS);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_begins_at_the_moment_too() {
    let mut fleet = subscribing(1);
    fleet.options.initial_position = InitialPosition::Latest;
    fleet.put(0..10);
    fleet.stream.advance_ms(BEGIN_MS - 1);
    let shard = fleet.stream.shards()[0].id.clone();
    let host = fleet.start("a", failing(1));
    until("subscribed", || !fleet.fan_out.starts(&shard).is_empty()).await;
    fleet.fan_out.break_off(&shard, Break::Cut);
    put_later(&fleet, 10..20);
    until("it fails", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    drop(host);
    let _next = fleet.start("b", NativePlugin::echo(1));
    until("all out", || fleet.has_exactly(10..20)).await;
    assert_eq!(
        fleet.fan_out.starts(&shard)[0],
        ReadFrom::AtTimestamp(BEGIN_MS)
    );
    assert!(!fleet.fan_out.starts(&shard).contains(&ReadFrom::Latest));
}

#[tokio::test(start_paused = true)]
async fn no_host_starts_on_a_table_of_a_kcl_in_multi_stream_mode() {
    let fleet = TestFleet::new(1);
    let shard = fleet.stream.shards()[0].clone();
    let key = LeaseKey::new(format!("111122223333:other:1700000000:{}", shard.id)).unwrap();
    fleet.store.put_row(Lease {
        key,
        ..Lease::fresh(&shard, Checkpoint::TrimHorizon)
    });
    let told = "a KCL in multi-stream mode";
    fleet
        .start("a", NativePlugin::echo(1))
        .ended_with(told)
        .await;
    assert_eq!(fleet.store.rows().len(), 1, "nothing is made or taken");
    assert_eq!(fleet.coordinator.rows().start, None);
    // One that comes to a table that is in use is none to take from either.
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    until_begun(&fleet).await;
    let key = LeaseKey::new(format!("111122223333:other:1700000000:{}", shard.id)).unwrap();
    fleet.store.put_row(Lease {
        key,
        ..Lease::fresh(&shard, Checkpoint::TrimHorizon)
    });
    host.ended_with(told).await;
}

#[test]
fn an_instance_is_told_the_checkpoint_or_where_the_application_began() {
    let start = ApplicationStart {
        position: InitialPosition::Latest,
        looked_at_ms: 7,
        found_leases: false,
    };
    let number = || SequenceNumber::parse("42").unwrap();
    let position = Position {
        sequence: number(),
        sub_sequence: 3,
    };
    for (checkpoint, told) in [
        (Checkpoint::TrimHorizon, StartPosition::Oldest),
        (Checkpoint::Latest, StartPosition::Time(7)),
        (Checkpoint::Sought(Sought::Horizon), StartPosition::Oldest),
        (Checkpoint::Sought(Sought::Time(9)), StartPosition::Time(9)),
        (
            Checkpoint::Sought(Sought::Sequence(number())),
            StartPosition::At(number()),
        ),
        (
            Checkpoint::At(position.clone()),
            StartPosition::After(position),
        ),
    ] {
        assert_eq!(StartPosition::after(&checkpoint, &start), told);
    }
}
