//! Requests that the emulator would misunderstand, translated into what it understands.

use axum::http::HeaderMap;
use ferrokinesis::sequence::resolve_shard_id;
use ferrokinesis::store::Store;
use ferrokinesis::util::current_time_ms;
use serde_json::{Map, Value, json};

use super::keeper::shard_keys;
use super::shard_filter::ShardFilter;

/// What a request asks for, by its `x-amz-target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Adds records.
    Put,
    GetRecords,
    GetShardIterator,
    ListShards,
    /// Describes one stream, by name or by ARN.
    DescribeStream,
    SubscribeToShard,
    UpdateShardCount,
    /// Changes no stream and reads no records.
    Describe,
    /// May change streams; also anything unknown.
    Admin,
}

impl Target {
    /// What a request asks for; `None` if it has no target.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let target = headers.get("x-amz-target")?.to_str().ok()?;
        Some(Self::named(target))
    }

    fn named(target: &str) -> Self {
        let operation = target.rsplit('.').next().unwrap_or_default();
        match operation {
            "PutRecord" | "PutRecords" => Self::Put,
            "GetRecords" => Self::GetRecords,
            "GetShardIterator" => Self::GetShardIterator,
            "ListShards" => Self::ListShards,
            "DescribeStream" | "DescribeStreamSummary" => Self::DescribeStream,
            "UpdateShardCount" => Self::UpdateShardCount,
            "SubscribeToShard" => Self::SubscribeToShard,
            other
                if other.starts_with("Describe")
                    || other.starts_with("List")
                    || other.starts_with("Get") =>
            {
                Self::Describe
            }
            _ => Self::Admin,
        }
    }
}

/// Replaces the stream's ARN by its name, where a request has only the ARN, which the emulator does
/// not accept here. It has one account, so that the name is enough.
pub(super) fn name_by_arn(request: &mut Map<String, Value>) {
    let arn = request.get("StreamARN").and_then(Value::as_str);
    let Some((_, name)) = arn.and_then(|arn| arn.split_once('/')) else {
        return;
    };
    let name = json!(name);
    if !request.contains_key("StreamName") {
        request.remove("StreamARN");
        request.insert("StreamName".to_owned(), name);
    }
}

/// Corrects `AT_TIMESTAMP` and `LATEST` where the emulator would start at another record than
/// Kinesis.
///
/// * Arrival times are whole seconds here, so a timestamp is rounded down: repeating is allowed,
///   losing is not.
/// * Past the last record Kinesis starts at the tip, the emulator at the first record.
/// * On a closed shard the tip is its end; the emulator counts from a counter that a restart has
///   reset.
pub(super) async fn correct_start(store: &Store, request: &mut Map<String, Value>) {
    if let Some(start) = corrected_start(store, request).await {
        start.write(request);
    }
}

/// A start that the emulator understands as Kinesis does.
enum Start {
    At(f64),
    Latest,
    AfterEnd(String),
}

/// `None` if the emulator gets the start right, or should refuse it.
async fn corrected_start(store: &Store, request: &Map<String, Value>) -> Option<Start> {
    let stream_name = request.get("StreamName")?.as_str()?;
    let (_, index) = resolve_shard_id(request.get("ShardId")?.as_str()?).ok()?;
    let index = usize::try_from(index).ok()?;
    let stream = store.get_stream(stream_name).await.ok()?;
    let range = &stream.shards.get(index)?.sequence_number_range;
    let kind = request.get("ShardIteratorType")?.as_str()?;
    if kind == "AT_TIMESTAMP" {
        let from = request.get("Timestamp")?.as_f64()?.floor();
        if from * 1_000.0 > current_time_ms() as f64 {
            return None;
        }
        let (first, end) = shard_keys(index);
        let found = store.find_first_record_at_timestamp(stream_name, &first, &end, from);
        if found.await.is_some() {
            return Some(Start::At(from));
        }
    } else if kind != "LATEST" {
        return None;
    }
    Some(match &range.ending_sequence_number {
        Some(ending) => Start::AfterEnd(ending.clone()),
        None => Start::Latest,
    })
}

impl Start {
    fn write(self, request: &mut Map<String, Value>) {
        let kind = match self {
            Self::At(seconds) => {
                request.insert("Timestamp".to_owned(), json!(seconds));
                "AT_TIMESTAMP"
            }
            Self::Latest => {
                request.remove("Timestamp");
                "LATEST"
            }
            Self::AfterEnd(ending) => {
                request.remove("Timestamp");
                request.insert("StartingSequenceNumber".to_owned(), json!(ending));
                "AFTER_SEQUENCE_NUMBER"
            }
        };
        request.insert("ShardIteratorType".to_owned(), json!(kind));
    }
}

/// Between the parts of a listing's token; no part can contain it.
const TOKEN_SEPARATOR: char = '/';

/// Translates the token of a listing's later page: ours has stream, shard and filter, the
/// emulator's only the shard.
///
/// Takes out the filter, which the emulator does not know.
pub(super) fn translate_listing(request: &mut Map<String, Value>) -> Option<ShardFilter> {
    let Some(token) = request.get("NextToken").and_then(Value::as_str) else {
        return ShardFilter::take(request);
    };
    let mut parts = token.splitn(3, TOKEN_SEPARATOR);
    let stream = json!(parts.next()?);
    let shard = json!(parts.next()?);
    let filter = parts.next().and_then(ShardFilter::parse);
    request.remove("NextToken");
    request.remove("StreamARN");
    request.insert("StreamName".to_owned(), stream);
    request.insert("ExclusiveStartShardId".to_owned(), shard);
    filter
}

/// Leaves the shards that pass the filter, and writes our token if the page is not the last.
pub(super) async fn filter_listing(
    store: &Store,
    stream: &str,
    filter: Option<ShardFilter>,
    reply: &mut Map<String, Value>,
) {
    if let Some(filter) = filter
        && let Ok(listed) = store.get_stream(stream).await
        && let Some(shards) = reply.get_mut("Shards").and_then(Value::as_array_mut)
    {
        let passing = filter.pass(&listed, current_time_ms());
        shards.retain(|shard| {
            shard["ShardId"]
                .as_str()
                .is_some_and(|id| passing.contains(id))
        });
    }
    if let Some(shard) = reply.get("NextToken").and_then(Value::as_str) {
        let mut token = format!("{stream}{TOKEN_SEPARATOR}{shard}");
        if let Some(filter) = filter {
            token = format!("{token}{TOKEN_SEPARATOR}{filter}");
        }
        reply.insert("NextToken".to_owned(), json!(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_named_by_its_arn_is_named_by_its_name() {
        let arn = "arn:aws:kinesis:us-east-1:000000000000:stream/orders";
        for (request, expected) in [
            (
                json!({ "StreamARN": arn, "Limit": 1 }),
                json!({ "StreamName": "orders", "Limit": 1 }),
            ),
            (
                json!({ "StreamName": "orders" }),
                json!({ "StreamName": "orders" }),
            ),
            // For the emulator to refuse.
            (
                json!({ "StreamARN": arn, "StreamName": "x" }),
                json!({ "StreamARN": arn, "StreamName": "x" }),
            ),
            (
                json!({ "StreamARN": "orders" }),
                json!({ "StreamARN": "orders" }),
            ),
        ] {
            let mut mended = request.as_object().unwrap().clone();
            name_by_arn(&mut mended);
            assert_eq!(Value::Object(mended), expected);
        }
    }

    #[test]
    fn whatever_may_change_a_stream_is_treated_as_a_change() {
        for (header, expected) in [
            ("Kinesis_20131202.PutRecords", Target::Put),
            ("Kinesis_20131202.GetRecords", Target::GetRecords),
            (
                "Kinesis_20131202.DescribeStreamSummary",
                Target::DescribeStream,
            ),
            ("Kinesis_20131202.DescribeStreamConsumer", Target::Describe),
            ("Kinesis_20131202.ListTagsForStream", Target::Describe),
            ("Kinesis_20131202.SplitShard", Target::Admin),
            ("Kinesis_20131202.SomethingNew", Target::Admin),
            ("", Target::Admin),
        ] {
            assert_eq!(Target::named(header), expected, "{header}");
        }
    }
}
