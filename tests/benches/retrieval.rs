//! Reading, polled and pushed: `cargo bench --bench retrieval`. Prints a report; asserts nothing,
//! since machines differ.
//!
//! - How fast one shard is worked off, by size of record, and what share of the processor time goes
//!   where.
//! - How close polling comes to what AWS gives out.
//! - The time from `PutRecords` to delivery.
//! - The memory of the real process while 256 shards are worked off at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use harness::guests::guest;
use harness::native::NativePlugin;
use harness::process::{Host, eventually};
use harness::rig::{Measure, Rig, fan_out, options, unlimited};
use shardmill_aws::{LeaseTable, PutEntry, StreamWriter};
use shardmill_core::lease::Checkpoint;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{LeaseStore, ProcessorFactory};
use shardmill_core::stream::StreamName;
use shardmill_wasm::{Runtime, RuntimeOptions};
use shardmill_worker::{ReadLimits, Retrieval};
use tokio::time::Instant;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Sizes of records, and how many of each are put.
const SIZES: [(usize, u64); 5] = [
    (100, 200_000),
    (KIB, 100_000),
    (10 * KIB, 20_000),
    (MIB, 200),
    (10 * MIB, 20),
];
const ROUNDS: usize = 3;

fn main() {
    let tokio = tokio::runtime::Runtime::new().expect("a runtime");
    tokio.block_on(run());
    tokio.shutdown_background();
}

/// All parts, or the one that `SHARDMILL_PART` names.
async fn run() {
    let part = std::env::var("SHARDMILL_PART").ok();
    let is_wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    let rig = Rig::start().await;
    if is_wanted("throughput") {
        for (bytes, records) in SIZES {
            throughput(&rig, bytes, records).await;
        }
    }
    if is_wanted("limits") {
        at_the_limits(&rig).await;
    }
    if is_wanted("latency") {
        latency(&rig, "polling", Retrieval::Polling).await;
        latency(&rig, "fan-out", fan_out("latency")).await;
    }
    if is_wanted("memory") {
        memory(&rig, (KIB, 300_000), "4MiB").await;
        memory(&rig, (100 * KIB, 5_000), "4MiB").await;
        memory(&rig, (100 * KIB, 5_000), "256KiB").await;
        // An account has 1,000 shards.
        let rig = Rig::start().await;
        budgeted(&rig, (KIB, 300_000), "256MiB").await;
        budgeted(&rig, (100 * KIB, 5_000), "256MiB").await;
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn throughput(rig: &Rig, bytes: usize, records: u64) {
    let stream = rig.stream(&format!("bench-{bytes}"), 1).await;
    rig.take_large_records(&stream).await;
    rig.fill(&stream, records, bytes).await;
    let engine = Runtime::new(RuntimeOptions::default()).expect("an engine");
    let name = PluginName::new("noop").expect("valid");
    let wasm: Arc<dyn ProcessorFactory> = Arc::new(
        engine
            .load(name, Bytes::from(guest("noop")))
            .await
            .expect("loads"),
    );
    let native: Arc<dyn ProcessorFactory> = Arc::new(NativePlugin::no_op(1).unwatched());
    println!("\n{records} records of {bytes} B in one shard, median of {ROUNDS} runs");
    let mut runs: HashMap<&str, Vec<Measure>> = HashMap::new();
    for round in 0..ROUNDS {
        let run = |what: &str, retrieval: Retrieval| {
            options(
                &stream,
                &format!("{what}-{bytes}-{round}"),
                unlimited(10_000),
                retrieval,
            )
        };
        let consumer = fan_out(&format!("c-{bytes}-{round}"));
        let mut add = |what, measure| runs.entry(what).or_default().push(measure);
        add("read only", rig.read_only(&stream, records, 10_000).await);
        add(
            "polling, native",
            rig.work_off(run("pn", Retrieval::Polling), &native, records)
                .await,
        );
        add(
            "polling, wasm",
            rig.work_off(run("pw", Retrieval::Polling), &wasm, records)
                .await,
        );
        add(
            "fan-out, native",
            rig.work_off(run("fn", consumer.clone()), &native, records)
                .await,
        );
        add(
            "fan-out, wasm",
            rig.work_off(run("fw", consumer), &wasm, records).await,
        );
    }
    let mut cpu = HashMap::new();
    for what in [
        "read only",
        "polling, native",
        "polling, wasm",
        "fan-out, native",
        "fan-out, wasm",
    ] {
        let mut of_kind = runs.remove(what).unwrap_or_default();
        of_kind.sort_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
        let cpu_us = of_kind[ROUNDS / 2].cpu_seconds * 1e6 / records as f64;
        // The consumer's making is no part of reading.
        of_kind.sort_by(|a, b| a.working().total_cmp(&b.working()));
        let seconds = of_kind[ROUNDS / 2].working();
        let (rate, per_core) = (records as f64 / seconds, 1e6 / cpu_us);
        let mb = |rate: f64| rate * bytes as f64 / 1e6;
        println!(
            "  {what:16} {rate:>9.0} records/s {:>7.1} MB/s a shard; {cpu_us:>9.2} us CPU a \
                record: {per_core:>9.0} records/s {:>7.1} MB/s a core",
            mb(rate),
            mb(per_core)
        );
        cpu.insert(what, cpu_us);
    }
    let share = |part: f64| 100.0 * part / cpu["polling, wasm"];
    println!(
        "  of polling's CPU with wasm: {:.0} % SDK, {:.0} % pipeline, {:.0} % the call into the component",
        share(cpu["read only"]),
        share(cpu["polling, native"] - cpu["read only"]),
        share(cpu["polling, wasm"] - cpu["polling, native"])
    );
}

/// With the default settings, a backlog of one shard: AWS gives out 2 MB/s.
#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn at_the_limits(rig: &Rig) {
    const RECORDS: u64 = 40_000;
    let stream = rig.stream("bench-limits", 1).await;
    rig.fill(&stream, RECORDS, KIB).await;
    let native: Arc<dyn ProcessorFactory> = Arc::new(NativePlugin::no_op(1).unwatched());
    let options = options(&stream, "limits", ReadLimits::default(), Retrieval::Polling);
    let measure = rig.work_off(options, &native, RECORDS).await;
    let megabytes = RECORDS as f64 * KIB as f64 / 1e6;
    println!(
        "\na backlog of {megabytes:.0} MB in one shard, default settings: {:.2} MB/s, {:.2} % of a core",
        megabytes / measure.seconds,
        100.0 * measure.cpu_seconds / measure.seconds
    );
}

/// Single records at uneven times to a shard that is caught up.
#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn latency(rig: &Rig, what: &str, retrieval: Retrieval) {
    const RECORDS: u32 = 400;
    /// The first ones end the shard's silence, which is another matter.
    const WARM_UP: u32 = 60;
    let stream = rig.stream(&format!("bench-latency-{what}"), 1).await;
    let delivered: Arc<Mutex<HashMap<Bytes, Instant>>> = Arc::default();
    let noted = Arc::clone(&delivered);
    let plugin: Arc<dyn ProcessorFactory> = Arc::new(
        NativePlugin::new(1, move |_, batch| {
            let now = Instant::now();
            let mut noted = noted.lock().expect("nobody panics while holding it");
            noted.extend(
                batch
                    .records
                    .iter()
                    .map(|record| (record.data.clone(), now)),
            );
            Ok(shardmill_core::ports::Processed::default())
        })
        .unwatched(),
    );
    let running = rig.run(
        options(&stream, what, ReadLimits::default(), retrieval),
        &plugin,
    );
    let writer = StreamWriter::new(rig.clients.kinesis.clone(), stream);
    let mut sent = HashMap::new();
    for n in 0..=RECORDS {
        let data = Bytes::from(n.to_string());
        let entry = PutEntry {
            partition_key: "k".to_owned(),
            explicit_hash_key: None,
            data: data.clone(),
        };
        if n > WARM_UP {
            sent.insert(data, Instant::now());
        }
        writer.put_all([entry], |_, _| {}).await.expect("put");
        if n == 0 {
            // The first one waits for leases and a subscription.
            while running.settled() == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(u64::from(20 + n * 37 % 100))).await;
    }
    while running.settled() <= u64::from(RECORDS) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.stop().await;
    let delivered = delivered.lock().expect("nobody panics while holding it");
    let mut took: Vec<Duration> = sent
        .iter()
        .map(|(data, sent)| delivered[data].duration_since(*sent))
        .collect();
    took.sort();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    println!(
        "PutRecords to delivery, {what}: p50 {:.0?}, p99 {:.0?}, longest {:.0?}",
        at(50),
        at(99),
        at(100)
    );
}

/// The real process, with its default buffer of 256 MiB, while 256 shards with a backlog each are
/// worked off at once.
async fn memory(rig: &Rig, size: (usize, u64), batch: &str) {
    work_off_all(rig, size, &format!("[batch]\nbytes = \"{batch}\"")).await;
}

/// The same with the default batches, and with one budget for the memory of all instances.
async fn budgeted(rig: &Rig, size: (usize, u64), budget: &str) {
    work_off_all(
        rig,
        size,
        &format!("[host]\ninstances-memory = \"{budget}\""),
    )
    .await;
}

#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn work_off_all(rig: &Rig, (bytes, records): (usize, u64), settings: &str) {
    const SHARDS: u32 = 256;
    let told: String = settings
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let name = format!("bench-memory-{bytes}-{told}");
    let stream = rig.stream(&name, SHARDS).await;
    rig.fill(&stream, records, bytes).await;
    let folder = rig.folder().join(&name);
    std::fs::create_dir_all(folder.join("plugins")).expect("a folder");
    std::fs::write(folder.join("plugins/noop.wasm"), guest("noop")).expect("written");
    let config =
        format!("stream = \"{name}\"\n{settings}\n[plugin.noop]\napplication = \"{name}\"\n");
    std::fs::write(folder.join("shardmill.toml"), config).expect("written");
    let started = Instant::now();
    let host = Host::start("host", &["run", "--local=../data"], &folder);
    eventually("started", || host.log().contains("host started")).await;
    let mut most = 0;
    while !is_worked_off(rig, &stream).await {
        most = most.max(host.resident_kib());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!(
        "{records} records of {bytes} B over {SHARDS} shards ({} MB), {settings:?}, worked off in \
            {:.1} s: at most {} MiB resident",
        records * bytes as u64 / 1_000_000,
        started.elapsed().as_secs_f64(),
        most.max(host.resident_kib()) >> 10
    );
}

/// Whether nothing of the stream is left to settle: every lease is checkpointed, and says that it
/// is at the tip.
async fn is_worked_off(rig: &Rig, stream: &StreamName) -> bool {
    let table = LeaseTable::new(rig.clients.dynamodb.clone(), stream.as_str());
    let leases = table
        .list()
        .await
        .map(|listing| listing.leases)
        .unwrap_or_default();
    leases.len() == 256
        && leases.iter().all(|lease| {
            matches!(lease.checkpoint, Checkpoint::At(_)) && lease.millis_behind_latest == Some(0)
        })
}
