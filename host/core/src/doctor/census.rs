//! Who holds what, and who lives.

use std::collections::{BTreeMap, BTreeSet};

use super::{LeaseTableFacts, SecondLook};
use crate::fleet::{Incarnation, WorkerRow};
use crate::lease::{Lease, LeaseCounter, WorkerId, kcl_leader};
use crate::stream::LeaseKey;

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
    /// Whether it was seen to write.
    pub life: Life,
    /// Whether it is a host of shardmill: registered in the coordinator table, or, if it is not alive, the owner of a
    /// row with attributes that shardmill adds. Those alone prove nothing of the living: a KCL that took the lease keeps
    /// them.
    pub is_shardmill: bool,
}

/// Whether an owner was seen to write between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// A counter of its leases moved.
    Live,
    /// None did.
    Silent,
    /// Nobody waited for it.
    Unwatched,
}

impl Census {
    pub(super) fn of(table: &LeaseTableFacts) -> Self {
        let leases = || table.leases.iter().map(|facts| &facts.lease);
        let live = table.second_look.as_ref().map(|look| live_owners(table, look));
        let registered: BTreeSet<&WorkerId> =
            table.fleet.workers.iter().chain(later_workers(table)).map(|row| &row.worker).collect();
        let mut owners: BTreeMap<&WorkerId, OwnerCensus> = BTreeMap::new();
        let appeared = live.iter().flatten().copied();
        for worker in leases().filter_map(|lease| lease.owner.as_ref()).chain(appeared) {
            owners.entry(worker).or_insert_with(|| OwnerCensus {
                worker: worker.clone(),
                leases: 0,
                life: match &live {
                    None => Life::Unwatched,
                    Some(live) if live.contains(worker) => Life::Live,
                    Some(_) => Life::Silent,
                },
                is_shardmill: registered.contains(worker),
            });
        }
        for lease in leases() {
            let Some(owner) = lease.owner.as_ref().and_then(|worker| owners.get_mut(worker)) else { continue };
            owner.leases += usize::from(!lease.is_finished());
            owner.is_shardmill |= owner.life != Life::Live && has_marks(lease);
        }
        Self {
            leases: table.leases.len(),
            finished: leases().filter(|lease| lease.is_finished()).count(),
            unowned: leases().filter(|lease| !lease.is_finished() && lease.owner.is_none()).count(),
            owners: owners.into_values().collect(),
            kcl2_leader: kcl_leader(leases().filter_map(|lease| lease.owner.as_ref())).cloned(),
        }
    }

    /// Owners that hold something unfinished, or write, and are not hosts of shardmill.
    pub(super) fn other_workers(&self, life: Life) -> impl Iterator<Item = &OwnerCensus> {
        let is_other = move |owner: &&OwnerCensus| {
            !owner.is_shardmill && owner.life == life && (owner.leases > 0 || owner.life == Life::Live)
        };
        self.owners.iter().filter(is_other)
    }
}

fn later_workers(table: &LeaseTableFacts) -> impl Iterator<Item = &WorkerRow> {
    table.second_look.iter().flat_map(|look| &look.fleet.workers)
}

fn has_marks(lease: &Lease) -> bool {
    lease.plugin_digest.is_some() || lease.millis_behind_latest.is_some() || lease.held_since_ms.is_some()
}

/// Owners whose counters or hearts moved, and owners of leases that changed hands.
fn live_owners<'a>(table: &LeaseTableFacts, later: &'a SecondLook) -> BTreeSet<&'a WorkerId> {
    let before: BTreeMap<&LeaseKey, LeaseCounter> =
        table.leases.iter().map(|facts| (&facts.lease.key, facts.lease.counter)).collect();
    let has_moved = |lease: &&Lease| before.get(&lease.key).is_none_or(|counter| *counter != lease.counter);
    let beats: BTreeMap<&WorkerId, (&Incarnation, u64)> =
        table.fleet.workers.iter().map(|row| (&row.worker, (&row.incarnation, row.beat))).collect();
    let has_beaten = |row: &&WorkerRow| beats.get(&row.worker) != Some(&(&row.incarnation, row.beat));
    let writers = later.leases.iter().filter(has_moved).filter_map(|lease| lease.owner.as_ref());
    // A registered host without a lease owns nothing that anybody could ask about.
    let owners: BTreeSet<&WorkerId> = later.leases.iter().filter_map(|lease| lease.owner.as_ref()).collect();
    let hearts = later.fleet.workers.iter().filter(has_beaten).map(|row| &row.worker);
    writers.chain(hearts.filter(|worker| owners.contains(worker))).collect()
}
