//! Phase: rows for shards that should have one. Leader only.

use std::collections::{BTreeMap, BTreeSet};

use super::cleanup::has_started;
use super::{FleetView, Plan, PlanLimits, Reason, ShardList, Step};
use crate::lease::{Checkpoint, Lease};
use crate::seeded_bug::SeededBug;
use crate::stream::{InitialPosition, Shard, ShardId};

/// What is known of a shard's relatives; made once a pass.
struct Lineage<'a> {
    rows: BTreeMap<ShardId, &'a Lease>,
    by_id: BTreeMap<&'a ShardId, &'a Shard>,
    children: BTreeMap<&'a ShardId, Vec<&'a ShardId>>,
}

/// Adds a create for each shard that needs a row, parents before children.
///
/// | the shard | then |
/// |---|---|
/// | a descendant has started | nothing: it was finished, and its row removed |
/// | an ancestor with a row is unfinished | nothing: whoever ends it creates its children |
/// | the nearest ancestors with rows are all finished | create at `TRIM_HORIZON`, whatever is configured (K10) |
/// | first sync | create at the initial position (with `LATEST`: only if open) |
/// | later, it has parents nobody knows, and an unfinished row covers its hash keys | nothing, until that one is gone |
/// | later, it has parents | create at `TRIM_HORIZON`: part of a lineage whose middle was trimmed (beam#20563) |
/// | later, it has none: its row was deleted by hand | create at the initial position, and say so |
pub(super) fn plan_creates(view: &FleetView<'_>, list: &ShardList<'_>, limits: &PlanLimits, plan: &mut Plan) {
    let lineage = Lineage::of(view, list);
    let mut missing: Vec<&Shard> = list.shards.iter().filter(|shard| !lineage.rows.contains_key(&shard.id)).collect();
    // Ids rise with creation time, so this puts parents first.
    missing.sort_by(|a, b| a.id.cmp(&b.id));
    for shard in missing {
        if let Some((checkpoint, reason)) = start_of(shard, &lineage, list, limits) {
            plan.steps.push(Step::Create { lease: Box::new(Lease::fresh(shard, checkpoint)), reason });
        }
    }
}

fn start_of(
    shard: &Shard,
    lineage: &Lineage<'_>,
    list: &ShardList<'_>,
    limits: &PlanLimits,
) -> Option<(Checkpoint, Reason)> {
    let is_first_sync = !list.is_bootstrapped;
    if !shard.is_open() && lineage.has_started_descendant(shard) && !SeededBug::ResurrectsFinishedShards.is_on() {
        return None;
    }
    let ancestors = lineage.nearest_rows(shard);
    let initial = Checkpoint::initial(limits.initial_position);
    let child_start = if SeededBug::ChildFromLatest.is_on() { Checkpoint::Latest } else { Checkpoint::TrimHorizon };
    if !ancestors.is_empty() {
        let all_finished = ancestors.iter().all(|lease| lease.is_finished());
        // In a first sync that covers everything from the start, parents and children get their rows together.
        let is_first = is_first_sync && ancestors.iter().all(|lease| lease.checkpoint == initial);
        return match (all_finished, is_first) {
            (true, _) => Some((child_start, Reason::ChildWithoutLease)),
            (false, true) => Some((initial, Reason::NewShard)),
            (false, false) => None,
        };
    }
    if is_first_sync {
        let is_wanted = limits.initial_position != InitialPosition::Latest || shard.is_open();
        return is_wanted.then_some((initial, Reason::NewShard));
    }
    if shard.parents.is_empty() {
        return Some((initial, Reason::RowMissing));
    }
    (!lineage.is_covered_by_unfinished(shard)).then_some((child_start, Reason::LineageTrimmed))
}

impl<'a> Lineage<'a> {
    fn of(view: &FleetView<'a>, list: &ShardList<'a>) -> Self {
        let is_gone = |lease: &Lease| list.gone.contains(&lease.key.shard_id());
        let rows = view.leases.iter().map(|observed| &observed.lease).filter(|lease| !is_gone(lease));
        let mut children: BTreeMap<&ShardId, Vec<&ShardId>> = BTreeMap::new();
        for shard in list.shards {
            for parent in &shard.parents {
                children.entry(parent).or_default().push(&shard.id);
            }
        }
        Self {
            rows: rows.map(|lease| (lease.key.shard_id(), lease)).collect(),
            by_id: list.shards.iter().map(|shard| (&shard.id, shard)).collect(),
            children,
        }
    }

    /// The nearest ancestor row on each line of descent.
    fn nearest_rows(&self, shard: &Shard) -> Vec<&'a Lease> {
        let mut found = Vec::new();
        let mut visited = BTreeSet::new();
        let mut open: Vec<ShardId> = shard.parents.clone();
        // Each shard is visited once, so a listing with a cycle of parents ends too.
        while let Some(id) = open.pop() {
            if !visited.insert(id.clone()) {
                continue;
            }
            if let Some(lease) = self.rows.get(&id) {
                found.push(*lease);
            } else if let Some(parent) = self.by_id.get(&id) {
                open.extend(parent.parents.iter().cloned());
            }
        }
        found
    }

    /// Whether a descendant has a row that left its initial position: only then may a finished row have been removed.
    fn has_started_descendant(&self, shard: &Shard) -> bool {
        self.descendants(shard).iter().any(|id| self.rows.get(*id).is_some_and(|lease| has_started(lease)))
    }

    /// Whether an unfinished row covers some of the shard's hash keys: its records, or its descendants', come first.
    /// The shard's own descendants do not count; they come after it.
    fn is_covered_by_unfinished(&self, shard: &Shard) -> bool {
        let descendants = self.descendants(shard);
        let overlaps = |lease: &Lease| {
            lease
                .hash_range
                .is_some_and(|range| range.start() <= shard.hash_range.end() && shard.hash_range.start() <= range.end())
        };
        let mut rows = self.rows.iter().filter(|(id, lease)| !lease.is_finished() && !descendants.contains(id));
        rows.any(|(_, lease)| overlaps(lease))
    }

    fn descendants(&self, shard: &Shard) -> BTreeSet<&ShardId> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&ShardId> = self.children.get(&shard.id).into_iter().flatten().copied().collect();
        while let Some(id) = open.pop() {
            if found.insert(id) {
                open.extend(self.children.get(id).into_iter().flatten().copied());
            }
        }
        found
    }
}
