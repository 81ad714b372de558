//! The KCL in multi-stream mode (`DynamoDBMultiStreamLeaseSerializer.java`): lease rows under
//! `ACCOUNT:STREAM:CREATED:SHARD`, with `streamName` (the first three) and `shardId` beside them.

use std::collections::BTreeMap;

use super::super::Library;
use super::super::found::{Found, FoundShard, StreamCreated};
use super::super::row_change::{RowChange, Target, row};
use super::super::value::Value;
use crate::lease::{Checkpoint, Lease};
use crate::stream::Shard;

/// The places in a lease table, one for each stream; none in a table of one stream.
pub fn of_multi_stream(leases: &[Lease]) -> Vec<Found> {
    let mut streams: BTreeMap<&str, Found> = BTreeMap::new();
    for lease in leases {
        let Some(prefix) = lease.key.stream_prefix() else {
            continue;
        };
        let found = streams.entry(prefix).or_insert_with(|| of_stream(prefix));
        let shard = FoundShard {
            shard: lease.key.shard_id(),
            checkpoint: Some(lease.checkpoint.clone()),
            owner: lease.owner.as_ref().map(|owner| owner.as_str().to_owned()),
        };
        found.add(lease.key.as_str(), &lease.counter.to_string(), Ok(shard));
    }
    streams.into_values().collect()
}

fn of_stream(prefix: &str) -> Found {
    let mut found = Found::new(Library::KclMultiStream);
    let parts: Vec<&str> = prefix.split(':').collect();
    match parts[..] {
        [_account, stream, created] => {
            found.stream = Some(stream.to_owned());
            found.stream_created = created.parse().ok().map(StreamCreated::Seconds);
        }
        _ => found.stream = Some(prefix.to_owned()),
    }
    found
}

/// A whole row, unowned, as `DynamoDBLeaseRefresher.createLeaseIfNotExists` makes it.
pub(super) fn write(target: &Target<'_>, shard: &Shard, checkpoint: &Checkpoint) -> RowChange {
    const MILLIS: u64 = 1_000;
    let stream = format!(
        "{}:{}:{}",
        target.account,
        target.stream,
        target.stream_created_ms / MILLIS
    );
    let range = shard.hash_range;
    let mut set = row([
        ("streamName", Value::text(stream.as_str())),
        ("shardId", Value::text(shard.id.as_str())),
        ("leaseCounter", Value::number(0)),
        ("ownerSwitchesSinceCheckpoint", Value::number(0)),
        ("checkpoint", Value::text(checkpoint.text())),
        (
            "checkpointSubSequenceNumber",
            Value::number(checkpoint.sub_sequence()),
        ),
        ("startingHashKey", Value::text(range.start().to_string())),
        ("endingHashKey", Value::text(range.end().to_string())),
    ]);
    if !shard.parents.is_empty() {
        let parents = shard.parents.iter().map(|id| id.as_str().to_owned());
        set.insert("parentShardId".to_owned(), Value::Texts(parents.collect()));
    }
    RowChange {
        key: row([("leaseKey", Value::text(format!("{stream}:{}", shard.id)))]),
        set,
        remove: vec!["leaseOwner"],
    }
}
