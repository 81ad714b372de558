//! Phase: free and expired leases, up to the fair share.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{FleetView, ObservedLease, Phase, Plan, PlanLimits, Reason, Step};
use crate::lease::{Standing, WorkerId};
use crate::stream::{LeaseKey, ShardId};

/// Adds takes: first what this worker held before a restart, then free and expired leases up to the fair share.
///
/// In the first pass only half of what is free is taken, so that hosts that start together find each other; a lone
/// host takes the rest in its next pass.
pub(super) fn plan_takes(view: &FleetView<'_>, limits: &PlanLimits, plan: &mut Plan) {
    let fair_share = view.unfinished_count().div_ceil(view.worker_count()).min(limits.max_leases);
    let mut room = fair_share.saturating_sub(view.held_count());
    let finished_or_absent = parent_index(view.leases);

    let mut candidates = Vec::new();
    for observed in view.leases {
        let lease = &observed.lease;
        if observed.is_mine || lease.is_finished() {
            continue;
        }
        let Some(reason) = why_available(observed, view, fair_share) else { continue };
        match lease.parents.iter().find(|parent| !has_ended(parent, &finished_or_absent)) {
            Some(parent) => {
                plan.held_back.push((lease.key.clone(), Reason::WaitsForParent { parent: parent.clone() }));
            }
            None => candidates.push((observed, reason)),
        }
    }
    // Each host has its own order, so that hosts racing for the same leases rarely race for the same one.
    candidates.sort_by_key(|(observed, reason)| {
        (*reason != Reason::HeldBeforeRestart, own_rank(view.me, &observed.lease.key), observed.lease.key.clone())
    });
    let at_start = view.phase == Phase::Start;
    let new_count = candidates.iter().filter(|(_, reason)| *reason != Reason::HeldBeforeRestart).count();
    let mut new_room = if at_start { new_count.div_ceil(2) } else { new_count };
    for (observed, reason) in candidates {
        let is_new = reason != Reason::HeldBeforeRestart;
        let held_back = match (room, is_new && new_room == 0) {
            (0, _) => Some(Reason::HasFairShare { fair_share }),
            (_, true) => Some(Reason::LeftForOthersAtStart),
            (_, false) => None,
        };
        if let Some(held_back) = held_back {
            plan.held_back.push((observed.lease.key.clone(), held_back));
            continue;
        }
        room -= 1;
        new_room -= usize::from(is_new);
        plan.steps.push(Step::Take { seen: Box::new(observed.lease.clone()), reason });
    }
}

fn why_available(observed: &ObservedLease, view: &FleetView<'_>, fair_share: usize) -> Option<Reason> {
    match (&observed.lease.owner, observed.standing) {
        (None, _) => Some(Reason::Free { fair_share }),
        // Only at start: later, a row under our name that we do not hold belongs to a twin with the same id.
        (Some(owner), _) if owner == view.me && view.phase == Phase::Start => Some(Reason::HeldBeforeRestart),
        (Some(owner), Standing::Expired) => Some(Reason::Expired { owner: owner.clone(), fair_share }),
        (Some(_), Standing::Free | Standing::Held) => None,
    }
}

/// Whether each shard's row is finished.
fn parent_index(leases: &[ObservedLease]) -> BTreeMap<ShardId, bool> {
    leases.iter().map(|observed| (observed.lease.key.shard_id(), observed.lease.is_finished())).collect()
}

/// A parent without a row does not block: it was finished and removed, or was never part of this application (KCL rule).
fn has_ended(parent: &ShardId, is_finished: &BTreeMap<ShardId, bool>) -> bool {
    is_finished.get(parent).copied().unwrap_or(true)
}

fn own_rank(me: &WorkerId, key: &LeaseKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    (me.as_str(), key.as_str()).hash(&mut hasher);
    hasher.finish()
}
