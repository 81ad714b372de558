//! Who holds what, and who lives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::LeaseTableFacts;
use crate::fleet::WorkerRow;
use crate::lease::{Lease, LeaseObserver, Pulse, WorkerId, kcl_leader};
use crate::time::Moment;

/// A table's leases in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Lease rows that can be read.
    pub leases: usize,
    /// Those at `SHARD_END`.
    pub finished: usize,
    /// Unfinished ones without an owner.
    pub unowned: usize,
    /// Every owner of a row, by name.
    pub owners: Vec<OwnerCensus>,
    /// Whom the KCL 2.x rule makes leader; `None` if no row has an owner.
    pub kcl2_leader: Option<WorkerId>,
}

/// One owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerCensus {
    /// Who.
    pub worker: WorkerId,
    /// Unfinished leases it owns.
    pub leases: usize,
    /// Whether it lives, as far as its leases and its heart show.
    pub pulse: Pulse,
    /// Whether it is a host of shardmill: registered in the coordinator table, or, if it is dead,
    /// the owner of a row with attributes that shardmill adds. Those alone prove nothing of one
    /// that may live: a KCL that took the lease keeps them.
    pub is_shardmill: bool,
}

impl Census {
    pub(super) fn of(table: &LeaseTableFacts, failover_time: Option<Duration>) -> Self {
        let leases = || table.leases.iter().map(|facts| &facts.lease);
        let pulses = pulses(table, failover_time.unwrap_or(Duration::MAX));
        let registered: BTreeSet<&WorkerId> = table
            .fleet
            .workers
            .iter()
            .chain(later_workers(table))
            .map(|row| &row.worker)
            .collect();
        let owner_of = |(worker, pulse): (&WorkerId, &Pulse)| OwnerCensus {
            worker: worker.clone(),
            leases: 0,
            pulse: *pulse,
            is_shardmill: registered.contains(worker),
        };
        let mut owners: BTreeMap<&WorkerId, OwnerCensus> = pulses
            .iter()
            .map(|(worker, pulse)| (worker, owner_of((worker, pulse))))
            .collect();
        for lease in leases() {
            let Some(owner) = lease
                .owner
                .as_ref()
                .and_then(|worker| owners.get_mut(worker))
            else {
                continue;
            };
            owner.leases += usize::from(!lease.is_finished());
            owner.is_shardmill |= !owner.pulse.may_live() && has_marks(lease);
        }
        Self {
            leases: table.leases.len(),
            finished: leases().filter(|lease| lease.is_finished()).count(),
            unowned: leases()
                .filter(|lease| !lease.is_finished() && lease.owner.is_none())
                .count(),
            owners: owners.into_values().collect(),
            kcl2_leader: kcl_leader(leases().filter_map(|lease| lease.owner.as_ref())).cloned(),
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

/// What the two looks show of each owner of a row, by the rule that hosts go by. An owner shows its
/// life by any of its leases.
fn pulses(table: &LeaseTableFacts, failover_time: Duration) -> BTreeMap<WorkerId, Pulse> {
    let first: Vec<Lease> = table
        .leases
        .iter()
        .map(|facts| facts.lease.clone())
        .collect();
    let mut observer = LeaseObserver::default();
    let mut now = Moment::default();
    observer.observe_workers(&table.fleet.workers, now);
    observer.observe(&first, now);
    let mut last = &first;
    if let Some(look) = &table.second_look {
        now = now + look.after;
        observer.observe_workers(&look.fleet.workers, now);
        observer.observe(&look.leases, now);
        last = &look.leases;
    }
    let mut pulses: BTreeMap<WorkerId, Pulse> = BTreeMap::new();
    for lease in last {
        let (Some(owner), Some(pulse)) = (&lease.owner, observer.pulse(lease, now, failover_time))
        else {
            continue;
        };
        pulses
            .entry(owner.clone())
            .and_modify(|known| *known = known.or_livelier(pulse))
            .or_insert(pulse);
    }
    // One that lost all its leases between the looks may live all the same.
    let unseen = Pulse::Unwatched {
        expires_in: failover_time,
    };
    for owner in first.iter().filter_map(|lease| lease.owner.as_ref()) {
        let pulse = || observer.worker_pulse(owner, now).unwrap_or(unseen);
        pulses.entry(owner.clone()).or_insert_with(pulse);
    }
    pulses
}
