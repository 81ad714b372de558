//! Leases that no host reads, though one could.

use std::collections::BTreeMap;

use super::fleet::Roster;
use super::take::available;
use super::{FleetView, ObservedLease, PlanLimits};
use crate::lease::{Availability, WorkerId};

/// How many leases no host took for [`PlanLimits::overdue_after`], though they need not wait for a
/// shard to end. Their records wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unowned {
    /// Those that the live hosts have room for, and do not take or do not keep.
    pub not_taken: usize,
    /// Those beyond what all live hosts together may hold (`leases.max`).
    pub above_max: usize,
}

/// Counts them, for a host that sees all rows and all workers.
pub fn unowned(view: &FleetView<'_>, limits: &PlanLimits) -> Unowned {
    let is_overdue = |observed: &ObservedLease| observed.idle_for > limits.overdue_after;
    if !view.leases.iter().any(is_overdue) {
        return Unowned::default();
    }
    let roster = Roster::of(view, limits);
    let (candidates, _) = available(view, &[], &roster, limits);
    let overdue = candidates
        .iter()
        .filter(|(lease, _)| is_overdue(lease))
        .count();
    let above_max = overdue.saturating_sub(room(view, &roster));
    Unowned {
        not_taken: overdue - above_max,
        above_max,
    }
}

/// How many more leases the live hosts may hold.
fn room(view: &FleetView<'_>, roster: &Roster<'_>) -> usize {
    let mut held: BTreeMap<&WorkerId, usize> = BTreeMap::new();
    for observed in view.leases.iter().filter(|one| is_held(one)) {
        if let Some(owner) = &observed.lease.owner {
            *held.entry(owner).or_default() += 1;
        }
    }
    let free = roster
        .caps
        .iter()
        .map(|(worker, cap)| cap.saturating_sub(held.get(worker).copied().unwrap_or_default()));
    free.fold(0, usize::saturating_add)
}

fn is_held(observed: &ObservedLease) -> bool {
    observed.availability == Availability::Held && !observed.lease.is_finished()
}
