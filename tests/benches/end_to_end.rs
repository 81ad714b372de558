//! The whole path, measured: `cargo bench --bench end_to_end`. Prints a report; asserts nothing, since machines differ.
//!
//! The embedded stack runs in a process of its own, so that the CPU time counted is the host's. Native and Wasm no-ops
//! take turns in one run, and their ratio is what counts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use harness::fake_dead_letters::FakeDeadLetters;
use harness::fleet::{CollectingSink, TokioClock};
use harness::guests::guest;
use harness::native::NativePlugin;
use harness::process::{Host, eventually};
use shardmill_aws::{
    AwsClients, AwsOptions, CoordinatorTable, KinesisReader, LeaseTable, PutEntry, StaticCredentials, StreamAdmin,
    StreamWriter, connect,
};
use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::{CheckpointPolicy, FailurePolicy};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{ProcessorFactory, StreamReader};
use shardmill_core::stream::{InitialPosition, ReadFrom, StreamName};
use shardmill_wasm::{Runtime, RuntimeOptions};
use shardmill_worker::{
    BatchLimits, ByteBudget, Freezer, LeaseOptions, Ports, ReadLimits, Retrieval, StatusBoard, Worker, WorkerOptions,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SHARDS: u32 = 4;
const ROUNDS: usize = 5;

/// One measured run.
#[derive(Clone, Copy)]
struct Measure {
    seconds: f64,
    cpu_seconds: f64,
    first: Duration,
}

fn main() {
    let records: u64 = std::env::var("SHARDMILL_RECORDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let tokio = tokio::runtime::Runtime::new().expect("a runtime");
    tokio.block_on(run(records));
    tokio.shutdown_background();
}

async fn run(records: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("plugins")).expect("a folder");
    let stack = Host::start("stack", &["dev"], folder.path());
    let clients = clients(folder.path()).await;
    for bytes in [100, 1024, 10 * 1024] {
        let count = if bytes > 1024 { records / 10 } else { records };
        let stream = fill(&clients, count, bytes).await;
        // As many as there are; and as many as AWS gives out in a fifth of a second: 2 MB/s, five calls.
        for per_call in [10_000, u32::try_from(400_000 / bytes).unwrap_or(1)] {
            throughput(&clients, &stream, (count, bytes, per_call)).await;
        }
    }
    first_record(&clients, folder.path()).await;
    memory(&clients, folder.path()).await;
    drop(stack);
}

async fn clients(folder: &Path) -> AwsClients {
    let endpoints = folder.join("data/endpoints.json");
    eventually("the stack runs", || endpoints.exists()).await;
    let text = std::fs::read_to_string(endpoints).expect("readable");
    let endpoints: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let options = AwsOptions {
        region: Some("us-east-1".to_owned()),
        kinesis_endpoint: endpoints["kinesis"].as_str().map(str::to_owned),
        dynamodb_endpoint: endpoints["dynamodb"].as_str().map(str::to_owned),
        credentials: Some(StaticCredentials::dummy()),
    };
    connect(&options).await.expect("clients")
}

#[expect(clippy::print_stdout, reason = "the report is what this command is for")]
async fn fill(clients: &AwsClients, records: u64, bytes: usize) -> StreamName {
    let stream = StreamName::new(format!("bench-{bytes}")).expect("valid");
    StreamAdmin::new(clients.kinesis.clone()).ensure_stream(&stream, SHARDS).await.expect("a stream");
    let entry = |n: u64| PutEntry {
        partition_key: n.to_string(),
        explicit_hash_key: None,
        data: Bytes::from(vec![b'x'; bytes]),
    };
    let started = Instant::now();
    let writer = StreamWriter::new(clients.kinesis.clone(), stream.clone());
    writer.put_all((0..records).map(entry), |_, _| {}).await.expect("put");
    let rate = records as f64 / started.elapsed().as_secs_f64();
    println!("\n{records} records of {bytes} B put at {rate:.0} records/s");
    stream
}

#[expect(clippy::print_stdout, reason = "the report is what this command is for")]
async fn throughput(clients: &AwsClients, stream: &StreamName, (records, bytes, per_call): (u64, usize, u32)) {
    let engine = Runtime::new(RuntimeOptions::default()).expect("an engine");
    let name = PluginName::new("noop").expect("valid");
    let wasm: Arc<dyn ProcessorFactory> = Arc::new(engine.load(name, Bytes::from(guest("noop"))).await.expect("loads"));
    let native: Arc<dyn ProcessorFactory> = Arc::new(NativePlugin::no_op(1).unwatched());
    let (mut of_read, mut of_native, mut of_wasm) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let application = |what: &str| options(stream, &format!("{what}-{bytes}-{per_call}-{round}"), per_call);
        of_read.push(read_only(clients, stream, records, per_call).await);
        of_native.push(pipeline(clients, application("native"), &native, records).await);
        of_wasm.push(pipeline(clients, application("wasm"), &wasm, records).await);
    }
    println!("{records} records of {bytes} B, up to {per_call} a reply, {SHARDS} shards, median of {ROUNDS} runs");
    report(records, bytes, [("read only", of_read), ("native", of_native), ("wasm", of_wasm)]);
}

#[expect(clippy::print_stdout, reason = "the report is what this command is for")]
fn report(records: u64, bytes: usize, runs: [(&str, Vec<Measure>); 3]) {
    let mut cpu = Vec::new();
    for (what, mut runs) in runs {
        runs.sort_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
        let cpu_us = runs[runs.len() / 2].cpu_seconds * 1e6 / records as f64;
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let Measure { seconds, first, .. } = runs[runs.len() / 2];
        let rate = records as f64 / seconds;
        println!(
            "  {what:10} {rate:>9.0} records/s {:>7.1} MB/s {cpu_us:>7.2} us CPU a record, first batch after {first:.0?}",
            rate * bytes as f64 / 1e6
        );
        cpu.push((cpu_us, rate));
    }
    println!(
        "  wasm/native: CPU {:.3}, rate {:.3}; read only is {:.0} % of the native pipeline's CPU",
        cpu[2].0 / cpu[1].0,
        cpu[2].1 / cpu[1].1,
        100.0 * cpu[0].0 / cpu[1].0
    );
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Reads everything and throws it away: the price of the SDK alone.
async fn read_only(clients: &AwsClients, stream: &StreamName, records: u64, per_call: u32) -> Measure {
    let (cpu, started) = (cpu_seconds(), Instant::now());
    let reader = Arc::new(KinesisReader::new(clients.kinesis.clone(), stream.clone()));
    let mut readers = tokio::task::JoinSet::new();
    for shard in reader.list_shards().await.expect("shards") {
        let reader = Arc::clone(&reader);
        readers.spawn(async move {
            let mut next = reader.iterator(&shard.id, &ReadFrom::TrimHorizon).await.expect("an iterator");
            let mut count = 0;
            loop {
                let fetched = reader.fetch(&next, per_call).await.expect("a reply");
                match fetched.next {
                    Some(iterator) if !fetched.records.is_empty() => next = iterator,
                    Some(_) | None => return count,
                }
                count += fetched.records.len() as u64;
            }
        });
    }
    let counts = readers.join_all().await;
    assert_eq!(counts.iter().sum::<u64>(), records);
    Measure { seconds: started.elapsed().as_secs_f64(), cpu_seconds: cpu_seconds() - cpu, first: Duration::ZERO }
}

/// Runs a worker on a table of its own until everything is settled.
async fn pipeline(
    clients: &AwsClients,
    options: WorkerOptions,
    plugin: &Arc<dyn ProcessorFactory>,
    records: u64,
) -> Measure {
    let (_versions, offered) = watch::channel(Arc::clone(plugin));
    let ports = Ports {
        reader: Arc::new(KinesisReader::new(clients.kinesis.clone(), options.stream.clone())),
        subscriptions: None,
        store: Arc::new(LeaseTable::new(clients.dynamodb.clone(), options.application.as_str())),
        coordinator: Arc::new(CoordinatorTable::new(clients.dynamodb.clone(), &options.application)),
        sink: Arc::new(CollectingSink::default()),
        dead_letters: Arc::new(FakeDeadLetters::default()),
        clock: Arc::new(TokioClock::default()),
        budget: ByteBudget::new(256 << 20).expect("large enough"),
        versions: offered,
        freezer: Freezer::never(),
    };
    let status = StatusBoard::default();
    let worker = Worker::new(ports, options, status.clone()).expect("valid options");
    let stop = CancellationToken::new();
    let (cpu, started) = (cpu_seconds(), Instant::now());
    let mut task = tokio::task::JoinSet::new();
    let stopped = stop.clone();
    task.spawn(async move { worker.run(stopped, Duration::from_secs(10)).await });
    let settled = || status.snapshot().shards.values().map(|shard| shard.records).sum::<u64>();
    let mut first = None;
    while settled() < records {
        if settled() > 0 {
            first.get_or_insert_with(|| started.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let measure = Measure {
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        first: first.unwrap_or_default(),
    };
    stop.cancel();
    task.join_all().await;
    measure
}

fn options(stream: &StreamName, application: &str, per_call: u32) -> WorkerOptions {
    WorkerOptions {
        plugin: PluginName::new("noop").expect("valid"),
        application: application.to_owned(),
        stream: stream.clone(),
        worker: WorkerId::new("bench").expect("not empty"),
        initial_position: InitialPosition::TrimHorizon,
        leases: LeaseOptions::default(),
        reads: ReadLimits {
            calls_per_second: 1e6,
            bytes_per_second: 1e12,
            records_per_call: per_call,
            ..ReadLimits::default()
        },
        retrieval: Retrieval::Polling,
        batches: BatchLimits::default(),
        checkpoints: CheckpointPolicy::default(),
        backoff: Backoff::standard(),
        failure: FailurePolicy::default(),
        destinations: vec!["stdout".to_owned()],
        config: Vec::new(),
    }
}

/// From the start of the process on an empty table to the first line of output, compilation included.
#[expect(clippy::print_stdout, reason = "the report is what this command is for")]
async fn first_record(clients: &AwsClients, folder: &Path) {
    let stream = StreamName::new("bench-first").expect("valid");
    StreamAdmin::new(clients.kinesis.clone()).ensure_stream(&stream, 1).await.expect("a stream");
    let entry = PutEntry { partition_key: "k".to_owned(), explicit_hash_key: None, data: Bytes::from_static(b"first") };
    StreamWriter::new(clients.kinesis.clone(), stream).put_all([entry], |_, _| {}).await.expect("put");
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let host = start_host(folder, &format!("first-{round}"), "bench-first", "echo", &guest("echo"));
        let output = folder.join(format!("first-{round}/out.ndjson"));
        let started = Instant::now();
        eventually("the first record", || output.metadata().is_ok_and(|metadata| metadata.len() > 0)).await;
        took.push(started.elapsed());
        drop(host);
    }
    took.sort();
    println!(
        "\nprocess start on an empty table to the first record out: median {:.0?}, longest {:.0?}",
        took[ROUNDS / 2],
        took[ROUNDS - 1]
    );
}

/// Resident memory of the real process: without shards, with 256 idle ones, and after they were busy.
#[expect(clippy::print_stdout, reason = "the report is what this command is for")]
async fn memory(clients: &AwsClients, folder: &Path) {
    let stream = StreamName::new("bench-256").expect("valid");
    StreamAdmin::new(clients.kinesis.clone()).ensure_stream(&stream, 256).await.expect("a stream");
    let none = start_host(folder, "memory-none", "bench-256", "noop", b"");
    eventually("started", || none.log().contains("host started")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle = none.resident_kib();
    drop(none);
    let host = start_host(folder, "memory-256", "bench-256", "noop", &guest("noop"));
    let started = Instant::now();
    let table = LeaseTable::new(clients.dynamodb.clone(), "noop");
    while !is_all_owned(&table).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let owned_after = started.elapsed();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let with_shards = host.resident_kib();
    let entry = |n: u32| PutEntry {
        partition_key: n.to_string(),
        explicit_hash_key: None,
        data: Bytes::from(vec![b'x'; 1024]),
    };
    StreamWriter::new(clients.kinesis.clone(), stream).put_all((0..100_000).map(entry), |_, _| {}).await.expect("put");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let busy = host.resident_kib();
    println!("256 shards owned by one host {owned_after:.1?} after its start");
    println!(
        "resident memory: {} MiB without shards, {} MiB with 256 idle ones, {} MiB after 100,000 records of 1 KiB",
        idle >> 10,
        with_shards >> 10,
        busy >> 10
    );
}

async fn is_all_owned(table: &LeaseTable) -> bool {
    use shardmill_core::ports::LeaseStore;
    let listing = table.list().await.unwrap_or_default();
    listing.leases.len() == 256 && listing.leases.iter().all(|lease| lease.owner.is_some())
}

fn start_host(folder: &Path, id: &str, stream: &str, plugin: &str, bytes: &[u8]) -> Host {
    let own = folder.join(id);
    std::fs::create_dir_all(own.join("plugins")).expect("a folder");
    if !bytes.is_empty() {
        std::fs::write(own.join("plugins").join(format!("{plugin}.wasm")), bytes).expect("written");
    }
    let config = format!(
        "stream = \"{stream}\"\nworker-id = \"{id}\"\n[plugin.{plugin}]\napplication = \"{}\"\nconfig = {{ destination = \"out\" }}\n[sinks.out]\ntype = \"file\"\npath = \"out.ndjson\"\n",
        if plugin == "noop" { "noop".to_owned() } else { id.to_owned() },
    );
    std::fs::write(own.join("shardmill.toml"), config).expect("written");
    Host::start("host", &["run", "--local", "../data"], &own)
}
