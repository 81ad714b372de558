//! The shards around a shard: those that it waits for, and its parents, children and others on the
//! same hash keys.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cause, Evidence, LeaseStatus};
use crate::lease::Lease;
use crate::plan::ReadingOrder;
use crate::stream::{Shard, ShardId};

/// Most ancestors that are reported: a stream resharded every hour has hundreds in a week, and the
/// nearest ones matter.
const LINEAGE_MAX: usize = 32;

/// A shard that must end first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// How many generations up: 1 is a parent.
    pub depth: usize,
    /// The state of its lease.
    pub status: LeaseStatus,
}

/// A shard that is related to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relative {
    /// How it is related to the shard that was asked about.
    pub relation: Relation,
    /// The id of the relative.
    pub shard: ShardId,
    /// The state of its lease; `None` if it has no row.
    pub status: Option<LeaseStatus>,
}

/// How a shard is related to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// It must end first.
    Parent,
    /// It is read once the other one has ended.
    Child,
    /// Neither of these, but it covers some of the same hash keys and has not ended.
    SameHashKeys,
}

/// Rows and shards by id.
pub(super) struct Rows<'a> {
    pub(super) by_shard: BTreeMap<ShardId, &'a Lease>,
    pub(super) in_stream: BTreeMap<&'a ShardId, &'a Shard>,
    pub(super) order: ReadingOrder<'a>,
}

impl<'a> Rows<'a> {
    pub(super) fn of(evidence: &Evidence<'a>) -> Self {
        let rows = evidence.leases.iter();
        let shards = evidence.shards.map(|list| list.shards).unwrap_or_default();
        Self {
            by_shard: rows.clone().map(|row| (row.key.shard_id(), row)).collect(),
            in_stream: shards.iter().map(|shard| (&shard.id, shard)).collect(),
            order: ReadingOrder::of(rows, evidence.is_bootstrapped),
        }
    }

    /// The shards that must end first according to the causes, and those that these wait for in
    /// turn.
    pub(super) fn lineage(&self, causes: &[Cause], evidence: &Evidence<'_>) -> Vec<Ancestor> {
        let mut found = Vec::new();
        let mut visited = BTreeSet::new();
        let mut generation = waited_for(causes);
        let mut depth = 1;
        while !generation.is_empty() && found.len() < LINEAGE_MAX {
            let mut next = Vec::new();
            for id in generation {
                // Visits each shard once, so that rows with a cycle of parents end too.
                if visited.insert(id.clone())
                    && let Some(row) = self.by_shard.get(&id)
                {
                    let status = evidence.status(row, self);
                    next.extend(waited_for(&status.causes));
                    found.push(Ancestor { depth, status });
                }
            }
            generation = next;
            depth += 1;
        }
        found
    }

    /// Parents first, then children, then the others, each in order of id.
    pub(super) fn relatives(&self, shard: &ShardId, evidence: &Evidence<'_>) -> Vec<Relative> {
        let parents = self.parents(shard);
        let children = self.children(shard);
        let mut beside = self.on_same_hash_keys(shard);
        beside.retain(|id| !parents.contains(id) && !children.contains(id));

        let mut relatives = Vec::new();
        for (relation, shards) in [
            (Relation::Parent, parents),
            (Relation::Child, children),
            (Relation::SameHashKeys, beside),
        ] {
            relatives.extend(shards.into_iter().map(|shard| Relative {
                relation,
                status: self.status(&shard, evidence),
                shard,
            }));
        }
        relatives
    }

    fn status(&self, shard: &ShardId, evidence: &Evidence<'_>) -> Option<LeaseStatus> {
        let row = self.by_shard.get(shard)?;
        Some(evidence.status(row, self))
    }

    /// From its row, or else from the list of Kinesis.
    fn parents(&self, shard: &ShardId) -> BTreeSet<ShardId> {
        let parents = match self.by_shard.get(shard) {
            Some(row) => Some(&row.parents),
            None => self.in_stream.get(shard).map(|listed| &listed.parents),
        };
        parents.into_iter().flatten().cloned().collect()
    }

    /// From its own row, the shard list, or the rows of the children.
    fn children(&self, shard: &ShardId) -> BTreeSet<ShardId> {
        let mut children = BTreeSet::new();
        if let Some(row) = self.by_shard.get(shard) {
            children.extend(row.children.iter().cloned());
        }
        for listed in self.in_stream.values() {
            if listed.parents.contains(shard) {
                children.insert(listed.id.clone());
            }
        }
        for row in self.by_shard.values() {
            if row.parents.contains(shard) {
                children.insert(row.key.shard_id());
            }
        }
        children
    }

    /// Unfinished shards that cover some of its hash keys, in order of id.
    fn on_same_hash_keys(&self, shard: &ShardId) -> BTreeSet<ShardId> {
        let own_row = self.by_shard.get(shard).and_then(|row| row.hash_range);
        let Some(range) = own_row.or(self.in_stream.get(shard).map(|listed| listed.hash_range))
        else {
            return BTreeSet::new();
        };
        let unfinished = self.by_shard.iter().filter(|(_, row)| !row.is_finished());
        unfinished
            .filter(|(id, row)| {
                *id != shard && row.hash_range.is_some_and(|other| range.overlaps(other))
            })
            .map(|(id, _)| id.clone())
            .collect()
    }
}

fn waited_for(causes: &[Cause]) -> Vec<ShardId> {
    causes.iter().flat_map(Cause::waits_for).cloned().collect()
}
