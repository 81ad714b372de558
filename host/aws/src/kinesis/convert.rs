//! From the SDK's types to ours. What cannot be read fails the call: a skipped record would be a
//! lost one.

use aws_sdk_kinesis::primitives::DateTime;
use aws_sdk_kinesis::types as sdk;
use shardmill_core::ports::ReadError;
use shardmill_core::stream::{HashKeyRange, Position, Record, SequenceNumber, Shard, ShardId};

pub(super) fn record(record: sdk::Record) -> Result<Record, ReadError> {
    let sequence = SequenceNumber::parse(&record.sequence_number).map_err(unreadable)?;
    let arrived = record.approximate_arrival_timestamp.and_then(nearest_ms);
    Ok(Record {
        data: record.data.into_bytes(),
        // Optional in the API since producers may leave it out; nothing is read from it but text.
        partition_key: record.partition_key.unwrap_or_default(),
        explicit_hash_key: None,
        position: Position::plain(sequence),
        arrival_ms: arrived.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0),
    })
}

pub(super) fn records(records: Vec<sdk::Record>) -> Result<Vec<Record>, ReadError> {
    records.into_iter().map(record).collect()
}

/// The SDK reads a time in JSON as a floating point number and cuts it, which often gives a
/// millisecond too few.
fn nearest_ms(at: DateTime) -> Option<i64> {
    let ms = at.secs().checked_mul(1_000)?;
    ms.checked_add((i64::from(at.subsec_nanos()) + 500_000) / 1_000_000)
}

pub(super) fn shard(shard: sdk::Shard) -> Result<Shard, ReadError> {
    let parents = [shard.parent_shard_id, shard.adjacent_parent_shard_id];
    let ending = shard
        .sequence_number_range
        .and_then(|range| range.ending_sequence_number);
    Ok(Shard {
        parents: parents
            .into_iter()
            .flatten()
            .map(shard_id)
            .collect::<Result<_, _>>()?,
        hash_range: hash_range(&shard.shard_id, shard.hash_key_range.as_ref())?,
        ending_sequence: ending
            .map(|text| SequenceNumber::parse(&text).map_err(unreadable))
            .transpose()?,
        id: shard_id(shard.shard_id)?,
    })
}

/// The shard, and the sequence number that it begins with.
pub(super) fn first_sequence(shard: sdk::Shard) -> Result<(ShardId, SequenceNumber), ReadError> {
    let range = shard.sequence_number_range;
    let range = range.ok_or_else(|| unreadable("a shard without a range of sequence numbers"))?;
    let first = SequenceNumber::parse(&range.starting_sequence_number).map_err(unreadable)?;
    Ok((shard_id(shard.shard_id)?, first))
}

pub(super) fn child_shards(
    children: Option<Vec<sdk::ChildShard>>,
) -> Result<Vec<Shard>, ReadError> {
    children
        .unwrap_or_default()
        .iter()
        .map(child_shard)
        .collect()
}

/// A child as the last reply of its parent shows it: open, as far as that reply can know.
pub(super) fn child_shard(child: &sdk::ChildShard) -> Result<Shard, ReadError> {
    let range = hash_range(&child.shard_id, child.hash_key_range.as_ref())?;
    shardmill_wire::child_shard(&child.shard_id, &child.parent_shards, range).map_err(unreadable)
}

pub(super) fn unreadable(problem: impl std::fmt::Display) -> ReadError {
    ReadError::Unavailable {
        message: format!("unreadable reply: {problem}"),
    }
}

pub(super) fn shard_id(id: String) -> Result<ShardId, ReadError> {
    ShardId::new(id).map_err(unreadable)
}

fn hash_range(shard: &str, range: Option<&sdk::HashKeyRange>) -> Result<HashKeyRange, ReadError> {
    let range =
        range.ok_or_else(|| unreadable(format_args!("shard {shard} has no hash key range")))?;
    HashKeyRange::parse(&range.starting_hash_key, &range.ending_hash_key).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use aws_sdk_kinesis::primitives::Blob;

    use super::*;

    fn sdk_record(sequence: &str) -> sdk::Record {
        sdk::Record::builder()
            .sequence_number(sequence)
            .partition_key("key")
            .data(Blob::new("data"))
            .approximate_arrival_timestamp(DateTime::from_millis(1_500))
            .build()
            .unwrap()
    }

    #[test]
    fn a_record_keeps_its_bytes_key_position_and_arrival() {
        let read = record(sdk_record("42")).unwrap();
        assert_eq!(&read.data[..], b"data");
        assert_eq!(
            (read.partition_key.as_str(), read.arrival_ms),
            ("key", 1_500)
        );
        assert_eq!(
            read.position,
            Position::plain(SequenceNumber::parse("42").unwrap())
        );
    }

    #[test]
    fn a_record_without_a_readable_sequence_number_fails_the_fetch_instead_of_being_dropped() {
        assert!(matches!(
            record(sdk_record("forty-two")),
            Err(ReadError::Unavailable { .. })
        ));
    }

    #[test]
    fn a_shard_without_hash_keys_is_refused() {
        let built = sdk::Shard::builder()
            .shard_id("shardId-000000000000")
            .build()
            .unwrap();
        assert!(matches!(shard(built), Err(ReadError::Unavailable { .. })));
    }
}
