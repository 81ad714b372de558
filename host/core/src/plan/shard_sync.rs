//! Phase: rows for shards that should have one. Only the leader plans it.

use std::collections::{BTreeMap, BTreeSet};

use super::cleanup::has_started;
use super::{FleetView, NoRow, Plan, PlanLimits, Reason, ShardList, Step};
use crate::lease::{Checkpoint, Lease};
use crate::seeded_bug::SeededBug;
use crate::stream::{Shard, ShardId};

/// Rows and shards by their descent; made once a pass.
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
/// | an ancestor with a row is unfinished | nothing: the host that ends it creates its children's rows |
/// | the nearest ancestors with rows are all finished | create at `TRIM_HORIZON`, whatever is configured |
/// | first sync | create at the initial position |
/// | later, it has parents that have no rows, and an unfinished row covers its hash keys | nothing, until that one is gone |
/// | later, it has parents | create at `TRIM_HORIZON`: part of a lineage whose middle was trimmed |
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
    let lineage = Lineage::of(view, list);
    let rules = StartRules {
        lineage: &lineage,
        before_start: list.before_start,
        is_first_sync: !view.is_bootstrapped,
        initial: Checkpoint::initial(limits.initial_position),
    };
    let mut missing: Vec<&Shard> = list
        .shards
        .iter()
        .filter(|shard| !lineage.rows.contains_key(&shard.id))
        .collect();
    // Ids rise with creation time, so this puts parents first.
    missing.sort_by(|a, b| a.id.cmp(&b.id));
    missing
        .into_iter()
        .map(|shard| (shard, rules.start_of(shard)))
        .collect()
}

/// What decides where a shard starts.
struct StartRules<'a> {
    lineage: &'a Lineage<'a>,
    before_start: Option<&'a BTreeSet<ShardId>>,
    is_first_sync: bool,
    /// Where the application starts.
    initial: Checkpoint,
}

impl StartRules<'_> {
    fn start_of(&self, shard: &Shard) -> Result<(Checkpoint, Reason), NoRow> {
        if !shard.is_open() && !SeededBug::ResurrectsFinishedShards.is_on() {
            self.check_is_to_be_read(shard)?;
        }
        let ancestors = self.lineage.nearest_rows(shard);
        if !ancestors.is_empty() {
            return self.start_after(&ancestors);
        }
        if self.is_first_sync {
            return Ok((self.initial.clone(), Reason::NewShard));
        }
        if shard.parents.is_empty() {
            return Ok((self.initial.clone(), Reason::RowMissing));
        }
        match self.lineage.unfinished_over(shard) {
            Some(covering) => Err(NoRow::CoveredBy {
                covering: covering.clone(),
            }),
            None => Ok((child_start(), Reason::LineageTrimmed)),
        }
    }

    /// A closed shard may have been finished, or closed before the application began.
    fn check_is_to_be_read(&self, shard: &Shard) -> Result<(), NoRow> {
        if let Some(descendant) = self.lineage.started_descendant(shard) {
            return Err(NoRow::WasFinished {
                descendant: descendant.clone(),
            });
        }
        let is_before_start = match self.before_start {
            Some(before_start) => before_start.contains(&shard.id),
            None => self.lineage.has_descendant_at_start(shard),
        };
        if is_before_start && !SeededBug::AncestorsAtOldest.is_on() {
            return Err(NoRow::ClosedBeforeStart);
        }
        Ok(())
    }

    fn start_after(&self, ancestors: &[&Lease]) -> Result<(Checkpoint, Reason), NoRow> {
        let Some(unfinished) = ancestors.iter().find(|lease| !lease.is_finished()) else {
            return Ok((child_start(), Reason::ChildWithoutLease));
        };
        // In a first sync that covers everything from the start, parents and children get their
        // rows together.
        let is_at_start = |lease: &&Lease| lease.checkpoint == self.initial;
        if self.is_first_sync && ancestors.iter().all(is_at_start) {
            return Ok((self.initial.clone(), Reason::NewShard));
        }
        Err(NoRow::AncestorUnfinished {
            ancestor: unfinished.key.shard_id(),
        })
    }
}

fn child_start() -> Checkpoint {
    if SeededBug::ChildFromLatest.is_on() {
        Checkpoint::Latest
    } else {
        Checkpoint::TrimHorizon
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
        let mut descendants = self.descendants(shard).into_iter();
        descendants.find(|id| self.rows.get(*id).is_some_and(|lease| has_started(lease)))
    }

    /// Whether a descendant has a row that is still at `LATEST` or `AT_TIMESTAMP`. Where it is
    /// not known when the application began, that is the evidence: rows are created parents first,
    /// and a finished one stays until its children have started, so the host that created that row
    /// chose not to read what comes before it.
    fn has_descendant_at_start(&self, shard: &Shard) -> bool {
        let descendants = self.descendants(shard);
        let mut rows = descendants.iter().filter_map(|id| self.rows.get(*id));
        rows.any(|lease| {
            matches!(
                lease.checkpoint,
                Checkpoint::Latest | Checkpoint::AtTimestamp
            )
        })
    }

    /// An unfinished row that covers some of the shard's hash keys: its records, or its
    /// descendants', come first. The shard's own descendants do not count; they come after it.
    fn unfinished_over(&self, shard: &Shard) -> Option<&ShardId> {
        let descendants = self.descendants(shard);
        let mut unfinished = self.rows.iter().filter(|(_, lease)| !lease.is_finished());
        let (id, _) = unfinished.find(|(id, lease)| {
            let overlaps = lease
                .hash_range
                .is_some_and(|range| range.overlaps(shard.hash_range));
            overlaps && !descendants.contains(id)
        })?;
        Some(id)
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
