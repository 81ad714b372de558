//! Which workers hold which leases, and which of them are alive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::LeaseTableFacts;
use crate::fleet::WorkerRow;
use crate::lease::{Lease, LeaseObserver, Pulse, WorkerId, kcl_leader};
use crate::time::Moment;

/// A table's leases, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Lease rows that can be read.
    pub leases: usize,
    /// Leases whose checkpoint is `SHARD_END`.
    pub finished: usize,
    /// Unfinished leases without an owner.
    pub unowned: usize,
    /// Every owner of a row, by name.
    pub owners: Vec<OwnerCensus>,
    /// The worker that is leader by the KCL 2.x rule; `None` if no row has an owner.
    pub kcl2_leader: Option<WorkerId>,
}

/// One worker that owns leases, and whether it seems to live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerCensus {
    /// The worker id in the rows.
    pub worker: WorkerId,
    /// Unfinished leases it owns.
    pub leases: usize,
    /// Whether it is alive, judged by its leases and its heartbeat.
    pub pulse: Pulse,
    /// Whether it is a host of shardmill: registered in the coordinator table, or, if it is dead,
    /// the owner of a row with attributes that shardmill adds. For an owner that may be alive these
    /// attributes prove nothing: a KCL that takes the lease keeps them.
    pub is_shardmill: bool,
}

impl Census {
    pub(super) fn of(table: &LeaseTableFacts, failover_time: Option<Duration>) -> Self {
        let owners = owners(table, failover_time.unwrap_or(Duration::MAX));
        let leases = table.leases.iter().map(|facts| &facts.lease);
        let unfinished = leases.clone().filter(|lease| !lease.is_finished());
        Self {
            leases: table.leases.len(),
            finished: table.leases.len() - unfinished.clone().count(),
            unowned: unfinished.filter(|lease| lease.owner.is_none()).count(),
            owners,
            kcl2_leader: kcl_leader(leases.filter_map(|lease| lease.owner.as_ref())).cloned(),
        }
    }

    /// Owners that are not hosts of shardmill, and hold something unfinished or were seen to write.
    pub(super) fn other_workers(&self) -> impl Iterator<Item = &OwnerCensus> {
        let is_other = |owner: &&OwnerCensus| {
            !owner.is_shardmill && (owner.leases > 0 || owner.pulse == Pulse::Beats)
        };
        self.owners.iter().filter(is_other)
    }
}

/// Every owner of a row, in order of id.
fn owners(table: &LeaseTableFacts, failover_time: Duration) -> Vec<OwnerCensus> {
    let workers = table.fleet.workers.iter().chain(later_workers(table));
    let registered: BTreeSet<&WorkerId> = workers.map(|row| &row.worker).collect();
    let mut owners = BTreeMap::new();
    for (worker, pulse) in pulses(table, failover_time) {
        let owner = OwnerCensus {
            worker: worker.clone(),
            leases: 0,
            pulse,
            is_shardmill: registered.contains(&worker),
        };
        owners.insert(worker, owner);
    }
    for lease in table.leases.iter().map(|facts| &facts.lease) {
        let owner = lease.owner.as_ref();
        if let Some(owner) = owner.and_then(|worker| owners.get_mut(worker)) {
            owner.add(lease);
        }
    }
    owners.into_values().collect()
}

impl OwnerCensus {
    /// Counts one of its leases, whose row may also show what wrote it.
    fn add(&mut self, lease: &Lease) {
        self.leases += usize::from(!lease.is_finished());
        self.is_shardmill |= !self.pulse.may_live() && has_marks(lease);
    }
}

fn later_workers(table: &LeaseTableFacts) -> impl Iterator<Item = &WorkerRow> {
    table
        .second_look
        .iter()
        .flat_map(|look| &look.fleet.workers)
}

fn has_marks(lease: &Lease) -> bool {
    lease.plugin_digest.is_some()
        || lease.millis_behind_latest.is_some()
        || lease.held_since_ms.is_some()
}

/// What the looks at a table showed.
struct Watched<'a> {
    observer: LeaseObserver,
    /// When the last look was.
    now: Moment,
    /// The leases as they were then.
    last: &'a [Lease],
}

impl<'a> Watched<'a> {
    fn of(table: &'a LeaseTableFacts, first: &'a [Lease]) -> Self {
        let mut watched = Self {
            observer: LeaseObserver::default(),
            now: Moment::default(),
            last: &[],
        };
        watched.look(&table.fleet.workers, first);
        if let Some(look) = &table.second_look {
            watched.now = watched.now + look.after;
            watched.look(&look.fleet.workers, &look.leases);
        }
        watched
    }

    fn pulse_of(&self, worker: &WorkerId, failover_time: Duration) -> Pulse {
        let unseen = Pulse::Unwatched {
            expires_in: failover_time,
        };
        let pulse = self.observer.worker_pulse(worker, self.now);
        pulse.unwrap_or(unseen)
    }

    fn look(&mut self, workers: &[WorkerRow], leases: &'a [Lease]) {
        self.observer.observe_workers(workers, self.now);
        self.observer.observe(leases, self.now);
        self.last = leases;
    }
}

/// Whether each owner of a row is alive, judged from the two looks by the rule that hosts use. A
/// change of any of its leases counts.
fn pulses(table: &LeaseTableFacts, failover_time: Duration) -> BTreeMap<WorkerId, Pulse> {
    let first: Vec<Lease> = table
        .leases
        .iter()
        .map(|facts| facts.lease.clone())
        .collect();
    let watched = Watched::of(table, &first);
    let mut pulses: BTreeMap<WorkerId, Pulse> = BTreeMap::new();
    for lease in watched.last {
        if let Some(owner) = &lease.owner
            && let Some(pulse) = watched.observer.pulse(lease, watched.now, failover_time)
        {
            let known = pulses.entry(owner.clone()).or_insert(pulse);
            *known = known.or_livelier(pulse);
        }
    }
    // A worker that lost all its leases between the looks may still be alive.
    for owner in first.iter().filter_map(|lease| lease.owner.as_ref()) {
        let pulse = || watched.pulse_of(owner, failover_time);
        pulses.entry(owner.clone()).or_insert_with(pulse);
    }
    pulses
}
