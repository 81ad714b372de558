//! Whether an application has handled what was put into its streams.

use std::collections::BTreeMap;

use shardmill_core::lease::{Checkpoint, Lease};
use shardmill_core::stream::{SequenceNumber, ShardId};

/// Whether the table shows every record up to `last` as settled.
pub(crate) fn is_checkpointed(leases: &[Lease], last: &BTreeMap<ShardId, SequenceNumber>) -> bool {
    last.iter().all(|(shard, last)| {
        let lease = leases.iter().find(|lease| lease.key.shard_id() == *shard);
        lease.is_some_and(|lease| match &lease.checkpoint {
            Checkpoint::ShardEnd => true,
            Checkpoint::At(position) => position.sequence >= *last,
            Checkpoint::TrimHorizon
            | Checkpoint::Latest
            | Checkpoint::AtTimestamp
            | Checkpoint::Sought(_) => false,
        })
    })
}
