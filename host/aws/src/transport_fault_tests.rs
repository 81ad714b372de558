//! The faults of Kinesis and of what lies between (`docs/faults.md`), as they look on the wire.

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use shardmill_core::lease::{LeaseCounter, LeaseToken, WorkerId};
use shardmill_core::ports::{
    Fetched, LeaseStore, Progress, ReadError, ShardIterator, StoreError, StreamReader,
    SubscribeError, Subscriptions,
};
use shardmill_core::stream::{
    ConsumerArn, LeaseKey, Position, ReadFrom, SequenceNumber, ShardId, StreamName,
};

use crate::transport_double::TransportDouble;
use crate::{AwsClients, KinesisFanOut, KinesisReader, LeaseTable};

const NOTHING_NEW: (u16, &str) = (
    200,
    r#"{"Records":[],"NextShardIterator":"n","MillisBehindLatest":0}"#,
);
const AN_END: (u16, &str) = (200, r#"{"Records":[],"MillisBehindLatest":0}"#);

fn stream() -> StreamName {
    StreamName::new("orders").unwrap()
}

fn reader(transport: &TransportDouble) -> KinesisReader {
    KinesisReader::new(transport.kinesis(), stream())
}

async fn fetch(transport: &TransportDouble) -> Result<Fetched, ReadError> {
    reader(transport)
        .fetch(&ShardIterator("i".to_owned()), 10)
        .await
}

/// Of an error, without its message.
fn kind(error: &ReadError) -> &'static str {
    match error {
        ReadError::ExpiredIterator => "expired",
        ReadError::Throttled { .. } => "throttled",
        ReadError::NotFound { .. } => "not found",
        ReadError::Refused { .. } => "refused",
        ReadError::KeyUnusable { .. } => "key",
        ReadError::Unavailable { .. } => "unavailable",
    }
}

fn keys() -> SharedCredentialsProvider {
    SharedCredentialsProvider::new(Credentials::from_keys("a", "b", None))
}

/// As a role that can no longer be assumed, or a metadata service that does not answer.
#[derive(Debug)]
struct NoCredentials;

impl ProvideCredentials for NoCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Err(CredentialsError::provider_error(
            "the role cannot be assumed",
        )))
    }
}

#[tokio::test]
async fn a_reply_that_is_not_kinesis_own_is_unavailable_whatever_its_status() {
    const PAGE: &str = "<html><body>It works!</body></html>";
    for (status, body) in [
        (200, PAGE),
        (200, ""),
        (200, "{}"),
        (200, r#"{"Records":[]}"#),
        (200, "null"),
        (200, "[]"),
        (200, r#"{"Records":"none","NextShardIterator":"n"}"#),
        (200, r#"{"Records":[],"NextShardIterator":7}"#),
        (
            200,
            r#"{"Records":[{"SequenceNumber":"1","Data":"***","PartitionKey":"k"}],"NextShardIterator":"n"}"#,
        ),
        (200, "{\"Records\":[],\"NextShardIterator\":\"n\"}trailing"),
        (204, ""),
        (301, PAGE),
        (400, PAGE),
        (403, "{"),
        (404, PAGE),
        (500, ""),
        (502, PAGE),
        (503, r#"{"__type":"ServiceUnavailable"}"#),
        (500, r#"{"__type":"InternalFailureException"}"#),
        (
            400,
            r#"{"__type":"com.amazonaws.kinesis#AnErrorOfNextYear","message":"hm"}"#,
        ),
        (400, r#"{"message":"no type at all"}"#),
    ] {
        let transport =
            TransportDouble::new([(status, body)]).with_header("content-type", "text/html");
        let fetched = fetch(&transport).await;
        assert!(
            matches!(fetched, Err(ReadError::Unavailable { .. })),
            "{status} {body}: {fetched:?}"
        );
    }
}

#[tokio::test]
async fn a_reply_cut_off_anywhere_is_never_a_reply_and_never_an_end() {
    let whole = r#"{"Records":[{"SequenceNumber":"1","Data":"eA==","PartitionKey":"k"}],"MillisBehindLatest":0}"#;
    assert!(
        fetch(&TransportDouble::new([(200, whole)]))
            .await
            .is_ok_and(|fetched| fetched.next.is_none())
    );
    for end in 0..whole.len() {
        let fetched = fetch(&TransportDouble::new([(200, &whole[..end])])).await;
        assert!(
            matches!(fetched, Err(ReadError::Unavailable { .. })),
            "{}: {fetched:?}",
            &whole[..end]
        );
    }
}

#[tokio::test]
async fn a_good_reply_is_read_whatever_its_content_type_says() {
    let transport =
        TransportDouble::new([NOTHING_NEW, AN_END]).with_header("content-type", "text/plain");
    assert!(
        fetch(&transport)
            .await
            .is_ok_and(|fetched| fetched.next.is_some())
    );
    assert!(
        fetch(&transport)
            .await
            .is_ok_and(|fetched| fetched.next.is_none()),
        "Kinesis' word that the shard has ended"
    );
}

#[tokio::test]
async fn the_errors_of_kinesis_have_their_meaning_on_the_wire() {
    for (code, expected) in [
        ("ExpiredIteratorException", "expired"),
        ("ProvisionedThroughputExceededException", "throttled"),
        ("LimitExceededException", "throttled"),
        ("KMSThrottlingException", "throttled"),
        ("ResourceNotFoundException", "not found"),
        ("KMSAccessDeniedException", "key"),
        ("KMSDisabledException", "key"),
        ("KMSInvalidStateException", "key"),
        ("KMSNotFoundException", "key"),
        ("KMSOptInRequired", "key"),
        ("AccessDeniedException", "refused"),
        ("ExpiredTokenException", "refused"),
        ("UnrecognizedClientException", "refused"),
        ("InvalidSignatureException", "refused"),
        ("InvalidArgumentException", "refused"),
        ("InternalFailureException", "unavailable"),
        ("RequestTimeTooSkewed", "unavailable"),
    ] {
        // Plain, with the namespace that some endpoints put before it, and in the header that
        // others use.
        let body = format!(r#"{{"__type":"{code}","message":"why"}}"#);
        let named =
            format!(r#"{{"__type":"com.amazonaws.kinesis.v20131202#{code}","message":"why"}}"#);
        let doubles = [
            TransportDouble::new([(400, &body)]),
            TransportDouble::new([(400, &named)]),
            TransportDouble::new([(400, r#"{"message":"why"}"#)])
                .with_header("x-amzn-errortype", code),
        ];
        for transport in doubles {
            let error = fetch(&transport).await.unwrap_err();
            assert_eq!(kind(&error), expected, "{error}");
            assert!(
                expected == "expired" || error.to_string().contains("why"),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn an_empty_reply_is_no_shard_list_no_iterator_and_no_stream() {
    for body in ["", "{}", r#"{"Shards":[]}"#] {
        let listed = reader(&TransportDouble::new([(200, body)]))
            .list_shards()
            .await;
        assert!(
            matches!(listed, Err(ReadError::Unavailable { .. })),
            "{listed:?}"
        );
    }
    let shard = ShardId::new("shardId-000000000000").unwrap();
    let iterator = reader(&TransportDouble::new([(200, "")]))
        .iterator(&shard, &ReadFrom::TrimHorizon)
        .await;
    assert!(
        matches!(iterator, Err(ReadError::Unavailable { .. })),
        "{iterator:?}"
    );
    // A creation time of 1970 would be another stream, and stop every host.
    let identity = reader(&TransportDouble::new([(200, "{}")]))
        .identity()
        .await;
    assert!(
        matches!(identity, Err(ReadError::Unavailable { .. })),
        "{identity:?}"
    );
}

#[tokio::test]
async fn a_shard_list_that_contradicts_itself_is_refused_whole() {
    let shard = |id: &str, parent: &str, (start, end): (u32, u32)| {
        format!(
            r#"{{"ShardId":"{id}",{parent}"HashKeyRange":{{"StartingHashKey":"{start}","EndingHashKey":"{end}"}},
                "SequenceNumberRange":{{"StartingSequenceNumber":"1"}}}}"#
        )
    };
    let child_of = |parent: &str| format!(r#""ParentShardId":"{parent}","#);
    for (shards, problem) in [
        (
            vec![shard("s-1", "", (0, 9)), shard("s-1", "", (0, 9))],
            "listed twice",
        ),
        (
            vec![shard("s-1", "", (0, 9)), shard("s-2", "", (9, 19))],
            "same hash keys",
        ),
        (
            vec![
                shard("s-1", &child_of("s-2"), (0, 9)),
                shard("s-2", &child_of("s-1"), (0, 9)),
            ],
            "own ancestor",
        ),
        (
            vec![
                r#"{"ShardId":"s-1","SequenceNumberRange":{"StartingSequenceNumber":"1"}}"#
                    .to_owned(),
            ],
            "hash key range",
        ),
    ] {
        let body = format!(r#"{{"Shards":[{}]}}"#, shards.join(","));
        let error = reader(&TransportDouble::new([(200, &body)]))
            .list_shards()
            .await
            .unwrap_err();
        assert!(
            matches!(error, ReadError::Unavailable { .. }) && error.to_string().contains(problem),
            "{error}"
        );
    }
}

#[tokio::test]
async fn bytes_keys_and_times_of_a_record_come_as_they_are_or_not_at_all() {
    let key = "\u{1f980}".repeat(256);
    let body = format!(
        r#"{{"MillisBehindLatest":0,"NextShardIterator":"n","Records":[
            {{"SequenceNumber":"9","Data":"AP/+wyg=","PartitionKey":"{key}","ApproximateArrivalTimestamp":1.5}},
            {{"SequenceNumber":"10","Data":"","PartitionKey":"a\u0000b"}},
            {{"SequenceNumber":"11","Data":"eA==","PartitionKey":"k","ApproximateArrivalTimestamp":-5.0}},
            {{"SequenceNumber":"12","Data":"eA==","PartitionKey":"k","ApproximateArrivalTimestamp":253402300799.0}}]}}"#
    );
    let fetched = fetch(&TransportDouble::new([(200, &body)])).await.unwrap();
    let [strange, empty, early, late] = &fetched.records[..] else {
        panic!("{fetched:?}")
    };
    assert_eq!(
        &strange.data[..],
        [0, 0xff, 0xfe, 0xc3, 0x28],
        "no UTF-8, and NUL"
    );
    assert_eq!((&strange.partition_key, strange.arrival_ms), (&key, 1_500));
    assert_eq!(
        (
            &empty.data[..],
            empty.partition_key.as_str(),
            empty.arrival_ms
        ),
        (&b""[..], "a\0b", 0)
    );
    assert_eq!(
        (early.arrival_ms, late.arrival_ms),
        (0, 253_402_300_799_000),
        "before 1970 is not known; year 9999"
    );
    assert_eq!(
        empty.position,
        Position::plain(SequenceNumber::parse("10").unwrap())
    );
}

#[tokio::test]
async fn a_clock_that_is_far_wrong_is_corrected_by_what_kinesis_answers() {
    let refused = (
        403,
        r#"{"__type":"InvalidSignatureException","message":"Signature expired"}"#,
    );
    let transport = TransportDouble::new([refused, NOTHING_NEW, NOTHING_NEW])
        .with_header("date", "Thu, 01 Jan 2099 12:00:00 GMT");
    let AwsClients { kinesis, .. } = transport.clients(keys());
    let reader = KinesisReader::new(kinesis, stream());
    for _ in 0..2 {
        reader
            .fetch(&ShardIterator("i".to_owned()), 10)
            .await
            .unwrap();
    }
    let signed_at = transport.signed_at();
    let is_corrected: Vec<_> = signed_at
        .iter()
        .map(|date| date.starts_with("20990101T"))
        .collect();
    assert_eq!(
        is_corrected,
        [false, true, true],
        "one refusal, and none after it: {signed_at:?}"
    );
}

#[tokio::test]
async fn a_signature_that_stays_refused_is_an_outage_and_proves_that_no_write_was_applied() {
    let refused = (
        403,
        r#"{"__type":"InvalidSignatureException","message":"Signature expired"}"#,
    );
    assert_eq!(
        kind(&fetch(&TransportDouble::new([refused])).await.unwrap_err()),
        "refused"
    );
    let transport = TransportDouble::new([refused]);
    let written = LeaseTable::new(transport.dynamodb(), "app")
        .renew(&token(), &Progress::default())
        .await;
    assert!(
        matches!(written, Err(StoreError::Refused { .. })),
        "{written:?}"
    );
}

#[tokio::test]
async fn without_credentials_nothing_is_sent_and_the_reason_is_given() {
    let transport = TransportDouble::new([]);
    let AwsClients {
        kinesis, dynamodb, ..
    } = transport.clients(SharedCredentialsProvider::new(NoCredentials));
    let fetched = KinesisReader::new(kinesis, stream())
        .fetch(&ShardIterator("i".to_owned()), 10)
        .await;
    let error = fetched.unwrap_err();
    assert!(
        matches!(error, ReadError::Unavailable { .. }) && error.to_string().contains("assumed"),
        "{error}"
    );
    let written = LeaseTable::new(dynamodb, "app")
        .renew(&token(), &Progress::default())
        .await;
    assert!(
        matches!(
            written,
            Err(StoreError::Unknown { .. } | StoreError::Refused { .. })
        ),
        "{written:?}"
    );
    assert_eq!(transport.requests().len(), 0);
}

fn token() -> LeaseToken {
    LeaseToken {
        key: LeaseKey::new("s-1").unwrap(),
        owner: WorkerId::new("me").unwrap(),
        counter: LeaseCounter(4),
    }
}

/// A frame of an event stream: lengths, a checksum of them, headers of text, the payload, a
/// checksum of all.
pub(crate) fn frame(headers: &[(&str, &str)], payload: impl AsRef<[u8]>) -> Vec<u8> {
    fn crc32(bytes: &[u8]) -> u32 {
        let bit = |crc: u32| {
            if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        };
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc))
        })
    }
    let (payload, mut head) = (payload.as_ref(), Vec::new());
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap());
        head.extend(name.as_bytes());
        head.push(7);
        head.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        head.extend(value.as_bytes());
    }
    let total = u32::try_from(16 + head.len() + payload.len()).unwrap();
    let mut frame = [
        total.to_be_bytes(),
        u32::try_from(head.len()).unwrap().to_be_bytes(),
    ]
    .concat();
    frame.extend(crc32(&frame).to_be_bytes());
    frame.extend(head);
    frame.extend(payload);
    frame.extend(crc32(&frame).to_be_bytes());
    frame
}

pub(crate) fn event(kind: &str, payload: &str) -> Vec<u8> {
    let json = "application/x-amz-json-1.1";
    frame(
        &[
            (":message-type", "event"),
            (":event-type", kind),
            (":content-type", json),
        ],
        payload,
    )
}

/// What a subscription gives until it ends, as Kinesis does after five minutes, or breaks off.
async fn subscribed(body: Vec<u8>) -> (usize, Result<(), SubscribeError>) {
    let transport = TransportDouble::of_bytes([(200, body)])
        .with_header("content-type", "application/vnd.amazon.eventstream");
    let fan_out = KinesisFanOut::new(transport.kinesis(), stream()).on_shared_connections();
    let arn = "arn:aws:kinesis:us-east-1:000000000000:stream/orders/consumer/billing:1";
    let (arn, shard) = (
        ConsumerArn::new(arn).unwrap(),
        ShardId::new("shardId-000000000000").unwrap(),
    );
    let mut subscription = match fan_out
        .subscribe(&arn, &shard, &ReadFrom::TrimHorizon)
        .await
    {
        Ok(subscription) => subscription,
        Err(error) => return (0, Err(error)),
    };
    let mut events = 0;
    loop {
        match subscription.next().await {
            Ok(Some(event)) => {
                assert!(event.next.is_some(), "no end of the shard");
                events += 1;
            }
            Ok(None) => return (events, Ok(())),
            Err(error) => return (events, Err(error)),
        }
    }
}

#[tokio::test]
async fn a_subscription_cut_off_inside_an_event_is_an_error_and_never_the_end_of_the_shard() {
    let records = r#"{"Records":[{"SequenceNumber":"7","Data":"eA==","PartitionKey":"k"}],
        "ContinuationSequenceNumber":"7","MillisBehindLatest":0}"#;
    let first = [
        event("initial-response", "{}"),
        event("SubscribeToShardEvent", records),
    ]
    .concat();
    let whole = [first.clone(), event("SubscribeToShardEvent", records)].concat();
    assert_eq!(subscribed(whole.clone()).await, (2, Ok(())));
    for cut in [first.len() + 3, first.len() + 40, whole.len() - 1] {
        let (events, ended) = subscribed(whole[..cut].to_vec()).await;
        assert_eq!(events, 1, "the whole event before is delivered");
        assert!(
            matches!(ended, Err(SubscribeError::Unavailable { .. })),
            "{cut}: {ended:?}"
        );
    }
    let mut damaged = whole.clone();
    damaged[first.len() + 60] ^= 1;
    let (events, ended) = subscribed(damaged).await;
    assert!(
        events == 1 && matches!(ended, Err(SubscribeError::Unavailable { .. })),
        "{ended:?}"
    );
}

#[tokio::test]
async fn records_out_of_order_are_refused_whole_whether_polled_or_pushed() {
    let records = |first: u32, second: u32| {
        format!(
            r#"{{"Records":[{{"SequenceNumber":"{first}","Data":"eA==","PartitionKey":"k"}},
                {{"SequenceNumber":"{second}","Data":"eA==","PartitionKey":"k"}}],"NextShardIterator":"n",
                "ContinuationSequenceNumber":"10","MillisBehindLatest":0}}"#
        )
    };
    let (rising, falling) = (records(9, 10), records(10, 9));
    let transport = TransportDouble::new([(200, &*rising), (200, &*falling)]);
    assert_eq!(fetch(&transport).await.unwrap().records.len(), 2);
    let error = fetch(&transport).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "kinesis is unavailable: a reply's records are out of order"
    );
    let pushed = async |records: &str| {
        let start = event("initial-response", "{}");
        subscribed([start, event("SubscribeToShardEvent", records)].concat()).await
    };
    assert_eq!(pushed(&rising).await, (1, Ok(())));
    let (events, ended) = pushed(&falling).await;
    assert_eq!(events, 0);
    assert!(
        ended
            .unwrap_err()
            .to_string()
            .contains("records are out of order")
    );
}
