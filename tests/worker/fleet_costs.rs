//! What a fleet costs in DynamoDB units, and that it balances and notices crashes in time at sizes where most hosts heed.

use std::time::Duration;

use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use harness::units::Units;
use shardmill_core::lease::WorkerId;
use tokio::time::Instant;

/// Read units that one partition key gives in a second, and write units (AWS limits); a third of each may be used.
const READS_A_SECOND: f64 = 3_000.0;
const WRITES_A_SECOND: f64 = 1_000.0;

struct Many {
    fleet: TestFleet,
    hosts: Vec<(String, TestHost)>,
    shards: usize,
}

impl Many {
    /// `hosts` on `shards` idle shards, with the shares even and nothing left to move.
    async fn settled(hosts: usize, shards: u32) -> Self {
        let mut fleet = TestFleet::new(shards);
        fleet.options.reads.idle_every = Duration::from_secs(30);
        fleet.options.reads.idle_max = Duration::from_secs(30);
        let mut many = Self { fleet, hosts: Vec::new(), shards: shards as usize };
        many.join(hosts);
        many.balanced().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        many
    }

    fn join(&mut self, count: usize) {
        let first = self.hosts.len();
        for n in first..first + count {
            let id = format!("host-{n:04}");
            let host = self.fleet.start(&id, NativePlugin::no_op(1).unwatched());
            self.hosts.push((id, host));
        }
    }

    /// Leases of each running host.
    fn counts(&self) -> Vec<usize> {
        let rows = self.fleet.store.rows();
        let held = |id: &str| rows.iter().filter(|row| row.owner == WorkerId::new(id)).count();
        self.hosts.iter().map(|(id, _)| held(id)).collect()
    }

    fn is_balanced(&self) -> bool {
        let counts = self.counts();
        let (most, fewest) = (counts.iter().max().copied(), counts.iter().min().copied());
        counts.iter().sum::<usize>() == self.shards && most.zip(fewest).is_some_and(|(most, fewest)| most - fewest <= 1)
    }

    /// How long until the running hosts have equal shares of all leases.
    async fn balanced(&self) -> Duration {
        let since = Instant::now();
        until("balanced", || self.is_balanced()).await;
        since.elapsed()
    }

    /// Takes a host out of the books.
    fn remove(&mut self, id: &str) -> TestHost {
        let index = self.hosts.iter().position(|(name, _)| name == id).unwrap();
        self.hosts.remove(index).1
    }

    fn leader(&self) -> String {
        self.fleet.coordinator.rows().leader.unwrap().holder.unwrap().0.to_string()
    }

    fn deputies(&self) -> Vec<String> {
        let service = self.fleet.coordinator.rows().leader.unwrap().service.unwrap();
        service.deputies.iter().map(ToString::to_string).collect()
    }

    /// A host that neither leads nor watches.
    fn heeding(&self) -> String {
        let watching = [self.deputies(), vec![self.leader()]].concat();
        self.hosts.iter().map(|(id, _)| id).find(|id| !watching.contains(*id)).unwrap().clone()
    }

    fn units(&self) -> Units {
        self.fleet.store.meter.units() + self.fleet.coordinator.meter.units()
    }

    async fn units_a_second(&self, counted_for: Duration) -> Units {
        let before = self.units();
        tokio::time::sleep(counted_for).await;
        let spent = self.units() - before;
        let seconds = counted_for.as_secs_f64();
        Units { read: spent.read / seconds, written: spent.written / seconds }
    }

    /// No partition key had more than a third of its limit in a second since this was last asked.
    fn assert_no_partition_is_hot(&self) {
        for meter in [&self.fleet.store.meter, &self.fleet.coordinator.meter] {
            let hottest = meter.take_hottest();
            assert!(hottest.read.0 <= READS_A_SECOND / 3.0, "{hottest:?}");
            assert!(hottest.written.0 <= WRITES_A_SECOND / 3.0, "{hottest:?}");
        }
    }
}

/// A host's heartbeat, its mail and its part of the board; three hosts that watch all rows; a bound for the rest.
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
        assert!(spent.sum() <= law, "{hosts} hosts, {shards} leases: {spent:?} units a second, more than {law}");
        assert!(spent.written <= hosts as f64 * 0.35, "{hosts} hosts: {spent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_crashed_host_are_held_again_within_the_lease_duration_and_a_look_whoever_it_was() {
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
        assert!(took > lease.mul_f64(0.6), "{who}: a live lease is never taken, {took:?}");
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
        until("all are held", || many.counts().iter().sum::<usize>() == many.shards).await;
        let took = before.elapsed();
        assert!(took < Duration::from_millis(4_500), "{who}: {took:?}");
        many.balanced().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_that_join_a_large_fleet_at_once_get_their_shares_soon_and_heat_no_partition() {
    let mut many = Many::settled(128, 1_024).await;
    let forgotten = [many.fleet.store.meter.take_hottest(), many.fleet.coordinator.meter.take_hottest()];
    assert!(forgotten[1].read.0 > 0.0);
    let before = many.units();
    many.join(32);
    let took = many.balanced().await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    many.assert_no_partition_is_hot();
    // Each of 200 moves is asked for, expected, claimed, given up and taken, and its row is looked at meanwhile.
    let spent = many.units() - before;
    let steady = law(160, 1_024) * took.as_secs_f64();
    let looks = took.as_secs_f64() * 3.0 * 1_024.0 * 0.08;
    assert!(spent.sum() < steady + looks + 205.0 * 60.0, "{spent:?} in {took:?}");
}

#[tokio::test(start_paused = true)]
async fn beside_a_kcl_on_a_provisioned_table_our_scans_use_a_fifth_of_its_units() {
    for (hosts, shards) in [(1, 400), (3, 400), (2, 40)] {
        let mut fleet = TestFleet::new(shards);
        fleet.options.leases.shared_with_kcl = true;
        fleet.options.reads.idle_every = Duration::from_secs(30);
        fleet.options.reads.idle_max = Duration::from_secs(30);
        let _hosts: Vec<TestHost> =
            (0..hosts).map(|n| fleet.start(&format!("host-{n}"), NativePlugin::no_op(1).unwatched())).collect();
        let is_held =
            || fleet.store.rows().len() == shards as usize && fleet.store.rows().iter().all(|row| row.owner.is_some());
        until("all are held", is_held).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        let before = fleet.store.meter.units().read;
        let counted_for = Duration::from_mins(3);
        tokio::time::sleep(counted_for).await;
        let reads = (fleet.store.meter.units().read - before) / counted_for.as_secs_f64();
        // A KCL made its table with 10 read units for years.
        assert!(reads <= 10.0 / 5.0, "{hosts} hosts, {shards} leases: {reads} read units a second");
    }
}
