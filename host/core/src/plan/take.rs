//! Phase: hand over claimed leases, take free ones.

use super::fleet::Roster;
use super::{FleetView, ObservedLease, Plan, PlanLimits, ReadingOrder, Reason, Step};
use crate::hash;
use crate::lease::{Availability, Lease, WorkerId};
use crate::seeded_bug::SeededBug;
use crate::stream::LeaseKey;

/// Most leases that a host takes in one pass, or as many as it holds if that is more: the first
/// host of a fleet to start leaves some to those that register in the next seconds, and still holds
/// 10,000 after eight passes.
const TAKES_MIN: usize = 64;

/// Adds a hand-over for each lease of ours that another live worker asked for.
pub(super) fn plan_hand_overs(view: &FleetView<'_>, plan: &mut Plan) {
    let deleted = plan.deleted();
    for observed in view.leases.iter().filter(|observed| observed.is_mine) {
        let key = observed.lease.key.clone();
        if let Some(reason) = observed.asked_for(view.me)
            && !deleted.contains(&key)
        {
            plan.steps.push(Step::HandOver { key, reason });
        }
    }
}

/// What this host may still take in this pass.
struct Allowance {
    /// Leases that it lacks of its fair share.
    room: usize,
    /// Leases that it may hold beyond those that it has, by its own limit.
    capacity: usize,
    /// Free leases that it may take in one pass.
    portion: usize,
}

impl Allowance {
    fn of(view: &FleetView<'_>, roster: &Roster<'_>, limits: &PlanLimits) -> Self {
        let held = held_count(view);
        Self {
            room: roster
                .fair_share
                .saturating_sub(held + asked_for_count(view)),
            capacity: capacity(view, limits),
            portion: TAKES_MIN.max(held),
        }
    }

    /// What is a host's own counts towards its share too: what it takes beyond its share it would
    /// have to give back.
    fn take(&mut self, reason: &Reason) {
        debug_assert!(
            self.capacity > 0 && (self.portion > 0 || reason.is_own()),
            "a lease is taken only within the limits, as `why_not_now` checks"
        );
        self.capacity -= 1;
        if !(reason.is_own() && SeededBug::OwnTakesLeaveRoom.is_on()) {
            self.room = self.room.saturating_sub(1);
        }
        if !reason.is_own() {
            self.portion -= 1;
        }
    }
}

/// A lease that a host may take, and why.
pub(super) type Candidate<'a> = (&'a ObservedLease, Reason);

/// Adds takes: leases that were handed over to this worker or that already name it, then free and
/// expired leases up to the fair share; and releases of leases that name it and must not be held.
/// Returns whether there was anything to take, for this host or another.
pub(super) fn plan_takes(
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    limits: &PlanLimits,
    plan: &mut Plan,
) -> bool {
    let candidates = candidates(view, roster, limits, plan);
    let is_any_available = !candidates.is_empty();
    let mut allowance = Allowance::of(view, roster, limits);
    for (observed, reason) in candidates {
        let lease = &observed.lease;
        let Some(why_not) = why_not_now(observed, &reason, view, roster, &allowance) else {
            allowance.take(&reason);
            let seen = Box::new(lease.clone());
            plan.steps.push(Step::Take { seen, reason });
            continue;
        };
        plan.held_back.push((lease.key.clone(), why_not.clone()));
        if reason == Reason::OwnByName {
            release_own(lease, why_not, plan);
        }
    }
    is_any_available
}

/// This host's heartbeat would hold it forever, and no pipeline would read it.
fn release_own(lease: &Lease, why_not: Reason, plan: &mut Plan) {
    if !SeededBug::KeepsOwnAboveMax.is_on() {
        plan.steps.push(Step::Release {
            seen: Box::new(lease.clone()),
            reason: why_not,
        });
    }
}

/// Leases that may be taken, in this host's order. Those that must wait are noted as held back.
fn candidates<'a>(
    view: &FleetView<'a>,
    roster: &Roster<'_>,
    limits: &PlanLimits,
    plan: &mut Plan,
) -> Vec<Candidate<'a>> {
    let (mut candidates, mut waiting) = available(view, &plan.created(), roster, limits);
    let deleted = plan.deleted();
    candidates.retain(|(observed, _)| !deleted.contains(&observed.lease.key));
    waiting.retain(|(key, _)| !deleted.contains(key));
    plan.held_back.extend(waiting);
    sort_for(view.me, &mut candidates);
    candidates
}

/// What is the host's own comes first. Then each host has its own order, so that hosts racing for
/// the same leases rarely race for the same one.
fn sort_for(me: &WorkerId, candidates: &mut [Candidate<'_>]) {
    candidates.sort_by_cached_key(|(observed, reason)| {
        let key = &observed.lease.key;
        (!reason.is_own(), own_rank(me, key), key.clone())
    });
}

/// Leases that may be taken, by this host or another, and those that must wait for a shard to end.
/// `created` are the rows that are about to be created: they can be waited for too.
pub(super) fn available<'a>(
    view: &FleetView<'a>,
    created: &[Lease],
    roster: &Roster<'_>,
    limits: &PlanLimits,
) -> (Vec<Candidate<'a>>, Vec<(LeaseKey, Reason)>) {
    let rows = view.leases.iter().map(|observed| &observed.lease);
    let order = ReadingOrder::of(rows.chain(created), view.is_bootstrapped);
    let mut candidates = Vec::new();
    let mut waiting = Vec::new();
    for observed in view.unfinished().filter(|observed| !observed.is_mine) {
        let Some(reason) = why_available(observed, view, roster, limits) else {
            continue;
        };
        match order.waits_for(&observed.lease) {
            Some(reason) => waiting.push((observed.lease.key.clone(), reason)),
            None => candidates.push((observed, reason)),
        }
    }
    (candidates, waiting)
}

/// How many leases this host may take besides those that it holds.
pub(super) fn capacity(view: &FleetView<'_>, limits: &PlanLimits) -> usize {
    limits.max_leases.saturating_sub(held_count(view))
}

/// Unfinished leases that this process holds and will keep.
fn held_count(view: &FleetView<'_>) -> usize {
    view.unfinished()
        .filter(|observed| observed.is_mine && observed.claimed_by_other(view.me).is_none())
        .count()
}

/// Leases that this host asked live owners for and will get.
fn asked_for_count(view: &FleetView<'_>) -> usize {
    let others = view.leases.iter().filter(|observed| !observed.is_mine);
    let coming = others
        .filter(|observed| {
            observed.availability == Availability::Held && observed.is_claimed_by(view.me)
        })
        .count();
    if SeededBug::ClaimsCountTwice.is_on() {
        2 * coming
    } else {
        coming
    }
}

/// Why this host or another may take it; `None` if a live owner holds it.
fn why_available(
    observed: &ObservedLease,
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    limits: &PlanLimits,
) -> Option<Reason> {
    let fair_share = roster.fair_share;
    let is_overdue = observed.idle_for > limits.overdue_after;
    match (&observed.lease.owner, observed.availability) {
        (None, _) if observed.is_claimed_by(view.me) => Some(Reason::HandedOver),
        (None, _) if is_overdue => Some(Reason::Overdue),
        (None, _) => Some(Reason::Free { fair_share }),
        // Held before a restart, or by a take whose answer was lost. It cannot be a twin's: a
        // second process with this worker's id replaces this one's registration, and then this one
        // stops.
        (Some(owner), _) if owner == view.me => {
            (!SeededBug::OwnRowsLeftAlone.is_on()).then_some(Reason::OwnByName)
        }
        // Its owner died before it could give up what this worker asked for.
        (Some(_), Availability::Expired) if observed.is_claimed_by(view.me) => {
            Some(Reason::HandedOver)
        }
        (Some(_), Availability::Expired) if is_overdue => Some(Reason::Overdue),
        (Some(owner), Availability::Expired) => Some(Reason::Expired {
            owner: owner.clone(),
            fair_share,
        }),
        (Some(owner), Availability::Held) if SeededBug::TakesLiveLeases.is_on() => {
            Some(Reason::Expired {
                owner: owner.clone(),
                fair_share,
            })
        }
        (Some(_), Availability::Free | Availability::Held) => None,
    }
}

/// Why this host must not take it in this pass, if it must not.
fn why_not_now(
    observed: &ObservedLease,
    reason: &Reason,
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    allowance: &Allowance,
) -> Option<Reason> {
    // What a claimant asked an earlier run of this worker for, it asks this run for again: neither
    // waits for the other.
    let is_held_by_name = *reason == Reason::OwnByName;
    if !is_held_by_name && let Some(reason) = observed.kept_for(view.me) {
        return Some(reason);
    }
    if observed.is_avoided {
        return Some(Reason::GaveUpLately);
    }
    if allowance.capacity == 0 {
        return Some(Reason::AtMaxLeases);
    }
    if allowance.room == 0 && !reason.is_own() && *reason != Reason::Overdue {
        return Some(Reason::HasFairShare {
            fair_share: roster.fair_share,
        });
    }
    (allowance.portion == 0 && !reason.is_own()).then_some(Reason::NextPortion)
}

fn own_rank(me: &WorkerId, key: &LeaseKey) -> u64 {
    // The zero byte keeps the two apart: no worker id contains one.
    hash::stable(me.as_str().bytes().chain([0]).chain(key.as_str().bytes()))
}
