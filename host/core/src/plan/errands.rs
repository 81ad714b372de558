//! What the leader asks the hosts that heed it to do: the steps that each would plan for itself if
//! it saw all rows.
//!
//! What is free goes to the poorest hosts first; once nothing is, the same exchange as everybody
//! computes evens out the rest. The leader decides nothing for good: an errand carries what was
//! seen, and whoever does it looks first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::balance::{MOVES_MIN, UNREGISTERED_MOVES_MAX, exchange};
use super::fleet::Roster;
use super::take::{Candidate, available};
use super::{FleetView, ObservedLease, PlanLimits, Reason};
use crate::fleet::{Errand, Incarnation, Mail, OwnerSeen, Task, Why};
use crate::lease::{LeaseCounter, Standing, WorkerId};
use crate::stream::LeaseKey;

/// The hosts that the leader plans for.
#[derive(Debug)]
pub struct Heeders<'a> {
    /// Live hosts that do what they are asked to.
    pub ids: BTreeSet<&'a WorkerId>,
    /// Live hosts that can be told that somebody will ask for a lease of theirs: all.
    pub owners: BTreeSet<&'a WorkerId>,
    /// The last run and beat seen of each registered worker, dead or alive.
    pub beats: BTreeMap<&'a WorkerId, (&'a Incarnation, u64)>,
    /// What was asked in vain.
    pub declined: &'a Declined,
}

/// Which hosts were asked to take a lease in its present state, and did not: others may be luckier.
#[derive(Debug, Default)]
pub struct Declined {
    asked: HashMap<LeaseKey, (LeaseCounter, BTreeSet<WorkerId>)>,
}

impl Declined {
    /// Remembers who is asked to take what. Forgets leases that changed, and those that nobody is
    /// left to ask for: then it begins anew.
    pub fn note(&mut self, errands: &BTreeMap<WorkerId, Vec<Errand>>) {
        let mut before = std::mem::take(&mut self.asked);
        for (host, errand) in errands
            .iter()
            .flat_map(|(host, all)| all.iter().map(move |errand| (host, errand)))
        {
            let Task::Take { counter, .. } = &errand.task else {
                continue;
            };
            let earlier = before
                .remove(&errand.key)
                .filter(|(seen, _)| seen == counter);
            let (_, mut hosts) = earlier.unwrap_or_else(|| (*counter, BTreeSet::new()));
            hosts.insert(host.clone());
            self.asked.insert(errand.key.clone(), (*counter, hosts));
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
    let mut all = BTreeMap::new();
    if heeders.ids.is_empty() {
        return all;
    }
    let roster = Roster::of(view, limits);
    expect_claims(view, heeders, &mut all);
    let (candidates, _) = available(view, &[], &roster, limits);
    if candidates.is_empty() {
        share_moves(view, &roster, limits, heeders, &mut all);
    } else {
        share_free(view, &roster, heeders, candidates, &mut all);
    }
    for errands in all.values_mut() {
        errands.truncate(Mail::ERRANDS_MAX);
    }
    all
}

/// Owners hear of claims on their leases.
fn expect_claims(
    view: &FleetView<'_>,
    heeders: &Heeders<'_>,
    all: &mut BTreeMap<WorkerId, Vec<Errand>>,
) {
    for observed in view
        .leases
        .iter()
        .filter(|observed| observed.standing == Standing::Held)
    {
        if let Some(by) = observed
            .lease
            .claimant
            .as_ref()
            .filter(|_| observed.is_claim_fresh)
        {
            expect(observed, by, heeders, all);
        }
    }
}

fn expect(
    observed: &ObservedLease,
    by: &WorkerId,
    heeders: &Heeders<'_>,
    all: &mut BTreeMap<WorkerId, Vec<Errand>>,
) {
    if let Some(owner) = observed
        .lease
        .owner
        .as_ref()
        .filter(|owner| heeders.owners.contains(owner))
    {
        let errand = Errand {
            key: observed.lease.key.clone(),
            task: Task::Expect { by: by.clone() },
        };
        all.entry(owner.clone()).or_default().push(errand);
    }
}

/// Gives each free or expired lease to the poorest heeding host that has room. The others take what
/// they see by themselves; nothing is kept for them, since a deputy that watches only now knows of
/// nobody's death.
fn share_free(
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    heeders: &Heeders<'_>,
    candidates: Vec<Candidate<'_>>,
    all: &mut BTreeMap<WorkerId, Vec<Errand>>,
) {
    let takers = roster.caps.keys().filter(|id| heeders.ids.contains(*id));
    let mut loads: BTreeMap<&WorkerId, usize> = takers.map(|id| (*id, 0)).collect();
    for observed in view
        .leases
        .iter()
        .filter(|observed| !observed.lease.is_finished())
    {
        // A lease that may be taken is nobody's.
        let is_kept = observed.standing == Standing::Held || observed.is_claim_fresh;
        if let Some(load) = observed
            .holder()
            .filter(|_| is_kept)
            .and_then(|holder| loads.get_mut(holder))
        {
            *load += 1;
        }
    }
    let mut by_load: BTreeSet<(usize, &WorkerId)> =
        loads.into_iter().map(|(id, load)| (load, id)).collect();
    for (observed, reason) in candidates {
        if reason.is_own() || observed.claimed_by_other(view.me).is_some() {
            continue;
        }
        let is_overdue = reason == Reason::Overdue;
        let has_room = |(load, id): &&(usize, &WorkerId)| {
            *load < roster.caps[*id] && !heeders.declined.has(observed, id)
        };
        let within_share = by_load
            .iter()
            .take_while(|(load, _)| is_overdue || *load < roster.share);
        let Some((load, host)) = within_share.into_iter().find(has_room).copied() else {
            continue;
        };
        by_load.remove(&(load, host));
        by_load.insert((load + 1, host));
        let why = if is_overdue {
            Why::Overdue
        } else {
            Why::BelowShare {
                fair_share: roster.share,
            }
        };
        all.entry(host.clone())
            .or_default()
            .push(take(observed, heeders, why));
    }
}

/// The exchange of the whole fleet: claims for those that get, and word to those that give.
fn share_moves(
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    limits: &PlanLimits,
    heeders: &Heeders<'_>,
    all: &mut BTreeMap<WorkerId, Vec<Errand>>,
) {
    let mut moves: BTreeMap<WorkerId, Vec<(&ObservedLease, u64)>> = BTreeMap::new();
    exchange(view, roster, limits, |to, observed, gap| {
        // One that its owner did not give to that host would not be given now either.
        if observed.lease.claimant.as_ref() != Some(to) {
            moves.entry(to.clone()).or_default().push((observed, gap));
        }
    });
    for (to, gets) in moves {
        let most = MOVES_MIN
            .max(gets.len().div_ceil(2))
            .min(Mail::ERRANDS_MAX / 2);
        let mut stolen = 0;
        for (observed, lead) in gets.into_iter().take(most) {
            let Some(from) = observed.lease.owner.clone() else {
                continue;
            };
            let is_kcl = roster.unregistered.contains(&from);
            let task = if !is_kcl {
                expect(observed, &to, heeders, all);
                Task::Claim {
                    from,
                    replaces: observed.lease.claimant.clone(),
                    lead,
                }
            } else if limits.shared_with_kcl && stolen < UNREGISTERED_MOVES_MAX {
                stolen += 1;
                take(observed, heeders, Why::Uneven { lead }).task
            } else {
                continue;
            };
            if heeders.ids.contains(&to) {
                all.entry(to.clone()).or_default().push(Errand {
                    key: observed.lease.key.clone(),
                    task,
                });
            }
        }
    }
}

fn take(observed: &ObservedLease, heeders: &Heeders<'_>, why: Why) -> Errand {
    let owner = observed.lease.owner.as_ref().map(|id| OwnerSeen {
        id: id.clone(),
        beat: heeders
            .beats
            .get(id)
            .map(|(incarnation, beat)| ((*incarnation).clone(), *beat)),
    });
    Errand {
        key: observed.lease.key.clone(),
        task: Task::Take {
            counter: observed.lease.counter,
            owner,
            why,
        },
    }
}
