//! Leases are shared, kept, lost and given back; a host that lost one changes nothing.

use std::time::Duration;

use harness::fake_coordinator::CoordinatorOp;
use harness::fake_lease_store::StoreOp;
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::lease::{Checkpoint, WorkerId};
use shardmill_worker::ShardState;

fn owners(fleet: &TestFleet) -> Vec<Option<String>> {
    fleet
        .store
        .rows()
        .iter()
        .map(|row| row.owner.as_ref().map(ToString::to_string))
        .collect()
}

fn count(fleet: &TestFleet, id: &str) -> usize {
    owners(fleet)
        .iter()
        .filter(|owner| owner.as_deref() == Some(id))
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_lone_host_holds_every_lease_within_a_second() {
    let fleet = TestFleet::new(9);
    let started = tokio::time::Instant::now();
    let _host = fleet.start("a", NativePlugin::no_op(1));
    until("all held", || count(&fleet, "a") == 9).await;
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn hosts_started_together_share_and_the_rest_go_on_when_one_stops() {
    let fleet = TestFleet::new(4);
    let a = fleet.start("a", NativePlugin::echo(1));
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("shared", || {
        count(&fleet, "a") == 2 && count(&fleet, "b") == 2
    })
    .await;
    fleet.put(0..100);
    until("all out", || fleet.is_all_checkpointed()).await;
    let stopped_at = tokio::time::Instant::now();
    a.stop().await;
    until("b has them all", || count(&fleet, "b") == 4).await;
    assert!(
        stopped_at.elapsed() < Duration::from_secs(3),
        "released leases need not expire"
    );
    fleet.put(100..200);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(
        fleet.has_exactly(0..200),
        "nothing lost, and nothing repeated after a planned exit"
    );
}

#[tokio::test(start_paused = true)]
async fn a_crashed_hosts_leases_are_taken_after_the_lease_duration_and_resume_at_the_checkpoint() {
    let fleet = TestFleet::new(3);
    let a = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..60);
    until("all out", || fleet.is_all_checkpointed()).await;
    drop(a);
    let _b = fleet.start("b", NativePlugin::echo(1));
    let crashed_at = tokio::time::Instant::now();
    fleet.put(60..90);
    until("all out", || fleet.is_all_checkpointed()).await;
    let took = crashed_at.elapsed();
    assert!(
        took > fleet.options.leases.duration,
        "a live lease is never taken"
    );
    assert!(
        took < fleet.options.leases.duration + Duration::from_secs(6),
        "{took:?}"
    );
    assert!(fleet.has_exactly(0..90));
}

/// The longest time between two looks of a host that watches.
fn fleet_look() -> Duration {
    Duration::from_millis(1_100)
}

#[tokio::test(start_paused = true)]
async fn a_crash_costs_about_a_lease_duration_whenever_it_comes_though_checkpoints_moved_the_rows()
{
    let mut longest = Duration::ZERO;
    for phase in [0, 1_300, 2_900, 4_100, 5_600, 7_200, 8_800, 9_900] {
        let fleet = TestFleet::new(4);
        let a = fleet.start("a", NativePlugin::echo(1));
        let _b = fleet.start("b", NativePlugin::echo(1));
        until("they share", || {
            (count(&fleet, "a"), count(&fleet, "b")) == (2, 2)
        })
        .await;
        let mut next = 0;
        let mut put = || {
            fleet.put(next..next + 4);
            next += 4;
        };
        let (started_at, busy_for) = (
            tokio::time::Instant::now(),
            Duration::from_millis(15_000 + phase),
        );
        while started_at.elapsed() < busy_for {
            put();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        drop(a);
        let crashed_at = tokio::time::Instant::now();
        while count(&fleet, "b") < 4 {
            put();
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(
                crashed_at.elapsed() < Duration::from_mins(1),
                "nobody takes over"
            );
        }
        longest = longest.max(crashed_at.elapsed());
    }
    // The last heartbeat is seen at a look; the owner is late 4.7 s on, which the next look finds,
    // and with it the last checkpoints of its rows. They must stand still for a lease duration from
    // there, until one more look.
    let looks = fleet_look() * 3;
    let most = Duration::from_millis(4_700) + Duration::from_secs(10) + looks;
    assert!(
        longest < most,
        "{longest:?}: the rows must be looked at before the owner counts as dead"
    );
}

#[tokio::test(start_paused = true)]
async fn a_restart_under_the_same_id_resumes_at_once() {
    let fleet = TestFleet::new(3);
    drop({
        let host = fleet.start("a", NativePlugin::echo(1));
        until("held", || count(&fleet, "a") == 3).await;
        host
    });
    let restarted_at = tokio::time::Instant::now();
    fleet.put(0..30);
    let _again = fleet.start("a", NativePlugin::echo(1));
    until("all out", || fleet.has_exactly(0..30)).await;
    assert!(restarted_at.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_planned_exit_checkpoints_and_releases_everything() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..33);
    until("delivered", || fleet.sink.lines().len() == 33).await;
    host.stop().await;
    assert_eq!(owners(&fleet), [None, None]);
    assert!(fleet.is_all_checkpointed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_process_of_the_name_took_is_taken_again_and_checkpointed() {
    let fleet = TestFleet::new(1);
    let _host = fleet.start("a", NativePlugin::echo(1));
    let shard = fleet.stream.shards()[0].id.clone();
    until("held", || count(&fleet, "a") == 1).await;
    // As its take leaves the row: it may have died right after.
    let mut row = fleet.row(&shard).unwrap();
    row.counter = row.counter.next();
    row.held_since_ms = row.held_since_ms.map(|ms| ms + 1);
    fleet.store.put_row(row);
    fleet.put(0..10);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_lease_was_taken_writes_nothing_more() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    let shard = fleet.stream.shards()[0].id.clone();
    until("held", || count(&fleet, "a") == 1).await;
    let mut row = fleet.row(&shard).unwrap();
    row.owner = WorkerId::new("thief");
    row.counter = row.counter.next();
    fleet.store.put_row(row.clone());
    fleet.put(0..20);
    until("noticed", || {
        host.status.snapshot().shards[shard.as_str()].state == ShardState::Lost
    })
    .await;
    // The thief never renews, so that the lease may be taken back later; until then the row stays
    // as it was.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(fleet.row(&shard).unwrap(), row);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_recognised_as_applied() {
    for op in [
        StoreOp::Renew,
        StoreOp::Checkpoint,
        StoreOp::Take,
        StoreOp::Release,
    ] {
        let fleet = TestFleet::new(1);
        fleet.store.faults.queue(op, Fault::UnknownApplied);
        fleet.store.faults.queue(op, Fault::UnknownApplied);
        let host = fleet.start("a", NativePlugin::echo(1));
        fleet.put(0..20);
        until("all out", || fleet.is_all_checkpointed()).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        host.stop().await;
        assert!(
            fleet.has_exactly(0..20),
            "{op:?}: {:?}",
            fleet.sink.lines().len()
        );
        assert_eq!(owners(&fleet), [None], "{op:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_never_arrived_is_sent_again() {
    for fault in [Fault::UnknownNotApplied, Fault::Throttle, Fault::Refuse] {
        let fleet = TestFleet::new(1);
        for op in [
            StoreOp::EnsureTable,
            StoreOp::List,
            StoreOp::Create,
            StoreOp::Take,
            StoreOp::Checkpoint,
            StoreOp::Renew,
            StoreOp::Get,
        ] {
            fleet.store.faults.queue(op, fault);
        }
        let _host = fleet.start("a", NativePlugin::echo(1));
        fleet.put(0..20);
        until("all out", || fleet.is_all_checkpointed()).await;
        assert!(fleet.has_exactly(0..20), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_gone_for_hours_stops_delivery_at_the_deadline_and_loses_nothing() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    fleet
        .store
        .faults
        .draw_from(|_| Some(Fault::UnknownNotApplied));
    fleet
        .coordinator
        .faults
        .draw_from(|_| Some(Fault::UnknownNotApplied));
    tokio::time::sleep(fleet.options.leases.duration * 2).await;
    assert!(
        host.status
            .snapshot()
            .shards
            .values()
            .all(|shard| shard.state == ShardState::Lost)
    );
    let lines = fleet.sink.lines().len();
    fleet.put(20..40);
    tokio::time::sleep(Duration::from_hours(3)).await;
    assert_eq!(
        fleet.sink.lines().len(),
        lines,
        "nothing is delivered without a lease"
    );
    fleet.store.faults.clear();
    fleet.coordinator.faults.clear();
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..40));
}

#[tokio::test(start_paused = true)]
async fn writes_that_hang_cost_the_leases_at_the_deadline_and_not_later() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    let shard = fleet.stream.shards()[0].id.clone();
    until("held", || count(&fleet, "a") == 1).await;
    fleet.coordinator.faults.draw_from(|_| Some(Fault::Hang));
    fleet.store.faults.draw_from(|_| Some(Fault::Hang));
    let hung_at = tokio::time::Instant::now();
    until("given up", || {
        host.status.snapshot().shards[shard.as_str()].state == ShardState::Lost
    })
    .await;
    assert!(hung_at.elapsed() < fleet.options.leases.duration);
}

#[tokio::test(start_paused = true)]
async fn while_heartbeats_fail_each_row_is_renewed_and_work_goes_on() {
    let fleet = TestFleet::new(2);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || count(&fleet, "a") == 2).await;
    let renewals = fleet.store.calls(StoreOp::Renew);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        fleet.store.calls(StoreOp::Renew),
        renewals,
        "one heartbeat holds all leases"
    );
    fleet
        .coordinator
        .faults
        .draw_from(|op| (op == CoordinatorOp::Heartbeat).then_some(Fault::Refuse));
    let taken = fleet.store.calls(StoreOp::Take);
    tokio::time::sleep(Duration::from_mins(2)).await;
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(fleet.store.calls(StoreOp::Renew) > renewals);
    assert_eq!(
        fleet.store.calls(StoreOp::Take),
        taken,
        "no lease was lost on the way"
    );
    host.stop().await;
    assert!(fleet.has_exactly(0..20));
}

#[tokio::test(start_paused = true)]
async fn a_row_deleted_by_hand_is_noticed_and_made_again() {
    let fleet = TestFleet::new(2);
    let _host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    let shard = fleet.stream.shards()[0].id.clone();
    fleet
        .store
        .delete_row(&shardmill_core::stream::LeaseKey::of_shard(&shard));
    until("made again and checkpointed", || {
        fleet.is_all_checkpointed()
    })
    .await;
    assert!(fleet.sink.lines().len() >= 20);
}

#[tokio::test(start_paused = true)]
async fn rows_that_cannot_be_read_or_are_foreign_are_left_alone() {
    let fleet = TestFleet::new(1);
    fleet
        .store
        .add_bad_row("shardId-000000000007", "leaseCounter is missing");
    fleet.store.set_foreign_rows(3);
    let _host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..5);
    until("all out", || fleet.is_all_checkpointed()).await;
}

#[tokio::test(start_paused = true)]
async fn counters_rise_by_one_and_checkpoints_never_go_back() {
    let fleet = TestFleet::new(3);
    let a = fleet.start("a", NativePlugin::echo(1));
    for round in 0..10 {
        fleet.put(round * 30..round * 30 + 30);
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    a.stop().await;
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("all out", || fleet.is_all_checkpointed()).await;
    for row in fleet.store.rows() {
        let writes: Vec<_> = fleet
            .store
            .history()
            .into_iter()
            .filter(|write| write.row.key == row.key)
            .collect();
        assert!(writes.len() > 3);
        for pair in writes.windows(2) {
            assert_eq!(pair[1].row.counter, pair[0].row.counter.next());
            assert!(pair[1].row.checkpoint >= pair[0].row.checkpoint);
        }
        assert!(row.checkpoint > Checkpoint::TrimHorizon);
    }
}

#[tokio::test(start_paused = true)]
async fn shards_that_have_leases_are_served_while_shards_cannot_be_listed() {
    let fleet = TestFleet::new(3);
    fleet
        .start("a", NativePlugin::echo(1))
        .stop_when(|| count(&fleet, "a") == 3)
        .await;
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::ListShards).then_some(Fault::Throttle));
    let _b = fleet.start("b", NativePlugin::echo(1));
    fleet.put(0..30);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..30));
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_registration_is_gone_takes_nothing_before_it_has_registered_again() {
    let fleet = TestFleet::new(2);
    let _host = fleet.start("a", NativePlugin::no_op(1));
    until("held", || count(&fleet, "a") == 2).await;
    let cannot_register = |op| {
        matches!(op, CoordinatorOp::Heartbeat | CoordinatorOp::Register).then_some(Fault::Refuse)
    };
    fleet.coordinator.faults.draw_from(cannot_register);
    fleet.coordinator.change(|rows| rows.workers.clear());
    let mut freed = fleet.store.rows().remove(0);
    (freed.owner, freed.counter) = (None, freed.counter.next());
    fleet.store.put_row(freed);
    let taken = fleet.store.calls(StoreOp::Take);
    tokio::time::sleep(fleet.options.leases.duration * 3).await;
    let taken_since = fleet.store.calls(StoreOp::Take) - taken;
    assert_eq!(
        taken_since, 0,
        "who began meanwhile would take it for a KCL's worker"
    );
    fleet.coordinator.faults.clear();
    until("held again", || count(&fleet, "a") == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_heartbeat_holds_no_more_takes_nothing_though_its_registration_seems_there() {
    let fleet = TestFleet::new(2);
    let _host = fleet.start("a", NativePlugin::no_op(1));
    until("held", || count(&fleet, "a") == 2).await;
    let cannot_beat = |op| (op == CoordinatorOp::Heartbeat).then_some(Fault::Refuse);
    fleet.coordinator.faults.draw_from(cannot_beat);
    tokio::time::sleep(fleet.options.leases.duration).await;
    let taken = fleet.store.calls(StoreOp::Take);
    let mut freed = fleet.store.rows().remove(0);
    (freed.owner, freed.counter) = (None, freed.counter.next());
    fleet.store.put_row(freed);
    tokio::time::sleep(fleet.options.leases.duration * 3).await;
    assert_eq!(fleet.store.calls(StoreOp::Take) - taken, 0);
    fleet.coordinator.faults.clear();
    until("held again", || count(&fleet, "a") == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_held_from_the_try_that_was_applied_not_from_those_that_failed() {
    let mut fleet = TestFleet::new(1);
    // Then the row's own writes hold the lease, not the host's heart.
    fleet.options.leases.shared_with_kcl = true;
    let throttle = |fleet: &TestFleet| {
        let faults = &fleet.store.faults;
        faults.draw_from(|op| (op == StoreOp::Renew).then_some(Fault::Throttle));
    };
    let host = fleet.start("a", NativePlugin::echo(1));
    let is_processing = || {
        let shards = host.status.snapshot().shards;
        shards
            .values()
            .all(|shard| shard.state == ShardState::Processing)
            && !shards.is_empty()
    };
    until("held", is_processing).await;
    throttle(&fleet);
    let tries = fleet.store.calls(StoreOp::Renew);
    until("a try fails", || fleet.store.calls(StoreOp::Renew) > tries).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let before = fleet.store.rows()[0].counter;
    fleet.store.faults.clear();
    until("one is applied", || fleet.store.rows()[0].counter != before).await;
    throttle(&fleet);
    // Longer than a hold since the first try, shorter since the one that was applied.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(is_processing(), "the lease is still held");
    assert_eq!(fleet.store.calls(StoreOp::Take), 1, "and was never lost");
}

/// A lease duration is changed host by host.
#[tokio::test(start_paused = true)]
async fn a_dead_hosts_leases_are_taken_after_its_own_lease_duration_whatever_the_others_have() {
    for (of_a, of_b) in [(10, 30), (30, 10)] {
        let mut fleet = TestFleet::new(4);
        let mut start = |id, seconds| {
            fleet.options.leases.duration = Duration::from_secs(seconds);
            fleet.options.leases.renew_every = fleet.options.leases.duration.mul_f64(0.36);
            fleet.start(id, NativePlugin::echo(1))
        };
        let (_a, b) = (start("a", of_a), start("b", of_b));
        until("they share", || {
            count(&fleet, "a") == 2 && count(&fleet, "b") == 2
        })
        .await;
        fleet.put(0..100);
        until("all out", || fleet.is_all_checkpointed()).await;
        let taken = fleet.store.calls(StoreOp::Take);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(
            fleet.store.calls(StoreOp::Take),
            taken,
            "nothing moves while both live"
        );
        let (died_at, own) = (tokio::time::Instant::now(), fleet.options.leases);
        drop(b);
        until("a has them all", || count(&fleet, "a") == 4).await;
        let waited = died_at.elapsed();
        // Its last heartbeat may be as old as the time between two.
        let least = own.duration.saturating_sub(own.renew_every);
        assert!(
            (least..own.duration * 2).contains(&waited),
            "{waited:?} of {own:?}"
        );
        assert!(fleet.has_exactly(0..100), "nothing was repeated");
    }
}
