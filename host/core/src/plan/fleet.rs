//! The world as the planner sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{GoneShards, Reason};
use crate::lease::{Availability, Lease, WorkerId};
use crate::seeded_bug::SeededBug;
use crate::stream::{InitialPosition, Shard, ShardId};

/// Everything that a pass bases its decisions on; made for each pass.
#[derive(Debug)]
pub struct FleetView<'a> {
    /// The worker id of this host.
    pub me: &'a WorkerId,
    /// Every lease row of the application.
    pub leases: &'a [ObservedLease],
    /// Every registered worker, this one included.
    pub workers: &'a [ObservedWorker],
    /// The stream's shards, if this host leads and has a complete list in this pass.
    pub shards: Option<ShardList<'a>>,
    /// Whether the first sync was complete; until then, shards start at the configured position,
    /// and a parent without a row may be one whose row is yet to be created.
    pub is_bootstrapped: bool,
}

/// A complete list of the stream's shards, and what else is known of them.
#[derive(Debug, Clone, Copy)]
pub struct ShardList<'a> {
    /// Every shard that Kinesis lists.
    pub shards: &'a [Shard],
    /// Shards with rows that Kinesis no longer knows.
    pub gone: &'a GoneShards,
    /// Shards that were closed before the application began, as far as they were asked about.
    /// `None` if it is not known when that was: then only the rows show it.
    pub before_start: Option<&'a BTreeSet<ShardId>>,
}

/// A row, and what this host may assume of it.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "five facts that have nothing to do with each other"
)]
pub struct ObservedLease {
    /// The row as it was read.
    pub lease: Lease,
    /// Whether it is free, held, or expired, to this host.
    pub availability: Availability,
    /// How long neither the row nor its owner moved, as far as this host saw.
    pub idle_for: Duration,
    /// Whether a pipeline of this process runs on it.
    pub is_mine: bool,
    /// Whether its claim, if it has one, counts: its claimant lives, and has not waited too long.
    pub is_claim_fresh: bool,
    /// Whether its owner was registered until a short while ago: so it is not a KCL's worker.
    pub has_owner_left: bool,
    /// Whether its owner is not registered, and has not been seen to write long after it could have
    /// been: its row may have been removed by hand, and comes back with its next heartbeat. Nothing
    /// is taken from it as from a KCL's worker.
    pub is_owner_new: bool,
    /// How long it has been finished, as far as this host saw; zero if it is not.
    pub finished_for: Duration,
    /// Whether this host gave it up a short while ago, because it made no progress on it.
    pub is_avoided: bool,
}

/// A registered worker, and what this host may assume of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedWorker {
    /// The worker id in its row.
    pub id: WorkerId,
    /// Whether its heart was seen to beat within its lease duration.
    pub is_alive: bool,
    /// Whether it is shutting down.
    pub is_draining: bool,
    /// Most unfinished leases it will hold.
    pub max_leases: usize,
}

/// What bounds a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    /// Where shards that were never checkpointed start.
    pub initial_position: InitialPosition,
    /// Most unfinished leases this host holds at once.
    pub max_leases: usize,
    /// What is to be even between hosts.
    pub balance: Balance,
    /// Whether KCL workers share the table: only then is an owner without registration one of them.
    /// Otherwise it is a host that registered a moment ago.
    pub shared_with_kcl: bool,
    /// A free or expired lease that no host takes for this long is taken even above the fair share
    /// (KCL: three lease durations).
    pub overdue_after: Duration,
    /// A finished row stays in the table for this long after it was seen to be finished: a request
    /// to create it whose answer was lost may still be on its way, and the shard would be read
    /// again.
    pub finished_rows_stay: Duration,
}

/// What is even between the hosts of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// The number of leases.
    #[default]
    Count,
    /// The measured bytes a second of the leases.
    Throughput,
}

/// The workers that share the leases, and how many each may hold; made once a pass.
pub(super) struct Roster<'a> {
    /// Workers that may hold leases, in order of id, with the most they will hold.
    pub(super) caps: BTreeMap<&'a WorkerId, usize>,
    /// Workers that are seen through a lease only: a KCL's. They know nothing of claims.
    pub(super) unregistered: BTreeSet<&'a WorkerId>,
    /// The most unfinished leases that each host should hold.
    pub(super) share: usize,
    /// The same for this host, which may hold fewer.
    pub(super) fair_share: usize,
}

impl<'a> FleetView<'a> {
    /// The leases that are not read to their end.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &'a ObservedLease> {
        let leases = self.leases.iter();
        leases.filter(|observed| !observed.lease.is_finished())
    }
}

impl ObservedLease {
    /// A row without an owner that was only just written.
    pub(super) fn fresh(lease: Lease) -> Self {
        Self {
            lease,
            availability: Availability::Free,
            idle_for: Duration::ZERO,
            is_mine: false,
            is_claim_fresh: false,
            has_owner_left: false,
            is_owner_new: false,
            finished_for: Duration::ZERO,
            is_avoided: false,
        }
    }

    /// The worker that holds it, or will once the hand-over under way is done.
    pub(super) fn holder(&self) -> Option<&WorkerId> {
        if self.is_claim_fresh {
            self.lease.claimant.as_ref()
        } else {
            self.lease.owner.as_ref()
        }
    }

    /// Why this host must leave it to another worker, if that one asked for it and may take it.
    pub(crate) fn kept_for(&self, me: &WorkerId) -> Option<Reason> {
        self.claimed_by_other(me).map(|claimant| Reason::KeptFor {
            claimant: claimant.clone(),
        })
    }

    /// Why its owner is to hand it over, if another worker asked for it.
    pub(crate) fn asked_for(&self, me: &WorkerId) -> Option<Reason> {
        self.claimed_by_other(me).map(|claimant| Reason::AskedFor {
            by: claimant.clone(),
        })
    }

    /// The worker other than `me` that asked for it and should get it.
    pub(super) fn claimed_by_other(&self, me: &WorkerId) -> Option<&WorkerId> {
        self.lease
            .claimant
            .as_ref()
            .filter(|claimant| self.is_claim_fresh && *claimant != me)
    }

    pub(super) fn is_claimed_by(&self, me: &WorkerId) -> bool {
        self.is_claim_fresh && self.lease.claimant.as_ref() == Some(me)
    }
}

impl<'a> Roster<'a> {
    pub(super) fn of(view: &FleetView<'a>, limits: &PlanLimits) -> Self {
        let mut caps = caps_of_registered(view, limits);
        let mut unregistered = BTreeSet::new();
        let mut new = BTreeSet::new();
        for (owner, is_new) in seen_by_lease_only(view, limits) {
            if is_new {
                new.insert(owner);
            } else {
                caps.insert(owner, usize::MAX);
                unregistered.insert(owner);
            }
        }
        // A new owner has its share, whatever it turns out to be.
        let of_new = new.iter().map(|_| usize::MAX);
        let all_caps = caps.values().copied().chain(of_new);
        let share = fair_share(view.unfinished().count(), all_caps);
        Self {
            caps,
            unregistered,
            share,
            fair_share: share.min(limits.max_leases),
        }
    }
}

/// How many leases each worker may hold that takes part, of those that are registered.
fn caps_of_registered<'a>(
    view: &FleetView<'a>,
    limits: &PlanLimits,
) -> BTreeMap<&'a WorkerId, usize> {
    let mut caps = BTreeMap::from([(view.me, limits.max_leases)]);
    for worker in view.workers {
        if worker.is_alive && !worker.is_draining && worker.id != *view.me {
            caps.insert(&worker.id, worker.max_leases);
        }
    }
    caps
}

/// Owners of held leases that are not registered, and whether each is new.
fn seen_by_lease_only<'a>(
    view: &FleetView<'a>,
    limits: &PlanLimits,
) -> impl Iterator<Item = (&'a WorkerId, bool)> {
    let me = view.me;
    let shared_with_kcl = limits.shared_with_kcl;
    let registered: BTreeSet<&WorkerId> = view.workers.iter().map(|worker| &worker.id).collect();
    view.leases.iter().filter_map(move |observed| {
        let owner = observed.lease.owner.as_ref()?;
        // Our workers do not renew a finished lease. A KCL does, and counts it to its own share: a
        // worker that has nothing else would not be seen, and would be left with nothing else.
        let does_count = !observed.lease.is_finished() || shared_with_kcl;
        // One that left may live, and register again with its next beat.
        let is_unregistered = !registered.contains(owner) && !observed.has_owner_left;
        (observed.availability == Availability::Held
            && does_count
            && is_unregistered
            && owner != me)
            .then_some((owner, observed.is_owner_new))
    })
}

/// The smallest share at which every lease finds a host, though some hosts take fewer than it.
/// Rounded up, as the KCL does it: two fleets with different rounding would pull at the same lease
/// forever.
fn fair_share(leases: usize, caps: impl Iterator<Item = usize>) -> usize {
    let mut caps: Vec<usize> = caps.collect();
    caps.sort_unstable();
    let (mut left, mut hosts) = (leases, caps.len());
    for cap in caps {
        let share = if SeededBug::FairShareRoundedDown.is_on() {
            left / hosts.max(1)
        } else {
            left.div_ceil(hosts.max(1))
        };
        if cap >= share {
            return share;
        }
        left -= cap;
        hosts -= 1;
    }
    leases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fair_share_is_rounded_up_and_makes_up_for_hosts_that_take_less() {
        let any = usize::MAX;
        for (leases, caps, share) in [
            (7, vec![any, any], 4),
            (6, vec![any, any], 3),
            (0, vec![any], 0),
            (10, vec![2, any, any], 4),
            (10, vec![2, 3, any], 5),
            // More than all will take: everybody is asked for everything, and held by its own cap.
            (10, vec![2, 3], 10),
        ] {
            assert_eq!(
                fair_share(leases, caps.iter().copied()),
                share,
                "{leases} {caps:?}"
            );
        }
    }
}
