//! Which shards are read before which: one rule, for the planner and for people who ask.

use std::collections::BTreeMap;

use super::Reason;
use super::cleanup::has_started;
use crate::lease::Lease;
use crate::seeded_bug::SeededBug;
use crate::stream::{HashKeyRange, ShardId};

/// What the rows say of the order of shards; made once for all of them.
pub struct ReadingOrder<'a> {
    /// Whether each shard's row is finished.
    is_finished: BTreeMap<ShardId, bool>,
    /// All unfinished leases if any two of them hold the same hash keys, which happens only while
    /// shards are resharded faster than they are read; else none.
    overlapping: Vec<&'a Lease>,
    is_bootstrapped: bool,
}

impl<'a> ReadingOrder<'a> {
    /// Of all rows of an application. `is_bootstrapped` is whether a first sync was complete.
    pub fn of(leases: impl Iterator<Item = &'a Lease> + Clone, is_bootstrapped: bool) -> Self {
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
    pub fn waits_for(&self, lease: &Lease) -> Option<Reason> {
        let waited_for = if SeededBug::OneParentIsEnough.is_on() {
            1
        } else {
            usize::MAX
        };
        let parents = lease
            .parents
            .iter()
            .take(waited_for)
            .filter(|parent| !self.has_ended(parent));
        let parents: Vec<ShardId> = parents.cloned().collect();
        if !parents.is_empty() {
            return Some(Reason::WaitsForParents { parents });
        }
        let has_all_rows = lease
            .parents
            .iter()
            .all(|parent| self.is_finished.contains_key(parent));
        if has_all_rows || SeededBug::ChildBeforeParent.is_on() {
            return None;
        }
        // The rule below holds once the first sync has made all rows. Before that, a shard may have
        // been merged with one whose row is still on its way.
        if !self.is_bootstrapped && !has_started(lease) {
            return Some(Reason::FirstSync);
        }
        // A parent without a row may also be one that is still to be made: the other parent of a
        // merge ended first, and this one waits for a shard that both descend from. That shard
        // holds hash keys of this one, and ids rise with creation.
        let holds_its_keys = |older: &&&Lease| {
            let ranges = older.hash_range.zip(lease.hash_range);
            older.key < lease.key && ranges.is_some_and(|(theirs, ours)| theirs.overlaps(ours))
        };
        let older = self.overlapping.iter().find(holds_its_keys)?;
        Some(Reason::WaitsForOlder {
            older: older.key.shard_id(),
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
