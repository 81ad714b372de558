//! ruststream-kinesis (`crates/ruststream-kinesis/src/dynamo.rs`): `lease_key`, `lease_owner`,
//! `lease_expiry` (milliseconds), `lease_counter`, which every write raises, and `checkpoint`.

use super::super::Library;
use super::super::found::{Found, FoundShard, after, shard_id};
use super::super::row_change::{Held, RowChange, row};
use super::super::value::{Row, Value, required, shown, text};
use crate::lease::Checkpoint;
use crate::stream::Shard;

const SHARD: &str = "lease_key";
const OWNER: &str = "lease_owner";
const EXPIRY: &str = "lease_expiry";
const COUNTER: &str = "lease_counter";
const CHECKPOINT: &str = "checkpoint";
/// `SHARD_END` of `src/lease.rs`.
const END: &str = "SHARD_END";

pub(super) fn read(rows: &[Row]) -> Found {
    let mut found = Found::new(Library::Ruststream);
    for row in rows {
        found.add(&shown(row, SHARD), &shown(row, COUNTER), read_row(row));
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

pub(super) fn write(shard: &Shard, held: &Held<'_>) -> Result<RowChange, &'static str> {
    let checkpoint = match held {
        Held::After(sequence) => sequence,
        Held::Finished => END,
        Held::Oldest | Held::Next | Held::AtTime => {
            return Err("it starts a shard without a checkpoint where its subscription says");
        }
    };
    Ok(RowChange {
        key: row([(SHARD, Value::text(shard.id.as_str()))]),
        set: row([(CHECKPOINT, Value::text(checkpoint))]),
        remove: vec![OWNER, EXPIRY],
    })
}
