//! The adapters against replies that no emulator gives.

use std::sync::Mutex;
use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::lease::{LeaseCounter, LeaseToken, WorkerId};
use shardmill_core::ports::{
    LeaseStore, Progress, ReadError, ShardIterator, StoreError, StreamReader, Written,
};
use shardmill_core::stream::{LeaseKey, SequenceNumber, StreamName};

use crate::transport_double::TransportDouble;
use crate::{KinesisReader, LeaseTable, PutEntry, StreamWriter};

const EXPIRED_TOKEN: (u16, &str) = (
    400,
    r#"{"__type":"ExpiredNextTokenException","message":"old"}"#,
);
const FIRST_PAGE: (u16, &str) = (
    200,
    r#"{"NextToken":"t","Shards":[{"ShardId":"s-1","HashKeyRange":{"StartingHashKey":"0","EndingHashKey":"9"},
        "SequenceNumberRange":{"StartingSequenceNumber":"1"}}]}"#,
);
const LAST_PAGE: (u16, &str) = (
    200,
    r#"{"Shards":[{"ShardId":"s-2","HashKeyRange":{"StartingHashKey":"10","EndingHashKey":"19"},
        "SequenceNumberRange":{"StartingSequenceNumber":"1","EndingSequenceNumber":"2"}}]}"#,
);

fn stream() -> StreamName {
    StreamName::new("orders").unwrap()
}

fn reader(transport: &TransportDouble) -> KinesisReader {
    KinesisReader::new(transport.kinesis(), stream())
}

fn writer(transport: &TransportDouble) -> StreamWriter {
    let at_once = Backoff::new(Duration::from_nanos(1), Duration::from_nanos(1)).unwrap();
    StreamWriter::new(transport.kinesis(), stream()).with_backoff(at_once)
}

fn entries(keys: &[&str]) -> Vec<PutEntry> {
    let entry = |key: &&str| PutEntry {
        partition_key: (*key).to_owned(),
        explicit_hash_key: None,
        data: "12345".into(),
    };
    keys.iter().map(entry).collect()
}

fn token() -> LeaseToken {
    let key = LeaseKey::new("s-1").unwrap();
    LeaseToken {
        key,
        owner: WorkerId::new("me").unwrap(),
        counter: LeaseCounter(4),
    }
}

#[tokio::test]
async fn a_listing_whose_token_expired_starts_over_and_repeats_no_shard() {
    let transport = TransportDouble::new([FIRST_PAGE, EXPIRED_TOKEN, FIRST_PAGE, LAST_PAGE]);
    let shards = reader(&transport).list_shards().await.unwrap();
    let found: Vec<_> = shards
        .iter()
        .map(|shard| (shard.id.as_str(), shard.is_open()))
        .collect();
    assert_eq!(found, [("s-1", true), ("s-2", false)]);
    let requests = transport.requests();
    assert!(
        requests[1].contains("NextToken") && !requests[1].contains("StreamName"),
        "{}",
        requests[1]
    );
    assert!(!requests[2].contains("NextToken"), "{}", requests[2]);
}

#[tokio::test]
async fn a_listing_that_keeps_expiring_or_fails_half_way_gives_no_shards_at_all() {
    let transport = TransportDouble::new([
        FIRST_PAGE,
        EXPIRED_TOKEN,
        FIRST_PAGE,
        EXPIRED_TOKEN,
        FIRST_PAGE,
        EXPIRED_TOKEN,
    ]);
    assert!(matches!(
        reader(&transport).list_shards().await,
        Err(ReadError::Unavailable { .. })
    ));
    let transport =
        TransportDouble::new([FIRST_PAGE, (400, r#"{"__type":"LimitExceededException"}"#)]);
    assert!(matches!(
        reader(&transport).list_shards().await,
        Err(ReadError::Throttled { .. })
    ));
}

#[tokio::test]
async fn replies_that_cannot_be_read_and_cut_connections_are_never_the_end_of_a_shard() {
    for transport in [
        TransportDouble::new([]),
        TransportDouble::new([(500, "{}")]),
        TransportDouble::new([(503, "<html>")]),
        TransportDouble::new([(200, r#"{"Records":["#)]),
        TransportDouble::new([(
            200,
            r#"{"Records":[{"SequenceNumber":"x","Data":"","PartitionKey":"k"}]}"#,
        )]),
    ] {
        let fetched = reader(&transport)
            .fetch(&ShardIterator("i".to_owned()), 10)
            .await;
        assert!(
            matches!(fetched, Err(ReadError::Unavailable { .. })),
            "{fetched:?}"
        );
    }
}

#[tokio::test]
async fn only_the_refused_part_of_a_batch_is_sent_again_and_in_order() {
    let refused =
        r#"{"ErrorCode":"ProvisionedThroughputExceededException","ErrorMessage":"slow down"}"#;
    let stored = |sequence: u32| format!(r#"{{"ShardId":"s-1","SequenceNumber":"{sequence}"}}"#);
    let first = format!(
        r#"{{"FailedRecordCount":2,"Records":[{},{refused},{refused}]}}"#,
        stored(1)
    );
    let second = format!(
        r#"{{"FailedRecordCount":0,"Records":[{},{}]}}"#,
        stored(2),
        stored(3)
    );
    let transport = TransportDouble::new([(200, &first), (200, &second)]);
    let progress = Mutex::new(Vec::new());
    let report = writer(&transport)
        .put_all(entries(&["a", "b", "c"]), |records, bytes| {
            progress.lock().unwrap().push((records, bytes));
        })
        .await
        .unwrap();
    assert_eq!((report.records, report.bytes, report.retries), (3, 18, 2));
    assert_eq!(
        report
            .last_sequence
            .values()
            .map(SequenceNumber::as_str)
            .collect::<Vec<_>>(),
        ["3"]
    );
    assert_eq!(*progress.lock().unwrap(), [(1, 6), (3, 18)]);
    let again = &transport.requests()[1];
    assert!(
        !again.contains(r#""a""#) && again.find(r#""b""#) < again.find(r#""c""#),
        "{again}"
    );
}

#[tokio::test]
async fn a_writer_that_gets_nowhere_gives_up_and_says_what_was_stored() {
    let stored =
        r#"{"Records":[{"ShardId":"s-1","SequenceNumber":"1"},{"ErrorCode":"InternalFailure"}]}"#;
    let error = writer(&TransportDouble::new([(200, stored)]))
        .put_all(entries(&["a", "b"]), |_, _| {})
        .await
        .unwrap_err();
    assert_eq!((error.stored.records, error.attempts), (1, 20));
    let denied = TransportDouble::new([(400, r#"{"__type":"AccessDeniedException"}"#)]);
    let error = writer(&denied)
        .put_all(entries(&["a"]), |_, _| {})
        .await
        .unwrap_err();
    assert!(matches!(error.cause, ReadError::Refused { .. }));
    assert_eq!(denied.requests().len(), 1);
}

#[tokio::test]
async fn a_writer_gives_up_soon_where_nothing_listens_but_not_on_what_has_answered_before() {
    let nowhere = TransportDouble::new([]).then_refusing();
    let error = writer(&nowhere)
        .put_all(entries(&["a"]), |_, _| {})
        .await
        .unwrap_err();
    assert_eq!((error.attempts, nowhere.requests().len()), (4, 4));
    assert!(
        error.to_string().ends_with("or start what serves it"),
        "{error}"
    );

    let stored = r#"{"Records":[{"ShardId":"s-1","SequenceNumber":"1"}]}"#;
    let throttled = r#"{"__type":"ThrottlingException"}"#;
    for (status, answer) in [(200, stored), (400, throttled)] {
        let gone = TransportDouble::new([(status, answer)]).then_refusing();
        let writer = writer(&gone);
        let _ = writer.put_all(entries(&["a"]), |_, _| {}).await;
        let put = writer.clone().put_all(entries(&["b"]), |_, _| {}).await;
        assert_eq!(put.unwrap_err().attempts, 20, "after {answer}");
    }
}

#[tokio::test]
async fn a_lost_race_gives_the_row_that_won() {
    let failed = r#"{"__type":"ConditionalCheckFailedException","message":"The conditional request failed",
        "Item":{"leaseKey":{"S":"s-1"},"leaseOwner":{"S":"other"},"leaseCounter":{"N":"5"},
        "checkpoint":{"S":"LATEST"}}}"#;
    let transport = TransportDouble::new([(400, failed)]);
    let written = LeaseTable::new(transport.dynamodb(), "app")
        .renew(&token(), &Progress::default())
        .await
        .unwrap();
    let Written::Conflict(Some(row)) = written else {
        panic!("{written:?}")
    };
    assert_eq!(
        (row.owner, row.counter),
        (WorkerId::new("other"), LeaseCounter(5))
    );
    assert!(transport.requests()[0].contains(r#""ReturnValuesOnConditionCheckFailure":"ALL_OLD""#));
}

#[tokio::test]
async fn a_write_without_a_clear_answer_is_unknown_never_lost_and_never_applied() {
    for transport in [
        TransportDouble::new([]),
        TransportDouble::new([(500, r#"{"__type":"InternalServerError"}"#)]),
        TransportDouble::new([(400, r#"{"__type":"TransactionConflictException"}"#)]),
        TransportDouble::new([(503, "<html>")]),
    ] {
        let written = LeaseTable::new(transport.dynamodb(), "app")
            .release(&token(), &Progress::default())
            .await;
        assert!(
            matches!(written, Err(StoreError::Unknown { .. })),
            "{written:?}"
        );
    }
}
