//! `ShardFilter` of `ListShards`, which the emulator ignores and the KCL starts with: on an empty
//! table it asks for the shards that were open at its initial position, and refuses a listing that
//! covers a hash key twice.

use std::collections::BTreeSet;
use std::fmt;

use ferrokinesis::sequence::parse_sequence;
use ferrokinesis::types::{Shard, Stream};
use serde_json::{Map, Value, json};

/// Creation times are whole seconds here: a shard is known to exist only this long after what its
/// number says.
const GRAIN_MS: u64 = 1_000;

/// Which shards a listing asks for; `AFTER_SHARD_ID` is not a filter but a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShardFilter {
    AtLatest,
    AtTrimHorizon,
    FromTrimHorizon,
    /// Milliseconds since the epoch.
    At(u64),
    /// Milliseconds since the epoch.
    From(u64),
}

impl ShardFilter {
    /// Takes the filter out of a request. What Kinesis would refuse is left in, for the emulator to
    /// judge.
    pub(super) fn take(request: &mut Map<String, Value>) -> Option<Self> {
        let filter = request.get("ShardFilter")?;
        let timestamp = || {
            filter
                .get("Timestamp")
                .and_then(Value::as_f64)
                .map(to_millis)
        };
        let found = match filter.get("Type")?.as_str()? {
            "AT_LATEST" => Some(Self::AtLatest),
            "AT_TRIM_HORIZON" => Some(Self::AtTrimHorizon),
            "FROM_TRIM_HORIZON" => Some(Self::FromTrimHorizon),
            "AT_TIMESTAMP" => Some(Self::At(timestamp()?)),
            "FROM_TIMESTAMP" => Some(Self::From(timestamp()?)),
            "AFTER_SHARD_ID" => {
                let after = json!(filter.get("ShardId")?.as_str()?);
                request.insert("ExclusiveStartShardId".to_owned(), after);
                None
            }
            _ => return None,
        };
        request.remove("ShardFilter");
        found
    }

    /// Reads what [`fmt::Display`] wrote, in a listing's token.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None => match text {
                "latest" => Some(Self::AtLatest),
                "at-horizon" => Some(Self::AtTrimHorizon),
                "from-horizon" => Some(Self::FromTrimHorizon),
                _ => None,
            },
            Some(("at", millis)) => millis.parse().ok().map(Self::At),
            Some(("from", millis)) => millis.parse().ok().map(Self::From),
            Some(_) => None,
        }
    }

    /// The ids of the shards that pass.
    pub(super) fn pass(self, stream: &Stream, now_ms: u64) -> BTreeSet<String> {
        let retention_ms = u64::from(stream.retention_period_hours) * 3_600_000;
        let horizon = now_ms.saturating_sub(retention_ms);
        stream
            .shards
            .iter()
            .filter(|shard| self.passes(stream, shard, horizon))
            .map(|shard| shard.shard_id.clone())
            .collect()
    }

    fn passes(self, stream: &Stream, shard: &Shard, horizon: u64) -> bool {
        match self {
            Self::AtLatest => shard.sequence_number_range.ending_sequence_number.is_none(),
            Self::AtTrimHorizon => was_open(stream, shard, horizon),
            Self::FromTrimHorizon => !was_closed(stream, &shard.shard_id, horizon),
            Self::At(time) => was_open(stream, shard, time),
            Self::From(time) => !was_closed(stream, &shard.shard_id, time),
        }
    }
}

impl fmt::Display for ShardFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLatest => f.write_str("latest"),
            Self::AtTrimHorizon => f.write_str("at-horizon"),
            Self::FromTrimHorizon => f.write_str("from-horizon"),
            Self::At(millis) => write!(f, "at:{millis}"),
            Self::From(millis) => write!(f, "from:{millis}"),
        }
    }
}

/// Exactly one shard of each line of descent was open at a time: the first whose children did not
/// yet exist. So every hash key is covered once, also at a time before the stream, which the first
/// shards represent.
fn was_open(stream: &Stream, shard: &Shard, at_ms: u64) -> bool {
    parents(shard).all(|parent| was_closed(stream, parent, at_ms))
        && !was_closed(stream, &shard.shard_id, at_ms)
}

/// In doubt it was still open: reading its records again is allowed, losing them is not.
fn was_closed(stream: &Stream, id: &str, at_ms: u64) -> bool {
    let mut children = stream
        .shards
        .iter()
        .filter(|shard| parents(shard).any(|parent| parent == id));
    children.any(|child| created_ms(child).is_some_and(|created| created + GRAIN_MS <= at_ms))
}

fn parents(shard: &Shard) -> impl Iterator<Item = &str> {
    [&shard.parent_shard_id, &shard.adjacent_parent_shard_id]
        .into_iter()
        .flatten()
        .map(String::as_str)
}

fn created_ms(shard: &Shard) -> Option<u64> {
    parse_sequence(&shard.sequence_number_range.starting_sequence_number)
        .ok()
        .map(|number| number.shard_create_time)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float saturates, which is what is meant"
)]
fn to_millis(seconds: f64) -> u64 {
    (seconds * 1_000.0) as u64
}

#[cfg(test)]
mod tests {
    use ferrokinesis::sequence::stringify_sequence;

    use super::*;

    /// Two shards at second 100, the first one split at second 200, and its left child at 300.
    fn stream() -> Stream {
        let shard = |index: i64, second: u64, parent: Option<&str>, is_open: bool| {
            let number = ferrokinesis::sequence::SeqObj {
                shard_create_time: second * 1_000,
                seq_ix: Some(0),
                byte1: None,
                seq_time: Some(second * 1_000),
                seq_rand: None,
                shard_ix: index,
                version: 2,
            };
            let number = stringify_sequence(&number);
            json!({
                "ShardId": format!("shardId-{index:012}"),
                "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
                "SequenceNumberRange": {
                    "StartingSequenceNumber": number,
                    "EndingSequenceNumber": (!is_open).then_some(&number),
                },
                "ParentShardId": parent,
            })
        };
        let first = Some("shardId-000000000000");
        let shards = [
            shard(0, 100, None, false),
            shard(1, 100, None, true),
            shard(2, 200, first, false),
            shard(3, 200, first, true),
            shard(4, 300, Some("shardId-000000000002"), true),
        ];
        serde_json::from_value(json!({
            "RetentionPeriodHours": 24, "EnhancedMonitoring": [], "EncryptionType": "NONE", "HasMoreShards": false,
            "Shards": shards, "StreamARN": "arn", "StreamName": "s", "StreamStatus": "ACTIVE",
            "StreamCreationTimestamp": 100.0, "StreamModeDetails": {"StreamMode": "PROVISIONED"},
        }))
        .unwrap()
    }

    fn passing(filter: ShardFilter, now_s: u64) -> Vec<u64> {
        let ids = filter.pass(&stream(), now_s * 1_000);
        ids.iter()
            .map(|id| id.trim_start_matches("shardId-").parse().unwrap())
            .collect()
    }

    #[test]
    fn each_filter_passes_what_kinesis_would_name() {
        const DAY: u64 = 86_400;
        for (filter, now, expected) in [
            (ShardFilter::AtLatest, 1_000, vec![1, 3, 4]),
            (ShardFilter::AtTrimHorizon, 1_000, vec![0, 1]),
            (ShardFilter::AtTrimHorizon, DAY + 250, vec![1, 2, 3]),
            (ShardFilter::AtTrimHorizon, DAY + 1_000, vec![1, 3, 4]),
            (ShardFilter::FromTrimHorizon, 1_000, vec![0, 1, 2, 3, 4]),
            (ShardFilter::FromTrimHorizon, DAY + 250, vec![1, 2, 3, 4]),
            (ShardFilter::At(0), 1_000, vec![0, 1]),
            (ShardFilter::At(250_000), 1_000, vec![1, 2, 3]),
            (ShardFilter::At(200_500), 1_000, vec![0, 1]),
            (ShardFilter::From(250_000), 1_000, vec![1, 2, 3, 4]),
        ] {
            assert_eq!(passing(filter, now), expected, "{filter} at {now}");
        }
    }

    #[test]
    fn a_filter_is_taken_out_of_a_request_and_survives_a_token() {
        for (filter, expected) in [
            (json!({"Type": "AT_LATEST"}), Some(ShardFilter::AtLatest)),
            (
                json!({"Type": "AT_TRIM_HORIZON"}),
                Some(ShardFilter::AtTrimHorizon),
            ),
            (
                json!({"Type": "FROM_TRIM_HORIZON"}),
                Some(ShardFilter::FromTrimHorizon),
            ),
            (
                json!({"Type": "AT_TIMESTAMP", "Timestamp": 1.5}),
                Some(ShardFilter::At(1_500)),
            ),
            (
                json!({"Type": "FROM_TIMESTAMP", "Timestamp": 2}),
                Some(ShardFilter::From(2_000)),
            ),
            (
                json!({"Type": "AFTER_SHARD_ID", "ShardId": "shardId-000000000001"}),
                None,
            ),
        ] {
            let mut request = Map::from_iter([("ShardFilter".to_owned(), filter)]);
            let taken = ShardFilter::take(&mut request);
            assert_eq!(taken, expected);
            assert!(!request.contains_key("ShardFilter"));
            assert_eq!(
                request.contains_key("ExclusiveStartShardId"),
                expected.is_none()
            );
            assert_eq!(
                taken.and_then(|filter| ShardFilter::parse(&filter.to_string())),
                expected
            );
        }
        let mut unknown = Map::from_iter([("ShardFilter".to_owned(), json!({"Type": "NEWEST"}))]);
        assert_eq!(ShardFilter::take(&mut unknown), None);
        assert!(unknown.contains_key("ShardFilter"));
    }
}
