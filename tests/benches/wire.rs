//! What decoding costs: `cargo bench --bench wire`. Prints a report; asserts nothing, since
//! machines differ.
//!
//! A process of its own answers every request with the same reply, prepared once in both formats,
//! so that the CPU counted is the reader's alone: the SDK's client, HTTP, signatures and the
//! codec. The ways of reading take turns in one run; their ratios are what counts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use harness::rig::cpu_seconds;
use serde_json::json;
use shardmill_aws::{AwsOptions, KinesisReader, StaticCredentials, Wire, WireSetting, connect};
use shardmill_core::ports::{ShardIterator, StreamReader};
use shardmill_core::stream::StreamName;
use shardmill_wire::{CborWriter, Format};

/// Sizes of records, and how many there are in a reply: of a shard that is caught up on (2 MB a
/// second in five calls), and of one that is far behind.
const REPLIES: [(usize, usize); 6] = [
    (100, 2_000),
    (100, 10_000),
    (1_024, 390),
    (1_024, 8_000),
    (10_240, 39),
    (10_240, 1_000),
];
const ROUNDS: usize = 7;
/// Bytes of records read in a round: long enough for the clock of the process.
const ROUND_BYTES: usize = 200_000_000;
/// At most so many records in a round of small ones.
const ROUND_RECORDS: usize = 400_000;
/// Tells the same program to be the server.
const SERVER: &str = "SHARDMILL_CANNED_SERVER";

fn main() {
    let tokio = tokio::runtime::Runtime::new().expect("a runtime");
    if std::env::var_os(SERVER).is_some() {
        tokio.block_on(serve());
    } else {
        tokio.block_on(measure());
    }
    tokio.shutdown_background();
}

/// One reply in both formats.
struct Canned {
    json: Bytes,
    cbor: Bytes,
}

impl Canned {
    fn new(bytes: usize, records: usize) -> Self {
        Self {
            json: in_json(bytes, records).into(),
            cbor: in_cbor(bytes, records).into(),
        }
    }
}

/// 56 digits, as Kinesis gives them.
fn sequence(n: usize) -> String {
    format!("4954498593665654000000000000000000000000000000000{n:07}")
}

/// Bytes that are no text.
fn data(bytes: usize, n: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| u8::try_from((at * 31 + n * 17) % 251).expect("less than 256"))
        .collect()
}

fn in_json(bytes: usize, records: usize) -> Vec<u8> {
    use base64::Engine;
    let engine = base64::engine::general_purpose::STANDARD;
    let records: Vec<_> = (0..records)
        .map(|n| {
            json!({
                "SequenceNumber": sequence(n),
                "ApproximateArrivalTimestamp": 1_441_215_410.867,
                "Data": engine.encode(data(bytes, n)),
                "PartitionKey": format!("partition-key-{n}"),
            })
        })
        .collect();
    let reply = json!({"Records": records, "NextShardIterator": "next", "MillisBehindLatest": 0});
    serde_json::to_vec(&reply).expect("JSON")
}

fn in_cbor(bytes: usize, records: usize) -> Vec<u8> {
    let mut body = CborWriter::default();
    body.open_map();
    body.text("Records");
    body.open_list();
    for n in 0..records {
        body.open_map();
        body.text("SequenceNumber");
        body.text(&sequence(n));
        body.text("ApproximateArrivalTimestamp");
        body.time_ms(1_441_215_410_867);
        body.text("Data");
        body.bytes(&data(bytes, n));
        body.text("PartitionKey");
        body.text(&format!("partition-key-{n}"));
        body.end();
    }
    body.end();
    body.text("NextShardIterator");
    body.text("next");
    body.text("MillisBehindLatest");
    body.integer(0);
    body.end();
    body.finish()
}

/// A port for each reply, told on standard output in their order.
#[expect(
    clippy::print_stdout,
    reason = "the ports are what the measuring process waits for"
)]
async fn serve() {
    let mut servers = tokio::task::JoinSet::new();
    let mut ports = Vec::new();
    for (bytes, records) in REPLIES {
        let canned = Arc::new(Canned::new(bytes, records));
        let router = Router::new().fallback(reply).with_state(canned);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        ports.push(
            listener
                .local_addr()
                .expect("an address")
                .port()
                .to_string(),
        );
        servers.spawn(async move { axum::serve(listener, router).await.expect("serves") });
    }
    println!("{}", ports.join(" "));
    servers.join_all().await;
}

async fn reply(State(canned): State<Arc<Canned>>, headers: HeaderMap) -> impl IntoResponse {
    let asked = headers.get(header::CONTENT_TYPE);
    let is_cbor = asked.is_some_and(|asked| asked == Format::Cbor.content_type());
    let (format, body) = if is_cbor {
        (Format::Cbor, canned.cbor.clone())
    } else {
        (Format::Json, canned.json.clone())
    };
    ([(header::CONTENT_TYPE, format.content_type())], body)
}

/// The other process; ends with this value.
struct Server {
    process: Child,
    ports: Vec<String>,
}

impl Server {
    fn start() -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut process = Command::new(program)
            .env(SERVER, "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let output = process.stdout.take().expect("its output");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("ports");
        let ports = line.split_whitespace().map(str::to_owned).collect();
        Self { process, ports }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _is_gone = self.process.kill();
    }
}

/// The ways to read, and what each of them is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Sdk,
    Json,
    Cbor,
}

impl Way {
    const ALL: [Self; 3] = [Self::Sdk, Self::Json, Self::Cbor];

    const fn name(self) -> &'static str {
        match self {
            Self::Sdk => "the SDK's JSON",
            Self::Json => "our JSON",
            Self::Cbor => "our CBOR",
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn measure() {
    let server = Server::start();
    for ((bytes, records), port) in REPLIES.into_iter().zip(&server.ports) {
        let options = AwsOptions {
            region: Some("us-east-1".to_owned()),
            kinesis_endpoint: Some(format!("http://127.0.0.1:{port}")),
            credentials: Some(StaticCredentials::dummy()),
            ..AwsOptions::default()
        };
        let client = connect(&options).await.expect("clients").kinesis;
        let calls = (ROUND_BYTES / bytes).min(ROUND_RECORDS).div_ceil(records);
        let mut runs: BTreeMap<Way, Vec<f64>> = BTreeMap::new();
        for _ in 0..ROUNDS {
            for way in Way::ALL {
                let cpu = read(&client, way, calls, records).await;
                let cpu_us = cpu * 1e6 / (calls * records) as f64;
                runs.entry(way).or_default().push(cpu_us);
            }
        }
        println!(
            "{records} records of {bytes} B a reply, median of {ROUNDS} rounds of {calls} calls"
        );
        let median = |way: Way| {
            let mut of_way = runs[&way].clone();
            of_way.sort_by(f64::total_cmp);
            of_way[ROUNDS / 2]
        };
        for way in Way::ALL {
            println!(
                "  {:15} {:>6.3} us CPU a record, {:.2} of the SDK's",
                way.name(),
                median(way),
                median(way) / median(Way::Sdk)
            );
        }
    }
}

/// Reads the same reply again and again; gives the CPU seconds that it took.
async fn read(client: &aws_sdk_kinesis::Client, way: Way, calls: usize, records: usize) -> f64 {
    let stream = StreamName::new("canned").expect("valid");
    let setting = match way {
        Way::Sdk | Way::Json => WireSetting::Json,
        Way::Cbor => WireSetting::Cbor,
    };
    let reader = KinesisReader::new(client.clone(), stream).speaking(Wire::new(setting));
    let iterator = ShardIterator("canned".to_owned());
    let started = cpu_seconds();
    for _ in 0..calls {
        let count = if way == Way::Sdk {
            let request = client.get_records().shard_iterator(&iterator.0);
            let reply = request.limit(10_000).send().await.expect("a reply");
            in_our_types(reply.records)
        } else {
            let fetched = reader.fetch(&iterator, 10_000).await.expect("a reply");
            fetched.records.len()
        };
        assert_eq!(count, records);
    }
    cpu_seconds() - started
}

/// What the host did with the SDK's records before it had codecs of its own.
fn in_our_types(records: Vec<aws_sdk_kinesis::types::Record>) -> usize {
    use shardmill_core::stream::{Position, Record, SequenceNumber};
    let record = |record: aws_sdk_kinesis::types::Record| Record {
        data: Bytes::from(record.data.into_inner()),
        partition_key: record.partition_key.unwrap_or_default(),
        explicit_hash_key: None,
        position: Position::plain(
            SequenceNumber::parse(&record.sequence_number).expect("a number"),
        ),
        arrival_ms: record
            .approximate_arrival_timestamp
            .and_then(|at| at.to_millis().ok())
            .and_then(|ms| u64::try_from(ms).ok())
            .unwrap_or(0),
    };
    let records: Vec<Record> = records.into_iter().map(record).collect();
    records.len()
}
