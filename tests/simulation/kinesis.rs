//! Kinesis: the embedded one, called without a socket.

use std::time::Duration;

use aws_smithy_types::base64;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use bytes::Bytes;
use ferrokinesis::shard_iterator::decode_shard_iterator;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::options::{CONSUMER, STREAM};
use crate::producer::Entry;
use crate::stream::{Listed, Stored};
use crate::weather::Fault;
use crate::wire::{Reply, Sent, Subscribed, contains};
use crate::world::World;

const REPLY_BYTES_MAX: usize = 64 << 20;

/// The service.
pub struct Kinesis {
    router: Router,
}

impl Kinesis {
    /// A service without streams.
    pub async fn new() -> Self {
        Self {
            router: shardmill_local::kinesis::in_process()
                .await
                .expect("a service in memory"),
        }
    }

    /// Answers a host's request.
    pub async fn apply(&self, world: &World, sent: &Sent) -> Reply {
        let shard = (sent.operation == "GetRecords")
            .then(|| iterated_shard(&sent.body))
            .flatten();
        if let Some(shard) = &shard
            && world.stream.is_too_fast(shard)
        {
            world.count("fault: ReadThrottle");
            return Reply::error(400, "ProvisionedThroughputExceededException");
        }
        let mut reply = self.send(&sent.operation, sent.body.clone()).await;
        if sent.operation == "ListShards" {
            lag(world, &mut reply);
        }
        note_rare(world, sent, &reply);
        let goes_on = reply.status != 200 || contains(&reply.body, b"\"NextShardIterator\"");
        reply.ended_shard = shard.filter(|_| !goes_on);
        reply
    }

    /// Makes the stream.
    pub async fn create(&self, shards: u32) {
        self.ask(
            "CreateStream",
            &json!({"StreamName": STREAM, "ShardCount": shards}),
        )
        .await;
    }

    /// Puts these records, as a producer who always gets its answer: each with where it was stored.
    pub async fn put(&self, entries: &[Entry]) -> Vec<Option<Stored>> {
        let record =
            |entry: &Entry| json!({"Data": base64::encode(&entry.data), "PartitionKey": entry.key});
        let records: Vec<_> = entries.iter().map(record).collect();
        let reply = self
            .ask(
                "PutRecords",
                &json!({"StreamName": STREAM, "Records": records}),
            )
            .await;
        let stored = |result: &Value| {
            let (shard, sequence) = (
                result["ShardId"].as_str()?,
                result["SequenceNumber"].as_str()?,
            );
            Some(Stored {
                shard: shard.to_owned(),
                sequence: sequence.to_owned(),
            })
        };
        reply["Records"]
            .as_array()
            .into_iter()
            .flatten()
            .map(stored)
            .collect()
    }

    /// Somebody deregisters the hosts' consumer; whether there was one.
    pub async fn deregister(&self) -> bool {
        let summary = self
            .ask("DescribeStreamSummary", &json!({"StreamName": STREAM}))
            .await;
        let arn = &summary["StreamDescriptionSummary"]["StreamARN"];
        let request = json!({"StreamARN": arn, "ConsumerName": CONSUMER}).to_string();
        self.send("DeregisterStreamConsumer", request.into())
            .await
            .status
            == 200
    }

    /// Somebody else subscribes to a shard with the hosts' consumer, and leaves at once; whether
    /// that worked.
    pub async fn intrude(&self, shard: &str) -> bool {
        let summary = self
            .ask("DescribeStreamSummary", &json!({"StreamName": STREAM}))
            .await;
        let arn = &summary["StreamDescriptionSummary"]["StreamARN"];
        let found = self
            .ask(
                "DescribeStreamConsumer",
                &json!({"StreamARN": arn, "ConsumerName": CONSUMER}),
            )
            .await;
        let consumer = &found["ConsumerDescription"]["ConsumerARN"];
        let request = json!({"ConsumerARN": consumer, "ShardId": shard, "StartingPosition": {"Type": "LATEST"}});
        self.send("SubscribeToShard", request.to_string().into())
            .await
            .status
            == 200
    }

    /// Splits a shard at `middle`.
    pub async fn split(&self, parent: &str, middle: u128) {
        let request = json!({"StreamName": STREAM, "ShardToSplit": parent, "NewStartingHashKey": middle.to_string()});
        self.ask("SplitShard", &request).await;
    }

    /// Merges two shards.
    pub async fn merge(&self, parents: [&str; 2]) {
        let request = json!({"StreamName": STREAM, "ShardToMerge": parents[0], "AdjacentShardToMerge": parents[1]});
        self.ask("MergeShards", &request).await;
    }

    /// All shards, once the stream is settled.
    pub async fn list(&self) -> Vec<Listed> {
        let listed = loop {
            let summary = self
                .ask("DescribeStreamSummary", &json!({"StreamName": STREAM}))
                .await;
            if summary["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE" {
                break self.ask("ListShards", &json!({"StreamName": STREAM})).await;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        listed["Shards"]
            .as_array()
            .into_iter()
            .flatten()
            .map(read_shard)
            .collect()
    }

    async fn ask(&self, operation: &str, request: &Value) -> Value {
        let reply = self.send(operation, request.to_string().into()).await;
        serde_json::from_slice(&reply.body).unwrap_or(Value::Null)
    }

    async fn send(&self, operation: &str, body: Bytes) -> Reply {
        let asked_shard = (operation == "SubscribeToShard")
            .then(|| text_of(&body, "ShardId"))
            .flatten();
        let request = Request::post("/")
            .header("content-type", "application/x-amz-json-1.1")
            .header("x-amz-target", format!("Kinesis_20131202.{operation}"))
            .header("x-amz-date", "20260101T000000Z")
            .header("authorization", "AWS4-HMAC-SHA256 \
                Credential=a/20260101/us-east-1/kinesis/aws4_request, SignedHeaders=host, Signature=b")
            .body(Body::from(body))
            .expect("a request");
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status().as_u16();
        let kind = response.headers().get("content-type");
        if kind.is_some_and(|kind| kind == "application/vnd.amazon.eventstream") {
            let events = Some(Subscribed {
                shard: asked_shard.unwrap_or_default(),
                frames: response.into_body(),
            });
            return Reply {
                events,
                ..Reply::plain(status, Bytes::new())
            };
        }
        let body = to_bytes(response.into_body(), REPLY_BYTES_MAX)
            .await
            .expect("a body in memory");
        Reply::plain(status, body)
    }
}

fn read_shard(shard: &Value) -> Listed {
    let bound = |name: &str| {
        shard["HashKeyRange"][name]
            .as_str()
            .and_then(|text| text.parse().ok())
    };
    Listed {
        id: shard["ShardId"].as_str().expect("an id").to_owned(),
        range: (
            bound("StartingHashKey").expect("a bound"),
            bound("EndingHashKey").expect("a bound"),
        ),
        is_closed: !shard["SequenceNumberRange"]["EndingSequenceNumber"].is_null(),
    }
}

fn note_rare(world: &World, sent: &Sent, reply: &Reply) {
    match (sent.operation.as_str(), reply.status) {
        ("SubscribeToShard", 200) => world.count("reached: subscription made"),
        ("SubscribeToShard", _) if contains(&reply.body, b"ResourceInUse") => {
            world.count("reached: subscription refused, another is too young");
        }
        ("RegisterStreamConsumer", 200) => world.count("reached: consumer registered"),
        ("DeregisterStreamConsumer", 200) => {
            world.count("reached: consumer deregistered by the last host");
        }
        _ => {}
    }
}

fn text_of(body: &[u8], member: &str) -> Option<String> {
    let request: Value = serde_json::from_slice(body).ok()?;
    request[member].as_str().map(str::to_owned)
}

/// The shard that a `GetRecords` reads.
fn iterated_shard(body: &[u8]) -> Option<String> {
    let request: Value = serde_json::from_slice(body).ok()?;
    let (_, _, shard, _) = decode_shard_iterator(request["ShardIterator"].as_str()?).ok()?;
    Some(shard)
}

/// A listing may not show yet what was resharded a moment ago: the children are missing, and the
/// parent looks open.
fn lag(world: &World, reply: &mut Reply) {
    let chance = world.weather().chance(Fault::StaleListing);
    if !world.happens(chance) {
        return;
    }
    let Ok(mut listing) = serde_json::from_slice::<Value>(&reply.body) else {
        return;
    };
    let is_new = world.stream.newborn();
    let Some(listed) = listing["Shards"].as_array_mut() else {
        return;
    };
    let before = listed.len();
    let is_newborn = |shard: &Value| {
        !shard["ParentShardId"].is_null() && shard["ShardId"].as_str().is_some_and(&is_new)
    };
    listed.retain(|shard| !is_newborn(shard));
    if listed.len() < before {
        world.count("fault: StaleListing");
        reply.body = listing.to_string().into();
    }
}
