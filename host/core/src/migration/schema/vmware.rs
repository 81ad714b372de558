//! vmware-go-kcl v1 and v2 (`clientlibrary/checkpoint/checkpointer.go` names the attributes,
//! `dynamodb-checkpointer.go` writes them): `ShardID`, `AssignedTo`, `LeaseTimeout` (RFC 3339),
//! `Checkpoint`, `ParentShardId`, `ClaimRequest`.

use super::super::Library;
use super::super::found::{Found, FoundShard, after, shard_id};
use super::super::row_change::{Held, RowChange, row};
use super::super::value::{Row, Value, required, shown, text};
use crate::lease::Checkpoint;
use crate::stream::Shard;

const SHARD: &str = "ShardID";
const OWNER: &str = "AssignedTo";
const TIMEOUT: &str = "LeaseTimeout";
const CHECKPOINT: &str = "Checkpoint";
const PARENT: &str = "ParentShardId";
const CLAIM: &str = "ClaimRequest";
/// `ShardEnd`, what `Checkpoint(nil)` writes.
const END: &str = "SHARD_END";

pub(super) fn read(rows: &[Row]) -> Found {
    let mut found = Found::new(Library::VmwareGoKcl);
    for row in rows {
        // A worker renews by writing a later timeout, and a checkpoint may come between two
        // renewals.
        let sign = format!("{} {}", shown(row, TIMEOUT), shown(row, CHECKPOINT));
        found.add(&shown(row, SHARD), &sign, read_row(row));
    }
    found
}

fn read_row(row: &Row) -> Result<FoundShard, String> {
    let checkpoint = match text(row, CHECKPOINT)? {
        None => None,
        Some(END) => Some(Checkpoint::ShardEnd),
        Some(number) => Some(after(number)?),
    };
    Ok(FoundShard {
        shard: shard_id(required(row, SHARD)?)?,
        checkpoint,
        owner: text(row, OWNER)?.map(str::to_owned),
    })
}

/// `FetchCheckpoint` starts at the configured position if there is no `Checkpoint`.
pub(super) fn write(shard: &Shard, held: &Held<'_>) -> Result<RowChange, &'static str> {
    let checkpoint = match held {
        Held::After(sequence) => sequence,
        Held::Finished => END,
        Held::Oldest | Held::Next | Held::AtTime => {
            return Err("it starts a shard without a checkpoint at its InitialPositionInStream");
        }
    };
    let mut set = row([(CHECKPOINT, Value::text(checkpoint))]);
    if let Some(parent) = shard.parents.first() {
        set.insert(PARENT.to_owned(), Value::text(parent.as_str()));
    }
    Ok(RowChange {
        key: row([(SHARD, Value::text(shard.id.as_str()))]),
        set,
        remove: vec![OWNER, TIMEOUT, CLAIM],
    })
}
