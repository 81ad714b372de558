//! Against servers in this process: one that refuses as it is told, and the embedded Kinesis.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use shardmill_aws::{AwsOptions, PutTarget, StaticCredentials, Wire, WireSetting, connect};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::Sink;
use shardmill_core::stream::ShardId;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// What the server does with a `PutRecords`.
enum Turn {
    /// Refuses the records of these keys, stores the others.
    Refuse(&'static [&'static str]),
    /// Stores all, and answers with an error: the caller cannot know.
    StoreAndFail,
    /// An error of this name.
    Fail(u16, &'static str),
}

#[derive(Default)]
struct Stream {
    turns: VecDeque<Turn>,
    /// Key and data, as they were stored.
    stored: Vec<(String, String)>,
    requests: Vec<Value>,
}

type Shared = Arc<Mutex<Stream>>;

async fn put_records(State(stream): State<Shared>, body: String) -> Response {
    let request: Value = serde_json::from_str(&body).unwrap();
    let mut stream = stream.lock().unwrap();
    let turn = stream.turns.pop_front().unwrap_or(Turn::Refuse(&[]));
    stream.requests.push(request.clone());
    if let Turn::Fail(status, name) = turn {
        let error = Json(json!({ "__type": name, "message": "as told" }));
        return (StatusCode::from_u16(status).unwrap(), error).into_response();
    }
    let mut results = Vec::new();
    for record in request["Records"].as_array().unwrap() {
        let key = record["PartitionKey"].as_str().unwrap();
        if matches!(turn, Turn::Refuse(keys) if keys.contains(&key)) {
            let refused = "ProvisionedThroughputExceededException";
            results
                .push(json!({ "ErrorCode": refused, "ErrorMessage": "Rate exceeded for shard" }));
            continue;
        }
        let data = STANDARD.decode(record["Data"].as_str().unwrap()).unwrap();
        stream
            .stored
            .push((key.to_owned(), String::from_utf8(data).unwrap()));
        let sequence = stream.stored.len().to_string();
        results.push(json!({ "ShardId": "shardId-000000000000", "SequenceNumber": sequence }));
    }
    if matches!(turn, Turn::StoreAndFail) {
        return (StatusCode::INTERNAL_SERVER_ERROR, "{}").into_response();
    }
    Json(json!({ "FailedRecordCount": 0, "Records": results })).into_response()
}

struct Server {
    endpoint: String,
    stream: Shared,
    _serving: JoinSet<()>,
}

impl Server {
    async fn start(turns: impl IntoIterator<Item = Turn>) -> Self {
        let stream = Shared::default();
        stream.lock().unwrap().turns.extend(turns);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let app = axum::Router::new()
            .fallback(put_records)
            .with_state(Arc::clone(&stream));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            endpoint,
            stream,
            _serving: serving,
        }
    }

    fn stored(&self) -> Vec<String> {
        self.stream
            .lock()
            .unwrap()
            .stored
            .iter()
            .map(|(_, data)| data.clone())
            .collect()
    }
}

async fn sink(endpoint: &str, order: KeyOrder) -> NetworkSink<KinesisCarrier> {
    let options = AwsOptions {
        region: Some("us-east-1".into()),
        kinesis_endpoint: Some(endpoint.to_owned()),
        dynamodb_endpoint: None,
        credentials: Some(StaticCredentials::dummy()),
        ..AwsOptions::default()
    };
    let client = connect(&options).await.unwrap().kinesis;
    // The server reads JSON.
    let putter = Putter::new(client, PutTarget::parse("out").unwrap())
        .speaking(Wire::new(WireSetting::Json));
    kinesis_sink(
        "out",
        putter,
        KinesisSinkOptions {
            order,
            record_bytes: 1 << 20,
            request_bytes: 5 << 20,
        },
    )
}

fn batch(pieces: &[(&str, &str)]) -> Arc<Vec<Emitted>> {
    let piece = |(key, data): &(&str, &str)| Emitted {
        destination: "out".into(),
        key: (*key).to_owned(),
        data: data.as_bytes().to_vec().into(),
    };
    Arc::new(pieces.iter().map(piece).collect())
}

async fn write(
    sink: &NetworkSink<KinesisCarrier>,
    batch: &Arc<Vec<Emitted>>,
) -> Result<(), String> {
    let plugin = PluginName::new("alerts").unwrap();
    let origin = Arc::new(Origin {
        plugin,
        shard: ShardId::new("shardId-0").unwrap(),
        through: None,
        trace: None,
    });
    sink.write(origin, Arc::clone(batch))
        .await
        .map_err(|error| error.message)
}

#[tokio::test]
async fn a_refused_record_is_stored_before_any_later_one_of_its_key() {
    let server = Server::start([Turn::Refuse(&["a"]), Turn::Refuse(&["a"])]).await;
    let pieces = [
        ("a", "a1"),
        ("b", "b1"),
        ("a", "a2"),
        ("b", "b2"),
        ("a", "a3"),
    ];
    write(
        &sink(&server.endpoint, KeyOrder::Key).await,
        &batch(&pieces),
    )
    .await
    .unwrap();
    assert_eq!(server.stored(), ["b1", "b2", "a1", "a2", "a3"]);
}

#[tokio::test]
async fn without_order_requests_are_full_and_only_what_was_refused_is_sent_again() {
    let server = Server::start([Turn::Refuse(&["a"])]).await;
    let pieces = [("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2")];
    write(
        &sink(&server.endpoint, KeyOrder::None).await,
        &batch(&pieces),
    )
    .await
    .unwrap();
    assert_eq!(server.stored(), ["b1", "b2", "a1", "a2"]);
    assert_eq!(server.stream.lock().unwrap().requests.len(), 2);
}

#[tokio::test]
async fn a_stream_that_is_gone_or_forbidden_blocks_with_the_words_of_kinesis_and_loses_nothing() {
    for name in ["ResourceNotFoundException", "AccessDeniedException"] {
        let server = Server::start([Turn::Fail(400, name)]).await;
        let (sink, batch) = (
            sink(&server.endpoint, KeyOrder::Key).await,
            batch(&[("a", "a1")]),
        );
        let error = write(&sink, &batch).await.unwrap_err();
        assert!(error.contains("as told"), "{error}");
        write(&sink, &batch).await.unwrap();
        assert_eq!(server.stored(), ["a1"]);
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_repeats_the_request_and_keeps_the_order() {
    let server = Server::start([Turn::Refuse(&[]), Turn::StoreAndFail]).await;
    let sink = sink(&server.endpoint, KeyOrder::Key).await;
    let pieces = batch(&[("a", "a1"), ("a", "a2"), ("a", "a3")]);
    // The SDK may hide the lost answer by a try of its own; either way nothing is lost or
    // overtaken.
    while write(&sink, &pieces).await.is_err() {}
    let stored = server.stored();
    assert!(
        stored.is_sorted() && stored.ends_with(&["a3".to_owned()]),
        "{stored:?}"
    );
    assert_eq!(
        stored.iter().filter(|data| *data == "a2").count(),
        2,
        "stored, and sent again: {stored:?}"
    );
    assert_eq!(
        stored.iter().filter(|data| *data == "a1").count(),
        1,
        "acknowledged, so not sent again: {stored:?}"
    );
}

#[tokio::test]
async fn a_piece_without_a_key_gets_one_of_its_own() {
    let server = Server::start([]).await;
    write(
        &sink(&server.endpoint, KeyOrder::Key).await,
        &batch(&[("", "1"), ("", "2")]),
    )
    .await
    .unwrap();
    let stream = server.stream.lock().unwrap();
    assert_eq!(stream.requests.len(), 1, "no key, no order");
    let keys: Vec<_> = stream.stored.iter().map(|(key, _)| key).collect();
    assert!(
        keys[0] != keys[1] && keys.iter().all(|key| key.len() == 16),
        "{keys:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_records_reach_the_embedded_kinesis_each_key_in_order() {
    use shardmill_aws::{KinesisReader, StreamAdmin};
    use shardmill_core::ports::StreamReader;
    use shardmill_core::stream::{ReadFrom, StreamName};
    use shardmill_local::{LocalOptions, LocalStack};

    let stack = LocalStack::start(LocalOptions::in_memory()).await.unwrap();
    let endpoint = stack.kinesis_endpoint().to_owned();
    let sink = sink(&endpoint, KeyOrder::Key).await;
    let options = AwsOptions {
        region: Some("us-east-1".into()),
        kinesis_endpoint: Some(endpoint),
        dynamodb_endpoint: None,
        credentials: Some(StaticCredentials::dummy()),
        ..AwsOptions::default()
    };
    let client = connect(&options).await.unwrap().kinesis;
    let stream = StreamName::new("out").unwrap();
    StreamAdmin::new(client.clone())
        .ensure_stream(&stream, 3)
        .await
        .unwrap();
    let texts: Vec<_> = (0..5_000)
        .map(|n| (format!("key-{}", n % 997), format!("{n}")))
        .collect();
    let pieces: Vec<_> = texts
        .iter()
        .map(|(key, data)| (key.as_str(), data.as_str()))
        .collect();
    for part in pieces.chunks(1_700) {
        write(&sink, &batch(part)).await.unwrap();
    }
    let reader = KinesisReader::new(client, stream);
    let mut by_key: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for shard in reader.list_shards().await.unwrap() {
        let mut next = Some(
            reader
                .iterator(&shard.id, &ReadFrom::TrimHorizon)
                .await
                .unwrap(),
        );
        while let Some(iterator) = next {
            let fetched = reader.fetch(&iterator, 10_000).await.unwrap();
            next = fetched.next.filter(|_| !fetched.records.is_empty());
            for record in fetched.records {
                let number = String::from_utf8(record.data.to_vec())
                    .unwrap()
                    .parse()
                    .unwrap();
                by_key.entry(record.partition_key).or_default().push(number);
            }
        }
    }
    assert_eq!(by_key.values().map(Vec::len).sum::<usize>(), 5_000);
    assert!(
        by_key
            .values()
            .all(|numbers| numbers.is_sorted_by(|one, next| one < next))
    );
    stack.stop().await;
}
