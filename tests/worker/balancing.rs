//! Leases move between live hosts without loss, repeat or churn; one host leads, and another when
//! it cannot.

use std::sync::atomic::Ordering;
use std::time::Duration;

use harness::fake_coordinator::CoordinatorOp;
use harness::fake_lease_store::StoreOp;
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::lease::{Checkpoint, WorkerId};
use shardmill_core::stream::ShardId;
use shardmill_worker::ShardState;

fn counts(fleet: &TestFleet, ids: &[&str]) -> Vec<usize> {
    let rows = fleet.store.rows();
    let held = |id: &str| {
        rows.iter()
            .filter(|row| row.owner == WorkerId::new(id))
            .count()
    };
    ids.iter().map(|id| held(id)).collect()
}

fn leader(fleet: &TestFleet) -> Option<String> {
    let leader = fleet.coordinator.rows().leader?;
    leader.holder.map(|(worker, _)| worker.to_string())
}

fn takes(fleet: &TestFleet) -> usize {
    fleet
        .store
        .history()
        .iter()
        .filter(|write| write.op == StoreOp::Take)
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_joins_gets_its_share_by_hand_over_and_then_nothing_moves() {
    let fleet = TestFleet::new(12);
    let _a = fleet.start("a", NativePlugin::echo(1));
    until("a has them all", || counts(&fleet, &["a"]) == [12]).await;
    let mut next = 0;
    let mut put = || {
        fleet.put(next..next + 12);
        next += 12;
    };
    put();
    let joined_at = tokio::time::Instant::now();
    let _b = fleet.start("b", NativePlugin::echo(1));
    let _c = fleet.start("c", NativePlugin::echo(1));
    while counts(&fleet, &["a", "b", "c"]) != [4, 4, 4] {
        put();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(
            joined_at.elapsed() < Duration::from_secs(20),
            "{:?}",
            counts(&fleet, &["a", "b", "c"])
        );
    }
    let taken = takes(&fleet);
    for _ in 0..100 {
        put();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(takes(&fleet), taken, "an even fleet stays as it is");
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(
        fleet.has_exactly(0..next),
        "nothing lost and nothing repeated"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_of_all_hosts_repeats_nothing() {
    let fleet = TestFleet::new(8);
    let mut hosts: Vec<TestHost> = ["a", "b", "c", "d"]
        .map(|id| fleet.start(id, NativePlugin::echo(1)))
        .into();
    let mut next = 0;
    for id in ["a", "b", "c", "d"] {
        for _ in 0..40 {
            fleet.put(next..next + 8);
            next += 8;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        hosts.remove(0).stop().await;
        hosts.push(fleet.start(id, NativePlugin::echo(1)));
    }
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..next));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_claimant_dies_binds_nobody() {
    let fleet = TestFleet::new(4);
    let _a = fleet.start("a", NativePlugin::echo(1));
    until("a has them all", || counts(&fleet, &["a"]) == [4]).await;
    let b = fleet.start("b", NativePlugin::echo(1));
    until("b asks", || {
        fleet.store.rows().iter().any(|row| row.claimant.is_some())
    })
    .await;
    drop(b);
    until("a has them all again", || counts(&fleet, &["a"]) == [4]).await;
    fleet.put(0..40);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..40));
}

/// Lets b look at the leases of a, which lives, while listings of the fleet do not show that a is
/// registered.
async fn leases_after_a_look_at_an_unlisted_host(shared_with_kcl: bool) -> Vec<usize> {
    let mut fleet = TestFleet::new(4);
    fleet.options.leases.shared_with_kcl = shared_with_kcl;
    let _a = fleet.start("a", NativePlugin::echo(1));
    until("a has them all", || counts(&fleet, &["a"]) == [4]).await;
    fleet.coordinator.keep_unlisted(WorkerId::new("a").unwrap());
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("b has looked", || {
        fleet.coordinator.calls(CoordinatorOp::Worker) > 10
    })
    .await;
    counts(&fleet, &["a", "b"])
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_registration_is_not_listed_yet_is_not_stolen_from_as_if_it_were_a_kcls_worker()
 {
    assert_eq!(leases_after_a_look_at_an_unlisted_host(true).await, [4, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_registration_is_not_listed_yet_is_not_taken_for_dead_because_its_rows_stand_still()
 {
    // They have stood still for longer than a lease, so b would take them, and looks at their owner
    // first.
    assert_eq!(leases_after_a_look_at_an_unlisted_host(false).await, [4, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_never_comes_back_from_close_cannot_keep_a_lease_that_was_asked_for() {
    let mut fleet = TestFleet::new(4);
    fleet.options.leases.plugin_deadline = fleet.options.leases.duration;
    let _a = fleet.start("a", NativePlugin::echo(1).hanging_in_close());
    fleet.put(0..40);
    until("a has handled them all", || fleet.is_all_checkpointed()).await;
    let _b = fleet.start("b", NativePlugin::echo(1));
    let joined_at = tokio::time::Instant::now();
    until("b has its share", || counts(&fleet, &["a", "b"]) == [2, 2]).await;
    assert!(joined_at.elapsed() < Duration::from_secs(15));
    fleet.put(40..80);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..80));
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_lists_shards_and_its_successor_goes_on_after_an_exit_or_a_crash() {
    let fleet = TestFleet::new(2);
    let a = fleet.start("a", NativePlugin::echo(1));
    until("a leads", || leader(&fleet).as_deref() == Some("a")).await;
    let b = fleet.start("b", NativePlugin::echo(1));
    let listings = fleet.stream.calls(ReadOp::ListShards);
    tokio::time::sleep(Duration::from_mins(10)).await;
    let ten_minutes = fleet.stream.calls(ReadOp::ListShards) - listings;
    assert!(
        (8..=12).contains(&ten_minutes),
        "one host lists once a minute: {ten_minutes}"
    );
    assert_eq!(
        fleet.coordinator.cached().map(|list| list.shards),
        Some(fleet.stream.shards())
    );
    a.stop().await;
    let left_at = tokio::time::Instant::now();
    until("b leads", || leader(&fleet).as_deref() == Some("b")).await;
    assert!(
        left_at.elapsed() < Duration::from_secs(2),
        "the office was given back"
    );
    let _c = fleet.start("c", NativePlugin::echo(1));
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(b);
    let crashed_at = tokio::time::Instant::now();
    until("c leads", || leader(&fleet).as_deref() == Some("c")).await;
    // The record is written each third of a lease duration or so, and the last one may be older
    // than the crash.
    assert!(
        crashed_at.elapsed() > Duration::from_secs(5),
        "judged by standing still, not by a clock in the record"
    );
    assert!(crashed_at.elapsed() < Duration::from_secs(16));
    until("the dead are removed", || {
        fleet.coordinator.rows().workers.len() == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_stopped_while_it_registers_leaves_no_registration() {
    let fleet = TestFleet::new(1);
    fleet
        .coordinator
        .faults
        .queue(CoordinatorOp::Register, Fault::UnknownApplied);
    let a = fleet.start("a", NativePlugin::echo(1));
    a.stop_when(|| fleet.coordinator.calls(CoordinatorOp::Register) == 1)
        .await;
    assert_eq!(fleet.coordinator.rows().workers, []);
}

#[tokio::test(start_paused = true)]
async fn an_office_whose_write_had_no_answer_is_given_back_all_the_same() {
    let fleet = TestFleet::new(1);
    fleet
        .coordinator
        .faults
        .queue(CoordinatorOp::WriteLeader, Fault::UnknownApplied);
    let a = fleet.start("a", NativePlugin::echo(1));
    a.stop_when(|| fleet.coordinator.calls(CoordinatorOp::WriteLeader) == 1)
        .await;
    assert_eq!(
        fleet.coordinator.rows().leader.map(|row| row.holder),
        Some(None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_list_shards_is_replaced_by_one_that_can() {
    let fleet = TestFleet::new(2);
    let _a = fleet.start("a", NativePlugin::echo(1));
    until("a leads and serves", || counts(&fleet, &["a"]) == [2]).await;
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::ListShards).then_some(Fault::Refuse));
    tokio::time::sleep(Duration::from_mins(2)).await;
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("somebody else tries", || {
        leader(&fleet).as_deref() == Some("b")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn finished_rows_are_removed_once_their_children_have_started_and_stay_removed() {
    let fleet = TestFleet::new(1);
    let parent = fleet.stream.shards()[0].id.clone();
    let _a = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..20);
    fleet.stream.split(&parent, u128::MAX / 2);
    fleet.put(20..60);
    until("the parent's row is gone", || {
        fleet.store.rows().len() == 2 && fleet.row(&parent).is_none()
    })
    .await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(
        fleet.row(&parent).is_none(),
        "the shard is still listed, and not read again"
    );
    assert!(fleet.has_exactly(0..60));
}

#[tokio::test(start_paused = true)]
async fn a_finished_row_stays_for_a_while_after_a_suspension_as_requests_on_their_way_do() {
    let fleet = TestFleet::new(1);
    let parent = fleet.stream.shards()[0].id.clone();
    let _a = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..20);
    fleet.stream.split(&parent, u128::MAX / 2);
    fleet.put(20..60);
    until("all is read", || fleet.is_all_checkpointed()).await;
    // It has listed the row as finished.
    tokio::time::sleep(Duration::from_secs(3)).await;
    fleet.suspended_seconds.fetch_add(3_600, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(
        fleet.row(&parent).is_some(),
        "an hour passed for clocks only"
    );
    until("the parent's row is gone", || fleet.row(&parent).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_lineage_trimmed_while_nobody_was_there_goes_on_with_its_living_descendants() {
    let fleet = TestFleet::new(1);
    let first = fleet.stream.shards()[0].id.clone();
    fleet.put(0..10);
    fleet
        .start("a", NativePlugin::echo(1))
        .stop_when(|| fleet.is_all_checkpointed())
        .await;
    // While nobody reads: the shard splits, its children split, and all but the grandchildren
    // expire.
    let children = fleet.stream.split(&first, u128::MAX / 2);
    let mut grandchildren: Vec<ShardId> = fleet.stream.split(&children[0], u128::MAX / 4).into();
    grandchildren.extend(fleet.stream.split(&children[1], u128::MAX / 4 * 3));
    for gone in [&first, &children[0], &children[1]] {
        fleet.stream.forget_shard(gone);
    }
    fleet.put(10..50);
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("grandchildren are read", || fleet.has_exactly(0..50)).await;
    until("the dead row is removed", || fleet.row(&first).is_none()).await;
    assert_eq!(fleet.store.rows().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_stream_created_again_is_never_read_from_old_checkpoints() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    fleet.stream.set_created_at(Some(9_000_000));
    fleet.stream.faults.queue(ReadOp::Iterator, Fault::NotFound);
    fleet.stream.faults.queue(ReadOp::Iterator, Fault::NotFound);
    fleet.put(20..40);
    host.ended_with("was deleted and created again").await;
    assert!(
        fleet.has_exactly(0..20),
        "nothing of the new stream went out"
    );
    let again = fleet.start("a", NativePlugin::echo(1));
    again.ended_with("was deleted and created again").await;
    assert!(
        fleet
            .store
            .rows()
            .iter()
            .all(|row| matches!(row.checkpoint, Checkpoint::At(_))),
        "rows are kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_gone_ends_no_shard_and_is_read_on_when_it_is_back() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    fleet.stream.set_created_at(None);
    fleet
        .stream
        .faults
        .draw_from(|op| (op != ReadOp::Identity).then_some(Fault::NotFound));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(
        host.status
            .snapshot()
            .shards
            .values()
            .all(|shard| shard.read_error.is_some()),
        "and it shows"
    );
    assert!(fleet.store.rows().iter().all(|row| !row.is_finished()));
    fleet.stream.faults.clear();
    fleet.stream.set_created_at(Some(1_000_000));
    fleet.put(20..40);
    until("read on", || fleet.has_exactly(0..40)).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_read_gives_its_leases_up_and_says_why() {
    let mut fleet = TestFleet::new(1);
    fleet.options.leases.read_deadline = Duration::from_secs(30);
    let host = fleet.start("a", NativePlugin::echo(1));
    let shard = fleet.stream.shards()[0].id.clone();
    until("held", || counts(&fleet, &["a"]) == [1]).await;
    fleet
        .stream
        .faults
        .draw_from(|op| matches!(op, ReadOp::Fetch | ReadOp::Iterator).then_some(Fault::Hang));
    let cut_off_at = tokio::time::Instant::now();
    until("given up", || {
        host.status.snapshot().shards[shard.as_str()].state == ShardState::GaveUp
    })
    .await;
    assert!(
        cut_off_at.elapsed() >= Duration::from_mins(1),
        "the reader got a second chance"
    );
    let row = fleet.row(&shard).unwrap();
    assert_eq!(row.owner, None);
    assert!(
        row.stuck
            .is_some_and(|why| why.contains("nothing could be read"))
    );
    fleet.stream.faults.clear();
    fleet.put(0..10);
    until("taken again after a while", || fleet.has_exactly(0..10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_while_the_plugin_works_off_what_was_read_before_reading_failed() {
    let mut fleet = TestFleet::new(1);
    fleet.options.leases.read_deadline = Duration::from_secs(30);
    fleet.options.batches.records = 1;
    fleet.put(0..10);
    let host = fleet.start("a", NativePlugin::echo(1).taking(Duration::from_secs(20)));
    let shard = fleet.stream.shards()[0].id.clone();
    let given_up = || host.status.snapshot().shards[shard.as_str()].state == ShardState::GaveUp;
    until("begun", || fleet.has_exactly(0..1)).await;
    fleet
        .stream
        .faults
        .draw_from(|op| matches!(op, ReadOp::Fetch | ReadOp::Iterator).then_some(Fault::Hang));
    until("worked off", || given_up() || fleet.has_exactly(0..10)).await;
    assert!(!given_up(), "it gets on for more than three minutes");
    until("given up when nothing is left", given_up).await;
    fleet.stream.faults.clear();
    fleet.put(10..20);
    until("nothing came twice", || fleet.has_exactly(0..20)).await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_never_comes_back_is_made_anew_once_and_then_another_host_may_try() {
    let mut fleet = TestFleet::new(1);
    fleet.options.leases.plugin_deadline = Duration::from_mins(1);
    let a = fleet.start("a", NativePlugin::hanging(1));
    fleet.put(0..10);
    let shard = fleet.stream.shards()[0].id.clone();
    until("given up", || {
        a.status
            .snapshot()
            .shards
            .get(shard.as_str())
            .is_some_and(|s| s.state == ShardState::GaveUp)
    })
    .await;
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("another host handles them", || fleet.has_exactly(0..10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_store_outputs_gives_the_lease_up_without_a_checkpoint() {
    let mut fleet = TestFleet::new(1);
    fleet.options.leases.checkpoint_deadline = Duration::from_secs(30);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet
        .sink
        .is_broken
        .store(true, std::sync::atomic::Ordering::Relaxed);
    fleet.put(0..10);
    let shard = fleet.stream.shards()[0].id.clone();
    until("given up", || {
        host.status
            .snapshot()
            .shards
            .get(shard.as_str())
            .is_some_and(|shard| shard.state == ShardState::GaveUp)
    })
    .await;
    assert_eq!(
        fleet.row(&shard).unwrap().checkpoint,
        Checkpoint::TrimHorizon
    );
    fleet
        .sink
        .is_broken
        .store(false, std::sync::atomic::Ordering::Relaxed);
    until("all out", || fleet.has_exactly(0..10)).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_with_one_id_the_older_stops_and_nothing_is_lost() {
    let fleet = TestFleet::new(2);
    let first = fleet.start("twin", NativePlugin::echo(1));
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    let _second = fleet.start("twin", NativePlugin::echo(1));
    first
        .ended_with("another process registered as worker twin")
        .await;
    fleet.put(20..40);
    until("all out", || fleet.has_exactly(0..40)).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_frozen_for_longer_than_a_lease_delivers_nothing_when_it_wakes() {
    let fleet = TestFleet::new(2);
    let (freeze, is_frozen) = tokio::sync::watch::channel(false);
    let _a = fleet.start_frozen_by("a", NativePlugin::echo(1), is_frozen);
    until("a has them all", || counts(&fleet, &["a"]) == [2]).await;
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    freeze.send_replace(true);
    let _b = fleet.start("b", NativePlugin::echo(1));
    fleet.put(20..40);
    until("b went on", || fleet.has_exactly(0..40)).await;
    freeze.send_replace(false);
    tokio::time::sleep(Duration::from_mins(2)).await;
    fleet.put(40..60);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..60), "nothing lost, nothing repeated");
    assert_eq!(
        counts(&fleet, &["a", "b"]),
        [1, 1],
        "the woken host takes part again"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_fleet_costs_a_heartbeat_and_a_small_read_a_host_and_no_write_a_lease() {
    let fleet = TestFleet::new(100);
    let _hosts: Vec<_> = ["a", "b"]
        .map(|id| fleet.start(id, NativePlugin::no_op(1)))
        .into();
    until("shared", || counts(&fleet, &["a", "b"]) == [50, 50]).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let writes = fleet.store.history().len();
    let scans = fleet.store.calls(StoreOp::List);
    let (beats, looks) = (
        fleet.coordinator.calls(CoordinatorOp::Heartbeat),
        fleet.coordinator.calls(CoordinatorOp::Fleet),
    );
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(fleet.store.history().len(), writes);
    assert!(fleet.store.calls(StoreOp::List) - scans <= 2 * 400);
    assert!(fleet.coordinator.calls(CoordinatorOp::Heartbeat) - beats <= 2 * 1_210);
    assert!(fleet.coordinator.calls(CoordinatorOp::Fleet) - looks <= 2 * 4_100);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_fails_for_a_moment_during_a_hand_over_makes_nothing_repeat() {
    let fleet = TestFleet::new(2);
    let a = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..20);
    until("delivered, not yet checkpointed", || {
        fleet.sink.lines().len() == 20
    })
    .await;
    fleet
        .sink
        .is_broken
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let mend = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        fleet
            .sink
            .is_broken
            .store(false, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::join!(a.stop(), mend);
    assert!(fleet.is_all_checkpointed());
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_whose_answer_is_lost_until_the_lease_is_taken_is_no_loss() {
    let fleet = TestFleet::new(2);
    let a = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..20);
    until("all is a's", || {
        fleet.is_all_checkpointed() && counts(&fleet, &["a"]) == [2]
    })
    .await;
    let mut releases = 0;
    fleet.store.faults.draw_from(move |op| {
        if op != StoreOp::Release {
            return None;
        }
        releases += 1;
        match releases {
            1 => Some(Fault::UnknownApplied),
            // Until the one that asked for it has long taken it.
            2..10 => Some(Fault::UnknownNotApplied),
            _ => None,
        }
    });
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("shared", || counts(&fleet, &["a", "b"]) == [1, 1]).await;
    let states = || -> Vec<ShardState> {
        let status = a.status.snapshot();
        status.shards.values().map(|shard| shard.state).collect()
    };
    until("it is over", || states().contains(&ShardState::Released)).await;
    assert!(!states().contains(&ShardState::Lost));
    fleet.put(20..40);
    until("nothing came twice", || fleet.has_exactly(0..40)).await;
}
