//! What retention takes.

use shardmill_core::stream::{SequenceNumber, ShardId};

use super::{FakeShard, FakeStream, State};

impl FakeStream {
    /// Forgets the oldest `records` of a shard, as retention does.
    pub fn trim(&self, shard: &ShardId, records: usize) {
        let mut state = self.state();
        let shard = state.find_mut(shard);
        shard.horizon = (shard.horizon + records).min(shard.records.len());
    }

    /// Forgets what arrived before `since_ms`, and the closed shards that were closed before and
    /// are empty by that, as retention does: each such shard, with the last record it lost, or
    /// `None` if it is gone itself.
    pub fn trim_before(&self, since_ms: u64) -> Vec<(ShardId, Option<SequenceNumber>)> {
        let mut state = self.state();
        let mut trimmed = Vec::new();
        for kept in &mut state.shards {
            let horizon = kept
                .records
                .partition_point(|record| record.arrival_ms < since_ms);
            if kept
                .closed_at_ms
                .is_some_and(|closed_at_ms| closed_at_ms < since_ms)
            {
                trimmed.push((kept.shard.id.clone(), None));
            } else if horizon > kept.horizon {
                kept.horizon = horizon;
                let last = kept.records[horizon - 1].position.sequence.clone();
                trimmed.push((kept.shard.id.clone(), Some(last)));
            }
        }
        let is_gone = |kept: &FakeShard| {
            trimmed
                .iter()
                .any(|(id, last)| *id == kept.shard.id && last.is_none())
        };
        state.shards.retain(|kept| !is_gone(kept));
        trimmed
    }

    /// The ids of shards that are open, or were closed at `since_ms` or later.
    pub fn shards_since(&self, since_ms: u64) -> Vec<ShardId> {
        self.state()
            .since(since_ms)
            .map(|kept| kept.shard.id.clone())
            .collect()
    }

    /// Forgets a shard and all about it, as Kinesis does once a closed shard's records have
    /// expired.
    pub fn forget_shard(&self, shard: &ShardId) {
        self.state().shards.retain(|kept| kept.shard.id != *shard);
    }
}

impl State {
    pub(super) fn since(&self, since_ms: u64) -> impl Iterator<Item = &FakeShard> {
        let is_since = move |kept: &&FakeShard| {
            kept.closed_at_ms
                .is_none_or(|closed_at_ms| closed_at_ms >= since_ms)
        };
        self.shards.iter().filter(is_since)
    }
}
