//! lifion-kinesis (`lib/state-store.js`): one item for each `consumerGroup` and `streamName`, with
//! `streamCreatedOn`, and the maps `consumers` (each with a `heartbeat`) and `shards` (each with
//! `checkpoint`, `depleted`, `leaseExpiration`, `leaseOwner`, `parent`, `version`). In standalone
//! mode the shards are inside each consumer, or each enhanced consumer.

use std::collections::BTreeMap;

use super::super::Library;
use super::super::found::{Found, FoundShard, StreamCreated, after, shard_id};
use super::super::row_change::{Held, RowChange, Target, row};
use super::super::value::{Row, Value, map, shown, text};
use crate::lease::Checkpoint;
use crate::stream::Shard;

const GROUP: &str = "consumerGroup";
const STREAM: &str = "streamName";
const CREATED: &str = "streamCreatedOn";
const CONSUMERS: &str = "consumers";
const ENHANCED: &str = "enhancedConsumers";
const SHARDS: &str = "shards";
const VERSION: &str = "version";
const HEARTBEAT: &str = "heartbeat";
const CHECKPOINT: &str = "checkpoint";
/// Whether the shard was read to its end.
const FINISHED: &str = "depleted";
const OWNER: &str = "leaseOwner";
const EXPIRATION: &str = "leaseExpiration";
const PARENT: &str = "parent";

pub(super) fn read(item: &Row) -> Found {
    let mut found = Found::new(Library::Lifion);
    found.group = Some(shown(item, GROUP));
    found.stream = Some(shown(item, STREAM));
    found.stream_created = Some(StreamCreated::IsoMillis(shown(item, CREATED)));
    let empty = Row::new();
    for (id, shard) in map(item, SHARDS).unwrap_or(&empty) {
        let Value::Map(shard) = shard else {
            found.add(id, "", Err("the shard's entry is not a map".to_owned()));
            continue;
        };
        // Every write gives the entry another version.
        found.add(id, &shown(shard, VERSION), read_shard(id, shard));
    }
    let consumers = map(item, CONSUMERS).unwrap_or(&empty);
    for (id, consumer) in consumers {
        if let Value::Map(consumer) = consumer {
            found.register(id, &shown(consumer, HEARTBEAT));
        }
    }
    let alone = has_own_shards(consumers) || map(item, ENHANCED).is_some_and(has_own_shards);
    if alone && found.shards.is_empty() {
        found.obstacle = Some(
            "its consumers are standalone (useAutoShardAssignment is false): each has its \
                own place, and none represents the group"
                .to_owned(),
        );
    }
    found
}

fn has_own_shards(consumers: &Row) -> bool {
    consumers.values().any(|consumer| match consumer {
        Value::Map(consumer) => map(consumer, SHARDS).is_some_and(|shards| !shards.is_empty()),
        _ => false,
    })
}

fn read_shard(id: &str, shard: &Row) -> Result<FoundShard, String> {
    let checkpoint = if shard.get(FINISHED) == Some(&Value::Flag(true)) {
        Some(Checkpoint::ShardEnd)
    } else {
        text(shard, CHECKPOINT)?.map(after).transpose()?
    };
    Ok(FoundShard {
        shard: shard_id(id)?,
        checkpoint,
        owner: text(shard, OWNER)?.map(str::to_owned),
    })
}

/// One entry of the map `shards`, under the shard's id.
pub(super) fn write(shard: &Shard, held: &Held<'_>) -> Result<RowChange, &'static str> {
    let checkpoint = match held {
        Held::After(sequence) => Value::text(*sequence),
        Held::Finished => Value::Null,
        Held::Oldest | Held::Next | Held::AtTime => {
            return Err("it starts a shard without a checkpoint at what comes next");
        }
    };
    let parent = shard.parents.first();
    let entry = row([
        (CHECKPOINT, checkpoint),
        (FINISHED, Value::Flag(*held == Held::Finished)),
        (EXPIRATION, Value::Null),
        (OWNER, Value::Null),
        (
            PARENT,
            parent.map_or(Value::Null, |id| Value::text(id.as_str())),
        ),
        (VERSION, Value::text(format!("exported-{}", shard.id))),
    ]);
    Ok(RowChange {
        key: Row::new(),
        set: BTreeMap::from([(shard.id.as_str().to_owned(), Value::Map(entry))]),
        remove: Vec::new(),
    })
}

/// The item with all entries. A consumer resets it unless `streamCreatedOn` is the stream's
/// (`initStreamState`), to the millisecond.
pub(super) fn item(target: &Target<'_>, entries: Vec<RowChange>) -> RowChange {
    let shards: Row = entries.into_iter().flat_map(|entry| entry.set).collect();
    RowChange {
        key: row([
            (GROUP, Value::text(target.group)),
            (STREAM, Value::text(target.stream.as_str())),
        ]),
        set: row([
            (CONSUMERS, Value::Map(Row::new())),
            (ENHANCED, Value::Map(Row::new())),
            (SHARDS, Value::Map(shards)),
            (
                CREATED,
                Value::text(StreamCreated::iso(target.stream_created_ms)),
            ),
            (VERSION, Value::text(format!("exported-{}", target.wall_ms))),
        ]),
        remove: Vec::new(),
    }
}
