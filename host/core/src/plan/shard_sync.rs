//! Phase: rows for shards that should have one.

use std::collections::{BTreeMap, BTreeSet};

use super::{FleetView, Plan, PlanLimits, Reason, Step};
use crate::lease::{Checkpoint, Lease};
use crate::stream::{InitialPosition, Shard, ShardId};

/// Adds a create for each shard that needs a row, parents before children.
///
/// | the shard's ancestors | then |
/// |---|---|
/// | none has a row | create at the initial position (with `LATEST`: only if open) |
/// | the nearest ones with rows are all finished | create at `TRIM_HORIZON`, whatever is configured (K10) |
/// | one with a row is unfinished | nothing: whoever ends it creates its children |
pub(super) fn plan_creates(view: &FleetView<'_>, limits: &PlanLimits, plan: &mut Plan) {
    let Some(shards) = view.shards else { return };
    let rows: BTreeMap<ShardId, &Lease> =
        view.leases.iter().map(|observed| (observed.lease.key.shard_id(), &observed.lease)).collect();
    let by_id: BTreeMap<&ShardId, &Shard> = shards.iter().map(|shard| (&shard.id, shard)).collect();
    let mut missing: Vec<&Shard> = shards.iter().filter(|shard| !rows.contains_key(&shard.id)).collect();
    // Ids rise with creation time, so this puts parents first.
    missing.sort_by(|a, b| a.id.cmp(&b.id));
    for shard in missing {
        let ancestors = nearest_rows(shard, &rows, &by_id);
        let (checkpoint, reason) = if ancestors.is_empty() {
            if limits.initial_position == InitialPosition::Latest && !shard.is_open() {
                continue;
            }
            (Checkpoint::initial(limits.initial_position), Reason::NewShard)
        } else if ancestors.iter().all(|lease| lease.is_finished()) {
            (Checkpoint::TrimHorizon, Reason::ChildWithoutLease)
        } else {
            continue;
        };
        plan.steps.push(Step::Create { lease: Box::new(Lease::fresh(shard, checkpoint)), reason });
    }
}

/// The nearest ancestor row on each line of descent.
fn nearest_rows<'a>(
    shard: &Shard,
    rows: &BTreeMap<ShardId, &'a Lease>,
    by_id: &BTreeMap<&ShardId, &Shard>,
) -> Vec<&'a Lease> {
    let mut found = Vec::new();
    let mut visited = BTreeSet::new();
    let mut open: Vec<ShardId> = shard.parents.clone();
    // Each shard is visited once, so a listing with a cycle of parents ends too.
    while let Some(id) = open.pop() {
        if !visited.insert(id.clone()) {
            continue;
        }
        if let Some(lease) = rows.get(&id) {
            found.push(*lease);
        } else if let Some(parent) = by_id.get(&id) {
            open.extend(parent.parents.iter().cloned());
        }
    }
    found
}
