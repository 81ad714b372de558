//! Checkpoints inside an aggregate: libraries that count no user records would skip the rest of it.

use std::collections::BTreeSet;

use anyhow::Context;
use shardmill_core::kpl::{Expansion, expand};
use shardmill_core::lease::Lease;
use shardmill_core::ports::StreamReader;
use shardmill_core::stream::{Position, ReadFrom, ShardId};

/// Reads the record of each checkpoint, and says where user records follow in the same one.
pub(super) async fn of(
    reader: &impl StreamReader,
    leases: &[Lease],
) -> anyhow::Result<BTreeSet<ShardId>> {
    let mut inside = BTreeSet::new();
    for lease in leases {
        let Some(position) = lease.checkpoint.position() else {
            continue;
        };
        let shard = lease.key.shard_id();
        let is_inside = is_inside(reader, &shard, position)
            .await
            .with_context(|| format!("cannot read the record of {shard}'s checkpoint"))?;
        if is_inside {
            inside.insert(shard);
        }
    }
    Ok(inside)
}

/// A record that is gone has nothing left to skip.
async fn is_inside(
    reader: &impl StreamReader,
    shard: &ShardId,
    position: &Position,
) -> anyhow::Result<bool> {
    let from = ReadFrom::AtSequenceNumber(position.sequence.clone());
    let iterator = reader.iterator(shard, &from).await?;
    let fetched = reader.fetch(&iterator, 1).await?;
    let Some(record) = fetched.records.into_iter().next() else {
        return Ok(false);
    };
    if record.position.sequence != position.sequence {
        return Ok(false);
    }
    Ok(match expand(record) {
        Expansion::Aggregate(records) => records
            .last()
            .is_some_and(|last| last.position.sub_sequence > position.sub_sequence),
        Expansion::Plain(_) | Expansion::Damaged(..) => false,
    })
}
