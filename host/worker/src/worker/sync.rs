//! A sync: what the leader makes rows for.

use std::collections::BTreeSet;

use shardmill_core::plan::{GoneShards, ShardList};
use shardmill_core::stream::{Shard, ShardId};
use shardmill_core::time::Moment;

use super::run::Run;

/// A complete listing, and what follows from it.
pub(super) struct Sync {
    /// Before the listing.
    pub(super) asked_at: Moment,
    pub(super) shards: Vec<Shard>,
    pub(super) gone: GoneShards,
    /// Shards that were closed before the application began, as far as they were asked about;
    /// `None` if that cannot be known.
    pub(super) before_start: Option<BTreeSet<ShardId>>,
    /// Whether nothing more can be learned of them.
    pub(super) knows_before_start: bool,
}

impl Sync {
    pub(super) fn shard_list(&self) -> ShardList<'_> {
        ShardList {
            shards: &self.shards,
            gone: &self.gone,
            before_start: self.before_start.as_ref(),
        }
    }

    /// Whether more can be learned of shards that were closed before the application began.
    pub(super) fn can_ask_before_start(&self) -> bool {
        !self.knows_before_start
    }

    pub(super) fn closed_shards(&self) -> BTreeSet<&ShardId> {
        let closed = self.shards.iter().filter(|shard| !shard.is_open());
        closed.map(|shard| &shard.id).collect()
    }

    /// Whether the listing took so long that another host may have led since.
    pub(super) fn has_aged(&self, run: &Run) -> bool {
        run.now().since(self.asked_at) > run.lease_duration() / 3
    }
}
