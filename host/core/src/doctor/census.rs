//! Who holds what, and who lives.

use std::collections::{BTreeMap, BTreeSet};

use super::{LeaseFacts, LeaseTableFacts, SecondLook};
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
    /// Whether one of its rows has the attributes that shardmill adds. The KCL keeps them, so they tell that shardmill
    /// settled records of the lease, not for certain that it still holds it; a host that settled nothing has none.
    pub has_shardmill_marks: bool,
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
        let live = table.second_look.as_ref().map(|look| live_owners(&table.leases, look));
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
                has_shardmill_marks: false,
            });
        }
        for lease in leases() {
            let Some(owner) = lease.owner.as_ref().and_then(|worker| owners.get_mut(worker)) else { continue };
            owner.leases += usize::from(!lease.is_finished());
            owner.has_shardmill_marks |= lease.plugin_digest.is_some() || lease.millis_behind_latest.is_some();
        }
        Self {
            leases: table.leases.len(),
            finished: leases().filter(|lease| lease.is_finished()).count(),
            unowned: leases().filter(|lease| !lease.is_finished() && lease.owner.is_none()).count(),
            owners: owners.into_values().collect(),
            kcl2_leader: kcl_leader(leases().filter_map(|lease| lease.owner.as_ref())).cloned(),
        }
    }

    /// Owners that hold something unfinished, or write, and never left shardmill's marks.
    pub(super) fn other_workers(&self, life: Life) -> impl Iterator<Item = &OwnerCensus> {
        let is_other = move |owner: &&OwnerCensus| {
            !owner.has_shardmill_marks && owner.life == life && (owner.leases > 0 || owner.life == Life::Live)
        };
        self.owners.iter().filter(is_other)
    }
}

/// Owners whose counters moved, and owners of leases that changed hands.
fn live_owners<'a>(before: &[LeaseFacts], later: &'a SecondLook) -> BTreeSet<&'a WorkerId> {
    let before: BTreeMap<&LeaseKey, &Lease> = before.iter().map(|facts| (&facts.lease.key, &facts.lease)).collect();
    let is_moved = |lease: &&Lease| {
        let seen = before.get(&lease.key);
        seen.map_or(LeaseCounter(0), |seen| seen.counter) != lease.counter
    };
    later.leases.iter().filter(is_moved).filter_map(|lease| lease.owner.as_ref()).collect()
}
