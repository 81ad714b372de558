//! Kinesis: the embedded one, called without a socket, and the truth about what was put into it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use aws_smithy_types::base64;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use bytes::Bytes;
use ferrokinesis::shard_iterator::decode_shard_iterator;
use serde_json::{Value, json};
use shardmill_invariants::history::{Micros, Place, ShardInfo, Topology, What};
use tower::ServiceExt;

use crate::options::{CONSUMER, STREAM};
use crate::producer::Entry;
use crate::weather::Fault;
use crate::wire::{Reply, Sent, Subscribed, contains};
use crate::world::{World, lock};

/// Reads a second that one shard allows (AWS limit).
const READS_PER_SECOND: usize = 5;
const REPLY_BYTES_MAX: usize = 64 << 20;
/// How long a subscription lasts (AWS limit).
const LIFETIME: Duration = Duration::from_mins(5);

/// One stream.
pub struct Stream {
    router: Router,
    shards: Mutex<BTreeMap<String, Truth>>,
    reads: Mutex<BTreeMap<String, VecDeque<Micros>>>,
    subscription_lasts: Mutex<Duration>,
}

/// What is true of a shard.
#[derive(Debug, Clone)]
pub struct Truth {
    /// Its part of the hash key space.
    pub range: (u128, u128),
    /// Whether it was split or merged.
    pub is_closed: bool,
    /// Everything put into it, in order.
    pub places: Vec<Place>,
    /// When it came to be.
    pub since: Micros,
}

impl Stream {
    /// A service without streams.
    pub async fn new() -> Self {
        let router = shardmill_local::kinesis::in_process().await.expect("a service in memory");
        Self { router, shards: Mutex::default(), reads: Mutex::default(), subscription_lasts: Mutex::new(LIFETIME) }
    }

    /// The shards as they are.
    pub fn shards(&self) -> BTreeMap<String, Truth> {
        lock(&self.shards).clone()
    }

    /// Answers a host's request.
    pub async fn apply(&self, world: &World, sent: &Sent) -> Reply {
        let shard = (sent.operation == "GetRecords").then(|| iterated_shard(&sent.body)).flatten();
        if let Some(shard) = &shard
            && self.is_too_fast(world, shard)
        {
            world.count("fault: ReadThrottle");
            return Reply::error(400, "ProvisionedThroughputExceededException");
        }
        let mut reply = self.send(&sent.operation, sent.body.clone()).await;
        if sent.operation == "ListShards" {
            self.lag(world, &mut reply);
        }
        note_rare(world, sent, &reply);
        let goes_on = reply.status != 200 || contains(&reply.body, b"\"NextShardIterator\"");
        reply.ended_shard = shard.filter(|_| !goes_on);
        reply
    }

    /// A listing may not show yet what was resharded a moment ago: the children are missing, and the parent looks open.
    fn lag(&self, world: &World, reply: &mut Reply) {
        let (chance, oldest) = {
            let weather = world.weather();
            (weather.chance(Fault::StaleListing), weather.staleness_max)
        };
        if !world.happens(chance) {
            return;
        }
        let Ok(mut listing) = serde_json::from_slice::<Value>(&reply.body) else { return };
        let lag = Micros::try_from(oldest.as_micros()).unwrap_or(Micros::MAX);
        let from = world.now().saturating_sub(lag);
        let shards = self.shards();
        let is_new = |id: &str| shards.get(id).is_some_and(|truth| truth.since > from && truth.since > 0);
        let Some(listed) = listing["Shards"].as_array_mut() else { return };
        let before = listed.len();
        let is_newborn =
            |shard: &Value| !shard["ParentShardId"].is_null() && shard["ShardId"].as_str().is_some_and(is_new);
        listed.retain(|shard| !is_newborn(shard));
        if listed.len() < before {
            world.count("fault: StaleListing");
            reply.body = listing.to_string().into();
        }
    }

    /// Makes the stream.
    pub async fn create(&self, world: &World, shards: u32) {
        self.ask("CreateStream", &json!({"StreamName": STREAM, "ShardCount": shards})).await;
        let created = self.refresh(world).await;
        world.note(What::Topology(Topology::Created { identity: 1, shards: created }));
    }

    /// Puts these records, as a producer who always gets its answer.
    pub async fn put(&self, world: &World, entries: &[Entry]) {
        let record = |entry: &Entry| json!({"Data": base64::encode(&entry.data), "PartitionKey": entry.key});
        let records: Vec<_> = entries.iter().map(record).collect();
        let reply = self.ask("PutRecords", &json!({"StreamName": STREAM, "Records": records})).await;
        let mut shards = lock(&self.shards);
        for (entry, result) in entries.iter().zip(reply["Records"].as_array().into_iter().flatten()) {
            let (Some(shard), Some(sequence)) = (result["ShardId"].as_str(), result["SequenceNumber"].as_str()) else {
                continue;
            };
            let truth = shards.get_mut(shard).expect("a known shard");
            for (sub, key) in (0..).zip(&entry.inside) {
                let at = Place { sub, ..Place::plain(sequence) };
                truth.places.push(at.clone());
                let arrived_at = world.now() / 1_000 * 1_000;
                world.note(What::Produced { shard: shard.to_owned(), at, key: key.clone(), arrived_at });
            }
        }
    }

    /// How long a subscription lasts.
    pub fn subscription_lasts(&self) -> Duration {
        *lock(&self.subscription_lasts)
    }

    /// From here on subscriptions last only so long, so that a run of a minute sees several.
    pub fn shorten_subscriptions(&self, lasts: Duration) {
        *lock(&self.subscription_lasts) = lasts;
    }

    /// Somebody deregisters the hosts' consumer.
    pub async fn deregister(&self, world: &World) {
        let summary = self.ask("DescribeStreamSummary", &json!({"StreamName": STREAM})).await;
        let arn = &summary["StreamDescriptionSummary"]["StreamARN"];
        let request = json!({"StreamARN": arn, "ConsumerName": CONSUMER}).to_string();
        if self.send("DeregisterStreamConsumer", request.into()).await.status == 200 {
            world.count("fault: consumer deregistered");
        }
    }

    /// Somebody else subscribes to a shard with the hosts' consumer, and leaves at once.
    pub async fn intrude(&self, world: &World, shard: &str) {
        let summary = self.ask("DescribeStreamSummary", &json!({"StreamName": STREAM})).await;
        let arn = &summary["StreamDescriptionSummary"]["StreamARN"];
        let found = self.ask("DescribeStreamConsumer", &json!({"StreamARN": arn, "ConsumerName": CONSUMER})).await;
        let consumer = &found["ConsumerDescription"]["ConsumerARN"];
        let request = json!({"ConsumerARN": consumer, "ShardId": shard, "StartingPosition": {"Type": "LATEST"}});
        if self.send("SubscribeToShard", request.to_string().into()).await.status == 200 {
            world.count("fault: intruder subscribes");
        }
    }

    /// Splits an open shard in two.
    pub async fn split(&self, world: &World, parent: &str) {
        let Some(truth) = self.shards().remove(parent) else { return };
        let (start, end) = truth.range;
        if truth.is_closed || end - start < 4 {
            return;
        }
        let middle = start + (end - start) / 2;
        let request = json!({"StreamName": STREAM, "ShardToSplit": parent, "NewStartingHashKey": middle.to_string()});
        self.ask("SplitShard", &request).await;
        let children = self.refresh(world).await;
        world.count("reached: split");
        world.note(What::Topology(Topology::Split { parent: parent.to_owned(), children }));
    }

    /// Merges two open shards that lie next to each other.
    pub async fn merge(&self, world: &World, parents: [&str; 2]) {
        let request = json!({"StreamName": STREAM, "ShardToMerge": parents[0], "AdjacentShardToMerge": parents[1]});
        self.ask("MergeShards", &request).await;
        let mut children = self.refresh(world).await;
        let Some(child) = children.pop() else { return };
        world.count("reached: merge");
        let parents = parents.map(str::to_owned).to_vec();
        world.note(What::Topology(Topology::Merged { parents, child }));
    }

    /// Learns the shards; returns the new ones.
    async fn refresh(&self, world: &World) -> Vec<ShardInfo> {
        let listed = loop {
            let summary = self.ask("DescribeStreamSummary", &json!({"StreamName": STREAM})).await;
            if summary["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE" {
                break self.ask("ListShards", &json!({"StreamName": STREAM})).await;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let mut shards = lock(&self.shards);
        let mut fresh = Vec::new();
        for shard in listed["Shards"].as_array().into_iter().flatten() {
            let id = shard["ShardId"].as_str().expect("an id").to_owned();
            let bound = |name: &str| shard["HashKeyRange"][name].as_str().and_then(|text| text.parse().ok());
            let range = (bound("StartingHashKey").expect("a bound"), bound("EndingHashKey").expect("a bound"));
            let is_closed = !shard["SequenceNumberRange"]["EndingSequenceNumber"].is_null();
            if let Some(known) = shards.get_mut(&id) {
                known.is_closed = is_closed;
            } else {
                fresh.push(ShardInfo { id: id.clone(), range });
                shards.insert(id, Truth { range, is_closed, places: Vec::new(), since: world.now() });
            }
        }
        fresh
    }

    async fn ask(&self, operation: &str, request: &Value) -> Value {
        let reply = self.send(operation, request.to_string().into()).await;
        serde_json::from_slice(&reply.body).unwrap_or(Value::Null)
    }

    async fn send(&self, operation: &str, body: Bytes) -> Reply {
        let asked_shard = (operation == "SubscribeToShard").then(|| text_of(&body, "ShardId")).flatten();
        let request = Request::post("/")
            .header("content-type", "application/x-amz-json-1.1")
            .header("x-amz-target", format!("Kinesis_20131202.{operation}"))
            .header("x-amz-date", "20260101T000000Z")
            .header("authorization", "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/kinesis/aws4_request, SignedHeaders=host, Signature=b")
            .body(Body::from(body))
            .expect("a request");
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status().as_u16();
        let kind = response.headers().get("content-type");
        if kind.is_some_and(|kind| kind == "application/vnd.amazon.eventstream") {
            let events = Some(Subscribed { shard: asked_shard.unwrap_or_default(), frames: response.into_body() });
            return Reply { events, ..Reply::plain(status, Bytes::new()) };
        }
        let body = to_bytes(response.into_body(), REPLY_BYTES_MAX).await.expect("a body in memory");
        Reply::plain(status, body)
    }

    /// Five reads a second of a shard, whoever reads.
    fn is_too_fast(&self, world: &World, shard: &str) -> bool {
        if world.weather().chance(Fault::Unlimited) > 0.0 {
            return false;
        }
        let now = world.now();
        let mut reads = lock(&self.reads);
        let recent = reads.entry(shard.to_owned()).or_default();
        recent.retain(|at| at + 1_000_000 > now);
        if recent.len() >= READS_PER_SECOND {
            return true;
        }
        recent.push_back(now);
        false
    }
}

fn note_rare(world: &World, sent: &Sent, reply: &Reply) {
    match (sent.operation.as_str(), reply.status) {
        ("SubscribeToShard", 200) => world.count("reached: subscription made"),
        ("SubscribeToShard", _) if contains(&reply.body, b"ResourceInUse") => {
            world.count("reached: subscription refused, another is too young");
        }
        ("RegisterStreamConsumer", 200) => world.count("reached: consumer registered"),
        ("DeregisterStreamConsumer", 200) => world.count("reached: consumer deregistered by the last host"),
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

/// Two open shards that lie next to each other, if there are any.
pub fn neighbours(shards: &BTreeMap<String, Truth>, start: usize) -> Option<[String; 2]> {
    let mut open: Vec<_> = shards.iter().filter(|(_, truth)| !truth.is_closed).collect();
    open.sort_by_key(|(_, truth)| truth.range);
    let pairs: Vec<_> = open.windows(2).filter(|pair| pair[0].1.range.1 + 1 == pair[1].1.range.0).collect();
    let pair = pairs.get(start.checked_rem(pairs.len())?)?;
    Some([pair[0].0.clone(), pair[1].0.clone()])
}
