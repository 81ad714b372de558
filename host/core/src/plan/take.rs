//! Phase: give what was asked for, take what is free.

use std::collections::BTreeMap;

use super::fleet::Roster;
use super::{FleetView, ObservedLease, Plan, PlanLimits, Reason, Step};
use crate::hash;
use crate::lease::{Checkpoint, Lease, Standing, WorkerId};
use crate::seeded_bug::SeededBug;
use crate::stream::{HashKeyRange, LeaseKey, ShardId};

/// Most leases that a host takes in one pass, or as many as it holds: a host that is the first of a fleet to start leaves
/// some to those that register in the next seconds, and still holds 10,000 after eight passes.
const TAKES_MIN: usize = 64;

/// Adds a hand-over for each lease of ours that another live worker asked for.
pub(super) fn plan_hand_overs(view: &FleetView<'_>, plan: &mut Plan) {
    for observed in view.leases.iter().filter(|observed| observed.is_mine) {
        if let Some(claimant) = observed.claimed_by_other(view.me) {
            let reason = Reason::AskedFor { by: claimant.clone() };
            plan.steps.push(Step::HandOver { key: observed.lease.key.clone(), reason });
        }
    }
}

/// A lease that somebody may take, and why.
pub(super) type Candidate<'a> = (&'a ObservedLease, Reason);

/// Adds takes: what was handed over to this worker or is its own by name, then free and expired leases up to the fair
/// share. Returns whether anything was there to be taken, by this host or another.
pub(super) fn plan_takes(view: &FleetView<'_>, roster: &Roster<'_>, limits: &PlanLimits, plan: &mut Plan) -> bool {
    let (mut candidates, waiting) = available(view, roster, limits);
    plan.held_back.extend(waiting);
    let is_any_available = !candidates.is_empty();
    // Each host has its own order, so that hosts racing for the same leases rarely race for the same one.
    candidates.sort_by_cached_key(|(observed, reason)| {
        (!reason.is_own(), own_rank(view.me, &observed.lease.key), observed.lease.key.clone())
    });
    let held = held_count(view);
    let mut room = roster.fair_share.saturating_sub(held + asked_for_count(view));
    let mut capacity = limits.max_leases.saturating_sub(held);
    let mut portion = TAKES_MIN.max(held);
    for (observed, reason) in candidates {
        if let Some(why_not) = why_not_now(observed, &reason, view, roster, (room, capacity, portion)) {
            plan.held_back.push((observed.lease.key.clone(), why_not));
            continue;
        }
        capacity -= 1;
        if !reason.is_own() {
            room = room.saturating_sub(1);
            portion -= 1;
        }
        plan.steps.push(Step::Take { seen: Box::new(observed.lease.clone()), reason });
    }
    is_any_available
}

/// Leases that may be taken, by this host or another, and those that something must come before.
pub(super) fn available<'a>(
    view: &FleetView<'a>,
    roster: &Roster<'_>,
    limits: &PlanLimits,
) -> (Vec<Candidate<'a>>, Vec<(LeaseKey, Reason)>) {
    let is_finished = parent_index(view.leases);
    let overlapping = overlapping_unfinished(view.leases);
    let (mut candidates, mut waiting) = (Vec::new(), Vec::new());
    for observed in view.leases {
        let lease = &observed.lease;
        if observed.is_mine || lease.is_finished() {
            continue;
        }
        let Some(reason) = why_available(observed, view, roster, limits) else { continue };
        match waits_for(lease, &is_finished, &overlapping, view.is_bootstrapped) {
            Some(reason) => waiting.push((lease.key.clone(), reason)),
            None => candidates.push((observed, reason)),
        }
    }
    (candidates, waiting)
}

/// Unfinished leases that this process holds and will keep.
fn held_count(view: &FleetView<'_>) -> usize {
    let stays = |observed: &&ObservedLease| {
        observed.is_mine && !observed.lease.is_finished() && observed.claimed_by_other(view.me).is_none()
    };
    view.leases.iter().filter(stays).count()
}

/// Leases that this host asked live owners for and will get.
fn asked_for_count(view: &FleetView<'_>) -> usize {
    let is_coming = |observed: &&ObservedLease| {
        observed.standing == Standing::Held && !observed.is_mine && observed.is_claimed_by(view.me)
    };
    view.leases.iter().filter(is_coming).count()
}

fn why_available(
    observed: &ObservedLease,
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    limits: &PlanLimits,
) -> Option<Reason> {
    let fair_share = roster.fair_share;
    let is_overdue = observed.idle_for > limits.overdue_after;
    match (&observed.lease.owner, observed.standing) {
        (None, _) if observed.is_claimed_by(view.me) => Some(Reason::HandedOver),
        (None, _) if is_overdue => Some(Reason::Overdue),
        (None, _) => Some(Reason::Free { fair_share }),
        // Held before a restart, or by a take whose answer was lost. It cannot be a twin's: a second process with this
        // worker's id replaces this one's registration, and then this one stops.
        (Some(owner), _) if owner == view.me => (!SeededBug::OwnRowsLeftAlone.is_on()).then_some(Reason::OwnByName),
        // Its owner died before it could give up what this worker asked for.
        (Some(_), Standing::Expired) if observed.is_claimed_by(view.me) => Some(Reason::HandedOver),
        (Some(_), Standing::Expired) if is_overdue => Some(Reason::Overdue),
        (Some(owner), Standing::Expired) => Some(Reason::Expired { owner: owner.clone(), fair_share }),
        (Some(owner), Standing::Held) if SeededBug::TakesLiveLeases.is_on() => {
            Some(Reason::Expired { owner: owner.clone(), fair_share })
        }
        (Some(_), Standing::Free | Standing::Held) => None,
    }
}

fn why_not_now(
    observed: &ObservedLease,
    reason: &Reason,
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    (room, capacity, portion): (usize, usize, usize),
) -> Option<Reason> {
    // What a claimant asked an earlier run of this worker for, it asks this run for again: nobody waits for the other.
    let is_held_by_name = *reason == Reason::OwnByName;
    if let Some(claimant) = observed.claimed_by_other(view.me).filter(|_| !is_held_by_name) {
        return Some(Reason::KeptFor { claimant: claimant.clone() });
    }
    if observed.is_avoided {
        return Some(Reason::GaveUpLately);
    }
    if capacity == 0 {
        return Some(Reason::AtMaxLeases);
    }
    if room == 0 && !reason.is_own() && *reason != Reason::Overdue {
        return Some(Reason::HasFairShare { fair_share: roster.fair_share });
    }
    (portion == 0 && !reason.is_own()).then_some(Reason::NextPortion)
}

/// Whether each shard's row is finished.
pub(super) fn parent_index(leases: &[ObservedLease]) -> BTreeMap<ShardId, bool> {
    leases.iter().map(|observed| (observed.lease.key.shard_id(), observed.lease.is_finished())).collect()
}

/// What must come before `lease` may be read: mostly the end of a parent, or of an older ancestor.
fn waits_for(
    lease: &Lease,
    is_finished: &BTreeMap<ShardId, bool>,
    overlapping: &[&Lease],
    is_bootstrapped: bool,
) -> Option<Reason> {
    let waited_for = if SeededBug::OneParentIsEnough.is_on() { 1 } else { usize::MAX };
    if let Some(parent) = lease.parents.iter().take(waited_for).find(|parent| !has_ended(parent, is_finished)) {
        return Some(Reason::WaitsForParent { parent: parent.clone() });
    }
    let has_all_rows = lease.parents.iter().all(|parent| is_finished.contains_key(parent));
    if has_all_rows || SeededBug::ChildBeforeParent.is_on() {
        return None;
    }
    // The rule below holds once the first sync has made all rows. Before that, a shard may have been merged with one
    // whose row is still on its way.
    if !is_bootstrapped && !is_started(lease) {
        return Some(Reason::FirstSync);
    }
    // A parent without a row may also be one that is still to be made: the other parent of a merge ended first, and this
    // one waits for a shard that both descend from. That shard holds hash keys of this one, and ids rise with creation.
    let holds_its_keys = |older: &&&Lease| {
        let ranges = older.hash_range.zip(lease.hash_range);
        older.key < lease.key && ranges.is_some_and(|(theirs, ours)| theirs.overlaps(ours))
    };
    let older = overlapping.iter().find(holds_its_keys)?;
    Some(Reason::WaitsForParent { parent: older.key.shard_id() })
}

fn is_started(lease: &Lease) -> bool {
    matches!(lease.checkpoint, Checkpoint::At(_) | Checkpoint::ShardEnd)
}

/// All unfinished leases if any two of them hold the same hash keys, which happens only while shards are resharded
/// faster than they are read; else none.
fn overlapping_unfinished(leases: &[ObservedLease]) -> Vec<&Lease> {
    let mut unfinished: Vec<&Lease> =
        leases.iter().map(|observed| &observed.lease).filter(|lease| !lease.is_finished()).collect();
    unfinished.sort_by_key(|lease| lease.hash_range.map(HashKeyRange::start));
    let ranges: Vec<_> = unfinished.iter().filter_map(|lease| lease.hash_range).collect();
    if ranges.windows(2).any(|pair| pair[0].overlaps(pair[1])) { unfinished } else { Vec::new() }
}

/// A parent without a row does not block: it was finished and removed, or was never part of this application (KCL rule).
/// But see [`waits_for`].
fn has_ended(parent: &ShardId, is_finished: &BTreeMap<ShardId, bool>) -> bool {
    SeededBug::ChildBeforeParent.is_on() || is_finished.get(parent).copied().unwrap_or(true)
}

fn own_rank(me: &WorkerId, key: &LeaseKey) -> u64 {
    // The zero byte keeps the two apart: no id of a worker that a host is given has one.
    hash::stable(me.as_str().bytes().chain([0]).chain(key.as_str().bytes()))
}
