//! Shards that operators send elsewhere.

use super::{StateBase, TenureKey, World};
use crate::history::{Checkpoint, Row, Wanted, Write, WriteKind};
use crate::policy::GiveUp;

impl World {
    /// A holder did what operators wanted. If they wanted the shard elsewhere, it is there now.
    pub(super) fn obeyed(&mut self, write: &Write) {
        let wanted = self.wanted.get(&write.key);
        let Some(seek) = wanted.and_then(|wanted| wanted.seek.clone()) else {
            return;
        };
        let (Some(before), Some(after)) = (&write.before, &write.after) else {
            return;
        };
        if seek.is_passed(&before.checkpoint) {
            return;
        }
        let generation = self.stream.generation;
        let key: Option<TenureKey> = self.tenure_of_write(write).map(|tenure| tenure.key.clone());
        let shards = &mut self.stream.shards;
        if let Some(shard) = shards.get_mut(&(generation, write.key.clone())) {
            shard.sought(&before.checkpoint, &after.checkpoint);
            // The beginning of a shard may be before that of the application.
            shard.is_interfered |= after.checkpoint == Checkpoint::Initial;
            shard.state = if seek.keeps_state {
                StateBase::Unknown
            } else {
                StateBase::From(after.checkpoint.clone())
            };
        }
        if let Some(tenure) = key.and_then(|key| self.tenures.get_mut(&key)) {
            tenure.sought(&after.checkpoint);
        }
    }

    /// A shard that is halted tries again what may be to be skipped.
    pub(super) fn tries_again(&mut self, shard: &str, wanted: &Wanted) {
        if wanted.skip.is_none() || self.policy.then != Some(GiveUp::Halt) {
            return;
        }
        let tenures = self.tenures.values_mut();
        for tenure in tenures.filter(|tenure| tenure.key.shard == shard) {
            tenure.failures.may_try_again();
        }
    }

    /// From here on, a gap follows something that was read.
    pub(super) fn leaves_sought_place(&mut self, write: &Write) {
        let key = (self.stream.generation, write.key.clone());
        if let Some(shard) = self.stream.shards.get_mut(&key) {
            shard.is_at_sought_place = false;
        }
    }

    /// An operator who sets a row back to its beginning by hand wants what came before it too: rows of
    /// ancestors that had ended and were removed may be made again.
    pub(super) fn forget_ends_above(&mut self, write: &Write) {
        let is_begin = |row: &Option<Row>| {
            row.as_ref()
                .is_some_and(|row| row.checkpoint == Checkpoint::Initial)
        };
        // The beginning that a command sends a shard to is not that of a row set back by hand.
        let is_sought = self
            .stream
            .shard(&write.key)
            .is_some_and(|shard| shard.is_at_sought_place);
        let was_begin = is_begin(&write.before) && !is_sought;
        if write.kind != WriteKind::Admin || !is_begin(&write.after) || was_begin {
            return;
        }
        for ancestor in self.stream.ancestors(&write.key) {
            let key = (self.stream.generation, ancestor);
            if let Some(shard) = self.stream.shards.get_mut(&key) {
                shard.is_interfered = true;
            }
            self.table.ended.remove(&key);
        }
    }
}
