//! A permission that is missing, or a call that hangs, keeps a host from what it is for, and from
//! nothing else; and whoever stops with work undone says so.

use harness::fake_coordinator::CoordinatorOp;
use harness::fake_lease_store::StoreOp;
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::lease::WorkerId;

use crate::held::{UPDATES, count, processing};
use crate::many::Many;
use crate::start_position::{BEGIN_MS, at_latest, holding_back, until_begun};

fn is_registered(fleet: &TestFleet, id: &str) -> bool {
    fleet
        .coordinator
        .rows()
        .workers
        .iter()
        .any(|row| Some(&row.worker) == WorkerId::new(id).as_ref())
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_dead_host_that_cannot_be_asked_about_are_shown_as_takes_that_fail() {
    let fleet = TestFleet::new(4);
    let a = fleet.start("a", NativePlugin::echo(1));
    let b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    fleet
        .coordinator
        .faults
        .draw_from(|op| (op == CoordinatorOp::Worker).then_some(Fault::Refuse));
    drop(b);
    until("it is shown", || a.status.snapshot().cannot_write.is_some()).await;
    assert_eq!(count(&fleet, "b"), 2, "who cannot be asked about may live");
    fleet.coordinator.faults.clear();
    until("they are taken", || processing(&a) == 4).await;
    until("it is over", || a.status.snapshot().cannot_write.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn rows_that_may_not_be_removed_keep_nobody_from_new_shards() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 1).await;
    fleet
        .store
        .faults
        .draw_from(|op| (op == StoreOp::Delete).then_some(Fault::Refuse));
    for generation in 0..3 {
        let last = fleet.stream.shards().last().unwrap().id.clone();
        fleet
            .stream
            .split(&last, u128::MAX - (1 << (100 - generation)));
        fleet.put(generation * 10..generation * 10 + 10);
        until("all out", || fleet.is_all_checkpointed()).await;
        tokio::time::sleep(fleet.options.leases.shard_sync_every * 2).await;
    }
    assert!(fleet.store.calls(StoreOp::Delete) > 0);
    let error = host.status.snapshot().pass_error;
    assert!(
        error.as_ref().is_some_and(|error| error.contains("Delete")),
        "it is shown: {error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_that_heeds_and_cannot_write_its_rows_gives_them_up_in_bounded_time_too() {
    let mut many = Many::settled(64, 1_024).await;
    let (late, tables) = many
        .fleet
        .start_apart("late", NativePlugin::no_op(1).unwatched());
    many.hosts.push(("late".to_owned(), late));
    many.balanced().await;
    let lease = many.fleet.options.leases.duration;
    tables
        .store
        .faults
        .draw_from(|op| UPDATES.contains(&op).then_some(Fault::Refuse));
    let cut_at = tokio::time::Instant::now();
    // Something to write.
    many.fleet.put(0..4_096);
    until("others have its leases", || count(&many.fleet, "late") == 0).await;
    assert!(cut_at.elapsed() < lease * 12, "{:?}", cut_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_heart_that_dies_ends_its_worker() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 1).await;
    fleet.coordinator.faults.draw_from(|op| {
        assert!(op != CoordinatorOp::Heartbeat, "a bug");
        None
    });
    host.ended_with("writes heartbeats").await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stops_gives_back_what_it_lost_and_still_owns_by_name() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 2).await;
    fleet
        .coordinator
        .faults
        .draw_from(|op| (op == CoordinatorOp::Heartbeat).then_some(Fault::Refuse));
    fleet
        .store
        .faults
        .draw_from(|op| UPDATES.contains(&op).then_some(Fault::Refuse));
    until("lost", || processing(&host) == 0).await;
    assert_eq!(count(&fleet, "a"), 2);
    fleet.coordinator.faults.clear();
    fleet.store.faults.clear();
    host.stop().await;
    assert_eq!((count(&fleet, "a"), is_registered(&fleet, "a")), (0, false));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_leaves_leases_behind_stays_registered_so_that_its_next_run_serves_them_at_once()
 {
    let mut many = Many::settled(64, 1_024).await;
    let victim = many.heeding();
    many.fleet
        .store
        .faults
        .draw_from(|op| (op == StoreOp::Release).then_some(Fault::Refuse));
    many.remove(&victim).stop().await;
    many.fleet.store.faults.clear();
    assert!(count(&many.fleet, &victim) > 0 && is_registered(&many.fleet, &victim));
    let again = many
        .fleet
        .start(&victim, NativePlugin::no_op(1).unwatched());
    let left = count(&many.fleet, &victim);
    let since = tokio::time::Instant::now();
    until("they are served", || processing(&again) >= left).await;
    assert!(
        since.elapsed() < many.fleet.options.leases.duration,
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_hangs_keeps_the_leader_from_nothing() {
    let fleet = TestFleet::new(2);
    let a = fleet.start("a", NativePlugin::echo(1));
    until("a leads", || {
        a.status.snapshot().leader.as_deref() == Some("a")
    })
    .await;
    let b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (1, 1)).await;
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::ListShards).then_some(Fault::Hang));
    let listed = fleet.stream.calls(ReadOp::ListShards);
    until("it lists", || {
        fleet.stream.calls(ReadOp::ListShards) > listed
    })
    .await;
    drop(b);
    until("a serves what the dead host held", || processing(&a) == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_at_work_is_not_removed_by_a_leader_that_waited_long_for_a_listing() {
    let fleet = TestFleet::new(2);
    let a = fleet.start("a", NativePlugin::echo(1));
    until("a leads", || {
        a.status.snapshot().leader.as_deref() == Some("a")
    })
    .await;
    let (b, tables) = fleet.start_apart("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (1, 1)).await;
    let beats = |op| matches!(op, CoordinatorOp::Heartbeat | CoordinatorOp::Register);
    tables
        .coordinator
        .faults
        .draw_from(move |op| beats(op).then_some(Fault::Refuse));
    let slow = Fault::AnswersAfter(fleet.options.leases.duration * 20);
    fleet
        .stream
        .faults
        .draw_from(move |op| (op == ReadOp::ListShards).then_some(slow));
    tokio::time::sleep(fleet.options.leases.duration * 60).await;
    let rows = fleet.coordinator.rows();
    assert!(
        rows.workers
            .iter()
            .any(|row| Some(&row.worker) == WorkerId::new("b").as_ref()),
        "its row stays"
    );
    assert_eq!((count(&fleet, "a"), count(&fleet, "b")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn while_nobody_may_ask_what_was_closed_before_the_start_no_such_shard_gets_a_row() {
    let fleet = at_latest(1);
    fleet.stream.set_now_ms(1_000);
    let first = fleet.stream.shards()[0].id.clone();
    let [left, right] = fleet.stream.split(&first, u128::MAX / 2);
    let merged = fleet.stream.merge(&left, &right);
    fleet.stream.set_now_ms(BEGIN_MS);
    let refused = |op| (op == ReadOp::ListShardsSince).then_some(Fault::Refuse);
    fleet.stream.faults.draw_from(refused);
    let host = fleet.start("a", holding_back(1));
    until("it asked", || {
        fleet.stream.calls(ReadOp::ListShardsSince) > 3
    })
    .await;
    assert_eq!(fleet.store.rows(), []);
    fleet.stream.faults.clear();
    until_begun(&fleet).await;
    let rows = || {
        fleet
            .store
            .rows()
            .iter()
            .map(|row| row.key.shard_id())
            .collect::<Vec<_>>()
    };
    until("what is open has a row", || rows() == [merged.clone()]).await;
    drop(host);
    // Another leader, which cannot ask either, finds closed shards without rows.
    fleet.stream.faults.draw_from(refused);
    let asked = fleet.stream.calls(ReadOp::ListShardsSince);
    let _next = fleet.start("b", holding_back(1));
    until("it asked", || {
        fleet.stream.calls(ReadOp::ListShardsSince) > asked + 3
    })
    .await;
    assert_eq!(rows(), [merged]);
}
