//! What a fleet costs in DynamoDB units, and that it balances and notices crashes in time at sizes
//! where most hosts heed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::fleet::WorkerRow;
use shardmill_core::lease::WorkerId;
use tokio::time::Instant;

use crate::many::Many;

/// A host's heartbeat, its mail and its part of the board; three hosts that watch all rows; a bound
/// for the rest.
fn law(hosts: usize, leases: usize) -> f64 {
    let (hosts, leases) = (hosts as f64, leases as f64);
    let a_host = 1.2;
    let watching = 3.0 * (hosts * 0.06 + leases * 0.08 / 10.0);
    hosts * a_host + watching + 55.0
}

#[tokio::test(start_paused = true)]
async fn the_units_of_a_settled_fleet_grow_with_the_hosts_and_not_with_their_square() {
    for (hosts, shards) in [(16, 128), (64, 256), (256, 512)] {
        let many = Many::settled(hosts, shards).await;
        let spent = many.units_a_second(Duration::from_mins(4)).await;
        let law = law(hosts, shards as usize);
        assert!(
            spent.sum() <= law,
            "{hosts} hosts, {shards} leases: {spent:?} units a second, more than {law}"
        );
        assert!(
            spent.written <= hosts as f64 * 0.35,
            "{hosts} hosts: {spent:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_asks_once_who_lives_however_many_workers_there_are() {
    let mut asked = Vec::new();
    for others in [0, 300] {
        let fleet = TestFleet::new(1);
        let host = fleet.start("a", NativePlugin::echo(1));
        let shown = || {
            let versions = host.status.snapshot().fleet_versions;
            versions.values().map(Vec::len).sum::<usize>()
        };
        until("it shows what it runs", || shown() == 1).await;
        fleet.coordinator.change(|rows| {
            let own = rows.workers[0].clone();
            rows.workers.extend((0..others).map(|number| WorkerRow {
                worker: WorkerId::new(&format!("other-{number}")).unwrap(),
                ..own.clone()
            }));
        });
        until("it shows what all run", || shown() == others + 1).await;
        let before = fleet.clock_reads.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let reads = fleet.clock_reads.load(Ordering::Relaxed) - before;
        assert_eq!(shown(), others + 1, "while they live");
        asked.push(reads);
    }
    // Who lives depends on the time, so whoever finds it out for each row asks 300 times a look.
    assert!(asked[1] < asked[0] + 300, "{asked:?} readings of the clock");
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_crashed_host_are_held_again_within_the_lease_duration_and_a_look_whoever_it_was()
 {
    for who in ["a host that heeds", "a deputy", "the leader"] {
        let mut many = Many::settled(64, 256).await;
        let victim = match who {
            "the leader" => many.leader(),
            "a deputy" => many.deputies()[0].clone(),
            _ => many.heeding(),
        };
        drop(many.remove(&victim));
        let took = many.balanced().await;
        let lease = many.fleet.options.leases.duration;
        assert!(
            took > lease.mul_f64(0.6),
            "{who}: a live lease is never taken, {took:?}"
        );
        // A heartbeat may be seen a second late, and errands take about two.
        assert!(took < lease + Duration::from_secs(5), "{who}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_leader_and_deputies_crash_together_finds_a_leader_and_goes_on() {
    let mut many = Many::settled(16, 64).await;
    for id in [many.deputies(), vec![many.leader()]].concat() {
        drop(many.remove(&id));
    }
    let took = many.balanced().await;
    // Its successor has watched nothing, and waits for a lease duration of its own.
    let lease = many.fleet.options.leases.duration;
    assert!(took < lease * 3, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_planned_exit_moves_leases_within_about_two_seconds_whoever_leaves() {
    let mut many = Many::settled(32, 128).await;
    for who in ["a host that heeds", "a deputy", "the leader"] {
        let leaver = match who {
            "the leader" => many.leader(),
            "a deputy" => many.deputies()[0].clone(),
            _ => many.heeding(),
        };
        let host = many.remove(&leaver);
        let before = Instant::now();
        host.stop().await;
        until("all are held", || {
            many.counts().iter().sum::<usize>() == many.shards
        })
        .await;
        let took = before.elapsed();
        assert!(took < Duration::from_millis(4_500), "{who}: {took:?}");
        many.balanced().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_that_join_a_large_fleet_at_once_get_their_shares_soon_and_heat_no_partition() {
    let mut many = Many::settled(128, 1_024).await;
    let forgotten = [
        many.fleet.store.meter.take_hottest(),
        many.fleet.coordinator.meter.take_hottest(),
    ];
    assert!(forgotten[1].read.0 > 0.0);
    let before = many.units();
    many.join(32);
    let took = many.balanced().await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    many.assert_no_partition_is_hot();
    // Each of 200 moves is asked for, expected, claimed, given up and taken, and its row is looked
    // at meanwhile.
    let spent = many.units() - before;
    let steady = law(160, 1_024) * took.as_secs_f64();
    let looks = took.as_secs_f64() * 3.0 * 1_024.0 * 0.08;
    assert!(
        spent.sum() < steady + looks + 205.0 * 60.0,
        "{spent:?} in {took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn beside_a_kcl_on_a_provisioned_table_our_scans_use_a_fifth_of_its_units() {
    for (hosts, shards) in [(1, 400), (3, 400), (2, 40)] {
        let mut fleet = TestFleet::new(shards);
        fleet.options.leases.shared_with_kcl = true;
        fleet.options.reads.idle_every = Duration::from_secs(30);
        fleet.options.reads.idle_max = Duration::from_secs(30);
        let _hosts: Vec<TestHost> = (0..hosts)
            .map(|n| fleet.start(&format!("host-{n}"), NativePlugin::no_op(1).unwatched()))
            .collect();
        let is_held = || {
            fleet.store.rows().len() == shards as usize
                && fleet.store.rows().iter().all(|row| row.owner.is_some())
        };
        until("all are held", is_held).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        let before = fleet.store.meter.units().read;
        let counted_for = Duration::from_mins(3);
        tokio::time::sleep(counted_for).await;
        let reads = (fleet.store.meter.units().read - before) / counted_for.as_secs_f64();
        // A KCL made its table with 10 read units for years.
        assert!(
            reads <= 10.0 / 5.0,
            "{hosts} hosts, {shards} leases: {reads} read units a second"
        );
    }
}
