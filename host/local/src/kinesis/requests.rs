//! Requests that the emulator would misunderstand, put in words that it understands.

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
    pub(super) fn of(header: &str) -> Self {
        let operation = header.rsplit('.').next().unwrap_or_default();
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

/// Names the stream by its name where a request does so by ARN, which the emulator does not take
/// here. It has one account, so that the name says it all.
pub(super) fn name_by_arn(request: &mut Map<String, Value>) {
    let name = request
        .get("StreamARN")
        .and_then(Value::as_str)
        .and_then(|arn| arn.split_once('/'));
    let Some(name) = name.map(|(_, name)| name.to_owned()) else {
        return;
    };
    if !request.contains_key("StreamName") {
        request.remove("StreamARN");
        request.insert("StreamName".to_owned(), json!(name));
    }
}

/// `AT_TIMESTAMP` and `LATEST`, where the emulator would start at another record than Kinesis.
///
/// * Arrival times are whole seconds here, so a timestamp is rounded down: repeating is allowed,
///   losing is not.
/// * Past the last record Kinesis starts at the tip, the emulator at the first record.
/// * On a closed shard the tip is its end; the emulator counts from a counter that a restart has
///   reset.
pub(super) async fn mend_iterator_request(
    store: &Store,
    request: &mut Map<String, Value>,
) -> Option<()> {
    let stream_name = request.get("StreamName")?.as_str()?.to_owned();
    let (_, index) = resolve_shard_id(request.get("ShardId")?.as_str()?).ok()?;
    let index = usize::try_from(index).ok()?;
    let stream = store.get_stream(&stream_name).await.ok()?;
    let ending = stream
        .shards
        .get(index)?
        .sequence_number_range
        .ending_sequence_number
        .clone();
    if request.get("ShardIteratorType")?.as_str()? == "AT_TIMESTAMP" {
        let from = request.get("Timestamp")?.as_f64()?.floor();
        if from * 1_000.0 > current_time_ms() as f64 {
            return None;
        }
        let (first, end) = shard_keys(index);
        if store
            .find_first_record_at_timestamp(&stream_name, &first, &end, from)
            .await
            .is_some()
        {
            request.insert("Timestamp".to_owned(), json!(from));
            return Some(());
        }
        request.remove("Timestamp");
        request.insert("ShardIteratorType".to_owned(), json!("LATEST"));
    }
    if let Some(ending) = ending.filter(|_| request["ShardIteratorType"] == "LATEST") {
        request.insert(
            "ShardIteratorType".to_owned(),
            json!("AFTER_SEQUENCE_NUMBER"),
        );
        request.insert("StartingSequenceNumber".to_owned(), json!(ending));
    }
    Some(())
}

/// Between the parts of a listing's token; in the alphabet of none.
const TOKEN_SEPARATOR: char = '/';

/// A listing's later page: our token says stream, shard and filter, where the emulator's only says
/// shard.
///
/// Takes out the filter, which the emulator does not know.
pub(super) fn mend_list_request(request: &mut Map<String, Value>) -> Option<ShardFilter> {
    let Some(token) = request
        .get("NextToken")
        .and_then(Value::as_str)
        .map(str::to_owned)
    else {
        return ShardFilter::take(request);
    };
    let mut parts = token.splitn(3, TOKEN_SEPARATOR);
    let (stream, shard) = (parts.next()?, parts.next()?);
    request.remove("NextToken");
    request.remove("StreamARN");
    request.insert("StreamName".to_owned(), json!(stream));
    request.insert("ExclusiveStartShardId".to_owned(), json!(shard));
    parts.next().and_then(ShardFilter::parse)
}

/// The token of a page that is not the last, and no shards but those that pass the filter.
pub(super) async fn mend_list_reply(
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
        let filter = filter.map_or_else(String::new, |filter| format!("{TOKEN_SEPARATOR}{filter}"));
        let token = format!("{stream}{TOKEN_SEPARATOR}{shard}{filter}");
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
            assert_eq!(Target::of(header), expected, "{header}");
        }
    }
}
