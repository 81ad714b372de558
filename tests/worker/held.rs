//! What is held gets on, or is given up: heartbeats that fail, rows that vanish, leases that nobody would read.

use std::time::Duration;

use harness::fake_coordinator::CoordinatorOp;
use harness::fake_lease_store::{AppliedWrite, StoreOp};
use harness::faults::Fault;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::lease::WorkerId;
use shardmill_worker::ShardState;

fn owners(fleet: &TestFleet) -> Vec<Option<String>> {
    fleet.store.rows().iter().map(|row| row.owner.as_ref().map(ToString::to_string)).collect()
}

fn count(fleet: &TestFleet, id: &str) -> usize {
    owners(fleet).iter().filter(|owner| owner.as_deref() == Some(id)).count()
}

fn processing(host: &TestHost) -> usize {
    host.status.snapshot().shards.values().filter(|shard| shard.state == ShardState::Processing).count()
}

#[tokio::test(start_paused = true)]
async fn a_heart_that_missed_its_deadline_holds_each_lease_again_once_its_row_was_written() {
    let fleet = TestFleet::new(4);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 4).await;
    let taken = fleet.store.calls(StoreOp::Take);
    fleet.coordinator.faults.draw_from(|op| (op == CoordinatorOp::Heartbeat).then_some(Fault::Refuse));
    tokio::time::sleep(Duration::from_mins(2)).await;
    fleet.coordinator.faults.clear();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let renewals = fleet.store.calls(StoreOp::Renew);
    assert!(renewals > 4, "rows were renewed while heartbeats failed");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(fleet.store.calls(StoreOp::Renew), renewals, "an idle lease costs no write any more");
    assert_eq!(fleet.store.calls(StoreOp::Take), taken, "no lease was lost on the way");
}

#[tokio::test(start_paused = true)]
async fn a_live_host_whose_row_vanished_keeps_its_leases() {
    let fleet = TestFleet::new(4);
    let a = fleet.start("a", NativePlugin::echo(1));
    let b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    // Long enough for the rows to stand still: only the heartbeats hold them.
    tokio::time::sleep(Duration::from_mins(1)).await;
    let (before, taken) = (owners(&fleet), fleet.store.calls(StoreOp::Take));
    fleet.coordinator.change(|rows| rows.workers.retain(|row| Some(&row.worker) != WorkerId::new("a").as_ref()));
    fleet.put(0..100);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((owners(&fleet), fleet.store.calls(StoreOp::Take)), (before, taken));
    assert!(fleet.has_exactly(0..100), "nothing was delivered by two owners");
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_a_host_that_died_as_its_row_vanished_are_taken_after_a_lease_duration() {
    let fleet = TestFleet::new(4);
    let a = fleet.start("a", NativePlugin::echo(1));
    let b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    drop(a);
    fleet.coordinator.change(|rows| rows.workers.retain(|row| Some(&row.worker) != WorkerId::new("a").as_ref()));
    let died_at = tokio::time::Instant::now();
    until("b has them all", || count(&fleet, "b") == 4).await;
    assert!(died_at.elapsed() < fleet.options.leases.duration * 2);
}

#[tokio::test(start_paused = true)]
async fn a_take_that_is_answered_after_others_took_the_lease_begins_nothing() {
    let fleet = TestFleet::new(1);
    let late = Fault::AnswersAfter(Duration::from_secs(40));
    fleet.store.faults.draw_from(move |op| (op == StoreOp::Take).then_some(late));
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("the take is applied", || count(&fleet, "a") == 1).await;
    fleet.put(0..20);
    // The host is out for longer than a lease, and back before the answer is; meanwhile another one takes the lease.
    fleet.coordinator.faults.draw_from(|op| (op == CoordinatorOp::Heartbeat).then_some(Fault::Refuse));
    tokio::time::sleep(Duration::from_secs(20)).await;
    fleet.coordinator.faults.clear();
    let mut row = fleet.store.rows().remove(0);
    row.owner = WorkerId::new("b");
    row.counter = row.counter.next();
    fleet.store.put_row(row);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(fleet.sink.lines(), Vec::<String>::new(), "the records are b's");
}

#[tokio::test(start_paused = true)]
async fn a_host_started_again_with_a_lower_limit_gives_back_what_it_may_not_hold() {
    let mut fleet = TestFleet::new(4);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 4).await;
    drop(host);
    fleet.options.leases.max_leases = 2;
    let _a = fleet.start("a", NativePlugin::echo(1));
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("each has two", || (count(&fleet, "a"), count(&fleet, "b")) == (2, 2)).await;
    fleet.put(0..100);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..100));
}

#[tokio::test(start_paused = true)]
async fn a_shard_list_that_cannot_be_shared_keeps_the_leader_from_nothing() {
    for fault in [Fault::Refuse, Fault::Throttle, Fault::Hang] {
        let fleet = TestFleet::new(4);
        fleet.coordinator.faults.draw_from(move |op| (op == CoordinatorOp::WriteShards).then_some(fault));
        let host = fleet.start("a", NativePlugin::echo(1));
        fleet.put(0..40);
        let started_at = tokio::time::Instant::now();
        until("all out", || fleet.is_all_checkpointed()).await;
        assert!(started_at.elapsed() < Duration::from_secs(20), "{fault:?}");
        assert_eq!(host.status.snapshot().pass_error, None);
    }
}

#[tokio::test(start_paused = true)]
async fn silent_workers_that_cannot_be_removed_keep_the_leader_from_nothing() {
    let fleet = TestFleet::new(1);
    let a = fleet.start("a", NativePlugin::echo(1));
    let b = fleet.start("b", NativePlugin::echo(1));
    until("a leads", || a.status.snapshot().leader.as_deref() == Some("a")).await;
    drop(b);
    fleet.coordinator.faults.draw_from(|op| (op == CoordinatorOp::RemoveWorker).then_some(Fault::Refuse));
    tokio::time::sleep(Duration::from_mins(5)).await;
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.store.delete_row(&shardmill_core::stream::LeaseKey::of_shard(&shard));
    until("the row is made again", || fleet.row(&shard).is_some()).await;
    assert_eq!(a.status.snapshot().pass_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_beat_but_renews_its_rows_is_no_kcl_and_nobody_else_renews_rows() {
    let fleet = TestFleet::new(4);
    let a = fleet.start("a", NativePlugin::echo(1));
    until("a leads", || a.status.snapshot().leader.as_deref() == Some("a")).await;
    let (b, tables) = fleet.start_apart("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    let beats = |op| matches!(op, CoordinatorOp::Heartbeat | CoordinatorOp::Register);
    tables.coordinator.faults.draw_from(move |op| beats(op).then_some(Fault::Refuse));
    tokio::time::sleep(fleet.options.leases.duration * 20).await;
    assert_eq!((count(&fleet, "a"), count(&fleet, "b")), (2, 2), "rows that move are not robbed");
    let renewed_by = |id: &str| {
        let is_its = |write: &&AppliedWrite| write.row.owner == WorkerId::new(id) && write.op == StoreOp::Renew;
        fleet.store.history().iter().filter(is_its).count()
    };
    assert_eq!((renewed_by("a"), renewed_by("b") > 10), (0, true));
}

#[tokio::test(start_paused = true)]
async fn a_kcl_that_was_found_out_is_forgotten_once_its_leases_stand_still_for_long() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 2).await;
    for _ in 0..10 {
        let mut row = fleet.store.rows().remove(0);
        row.owner = WorkerId::new("kcl");
        row.counter = row.counter.next();
        fleet.store.put_row(row);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let renewals = fleet.store.calls(StoreOp::Renew);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(fleet.store.calls(StoreOp::Renew) > renewals, "a KCL knows no heartbeats");
    tokio::time::sleep(Duration::from_mins(6)).await;
    let renewals = fleet.store.calls(StoreOp::Renew);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(fleet.store.calls(StoreOp::Renew), renewals, "and there is none any more");
    assert_eq!(processing(&host), 2);
}

#[tokio::test(start_paused = true)]
async fn one_call_that_hangs_is_cut_off_whichever_it_is_and_work_goes_on() {
    let coordinator_ops = [
        CoordinatorOp::Fleet,
        CoordinatorOp::Worker,
        CoordinatorOp::Heartbeat,
        CoordinatorOp::WriteLeader,
        CoordinatorOp::Announce,
    ];
    let store_ops =
        [StoreOp::List, StoreOp::Create, StoreOp::Take, StoreOp::Claim, StoreOp::Checkpoint, StoreOp::Release];
    let fleet = TestFleet::new(4);
    let a = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&a) == 4).await;
    coordinator_ops.into_iter().for_each(|op| fleet.coordinator.faults.queue(op, Fault::Hang));
    store_ops.into_iter().for_each(|op| fleet.store.faults.queue(op, Fault::Hang));
    let deleted = fleet.stream.shards()[0].id.clone();
    fleet.store.delete_row(&shardmill_core::stream::LeaseKey::of_shard(&deleted));
    let b = fleet.start("b", NativePlugin::echo(1));
    let started_at = tokio::time::Instant::now();
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    fleet.put(0..40);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(started_at.elapsed() < Duration::from_mins(4), "{:?}", started_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn one_heartbeat_that_hangs_costs_no_lease() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 2).await;
    let taken = fleet.store.calls(StoreOp::Take);
    fleet.store.faults.draw_from(|op| (op == StoreOp::Renew).then_some(Fault::Refuse));
    fleet.coordinator.faults.queue(CoordinatorOp::Heartbeat, Fault::Hang);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((processing(&host), fleet.store.calls(StoreOp::Take)), (2, taken));
}
