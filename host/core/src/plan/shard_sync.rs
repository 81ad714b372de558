//! Phase: rows for shards that should have one. Leader only.

use std::collections::{BTreeMap, BTreeSet};

use super::cleanup::has_started;
use super::{FleetView, NoRow, Plan, PlanLimits, Reason, ShardList, Step};
use crate::lease::{Checkpoint, Lease};
use crate::seeded_bug::SeededBug;
use crate::stream::{Shard, ShardId};

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
/// | it was closed before the application began, or a descendant's row is at that beginning | nothing of it is to be read |
/// | an ancestor with a row is unfinished | nothing: whoever ends it creates its children |
/// | the nearest ancestors with rows are all finished | create at `TRIM_HORIZON`, whatever is configured (K10) |
/// | first sync | create at the initial position |
/// | later, it has parents nobody knows, and an unfinished row covers its hash keys | nothing, until that one is gone |
/// | later, it has parents | create at `TRIM_HORIZON`: part of a lineage whose middle was trimmed (beam#20563) |
/// | later, it has none: its row was deleted by hand | create at the initial position, and say so |
pub(super) fn plan_creates(
    view: &FleetView<'_>,
    list: &ShardList<'_>,
    limits: &PlanLimits,
    plan: &mut Plan,
) {
    for (shard, missing) in missing_rows(view, list, limits) {
        if let Ok((checkpoint, reason)) = missing {
            plan.steps.push(Step::Create {
                lease: Box::new(Lease::fresh(shard, checkpoint)),
                reason,
            });
        }
    }
}

/// A shard without a row: where it would start and why, or why it gets no row now.
pub type MissingRow<'a> = (&'a Shard, Result<(Checkpoint, Reason), NoRow>);

/// Each shard of the list that has no row, parents first.
pub fn missing_rows<'a>(
    view: &FleetView<'_>,
    list: &ShardList<'a>,
    limits: &PlanLimits,
) -> Vec<MissingRow<'a>> {
    let (lineage, is_first_sync) = (Lineage::of(view, list), !view.is_bootstrapped);
    let mut missing: Vec<&Shard> = list
        .shards
        .iter()
        .filter(|shard| !lineage.rows.contains_key(&shard.id))
        .collect();
    // Ids rise with creation time, so this puts parents first.
    missing.sort_by(|a, b| a.id.cmp(&b.id));
    missing
        .into_iter()
        .map(|shard| {
            (
                shard,
                start_of(shard, &lineage, list.before_start, is_first_sync, limits),
            )
        })
        .collect()
}

fn start_of(
    shard: &Shard,
    lineage: &Lineage<'_>,
    before_start: Option<&BTreeSet<ShardId>>,
    is_first_sync: bool,
    limits: &PlanLimits,
) -> Result<(Checkpoint, Reason), NoRow> {
    if !shard.is_open() && !SeededBug::ResurrectsFinishedShards.is_on() {
        if let Some(descendant) = lineage.started_descendant(shard) {
            return Err(NoRow::WasFinished {
                descendant: descendant.clone(),
            });
        }
        let is_before_start = match before_start {
            Some(before_start) => before_start.contains(&shard.id),
            None => lineage.has_descendant_at_start(shard),
        };
        if is_before_start && !SeededBug::AncestorsAtOldest.is_on() {
            return Err(NoRow::ClosedBeforeStart);
        }
    }
    let ancestors = lineage.nearest_rows(shard);
    let initial = Checkpoint::initial(limits.initial_position);
    let child_start = if SeededBug::ChildFromLatest.is_on() {
        Checkpoint::Latest
    } else {
        Checkpoint::TrimHorizon
    };
    if !ancestors.is_empty() {
        let unfinished = ancestors.iter().find(|lease| !lease.is_finished());
        // In a first sync that covers everything from the start, parents and children get their
        // rows together.
        let is_first = is_first_sync && ancestors.iter().all(|lease| lease.checkpoint == initial);
        return match unfinished {
            None => Ok((child_start, Reason::ChildWithoutLease)),
            Some(_) if is_first => Ok((initial, Reason::NewShard)),
            Some(lease) => Err(NoRow::AncestorUnfinished {
                ancestor: lease.key.shard_id(),
            }),
        };
    }
    if is_first_sync {
        return Ok((initial, Reason::NewShard));
    }
    if shard.parents.is_empty() {
        return Ok((initial, Reason::RowMissing));
    }
    match lineage.unfinished_over(shard) {
        Some(covering) => Err(NoRow::CoveredBy {
            covering: covering.clone(),
        }),
        None => Ok((child_start, Reason::LineageTrimmed)),
    }
}

impl<'a> Lineage<'a> {
    fn of(view: &FleetView<'a>, list: &ShardList<'a>) -> Self {
        let is_gone = |lease: &Lease| list.gone.confirmed.contains(&lease.key.shard_id());
        let rows = view
            .leases
            .iter()
            .map(|observed| &observed.lease)
            .filter(|lease| !is_gone(lease));
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

    /// A descendant that has a row which left its initial position: only then may a finished row
    /// have been removed.
    fn started_descendant(&self, shard: &Shard) -> Option<&'a ShardId> {
        let has_started =
            |id: &&ShardId| self.rows.get(*id).is_some_and(|lease| has_started(lease));
        self.descendants(shard).into_iter().find(has_started)
    }

    /// Whether a descendant has a row that is still at `LATEST` or `AT_TIMESTAMP`. Where nobody
    /// knows when the application began, that is the evidence: rows are made parents first, and a
    /// finished one stays until its children have started, so whoever made that row chose not to
    /// read what comes before it.
    fn has_descendant_at_start(&self, shard: &Shard) -> bool {
        let is_at_start = |lease: &Lease| {
            matches!(
                lease.checkpoint,
                Checkpoint::Latest | Checkpoint::AtTimestamp
            )
        };
        self.descendants(shard)
            .into_iter()
            .any(|id| self.rows.get(id).is_some_and(|lease| is_at_start(lease)))
    }

    /// An unfinished row that covers some of the shard's hash keys: its records, or its
    /// descendants', come first. The shard's own descendants do not count; they come after it.
    fn unfinished_over(&self, shard: &Shard) -> Option<&ShardId> {
        let descendants = self.descendants(shard);
        let overlaps = |lease: &Lease| {
            lease
                .hash_range
                .is_some_and(|range| range.overlaps(shard.hash_range))
        };
        let mut rows = self
            .rows
            .iter()
            .filter(|(id, lease)| !lease.is_finished() && !descendants.contains(id));
        rows.find(|(_, lease)| overlaps(lease)).map(|(id, _)| id)
    }

    fn descendants(&self, shard: &Shard) -> BTreeSet<&'a ShardId> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&'a ShardId> = self
            .children
            .get(&shard.id)
            .into_iter()
            .flatten()
            .copied()
            .collect();
        while let Some(id) = open.pop() {
            if found.insert(id) {
                open.extend(self.children.get(id).into_iter().flatten().copied());
            }
        }
        found
    }
}
