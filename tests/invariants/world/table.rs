//! The lease table.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::history::{Checkpoint, Micros, Row, Write, WriteKind};

/// The lease table, and what a row does not say of itself.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: BTreeMap<String, RowFacts>,
    /// When each key got its first row, also if that is gone by now.
    pub(crate) created_at: BTreeMap<String, Micros>,
    /// Shards, by the stream they are of, whose row once said that they have ended.
    pub(crate) ended: BTreeSet<(usize, String)>,
}

/// More than the writes that are on their way while a host gives a lease up.
const RAISES_KEPT: usize = 8;

/// A row, and what it does not say of itself.
#[derive(Debug, Clone)]
pub(crate) struct RowFacts {
    pub(crate) row: Row,
    /// The counter after the last take; `None` before the first, and after an operator changed the
    /// owner.
    pub(crate) epoch: Option<u64>,
    /// When the last take was applied.
    pub(crate) taken_at: Micros,
    /// When the owner's first take was applied, if it has owned the row ever since and took it again
    /// by name: no operator wrote to the row meanwhile.
    pub(crate) held_since: Option<Micros>,
    /// When the row was made.
    pub(crate) made_at: Micros,
    /// When the counter or the owner last changed, the latest first, [`RAISES_KEPT`] of them.
    raises: VecDeque<Micros>,
    /// When its counter got the value that it has.
    pub(crate) counter_at: Micros,
    /// The stream that the checkpoint speaks of.
    pub(crate) checkpoint_generation: usize,
    /// Whether its checkpoint ever was beyond its beginning.
    pub(crate) has_begun: bool,
}

impl Table {
    pub(crate) fn written(&mut self, write: &Write, at: Micros, generation: usize) {
        let Some(after) = &write.after else {
            self.rows.remove(&write.key);
            // An operator who removes a row wants the shard to be read again.
            if write.by.is_none() {
                self.ended.remove(&(generation, write.key.clone()));
            }
            return;
        };
        self.created_at.entry(write.key.clone()).or_insert(at);
        let facts = self
            .rows
            .entry(write.key.clone())
            .or_insert_with(|| RowFacts::fresh(after, at, generation));
        facts.written(write, after, at, generation);
        if after.checkpoint == Checkpoint::End {
            self.ended.insert((generation, write.key.clone()));
        }
    }

    pub(crate) fn row(&self, key: &str) -> Option<&Row> {
        self.rows.get(key).map(|facts| &facts.row)
    }
}

impl RowFacts {
    fn fresh(row: &Row, at: Micros, generation: usize) -> Self {
        Self {
            row: row.clone(),
            epoch: None,
            taken_at: at,
            held_since: None,
            made_at: at,
            raises: VecDeque::from([at]),
            counter_at: at,
            checkpoint_generation: generation,
            has_begun: row.checkpoint != Checkpoint::Initial,
        }
    }

    /// When the counter or the owner changed last.
    pub(crate) fn raised_at(&self) -> Micros {
        self.raises.front().copied().unwrap_or_default()
    }

    /// When they changed last, of what was changed by `moment`.
    pub(crate) fn raised_by(&self, moment: Micros) -> Micros {
        let by_then = self.raises.iter().find(|at| **at <= moment);
        by_then.or(self.raises.back()).copied().unwrap_or_default()
    }

    fn written(&mut self, write: &Write, after: &Row, at: Micros, generation: usize) {
        match write.kind {
            WriteKind::Take { .. } => {
                self.epoch = Some(after.counter);
                self.taken_at = at;
                let is_again = after.owner == self.row.owner;
                self.held_since = self.held_since.filter(|_| is_again).or(Some(at));
            }
            WriteKind::Create => *self = Self::fresh(after, at, generation),
            WriteKind::Admin => {
                self.held_since = None;
                if after.owner != self.row.owner {
                    self.epoch = None;
                }
            }
            _ => {}
        }
        // An operator may name another owner and leave the counter as it was.
        if after.counter != self.row.counter {
            self.counter_at = at;
        }
        // What observers go by.
        if after.counter != self.row.counter || after.owner != self.row.owner {
            self.raises.truncate(RAISES_KEPT - 1);
            self.raises.push_front(at);
        }
        if after.checkpoint != self.row.checkpoint {
            self.checkpoint_generation = generation;
        }
        // Whoever sends it back to its beginning, as it was told to, has read it.
        self.has_begun |= after.checkpoint != Checkpoint::Initial || write.kind == WriteKind::Obey;
        self.row = after.clone();
    }
}
