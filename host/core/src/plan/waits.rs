//! Which shards are read before which: one rule, for the planner and for `explain`.

use std::collections::BTreeMap;

use super::Reason;
use super::cleanup::has_started;
use crate::lease::Lease;
use crate::seeded_bug::SeededBug;
use crate::stream::{HashKeyRange, ShardId};

/// The order of shards by their rows; made once for all of them.
pub(crate) struct ReadingOrder<'a> {
    /// Whether each shard's row is finished.
    is_finished: BTreeMap<ShardId, bool>,
    /// All unfinished leases if any two of them hold the same hash keys, which happens only while
    /// shards are resharded faster than they are read; else none.
    overlapping: Vec<&'a Lease>,
    is_bootstrapped: bool,
}

impl<'a> ReadingOrder<'a> {
    /// From all rows of an application. `is_bootstrapped` is whether the first sync was complete.
    pub(crate) fn of(
        leases: impl Iterator<Item = &'a Lease> + Clone,
        is_bootstrapped: bool,
    ) -> Self {
        let is_finished = leases
            .clone()
            .map(|lease| (lease.key.shard_id(), lease.is_finished()))
            .collect();
        Self {
            is_finished,
            overlapping: overlapping_unfinished(leases),
            is_bootstrapped,
        }
    }

    /// What must come before `lease` may be read: mostly the end of its parents, or of an older
    /// ancestor.
    pub(crate) fn waits_for(&self, lease: &Lease) -> Option<Reason> {
        let waited_for = if SeededBug::OneParentIsEnough.is_on() {
            1
        } else {
            usize::MAX
        };
        let unfinished: Vec<ShardId> = lease
            .parents
            .iter()
            .take(waited_for)
            .filter(|parent| !self.has_ended(parent))
            .cloned()
            .collect();
        if !unfinished.is_empty() {
            return Some(Reason::WaitsForParents {
                parents: unfinished,
            });
        }
        let mut parents = lease.parents.iter();
        let has_all_rows = parents.all(|parent| self.is_finished.contains_key(parent));
        if has_all_rows || SeededBug::ChildBeforeParent.is_on() {
            return None;
        }
        // The rule below holds once the first sync has created all rows. Before that, a shard may
        // have been merged with one whose row is yet to come.
        if !self.is_bootstrapped && !has_started(lease) {
            return Some(Reason::FirstSync);
        }
        let older = self.older_over_same_keys(lease)?.key.shard_id();
        Some(Reason::WaitsForOlder { older })
    }

    /// A parent without a row may be one that is yet to be created: the other parent of a merge
    /// ended first, and this one waits for a shard that both descend from. That shard holds hash
    /// keys of this one, and ids rise with creation.
    fn older_over_same_keys(&self, lease: &Lease) -> Option<&'a Lease> {
        let ours = lease.hash_range?;
        self.overlapping.iter().copied().find(|older| {
            older.key < lease.key && older.hash_range.is_some_and(|theirs| theirs.overlaps(ours))
        })
    }

    /// A parent without a row does not block: it was finished and removed, or was never part of
    /// this application (KCL rule). But see [`ReadingOrder::waits_for`].
    fn has_ended(&self, parent: &ShardId) -> bool {
        SeededBug::ChildBeforeParent.is_on()
            || self.is_finished.get(parent).copied().unwrap_or(true)
    }
}

fn overlapping_unfinished<'a>(leases: impl Iterator<Item = &'a Lease>) -> Vec<&'a Lease> {
    let mut unfinished: Vec<&Lease> = leases.filter(|lease| !lease.is_finished()).collect();
    unfinished.sort_by_key(|lease| lease.hash_range.map(HashKeyRange::start));
    let ranges: Vec<_> = unfinished
        .iter()
        .filter_map(|lease| lease.hash_range)
        .collect();
    if ranges.windows(2).any(|pair| pair[0].overlaps(pair[1])) {
        unfinished
    } else {
        Vec::new()
    }
}
