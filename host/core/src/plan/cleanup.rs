//! Phase: rows that are no longer needed. Only the leader plans it.

use std::collections::BTreeMap;

use super::{FleetView, ObservedLease, Plan, PlanLimits, Reason, ShardList, Step};
use crate::lease::{Checkpoint, Lease};
use crate::seeded_bug::SeededBug;
use crate::stream::ShardId;

/// Adds a delete for each row that has been finished for a while, whose children have all started
/// and whose parents' rows are gone (KCL rule), and for each row whose shard Kinesis no longer
/// knows: there is nothing left to read.
pub(super) fn plan_deletes(
    view: &FleetView<'_>,
    list: &ShardList<'_>,
    limits: &PlanLimits,
    plan: &mut Plan,
) {
    let rows: BTreeMap<ShardId, &Lease> = view
        .leases
        .iter()
        .map(|observed| (observed.lease.key.shard_id(), &observed.lease))
        .collect();
    for observed in view.leases {
        if let Some(reason) = why_delete(observed, list, limits, &rows) {
            plan.steps.push(Step::Delete {
                seen: Box::new(observed.lease.clone()),
                reason,
            });
        } else if list.gone.doubtful.contains(&observed.lease.key.shard_id()) {
            plan.held_back
                .push((observed.lease.key.clone(), Reason::GoneAfterNextListing));
        }
    }
}

fn why_delete(
    observed: &ObservedLease,
    list: &ShardList<'_>,
    limits: &PlanLimits,
    rows: &BTreeMap<ShardId, &Lease>,
) -> Option<Reason> {
    let lease = &observed.lease;
    if list.gone.confirmed.contains(&lease.key.shard_id()) {
        return Some(Reason::ShardGone {
            checkpoint: lease.checkpoint.clone(),
        });
    }
    let has_parent_row = lease.parents.iter().any(|parent| rows.contains_key(parent));
    if !lease.is_finished() || has_parent_row && !SeededBug::DeletesBeforeParents.is_on() {
        return None;
    }
    if observed.finished_for < limits.finished_rows_stay {
        return None;
    }
    // A finished shard always has children, unless the stream was deleted meanwhile; then its row
    // stays until the shard is gone.
    let have_started = !lease.children.is_empty()
        && lease.children.iter().all(|child| {
            rows.get(child).is_some_and(|child| has_started(child))
                || SeededBug::DeletesBeforeChildrenStart.is_on()
        });
    have_started.then_some(Reason::ChildrenStarted)
}

/// Whether reading has left the initial position. Operators send elsewhere only what has a holder,
/// whose parents have ended.
pub(super) fn has_started(lease: &Lease) -> bool {
    match lease.checkpoint {
        Checkpoint::At(_) | Checkpoint::ShardEnd | Checkpoint::Sought(_) => true,
        Checkpoint::TrimHorizon | Checkpoint::Latest | Checkpoint::AtTimestamp => false,
    }
}
