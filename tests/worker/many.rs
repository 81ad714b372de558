//! A fleet so large that most of its hosts heed.

use std::time::Duration;

use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use harness::units::Units;
use shardmill_core::lease::WorkerId;
use tokio::time::Instant;

/// Read units that one partition key gives in a second, and write units (AWS limits); a third of
/// each may be used.
const READS_A_SECOND: f64 = 3_000.0;
const WRITES_A_SECOND: f64 = 1_000.0;

/// Running hosts, and the shards that they share.
pub(crate) struct Many {
    pub(crate) fleet: TestFleet,
    pub(crate) hosts: Vec<(String, TestHost)>,
    pub(crate) shards: usize,
}

impl Many {
    /// `hosts` on `shards` idle shards, with the shares even and nothing left to move.
    pub(crate) async fn settled(hosts: usize, shards: u32) -> Self {
        let mut fleet = TestFleet::new(shards);
        fleet.options.reads.idle_every = Duration::from_secs(30);
        fleet.options.reads.idle_max = Duration::from_secs(30);
        let mut many = Self {
            fleet,
            hosts: Vec::new(),
            shards: shards as usize,
        };
        many.join(hosts);
        many.balanced().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        many
    }

    pub(crate) fn join(&mut self, count: usize) {
        let first = self.hosts.len();
        for n in first..first + count {
            let id = format!("host-{n:04}");
            let host = self.fleet.start(&id, NativePlugin::no_op(1).unwatched());
            self.hosts.push((id, host));
        }
    }

    /// Leases of each running host.
    pub(crate) fn counts(&self) -> Vec<usize> {
        let rows = self.fleet.store.rows();
        let held = |id: &str| {
            rows.iter()
                .filter(|row| row.owner == WorkerId::new(id))
                .count()
        };
        self.hosts.iter().map(|(id, _)| held(id)).collect()
    }

    fn is_balanced(&self) -> bool {
        let counts = self.counts();
        let (most, fewest) = (counts.iter().max().copied(), counts.iter().min().copied());
        counts.iter().sum::<usize>() == self.shards
            && most
                .zip(fewest)
                .is_some_and(|(most, fewest)| most - fewest <= 1)
    }

    /// How long until the running hosts have equal shares of all leases.
    pub(crate) async fn balanced(&self) -> Duration {
        let since = Instant::now();
        until("balanced", || self.is_balanced()).await;
        since.elapsed()
    }

    /// Takes a host out of the books.
    pub(crate) fn remove(&mut self, id: &str) -> TestHost {
        let index = self.hosts.iter().position(|(name, _)| name == id).unwrap();
        self.hosts.remove(index).1
    }

    pub(crate) fn leader(&self) -> String {
        self.fleet
            .coordinator
            .rows()
            .leader
            .unwrap()
            .holder
            .unwrap()
            .0
            .to_string()
    }

    pub(crate) fn deputies(&self) -> Vec<String> {
        let service = self
            .fleet
            .coordinator
            .rows()
            .leader
            .unwrap()
            .service
            .unwrap();
        service.deputies.iter().map(ToString::to_string).collect()
    }

    /// A host that neither leads nor watches.
    pub(crate) fn heeding(&self) -> String {
        let watching = [self.deputies(), vec![self.leader()]].concat();
        self.hosts
            .iter()
            .map(|(id, _)| id)
            .find(|id| !watching.contains(*id))
            .unwrap()
            .clone()
    }

    pub(crate) fn units(&self) -> Units {
        self.fleet.store.meter.units() + self.fleet.coordinator.meter.units()
    }

    pub(crate) async fn units_a_second(&self, counted_for: Duration) -> Units {
        let before = self.units();
        tokio::time::sleep(counted_for).await;
        let spent = self.units() - before;
        let seconds = counted_for.as_secs_f64();
        Units {
            read: spent.read / seconds,
            written: spent.written / seconds,
        }
    }

    /// No partition key had more than a third of its limit in a second since this was last asked.
    pub(crate) fn assert_no_partition_is_hot(&self) {
        for meter in [&self.fleet.store.meter, &self.fleet.coordinator.meter] {
            let hottest = meter.take_hottest();
            assert!(hottest.read.0 <= READS_A_SECOND / 3.0, "{hottest:?}");
            assert!(hottest.written.0 <= WRITES_A_SECOND / 3.0, "{hottest:?}");
        }
    }
}
