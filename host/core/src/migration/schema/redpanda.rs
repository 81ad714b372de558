//! Redpanda Connect's input `aws_kinesis` (`internal/impl/aws/kinesis/input_checkpointer.go`):
//! `StreamID` (a name or an ARN, as configured) and `ShardID`, with `ClientID`, `LeaseTimeout`
//! (RFC 3339) and `SequenceNumber`. A finished shard's row is deleted.

use std::collections::BTreeMap;

use super::super::Library;
use super::super::found::{Found, FoundShard, after, shard_id};
use super::super::row_change::{Held, RowChange, Target, row};
use super::super::value::{Row, Value, required, shown, text};
use crate::stream::Shard;

const STREAM: &str = "StreamID";
const SHARD: &str = "ShardID";
const OWNER: &str = "ClientID";
const TIMEOUT: &str = "LeaseTimeout";
const SEQUENCE: &str = "SequenceNumber";

/// One place for each stream: an input that names a stream by ARN and one that names it by name
/// have two.
pub(super) fn read(rows: &[Row]) -> Vec<Found> {
    let mut streams: BTreeMap<String, Found> = BTreeMap::new();
    for row in rows {
        let stream = shown(row, STREAM);
        let found = streams.entry(stream.clone()).or_insert_with(|| Found {
            stream: Some(stream),
            ..Found::new(Library::Redpanda)
        });
        // The timeout changes with each commit, every five seconds, with or without records.
        let sign = format!("{} {}", shown(row, TIMEOUT), shown(row, SEQUENCE));
        found.add(&shown(row, SHARD), &sign, read_row(row));
    }
    streams.into_values().collect()
}

fn read_row(row: &Row) -> Result<FoundShard, String> {
    Ok(FoundShard {
        shard: shard_id(required(row, SHARD)?)?,
        checkpoint: text(row, SEQUENCE)?.map(after).transpose()?,
        owner: text(row, OWNER)?.map(str::to_owned),
    })
}

pub(super) fn write(
    target: &Target<'_>,
    shard: &Shard,
    held: &Held<'_>,
) -> Result<Option<RowChange>, &'static str> {
    let sequence = match held {
        Held::After(sequence) => *sequence,
        // It ignores closed shards that have no row.
        Held::Finished => return Ok(None),
        Held::Oldest | Held::Next | Held::AtTime => {
            return Err("it starts a shard without a row as start_from_oldest says");
        }
    };
    Ok(Some(RowChange {
        key: row([
            (STREAM, Value::text(target.stream.as_str())),
            (SHARD, Value::text(shard.id.as_str())),
        ]),
        set: row([(SEQUENCE, Value::text(sequence))]),
        remove: vec![OWNER, TIMEOUT],
    }))
}
