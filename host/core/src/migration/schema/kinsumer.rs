//! kinsumer (`checkpoints.go`, `clients.go`): `APPLICATION_checkpoints` has `Shard`,
//! `SequenceNumber`, `LastUpdate` (nanoseconds), `OwnerID`, `OwnerName`, `Finished`;
//! `APPLICATION_clients` has `ID`, `Name`, `LastUpdate`. Pointers that are nil are written as NULL,
//! and `release` writes an empty `SequenceNumber`.

use super::super::Library;
use super::super::found::{Found, FoundShard, after, shard_id};
use super::super::row_change::{Held, RowChange, Target, row};
use super::super::value::{Row, Value, has_number, required, shown, text};
use crate::lease::Checkpoint;
use crate::stream::{Shard, Utc};

const SHARD: &str = "Shard";
const SEQUENCE: &str = "SequenceNumber";
const OWNER: &str = "OwnerID";
const OWNER_NAME: &str = "OwnerName";
const UPDATED: &str = "LastUpdate";
const UPDATED_RFC: &str = "LastUpdateRFC";
const FINISHED: &str = "Finished";
const FINISHED_RFC: &str = "FinishedRFC";
const CLIENT: &str = "ID";
/// The word that `getShardIterator` (`shard_consumer.go`) takes instead of a number.
const NEXT: &str = "LATEST";

pub(super) fn read(rows: &[Row], clients: &[Row]) -> Found {
    let mut found = Found::new(Library::Kinsumer);
    for row in rows {
        found.add(&shown(row, SHARD), &shown(row, UPDATED), read_row(row));
    }
    for client in clients {
        found.register(&shown(client, CLIENT), &shown(client, UPDATED));
    }
    found
}

fn read_row(row: &Row) -> Result<FoundShard, String> {
    let checkpoint = match text(row, SEQUENCE)? {
        _ if has_number(row, FINISHED) => Some(Checkpoint::ShardEnd),
        // Without a number it starts at the oldest record, whatever the shard.
        None => Some(Checkpoint::TrimHorizon),
        Some(NEXT) => Some(Checkpoint::Latest),
        Some(number) => Some(after(number)?),
    };
    Ok(FoundShard {
        shard: shard_id(required(row, SHARD)?)?,
        checkpoint,
        owner: text(row, OWNER)?.map(str::to_owned),
    })
}

pub(super) fn write(
    target: &Target<'_>,
    shard: &Shard,
    held: &Held<'_>,
) -> Result<RowChange, &'static str> {
    const NANOS_PER_MILLI: u128 = 1_000_000;
    let sequence = match held {
        Held::After(sequence) => Value::text(*sequence),
        Held::Finished | Held::Oldest => Value::Null,
        Held::Next => Value::text(NEXT),
        Held::AtTime => return Err("it knows no start at a time"),
    };
    let now = Value::number(u128::from(target.wall_ms) * NANOS_PER_MILLI);
    let now_rfc = Value::text(Utc(target.wall_ms).to_string());
    let mut set = row([
        (SEQUENCE, sequence),
        (UPDATED, now.clone()),
        (UPDATED_RFC, now_rfc.clone()),
    ]);
    let mut remove = vec![OWNER, OWNER_NAME];
    if *held == Held::Finished {
        set.extend(row([(FINISHED, now), (FINISHED_RFC, now_rfc)]));
    } else {
        remove.extend([FINISHED, FINISHED_RFC]);
    }
    Ok(RowChange {
        key: row([(SHARD, Value::text(shard.id.as_str()))]),
        set,
        remove,
    })
}
