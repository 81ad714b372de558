//! kcl-rb (`lib/kcl/checkpointer.rb`): `shard_id`, `assigned_to`, `lease_timeout` (`Time#to_s`, to
//! the second), `checkpoint`, `parent_shard_id`. A lease is taken again each second that its shard
//! is idle, and never renewed while records flow, so that both columns are signs of life.

use super::super::Library;
use super::super::found::{Found, FoundShard, after, shard_id};
use super::super::row_change::{Held, RowChange, row};
use super::super::value::{Row, Value, required, shown, text};
use crate::lease::Checkpoint;
use crate::stream::Shard;

const SHARD: &str = "shard_id";
const OWNER: &str = "assigned_to";
const TIMEOUT: &str = "lease_timeout";
const CHECKPOINT: &str = "checkpoint";
/// `Kcl::Checkpoints::Sentinel` (`lib/kcl/checkpoints/sentinel.rb`).
const END: &str = "SHARD_END";
const OLDEST: &str = "TRIM_HORIZON";
const NEXT: &str = "LATEST";

pub(super) fn read(rows: &[Row]) -> Found {
    let mut found = Found::new(Library::KclRb);
    for row in rows {
        let sign = format!("{} {}", shown(row, TIMEOUT), shown(row, CHECKPOINT));
        found.add(&shown(row, SHARD), &sign, read_row(row));
    }
    found
}

fn read_row(row: &Row) -> Result<FoundShard, String> {
    let checkpoint = match text(row, CHECKPOINT)? {
        // It has no other start.
        None | Some(OLDEST) => Some(Checkpoint::TrimHorizon),
        Some(NEXT) => Some(Checkpoint::Latest),
        Some(END) => Some(Checkpoint::ShardEnd),
        Some(number) => Some(after(number)?),
    };
    Ok(FoundShard {
        shard: shard_id(required(row, SHARD)?)?,
        checkpoint,
        owner: text(row, OWNER)?.map(str::to_owned),
    })
}

/// `parent_shard_id` is left out: kcl-rb compares it with a number and fails on text.
pub(super) fn write(shard: &Shard, held: &Held<'_>) -> Result<RowChange, &'static str> {
    let mut set = Row::new();
    match held {
        Held::After(sequence) => {
            set.insert(CHECKPOINT.to_owned(), Value::text(*sequence));
        }
        Held::Finished => {
            set.insert(CHECKPOINT.to_owned(), Value::text(END));
        }
        Held::Oldest => {}
        Held::Next | Held::AtTime => return Err("it starts every shard at the oldest record"),
    }
    Ok(RowChange {
        key: row([(SHARD, Value::text(shard.id.as_str()))]),
        set,
        remove: vec![OWNER, TIMEOUT],
    })
}
