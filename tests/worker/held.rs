//! Held leases make progress, or are given up: heartbeats that fail, rows that vanish, leases that
//! no host would read.

use std::time::Duration;

use harness::fake_coordinator::CoordinatorOp;
use harness::fake_lease_store::{AppliedWrite, StoreOp};
use harness::faults::Fault;
use harness::fleet::{OwnTables, TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::lease::WorkerId;
use shardmill_core::stream::{LeaseKey, Shard};
use shardmill_worker::ShardState;

fn owners(fleet: &TestFleet) -> Vec<Option<String>> {
    fleet
        .store
        .rows()
        .iter()
        .map(|row| row.owner.as_ref().map(ToString::to_string))
        .collect()
}

pub(crate) fn count(fleet: &TestFleet, id: &str) -> usize {
    owners(fleet)
        .iter()
        .filter(|owner| owner.as_deref() == Some(id))
        .count()
}

pub(crate) fn processing(host: &TestHost) -> usize {
    shards_in(host, ShardState::Processing)
}

fn given_up(host: &TestHost) -> usize {
    shards_in(host, ShardState::GaveUp)
}

fn shards_in(host: &TestHost, state: ShardState) -> usize {
    let shards = host.status.snapshot().shards;
    shards.values().filter(|shard| shard.state == state).count()
}

#[tokio::test(start_paused = true)]
async fn a_heart_that_missed_its_deadline_holds_each_lease_again_once_its_row_was_written() {
    let fleet = TestFleet::new(4);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 4).await;
    let taken = fleet.store.calls(StoreOp::Take);
    fleet
        .coordinator
        .faults
        .draw_from(|op| (op == CoordinatorOp::Heartbeat).then_some(Fault::Refuse));
    tokio::time::sleep(Duration::from_mins(2)).await;
    fleet.coordinator.faults.clear();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let renewals = fleet.store.calls(StoreOp::Renew);
    assert!(renewals > 4, "rows were renewed while heartbeats failed");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(
        fleet.store.calls(StoreOp::Renew),
        renewals,
        "an idle lease costs no write any more"
    );
    assert_eq!(
        fleet.store.calls(StoreOp::Take),
        taken,
        "no lease was lost on the way"
    );
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
    fleet.coordinator.change(|rows| {
        rows.workers
            .retain(|row| Some(&row.worker) != WorkerId::new("a").as_ref());
    });
    fleet.put(0..100);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        (owners(&fleet), fleet.store.calls(StoreOp::Take)),
        (before, taken)
    );
    assert!(
        fleet.has_exactly(0..100),
        "nothing was delivered by two owners"
    );
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_a_host_that_died_as_its_row_vanished_are_taken_after_a_lease_duration() {
    let fleet = TestFleet::new(4);
    let a = fleet.start("a", NativePlugin::echo(1));
    let b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    drop(a);
    fleet.coordinator.change(|rows| {
        rows.workers
            .retain(|row| Some(&row.worker) != WorkerId::new("a").as_ref());
    });
    let died_at = tokio::time::Instant::now();
    until("b has them all", || count(&fleet, "b") == 4).await;
    assert!(died_at.elapsed() < fleet.options.leases.duration * 2);
}

#[tokio::test(start_paused = true)]
async fn a_take_that_is_answered_after_others_took_the_lease_begins_nothing() {
    let fleet = TestFleet::new(1);
    let late = Fault::AnswersAfter(Duration::from_secs(40));
    fleet
        .store
        .faults
        .draw_from(move |op| (op == StoreOp::Take).then_some(late));
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("the take is applied", || count(&fleet, "a") == 1).await;
    fleet.put(0..20);
    // The host is out for longer than a lease, and back before the answer is; meanwhile another one
    // takes the lease.
    fleet
        .coordinator
        .faults
        .draw_from(|op| (op == CoordinatorOp::Heartbeat).then_some(Fault::Refuse));
    tokio::time::sleep(Duration::from_secs(20)).await;
    fleet.coordinator.faults.clear();
    let mut row = fleet.store.rows().remove(0);
    row.owner = WorkerId::new("b");
    row.counter = row.counter.next();
    fleet.store.put_row(row);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(
        fleet.sink.lines(),
        Vec::<String>::new(),
        "the records are b's"
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_started_again_with_a_lower_limit_gives_back_what_it_may_not_hold() {
    let mut fleet = TestFleet::new(4);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 4).await;
    drop(host);
    fleet.options.leases.max_leases = 2;
    let _a = fleet.start("a", NativePlugin::echo(1));
    until("two are free", || {
        (count(&fleet, "a"), owners(&fleet).contains(&None)) == (2, true)
    })
    .await;
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("each has two", || {
        (count(&fleet, "a"), count(&fleet, "b")) == (2, 2)
    })
    .await;
    fleet.put(0..100);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..100));
}

#[tokio::test(start_paused = true)]
async fn leases_that_no_host_may_hold_are_reported_by_the_leader_until_one_takes_them() {
    let mut fleet = TestFleet::new(4);
    fleet.options.leases.max_leases = 2;
    let a = fleet.start("a", NativePlugin::echo(1));
    let told = || a.status.snapshot().unowned_leases;
    until("nothing is amiss at first", || told() == Some(0)).await;
    until("two are told", || told() == Some(2)).await;
    let b = fleet.start("b", NativePlugin::echo(1));
    until("all are held", || told() == Some(0)).await;
    assert_eq!(
        b.status.snapshot().unowned_leases,
        None,
        "it is the leader's to tell"
    );
    drop(a);
    until("b leads, and tells of what a had", || {
        b.status.snapshot().unowned_leases == Some(2)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_list_that_cannot_be_shared_keeps_the_leader_from_nothing() {
    for fault in [Fault::Refuse, Fault::Throttle, Fault::Hang] {
        let fleet = TestFleet::new(4);
        fleet
            .coordinator
            .faults
            .draw_from(move |op| (op == CoordinatorOp::WriteShards).then_some(fault));
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
    let fleet = TestFleet::new(2);
    let a = fleet.start("a", NativePlugin::echo(1));
    until("a leads", || {
        a.status.snapshot().leader.as_deref() == Some("a")
    })
    .await;
    let b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (1, 1)).await;
    drop(b);
    fleet
        .coordinator
        .faults
        .draw_from(|op| (op == CoordinatorOp::RemoveWorker).then_some(Fault::Refuse));
    tokio::time::sleep(Duration::from_mins(5)).await;
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.store.delete_row(&LeaseKey::of_shard(&shard));
    until("the row is made again", || fleet.row(&shard).is_some()).await;
    assert_eq!(a.status.snapshot().pass_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_beat_but_renews_its_rows_is_no_kcl_and_nobody_else_renews_rows() {
    let fleet = TestFleet::new(4);
    let a = fleet.start("a", NativePlugin::echo(1));
    until("a leads", || {
        a.status.snapshot().leader.as_deref() == Some("a")
    })
    .await;
    let (b, tables) = fleet.start_apart("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    let beats = |op| matches!(op, CoordinatorOp::Heartbeat | CoordinatorOp::Register);
    tables
        .coordinator
        .faults
        .draw_from(move |op| beats(op).then_some(Fault::Refuse));
    tokio::time::sleep(fleet.options.leases.duration * 20).await;
    assert_eq!(
        (count(&fleet, "a"), count(&fleet, "b")),
        (2, 2),
        "rows that move are not robbed"
    );
    let renewed_by = |id: &str| {
        let is_its = |write: &&AppliedWrite| {
            write.row.owner == WorkerId::new(id) && write.op == StoreOp::Renew
        };
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
    assert!(
        fleet.store.calls(StoreOp::Renew) > renewals,
        "a KCL knows no heartbeats"
    );
    tokio::time::sleep(Duration::from_mins(6)).await;
    let renewals = fleet.store.calls(StoreOp::Renew);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(
        fleet.store.calls(StoreOp::Renew),
        renewals,
        "and there is none any more"
    );
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
    let store_ops = [
        StoreOp::List,
        StoreOp::Create,
        StoreOp::Take,
        StoreOp::Claim,
        StoreOp::Checkpoint,
        StoreOp::Release,
    ];
    let fleet = TestFleet::new(4);
    let a = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&a) == 4).await;
    for op in coordinator_ops {
        fleet.coordinator.faults.queue(op, Fault::Hang);
    }
    for op in store_ops {
        fleet.store.faults.queue(op, Fault::Hang);
    }
    let deleted = fleet.stream.shards()[0].id.clone();
    fleet.store.delete_row(&LeaseKey::of_shard(&deleted));
    let b = fleet.start("b", NativePlugin::echo(1));
    let started_at = tokio::time::Instant::now();
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    fleet.put(0..40);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(
        started_at.elapsed() < Duration::from_mins(4),
        "{:?}",
        started_at.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn one_heartbeat_that_hangs_costs_no_lease() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 2).await;
    let taken = fleet.store.calls(StoreOp::Take);
    fleet
        .store
        .faults
        .draw_from(|op| (op == StoreOp::Renew).then_some(Fault::Refuse));
    fleet
        .coordinator
        .faults
        .queue(CoordinatorOp::Heartbeat, Fault::Hang);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        (processing(&host), fleet.store.calls(StoreOp::Take)),
        (2, taken)
    );
}

/// Refuses the lease table's writes of one right, as DynamoDB's operations have them.
pub(crate) fn refuse(tables: &OwnTables, ops: &'static [StoreOp], fault: Fault) {
    tables
        .store
        .faults
        .draw_from(move |op| ops.contains(&op).then_some(fault));
}

/// `UpdateItem`: every write to a row that is there.
pub(crate) const UPDATES: &[StoreOp] = &[
    StoreOp::Take,
    StoreOp::Claim,
    StoreOp::Renew,
    StoreOp::Checkpoint,
    StoreOp::End,
    StoreOp::Release,
];

#[tokio::test(start_paused = true)]
async fn a_host_that_beats_but_cannot_write_rows_shows_it_at_once_and_others_have_its_leases_in_bounded_time()
 {
    for fault in [
        Fault::Refuse,
        Fault::Throttle,
        Fault::UnknownNotApplied,
        Fault::Hang,
    ] {
        let fleet = TestFleet::new(4);
        let (a, tables) = fleet.start_apart("a", NativePlugin::echo(1));
        let b = fleet.start("b", NativePlugin::echo(1));
        until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
        refuse(&tables, UPDATES, fault);
        fleet.put(0..100);
        let lease = fleet.options.leases.duration;
        let cut_at = tokio::time::Instant::now();
        until("it is shown", || {
            let status = a.status.snapshot();
            status.cannot_write.is_some()
                && status.shards.values().any(|shard| shard.blocked.is_some())
        })
        .await;
        assert!(
            cut_at.elapsed() < lease * 2,
            "{fault:?}: shown after {:?}",
            cut_at.elapsed()
        );
        until("others are told", || {
            let rows = fleet.coordinator.rows().workers;
            rows.iter()
                .any(|row| row.worker.as_str() == "a" && row.cannot_write.is_some())
        })
        .await;
        until("b has them all", || count(&fleet, "b") == 4).await;
        assert!(
            cut_at.elapsed() < lease * 9,
            "{fault:?}: given up after {:?}",
            cut_at.elapsed()
        );
        until("all out", || fleet.is_all_checkpointed()).await;
        tokio::time::sleep(lease * 12).await;
        assert_eq!(
            count(&fleet, "b"),
            4,
            "{fault:?}: a host that cannot write counts in no share"
        );
        assert!(
            a.status.snapshot().pass_error.is_some(),
            "{fault:?}: it says why it serves nothing"
        );
        tables.store.faults.clear();
        until("they share again", || {
            (count(&fleet, "a"), count(&fleet, "b")) == (2, 2)
        })
        .await;
        fleet.put(100..200);
        until("all out", || fleet.is_all_checkpointed()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_save_state_leaves_its_leases_to_others_until_it_can() {
    let mut fleet = TestFleet::new(4);
    fleet.options.keeps_state = true;
    let (a, tables) = fleet.start_apart("a", NativePlugin::no_op(1).keeping_state());
    let b = fleet.start("b", NativePlugin::no_op(1).keeping_state());
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    // `TransactWriteItems`, or the state table.
    refuse(&tables, &[StoreOp::Checkpoint, StoreOp::End], Fault::Refuse);
    fleet.put(0..100);
    let cut_at = tokio::time::Instant::now();
    until("b has done all", || fleet.is_all_checkpointed()).await;
    assert!(
        cut_at.elapsed() < fleet.options.leases.duration * 6,
        "{:?}",
        cut_at.elapsed()
    );
    tables.store.faults.clear();
    until("they share again", || {
        (count(&fleet, "a"), count(&fleet, "b")) == (2, 2)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_written_while_others_can_is_given_back_and_its_host_stays() {
    let fleet = TestFleet::new(4);
    let (a, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    let b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    refuse(&tables, &[StoreOp::Checkpoint], Fault::Refuse);
    fleet.put(0..100);
    let lease = fleet.options.leases.duration;
    tokio::time::sleep(lease * 4).await;
    assert_eq!((given_up(&a), count(&fleet, "a")), (2, 0));
    assert!(
        fleet
            .coordinator
            .rows()
            .workers
            .iter()
            .any(|row| row.worker.as_str() == "a")
    );
    until("b has done all", || fleet.is_all_checkpointed()).await;
}

#[tokio::test(start_paused = true)]
async fn while_no_host_can_write_rows_nobody_gives_anything_up_and_work_goes_on_afterwards() {
    let fleet = TestFleet::new(4);
    let a = fleet.start("a", NativePlugin::echo(1));
    let b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (2, 2)).await;
    let before = owners(&fleet);
    fleet
        .store
        .faults
        .draw_from(|op| UPDATES.contains(&op).then_some(Fault::Throttle));
    fleet.put(0..100);
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert!(
        [&a, &b]
            .iter()
            .all(|host| host.status.snapshot().cannot_write.is_some()),
        "it is shown"
    );
    assert_eq!(owners(&fleet), before);
    let taken = fleet
        .store
        .history()
        .iter()
        .filter(|write| write.op == StoreOp::Take)
        .count();
    fleet.store.faults.clear();
    until("all out", || fleet.is_all_checkpointed()).await;
    let taken_since = fleet
        .store
        .history()
        .iter()
        .filter(|write| write.op == StoreOp::Take)
        .count();
    assert_eq!(
        (owners(&fleet), taken_since),
        (before, taken),
        "no lease moved"
    );
    assert!(fleet.has_exactly(0..100), "and nothing was repeated");
}

#[tokio::test(start_paused = true)]
async fn a_lone_host_that_cannot_write_rows_shows_it_and_goes_on_where_it_stood() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 2).await;
    fleet
        .store
        .faults
        .draw_from(|op| UPDATES.contains(&op).then_some(Fault::Refuse));
    fleet.put(0..40);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(
        host.status
            .snapshot()
            .shards
            .values()
            .all(|shard| shard.blocked.is_some())
    );
    fleet.store.faults.clear();
    until("all out", || fleet.is_all_checkpointed()).await;
    let status = host.status.snapshot();
    assert!(
        fleet.has_exactly(0..40) && status.shards.values().all(|shard| shard.blocked.is_none())
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_make_rows_is_replaced_by_one_that_can() {
    let fleet = TestFleet::new(2);
    let (a, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    until("a leads", || {
        a.status.snapshot().leader.as_deref() == Some("a")
    })
    .await;
    let _b = fleet.start("b", NativePlugin::echo(1));
    // `PutItem`.
    refuse(&tables, &[StoreOp::Create], Fault::Refuse);
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.store.delete_row(&LeaseKey::of_shard(&shard));
    until("the row is made again", || fleet.row(&shard).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_childrens_rows_cannot_be_made_here_is_ended_by_another_host() {
    let fleet = TestFleet::new(2);
    let (a, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    let b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || (processing(&a), processing(&b)) == (1, 1)).await;
    refuse(&tables, &[StoreOp::Create], Fault::Refuse);
    let of_a = |shard: &Shard| fleet.row(&shard.id).unwrap().owner == WorkerId::new("a");
    let Shard {
        id: parent,
        hash_range,
        ..
    } = fleet.stream.shards().into_iter().find(of_a).unwrap();
    fleet.stream.split(&parent, hash_range.start() + 1);
    let split_at = tokio::time::Instant::now();
    until("it has ended", || {
        fleet.row(&parent).is_none_or(|row| row.is_finished())
    })
    .await;
    assert!(
        split_at.elapsed() < Duration::from_mins(3),
        "{:?}",
        split_at.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn beside_a_kcl_found_at_run_time_a_heartbeat_alone_holds_nothing() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || processing(&host) == 2).await;
    let mut foreign = fleet.store.rows().remove(0);
    foreign.owner = WorkerId::new("kcl");
    let is_ours = |row: &&shardmill_core::lease::Lease| row.key != foreign.key;
    let ours = fleet.store.rows().iter().find(is_ours).unwrap().clone();
    let moved = |counter: u64| {
        let counter = shardmill_core::lease::LeaseCounter(foreign.counter.0 + 1 + counter);
        shardmill_core::lease::Lease {
            counter,
            ..foreign.clone()
        }
    };
    let renewals_before = fleet.store.calls(StoreOp::Renew);
    for beat in 0..10 {
        fleet.store.put_row(moved(beat));
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert!(
        fleet.store.calls(StoreOp::Renew) > renewals_before,
        "the KCL is seen"
    );
    let is_write = |op| !matches!(op, StoreOp::Get | StoreOp::List);
    fleet
        .store
        .faults
        .draw_from(move |op| is_write(op).then_some(Fault::Throttle));
    // The KCL takes what stands still for its failover time: nothing is delivered from then on.
    for beat in 10..15 {
        fleet.store.put_row(moved(beat));
        tokio::time::sleep(fleet.options.leases.duration / 4).await;
    }
    let delivered = fleet.sink.lines().len();
    fleet.put(0..50);
    tokio::time::sleep(fleet.options.leases.duration / 4).await;
    let shard = ours.key.shard_id();
    let waiting = fleet.stream.records(&shard).len();
    assert!(
        waiting > 0 && fleet.sink.lines().len() == delivered,
        "the host's heart still beats"
    );
}
