//! What the leader asks the hosts that heed it to do: the steps that each would plan for itself if
//! it saw all rows.
//!
//! What is free goes to the poorest hosts first; once nothing is, the same exchange that every host
//! computes evens out the rest. The leader decides nothing for good: an errand carries what was
//! seen, and the host that does it reads the row first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::balance::{Move, UNREGISTERED_MOVES_MAX, exchange, moves_max};
use super::fleet::Roster;
use super::take::{Candidate, available};
use super::{FleetView, ObservedLease, PlanLimits, Reason};
use crate::fleet::{Errand, Incarnation, Mail, OwnerSeen, Task, Why};
use crate::lease::{Availability, LeaseCounter, WorkerId};
use crate::stream::LeaseKey;

/// The hosts that the leader plans for.
#[derive(Debug)]
pub struct Heeders<'a> {
    /// Live hosts that do the errands they are left.
    pub ids: BTreeSet<&'a WorkerId>,
    /// Live hosts that can expect a claim on a lease of theirs: all of them.
    pub owners: BTreeSet<&'a WorkerId>,
    /// The last run and beat seen of each registered worker, dead or alive.
    pub beats: BTreeMap<&'a WorkerId, (&'a Incarnation, u64)>,
    /// Which hosts were asked in vain.
    pub declined: &'a Declined,
}

/// Which hosts were asked to take a lease in its present state, and did not: others may be able to.
#[derive(Debug, Default)]
pub struct Declined {
    asked: HashMap<LeaseKey, (LeaseCounter, BTreeSet<WorkerId>)>,
}

impl Declined {
    /// Remembers which host is asked to take which lease. Forgets leases that changed, and those
    /// for which no host is left to ask: then all can be asked again.
    pub fn note(&mut self, errands: &BTreeMap<WorkerId, Vec<Errand>>) {
        let mut before = std::mem::take(&mut self.asked);
        for (host, errands) in errands {
            for errand in errands {
                let Task::Take { counter, .. } = errand.task else {
                    continue;
                };
                let (_, mut hosts) = before
                    .remove(&errand.key)
                    .filter(|(seen, _)| *seen == counter)
                    .unwrap_or((counter, BTreeSet::new()));
                hosts.insert(host.clone());
                self.asked.insert(errand.key.clone(), (counter, hosts));
            }
        }
    }

    fn has(&self, observed: &ObservedLease, host: &WorkerId) -> bool {
        self.asked
            .get(&observed.lease.key)
            .is_some_and(|(counter, hosts)| {
                *counter == observed.lease.counter && hosts.contains(host)
            })
    }
}

/// Plans for all hosts of `heeders`, each with at most as many errands as a mail holds.
pub fn errands(
    view: &FleetView<'_>,
    limits: &PlanLimits,
    heeders: &Heeders<'_>,
) -> BTreeMap<WorkerId, Vec<Errand>> {
    if heeders.ids.is_empty() {
        return BTreeMap::new();
    }
    let roster = Roster::of(view, limits);
    let mut outgoing = Outgoing {
        heeders,
        by_host: BTreeMap::new(),
    };
    expect_claims(view, &mut outgoing);
    let (candidates, _) = available(view, &[], &roster, limits);
    if candidates.is_empty() {
        share_moves(view, &roster, limits, &mut outgoing);
    } else {
        share_free(view, &roster, candidates, &mut outgoing);
    }
    let mut by_host = outgoing.by_host;
    for errands in by_host.values_mut() {
        errands.truncate(Mail::ERRANDS_MAX);
    }
    by_host
}

/// The errands planned so far.
struct Outgoing<'a> {
    heeders: &'a Heeders<'a>,
    by_host: BTreeMap<WorkerId, Vec<Errand>>,
}

impl Outgoing<'_> {
    fn ask(&mut self, host: &WorkerId, observed: &ObservedLease, task: Task) {
        let errand = Errand {
            key: observed.lease.key.clone(),
            task,
        };
        self.by_host.entry(host.clone()).or_default().push(errand);
    }

    /// Asks the owner of a lease to expect a claim of `by`.
    fn expect(&mut self, observed: &ObservedLease, by: &WorkerId) {
        if let Some(owner) = &observed.lease.owner
            && self.heeders.owners.contains(owner)
        {
            self.ask(owner, observed, Task::Expect { by: by.clone() });
        }
    }

    fn take(&self, observed: &ObservedLease, why: Why) -> Task {
        let owner = observed.lease.owner.as_ref().map(|id| OwnerSeen {
            id: id.clone(),
            beat: self
                .heeders
                .beats
                .get(id)
                .map(|(incarnation, beat)| ((*incarnation).clone(), *beat)),
        });
        Task::Take {
            counter: observed.lease.counter,
            owner,
            why,
        }
    }
}

/// Owners expect the claims that are on their leases.
fn expect_claims(view: &FleetView<'_>, outgoing: &mut Outgoing<'_>) {
    for observed in view.leases {
        if observed.availability == Availability::Held
            && observed.is_claim_fresh
            && let Some(by) = &observed.lease.claimant
        {
            outgoing.expect(observed, by);
        }
    }
}

/// Gives each free or expired lease to the poorest heeding host that has room. Hosts that watch
/// take what they see by themselves. Nothing is kept for them: a deputy that has only begun to
/// watch does not know of any death.
fn share_free(
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    candidates: Vec<Candidate<'_>>,
    outgoing: &mut Outgoing<'_>,
) {
    let mut takers = Takers::of(view, roster, outgoing.heeders);
    for (observed, reason) in candidates {
        if reason.is_own() || observed.claimed_by_other(view.me).is_some() {
            continue;
        }
        let why = if reason == Reason::Overdue {
            Why::Overdue
        } else {
            Why::BelowShare {
                fair_share: roster.share,
            }
        };
        if let Some(host) = takers.give(observed, why) {
            let task = outgoing.take(observed, why);
            outgoing.ask(host, observed, task);
        }
    }
}

/// The heeding hosts, by how many leases each holds and is about to take.
struct Takers<'a> {
    by_load: BTreeSet<(usize, &'a WorkerId)>,
    roster: &'a Roster<'a>,
    declined: &'a Declined,
}

impl<'a> Takers<'a> {
    fn of(view: &FleetView<'_>, roster: &'a Roster<'a>, heeders: &Heeders<'a>) -> Self {
        let takers = roster.caps.keys().filter(|id| heeders.ids.contains(*id));
        let mut loads: BTreeMap<&WorkerId, usize> = takers.map(|id| (*id, 0)).collect();
        for observed in view.unfinished() {
            // A lease that may be taken has no holder yet.
            let is_kept = observed.availability == Availability::Held || observed.is_claim_fresh;
            if is_kept
                && let Some(holder) = observed.holder()
                && let Some(load) = loads.get_mut(holder)
            {
                *load += 1;
            }
        }
        Self {
            by_load: loads.into_iter().map(|(id, load)| (load, id)).collect(),
            roster,
            declined: heeders.declined,
        }
    }

    /// The poorest host that may have the lease, which now holds one more.
    fn give(&mut self, observed: &ObservedLease, why: Why) -> Option<&'a WorkerId> {
        let (load, host) = self
            .by_load
            .iter()
            .take_while(|(load, _)| why == Why::Overdue || *load < self.roster.share)
            .find(|(load, id)| *load < self.roster.caps[*id] && !self.declined.has(observed, id))
            .copied()?;
        self.by_load.remove(&(load, host));
        self.by_load.insert((load + 1, host));
        Some(host)
    }
}

/// The exchange of the whole fleet: hosts that lack leases claim them, and owners expect it.
fn share_moves(
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    limits: &PlanLimits,
    outgoing: &mut Outgoing<'_>,
) {
    let mut by_host: BTreeMap<&WorkerId, Vec<Move<'_>>> = BTreeMap::new();
    for gets in exchange(view, roster, limits) {
        // A lease that its owner did not give to that host would not be given now either.
        if gets.observed.lease.claimant.as_ref() != Some(gets.to) {
            by_host.entry(gets.to).or_default().push(gets);
        }
    }
    for (to, mut moves) in by_host {
        moves.truncate(moves_max(moves.len()).min(Mail::ERRANDS_MAX / 2));
        ask_for_moves(to, &moves, roster, limits, outgoing);
    }
}

fn ask_for_moves(
    to: &WorkerId,
    moves: &[Move<'_>],
    roster: &Roster<'_>,
    limits: &PlanLimits,
    outgoing: &mut Outgoing<'_>,
) {
    let mut steals_left = if limits.shared_with_kcl {
        UNREGISTERED_MOVES_MAX
    } else {
        0
    };
    for Move { observed, gap, .. } in moves {
        let Some(from) = observed.lease.owner.clone() else {
            continue;
        };
        let task = if !roster.unregistered.contains(&from) {
            outgoing.expect(observed, to);
            Task::Claim {
                from,
                replaces: observed.lease.claimant.clone(),
                lead: *gap,
            }
        } else if steals_left > 0 {
            steals_left -= 1;
            outgoing.take(observed, Why::Uneven { lead: *gap })
        } else {
            continue;
        };
        if outgoing.heeders.ids.contains(to) {
            outgoing.ask(to, observed, task);
        }
    }
}
