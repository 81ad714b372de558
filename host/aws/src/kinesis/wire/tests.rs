use proptest::prelude::*;
use serde_json::{Value, json};
use shardmill_core::ports::{
    Fetched, ReadError, ShardIterator, StreamReader, SubscribeError, Subscriptions,
};
use shardmill_core::stream::{ConsumerArn, ReadFrom, ShardId, StreamName};
use shardmill_wire::CborWriter;

use super::speech::{Wire, WireSetting};
use crate::kinesis::convert;
use crate::transport_double::TransportDouble;
use crate::transport_fault_tests::{event, frame};
use crate::{KinesisFanOut, KinesisReader, PutEntry, PutOutcome, PutTarget, Putter};

const GOOD: &str = r#"{"Records":[{"SequenceNumber":"7","Data":"eA==","PartitionKey":"k",
    "ApproximateArrivalTimestamp":1.441215410867E9}],"NextShardIterator":"n","MillisBehindLatest":3}"#;
const NOT_KNOWN: (u16, &str) = (
    400,
    r#"{"__type":"SerializationException","message":"not a map"}"#,
);

fn stream() -> StreamName {
    StreamName::new("orders").unwrap()
}

fn reader(transport: &TransportDouble, wire: &Wire) -> KinesisReader {
    KinesisReader::new(transport.kinesis(), stream()).speaking(wire.clone())
}

async fn fetch(transport: &TransportDouble, wire: &Wire) -> Result<Fetched, ReadError> {
    let iterator = ShardIterator("i".to_owned());
    reader(transport, wire).fetch(&iterator, 10).await
}

/// `GOOD`, as Kinesis writes it.
fn good_cbor() -> Vec<u8> {
    let mut body = CborWriter::default();
    body.open_map();
    body.text("Records");
    body.open_list();
    body.open_map();
    body.text("SequenceNumber");
    body.text("7");
    body.text("Data");
    body.bytes(b"x");
    body.text("PartitionKey");
    body.text("k");
    body.text("ApproximateArrivalTimestamp");
    body.time_ms(1_441_215_410_867);
    body.end();
    body.end();
    body.text("NextShardIterator");
    body.text("n");
    body.text("ContinuationSequenceNumber");
    body.text("7");
    body.text("MillisBehindLatest");
    body.integer(3);
    body.end();
    body.finish()
}

fn error_in_cbor(code: &str) -> Vec<u8> {
    let mut body = CborWriter::default();
    body.open_map();
    body.text("__type");
    body.text(code);
    body.text("message");
    body.text("slow down");
    body.end();
    body.finish()
}

/// What the SDK makes of a reply by itself.
async fn by_sdk(body: &[u8]) -> Result<Fetched, ReadError> {
    let client = TransportDouble::of_bytes([(200, body.to_vec())]).kinesis();
    let reply = client.get_records().shard_iterator("i").send().await;
    let reply = reply.map_err(convert::unreadable)?;
    let records = reply.records.into_iter().map(convert::record);
    let children = reply.child_shards.unwrap_or_default();
    Ok(Fetched {
        records: records.collect::<Result<_, _>>()?,
        next: reply.next_shard_iterator.map(ShardIterator),
        millis_behind_latest: reply
            .millis_behind_latest
            .and_then(|ms| u64::try_from(ms).ok()),
        children: children
            .iter()
            .map(convert::child_shard)
            .collect::<Result<_, _>>()?,
    })
}

fn records() -> impl Strategy<Value = Value> {
    let data = proptest::collection::vec(any::<u8>(), 0..60);
    let arrived = prop_oneof![Just(0), 1_380_000_000_000..4_000_000_000_000_u64];
    ("[1-9][0-9]{0,60}", data, any::<String>(), arrived).prop_map(
        |(sequence, data, key, arrived)| {
            json!({
                "SequenceNumber": sequence,
                "Data": aws_smithy_types::base64::encode(data),
                "PartitionKey": key,
                "ApproximateArrivalTimestamp": arrived as f64 / 1_000.0,
                "EncryptionType": "NONE",
            })
        },
    )
}

/// By which records are ordered: of two numbers without leading zeros, the longer one is larger.
fn number(record: &Value) -> (usize, String) {
    let number = record["SequenceNumber"].as_str().unwrap().to_owned();
    (number.len(), number)
}

fn replies() -> impl Strategy<Value = Vec<u8>> {
    let child = ("[a-z0-9]{1,9}", any::<u128>()).prop_map(|(id, end)| {
        json!({
            "ShardId": id,
            "ParentShards": ["p-1", "p-2"],
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": end.to_string()},
        })
    });
    (
        proptest::collection::vec(records(), 0..8),
        proptest::option::of(any::<String>()),
        -5..1_000_000_i64,
        proptest::collection::vec(child, 0..3),
    )
        .prop_map(|(mut records, next, behind, children)| {
            records.sort_by_key(number);
            let reply = json!({
                "Records": records,
                "NextShardIterator": next,
                "MillisBehindLatest": behind,
                "ChildShards": children,
            });
            serde_json::to_vec(&reply).unwrap()
        })
}

fn block_on<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(task)
}

/// Whoever reads otherwise than the SDK would lose records or invent them.
fn agrees_with_sdk(body: Vec<u8>) -> Result<(), TestCaseError> {
    let sdk = block_on(by_sdk(&body));
    let wire = Wire::new(WireSetting::Json);
    let ours = block_on(fetch(&TransportDouble::of_bytes([(200, body)]), &wire));
    match (ours, sdk) {
        (Ok(ours), Ok(sdk)) => prop_assert_eq!(ours, sdk),
        // Refused by the reader for saying nothing, or for the order of its records.
        (Err(_), Ok(sdk)) => {
            let says_nothing = sdk.next.is_none() && sdk.millis_behind_latest.is_none();
            prop_assert!(says_nothing || sdk.in_order().is_err());
        }
        (ours, Err(_)) => prop_assert!(ours.is_err()),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_reply_in_json_says_what_the_sdk_reads_in_it(body in replies()) {
        agrees_with_sdk(body)?;
    }

    #[test]
    fn a_damaged_reply_says_what_the_sdk_reads_in_it_or_nothing(
        mut body in replies(),
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), prop::sample::select(&b"{}[]\",:\\ 0"[..])],
    ) {
        let place = at.index(body.len());
        body[place] = byte;
        agrees_with_sdk(body)?;
    }
}

/// Those of the fuzz target; `documented.json` is the example of the API's reference.
#[test]
fn each_stored_reply_in_json_says_what_the_sdk_reads_in_it() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/wire");
    let mut compared = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let agreed = agrees_with_sdk(std::fs::read(&path).unwrap());
            agreed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            compared += 1;
        }
    }
    assert!(compared >= 10, "{compared}");
}

#[tokio::test]
async fn a_reply_says_the_same_in_cbor_as_in_json() {
    let wire = Wire::default();
    let transport = TransportDouble::of_bytes([(200, good_cbor())]);
    let cbor = fetch(&transport, &wire).await.unwrap();
    let json = fetch(
        &TransportDouble::new([(200, GOOD)]),
        &Wire::new(WireSetting::Json),
    )
    .await;
    assert_eq!(cbor, json.unwrap());
    assert_eq!(cbor.records[0].arrival_ms, 1_441_215_410_867);
    assert_eq!(wire.to_string(), "cbor");
    let asked = &transport.requests()[0];
    assert!(
        asked.contains("ShardIterator") && !asked.starts_with('{'),
        "{asked}"
    );
}

#[tokio::test]
async fn cbor_that_is_refused_is_given_up_at_once_and_for_good_and_the_call_succeeds_in_json() {
    let reason = "400, SerializationException";
    for (refusal, reason) in [
        (NOT_KNOWN, reason),
        ((415, ""), "415, no code"),
        ((404, "<html>no such thing</html>"), "404, no code"),
    ] {
        let transport = TransportDouble::new([refusal, (200, GOOD), (200, GOOD)]);
        let wire = Wire::default();
        assert_eq!(fetch(&transport, &wire).await.unwrap().records.len(), 1);
        assert_eq!(
            wire.to_string(),
            format!("json, since CBOR was refused: {reason}")
        );
        fetch(&transport, &wire).await.unwrap();
        let requests = transport.requests();
        let in_json: Vec<_> = requests
            .iter()
            .map(|request| request.starts_with('{'))
            .collect();
        assert_eq!(in_json, [false, true, true]);
    }
}

#[tokio::test]
async fn a_reply_in_cbor_that_cannot_be_read_is_asked_for_again_in_json() {
    let cut = good_cbor()[..20].to_vec();
    let transport = TransportDouble::of_bytes([(200, cut), (200, GOOD.into())]);
    let wire = Wire::default();
    assert_eq!(fetch(&transport, &wire).await.unwrap().records.len(), 1);
    assert!(wire.to_string().starts_with("json, since"), "{wire}");
}

#[tokio::test]
async fn who_answers_cbor_with_json_is_spoken_to_in_json() {
    let wire = Wire::default();
    let fetched = fetch(&TransportDouble::new([(200, GOOD)]), &wire)
        .await
        .unwrap();
    assert_eq!(fetched.records.len(), 1);
    assert!(wire.to_string().contains("answered in JSON"), "{wire}");
}

#[tokio::test]
async fn an_error_of_kinesis_is_no_refusal_of_its_format_in_whichever_it_is_written() {
    let code = "ProvisionedThroughputExceededException";
    let in_json = format!(r#"{{"__type":"{code}","message":"slow down"}}"#);
    for (status, body) in [
        (400, error_in_cbor(&format!("com.amazonaws.kinesis#{code}"))),
        (400, in_json.into_bytes()),
    ] {
        let wire = Wire::default();
        let error = fetch(&TransportDouble::of_bytes([(status, body)]), &wire).await;
        let ReadError::Throttled { message } = error.unwrap_err() else {
            panic!("not throttled");
        };
        assert!(message.contains("slow down"), "{message}");
        assert_eq!(wire.to_string(), "cbor");
    }
    let wire = Wire::default();
    let expired = error_in_cbor("ExpiredIteratorException");
    let error = fetch(&TransportDouble::of_bytes([(400, expired)]), &wire).await;
    assert_eq!(error, Err(ReadError::ExpiredIterator));
    for outage in [(500, "{}"), (503, "<html>")] {
        let error = fetch(&TransportDouble::new([outage]), &wire).await;
        assert!(
            matches!(error, Err(ReadError::Unavailable { .. })),
            "{error:?}"
        );
        assert_eq!(wire.to_string(), "cbor");
    }
}

#[tokio::test]
async fn a_format_that_was_chosen_is_never_given_up() {
    let wire = Wire::new(WireSetting::Cbor);
    let transport = TransportDouble::new([NOT_KNOWN, (200, GOOD)]);
    assert!(fetch(&transport, &wire).await.is_err());
    assert_eq!(
        (wire.to_string().as_str(), transport.requests().len()),
        ("cbor", 1)
    );
    let wire = Wire::new(WireSetting::Json);
    let transport = TransportDouble::new([(200, GOOD)]);
    fetch(&transport, &wire).await.unwrap();
    assert!(transport.requests()[0].starts_with('{'));
}

#[tokio::test]
async fn records_are_put_and_their_results_read_in_cbor() {
    let mut results = CborWriter::default();
    results.open_map();
    results.text("Records");
    results.open_list();
    results.open_map();
    results.text("ShardId");
    results.text("s-1");
    results.text("SequenceNumber");
    results.text("42");
    results.end();
    results.open_map();
    results.text("ErrorCode");
    results.text("InternalFailure");
    results.end();
    results.end();
    results.end();
    let transport = TransportDouble::of_bytes([(200, results.finish())]);
    let target = PutTarget::Name(stream());
    let putter = Putter::new(transport.kinesis(), target).speaking(Wire::default());
    let entry = |data: &'static str| PutEntry {
        partition_key: "key".to_owned(),
        explicit_hash_key: Some(5),
        data: data.into(),
    };
    let outcomes = putter.put(&[entry("raw data"), entry("")]).await.unwrap();
    assert!(matches!(&outcomes[0], PutOutcome::Stored { shard, .. } if shard.as_str() == "s-1"));
    assert!(
        matches!(&outcomes[1], PutOutcome::Refused { message } if message == "InternalFailure")
    );
    let asked = &transport.requests()[0];
    assert!(
        asked.contains("raw data") && asked.contains("ExplicitHashKey"),
        "not in base64: {asked}"
    );
}

#[tokio::test]
async fn a_put_is_repeated_in_json_if_it_was_refused_and_never_if_it_may_be_stored() {
    const STORED: &str = r#"{"Records":[{"ShardId":"s-1","SequenceNumber":"42"}]}"#;
    let entry = PutEntry {
        partition_key: "key".to_owned(),
        explicit_hash_key: None,
        data: "data".into(),
    };
    let unreadable = (200, vec![0xBF, 0x00]);
    let refused = (NOT_KNOWN.0, NOT_KNOWN.1.into());
    for (first, requests) in [(refused, 2), (unreadable, 1)] {
        let transport = TransportDouble::of_bytes([first, (200, STORED.into())]);
        let wire = Wire::default();
        let target = PutTarget::Name(stream());
        let putter = Putter::new(transport.kinesis(), target).speaking(wire.clone());
        let outcomes = putter.put(std::slice::from_ref(&entry)).await;
        assert_eq!(
            (outcomes.is_ok(), transport.requests().len()),
            (requests == 2, requests)
        );
        assert!(wire.to_string().starts_with("json, since"), "{wire}");
    }
}

#[tokio::test]
async fn events_come_in_either_format_and_so_do_the_exceptions_that_end_them() {
    let headers = |kind: &'static str, name: &'static str| {
        [
            (":message-type", kind),
            (
                if kind == "event" {
                    ":event-type"
                } else {
                    ":exception-type"
                },
                name,
            ),
            (":content-type", "application/x-amz-cbor-1.1"),
        ]
    };
    let exception = headers("exception", "ResourceInUseException");
    let body = [
        event("initial-response", "{}"),
        frame(&headers("event", "SubscribeToShardEvent"), good_cbor()),
        event(
            "SubscribeToShardEvent",
            r#"{"Records":[],"ContinuationSequenceNumber":"8","MillisBehindLatest":0}"#,
        ),
        frame(&exception, error_in_cbor("ResourceInUseException")),
    ]
    .concat();
    let transport = TransportDouble::of_bytes([(200, body)])
        .with_header("content-type", "application/vnd.amazon.eventstream");
    let fan_out = KinesisFanOut::new(transport.kinesis(), stream())
        .on_shared_connections()
        .speaking(Wire::default());
    let arn = "arn:aws:kinesis:us-east-1:000000000000:stream/orders/consumer/billing:1";
    let (arn, shard) = (
        ConsumerArn::new(arn).unwrap(),
        ShardId::new("shardId-000000000000").unwrap(),
    );
    let subscribed = fan_out.subscribe(&arn, &shard, &ReadFrom::TrimHorizon);
    let mut subscription = subscribed.await.unwrap();
    let first = subscription.next().await.unwrap().unwrap();
    assert_eq!(
        (&first.records[0].data[..], first.millis_behind_latest),
        (&b"x"[..], Some(3))
    );
    let second = subscription.next().await.unwrap().unwrap();
    assert!(second.records.is_empty());
    assert_eq!(second.next.unwrap().to_string(), "8");
    let end = subscription.next().await;
    assert!(
        matches!(&end, Err(SubscribeError::InUse { message }) if message.contains("slow down")),
        "{end:?}"
    );
}
