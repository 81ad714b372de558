//! Opens aggregates: Kinesis records in which a producer packed many user records (the KPL, and
//! libraries like it).
//!
//! ```text
//!   F3 89 9A C2 │ protobuf: tables of keys, user records │ MD5 of the protobuf
//!    4 bytes    │ 1 byte or more                         │ 16 bytes
//! ```
//!
//! (`awslabs/amazon-kinesis-producer:aggregation-format.md`.) A user record has the sequence number
//! of its aggregate, and its index in the aggregate, from 0, as sub-sequence number. The KCL
//! numbers them in the same way, so checkpoints mean the same.
//!
//! Nothing is dropped because it is malformed:
//!
//! | Input | Result |
//! |---|---|
//! | no magic, or too short for a body and its MD5 | a plain record (KCL rule) |
//! | magic, but another MD5 | a plain record (KCL rule), counted: bytes were lost, or it only looks like an aggregate |
//! | the MD5 is right, the protobuf is not | a plain record, counted |
//! | a user record names a key that no table holds, or has no data | the aggregate itself as a plain record, counted: the KCL drops what follows |
//! | larger when opened than [`EXPANDED_BYTES_MAX`] | the same: a few bytes must not cost the host its memory |
//! | no user records | nothing: there is nothing to lose, and the checkpoint of the next record covers it |
//! | an aggregate in an aggregate | a user record like any other: one level is opened (KCL rule) |
//! | user records whose hash keys the shard does not have, as after a reshard | all of them |
//!
//! In the last case the KCL drops the whole aggregate, and relies on the KPL to notice and to put
//! those records again. Other producers do not do that. A record may be delivered twice, but never
//! not at all.

mod wire;

use bytes::Bytes;
use md5::{Digest, Md5};
use prost::Message;

use crate::stream::{Position, Record};
use wire::{AggregatedRecord, FieldCount, UserRecord};

/// The first bytes of every aggregate.
const MAGIC: [u8; 4] = [0xf3, 0x89, 0x9a, 0xc2];
/// The MD5 at its end.
const DIGEST_BYTES: usize = 16;

/// Most bytes that the records of one aggregate may cost, see [`Record::cost_bytes`]. The KPL makes
/// aggregates of up to 1 MiB; one that is larger when opened contains only empty records with long
/// keys. An aggregate of 10 MiB, the most that Kinesis takes, passes if each of its user records
/// has 20 bytes or more.
pub const EXPANDED_BYTES_MAX: usize = 64 << 20;
/// Most entries of an aggregate: keys and records together. The smallest entry has two bytes, so an
/// aggregate of the KPL cannot have more.
const ENTRIES_MAX: usize = 1 << 19;

/// What a Kinesis record turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expansion {
    /// Not an aggregate; the record is unchanged.
    Plain(Record),
    /// The user records, in the producer's order; possibly none. Their data are slices of the
    /// aggregate's data.
    Aggregate(Vec<Record>),
    /// Looks like an aggregate, but cannot be opened; the record is unchanged.
    Damaged(Record, Damage),
}

/// Why an aggregate cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Damage {
    /// The MD5 at its end does not match its bytes.
    #[error("its checksum is wrong")]
    Checksum,
    /// The protobuf is cut off, or is another message.
    #[error("its checksum is right, but it is not an aggregated record")]
    Encoding,
    /// A user record that has no key, names a key that no table holds, or has no data.
    #[error("a user record in it has no key or no data")]
    KeyIndex,
    /// It would be too large when opened.
    #[error(
        "unpacked, it would be larger than {EXPANDED_BYTES_MAX} bytes, or have more than \
            {ENTRIES_MAX} entries"
    )]
    TooLarge,
}

impl Damage {
    /// Every kind of damage, once.
    pub const ALL: [Self; 4] = [
        Self::Checksum,
        Self::Encoding,
        Self::KeyIndex,
        Self::TooLarge,
    ];

    /// The damage's stable name for metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Encoding => "encoding",
            Self::KeyIndex => "key_index",
            Self::TooLarge => "too_large",
        }
    }
}

/// Whether a record may be an aggregate: a cheap check that never misses one.
pub fn may_be_aggregate(record: &Record) -> bool {
    body(&record.data).is_some()
}

/// Opens `record`, if it is an aggregate. What it allocates is bounded by the record's own length.
pub fn expand(record: Record) -> Expansion {
    let Some(body) = body(&record.data) else {
        return Expansion::Plain(record);
    };
    match open(&record, body) {
        Ok(records) => Expansion::Aggregate(records),
        Err(damage) => Expansion::Damaged(record, damage),
    }
}

/// The bytes between magic and MD5; `None` if there are none.
fn body(data: &Bytes) -> Option<Bytes> {
    let end = data.len().checked_sub(DIGEST_BYTES)?;
    (data.starts_with(&MAGIC) && end > MAGIC.len()).then(|| data.slice(MAGIC.len()..end))
}

fn open(record: &Record, body: Bytes) -> Result<Vec<Record>, Damage> {
    if Md5::digest(&body)[..] != record.data[record.data.len() - DIGEST_BYTES..] {
        return Err(Damage::Checksum);
    }
    let FieldCount(entries) = FieldCount::decode(&body[..]).map_err(|_| Damage::Encoding)?;
    if entries > ENTRIES_MAX {
        return Err(Damage::TooLarge);
    }
    let aggregate = AggregatedRecord::decode(body).map_err(|_| Damage::Encoding)?;
    // Checked before any of it is built: the tables are short, but each key is copied as often as
    // it is named.
    if cost_of(&aggregate)? > EXPANDED_BYTES_MAX {
        return Err(Damage::TooLarge);
    }
    let numbered = (0_u64..).zip(&aggregate.records);
    numbered
        .map(|(sub_sequence, user_record)| {
            Ok(Parts::of(user_record, &aggregate)?.record(record, sub_sequence))
        })
        .collect()
}

fn cost_of(aggregate: &AggregatedRecord) -> Result<usize, Damage> {
    let mut cost = 0_usize;
    for user_record in &aggregate.records {
        cost = cost.saturating_add(Parts::of(user_record, aggregate)?.cost_bytes());
    }
    Ok(cost)
}

/// The key that a user record names by its place in a table of the aggregate.
fn key_at(table: &[String], index: u64) -> Result<&str, Damage> {
    usize::try_from(index)
        .ok()
        .and_then(|index| table.get(index))
        .map(String::as_str)
        .ok_or(Damage::KeyIndex)
}

/// A user record with its keys looked up.
struct Parts<'a> {
    data: &'a Bytes,
    partition_key: &'a str,
    explicit_hash_key: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(user_record: &'a UserRecord, aggregate: &'a AggregatedRecord) -> Result<Self, Damage> {
        let partition_key = user_record.partition_key_index.ok_or(Damage::KeyIndex)?;
        let explicit_hash_key = user_record.explicit_hash_key_index;
        Ok(Self {
            data: user_record.data.as_ref().ok_or(Damage::KeyIndex)?,
            partition_key: key_at(&aggregate.partition_keys, partition_key)?,
            explicit_hash_key: explicit_hash_key
                .map(|index| key_at(&aggregate.explicit_hash_keys, index))
                .transpose()?,
        })
    }

    fn cost_bytes(&self) -> usize {
        Record::cost_of(
            self.data.len(),
            self.partition_key.len(),
            self.explicit_hash_key.map_or(0, str::len),
        )
    }

    fn record(&self, aggregate: &Record, sub_sequence: u64) -> Record {
        Record {
            data: self.data.clone(),
            partition_key: self.partition_key.to_owned(),
            explicit_hash_key: self.explicit_hash_key.map(str::to_owned),
            position: Position {
                sequence: aggregate.position.sequence.clone(),
                sub_sequence,
            },
            arrival_ms: aggregate.arrival_ms,
        }
    }
}

#[cfg(test)]
mod tests;
