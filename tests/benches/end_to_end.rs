//! The whole path, measured: `cargo bench --bench end_to_end`. Prints a report; asserts nothing,
//! since machines differ.
//!
//! The embedded stack runs in a process of its own, so that the CPU time counted is the host's.
//! Native and Wasm no-ops take turns in one run, and their ratio is what counts.

#[path = "end_to_end/neighbours.rs"]
mod neighbours;
#[path = "end_to_end/parallel.rs"]
mod parallel;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use harness::guests::guest;
use harness::native::NativePlugin;
use harness::process::{Host, eventually};
use harness::rig::{Measure, Rig, options, unlimited};
use shardmill_aws::LeaseTable;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::ProcessorFactory;
use shardmill_core::stream::StreamName;
use shardmill_wasm::{Runtime, RuntimeOptions};
use shardmill_worker::Retrieval;
use tokio::time::Instant;

const SHARDS: u32 = 4;
const ROUNDS: usize = 7;

fn main() {
    let records: u64 = std::env::var("SHARDMILL_RECORDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100_000);
    let tokio = tokio::runtime::Runtime::new().expect("a runtime");
    tokio.block_on(run(records));
    tokio.shutdown_background();
}

#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn run(records: u64) {
    let rig = Rig::start().await;
    if std::env::var_os("SHARDMILL_NEIGHBOURS").is_some() {
        return neighbours::measure(&rig).await;
    }
    if std::env::var_os("SHARDMILL_PARALLEL").is_some() {
        return parallel::measure(&rig).await;
    }
    for bytes in [100, 1024, 10 * 1024] {
        let count = if bytes > 1024 { records / 10 } else { records };
        let stream = rig.stream(&format!("bench-{bytes}"), SHARDS).await;
        let rate = rig.fill(&stream, count, bytes).await;
        println!("\n{count} records of {bytes} B put at {rate:.0} records/s");
        // As many as there are; and as many as AWS gives out in a fifth of a second: 2 MB/s, five
        // calls.
        for per_call in [10_000, u32::try_from(400_000 / bytes).unwrap_or(1)] {
            throughput(&rig, &stream, (count, bytes, per_call)).await;
        }
    }
    first_record(&rig).await;
    memory(&rig).await;
    neighbours::measure(&rig).await;
    parallel::measure(&rig).await;
}

#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn throughput(rig: &Rig, stream: &StreamName, (records, bytes, per_call): (u64, usize, u32)) {
    let in_frames = component("noop").await;
    let in_lists = component("noop_lists").await;
    let native: Arc<dyn ProcessorFactory> = Arc::new(NativePlugin::no_op(1).unwatched());
    let [mut of_read, mut of_native, mut of_frames, mut of_lists] = [const { Vec::new() }; 4];
    for round in 0..ROUNDS {
        let run = |what: &str| {
            let application = format!("{what}-{bytes}-{per_call}-{round}");
            options(
                stream,
                &application,
                unlimited(per_call),
                Retrieval::Polling,
            )
        };
        of_read.push(rig.read_only(stream, records, per_call).await);
        of_native.push(rig.work_off(run("native"), &native, records).await);
        of_frames.push(rig.work_off(run("frames"), &in_frames, records).await);
        of_lists.push(rig.work_off(run("lists"), &in_lists, records).await);
    }
    println!(
        "{records} records of {bytes} B, up to {per_call} a reply, {SHARDS} shards, median of \
            {ROUNDS} runs"
    );
    report(
        records,
        bytes,
        [
            ("read only", of_read),
            ("native", of_native),
            ("frames", of_frames),
            ("lists", of_lists),
        ],
    );
}

async fn component(guest_name: &str) -> Arc<dyn ProcessorFactory> {
    let engine = Runtime::new(RuntimeOptions::default()).expect("an engine");
    let name = PluginName::new("noop").expect("valid");
    let loaded = engine.load(name, Bytes::from(guest(guest_name))).await;
    Arc::new(loaded.expect("loads"))
}

#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
fn report(records: u64, bytes: usize, runs: [(&str, Vec<Measure>); 4]) {
    let mut cpu = Vec::new();
    for (what, mut runs) in runs {
        runs.sort_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
        let cpu_us = runs[runs.len() / 2].cpu_seconds * 1e6 / records as f64;
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let Measure { seconds, first, .. } = runs[runs.len() / 2];
        let rate = records as f64 / seconds;
        println!(
            "  {what:10} {rate:>9.0} records/s {:>7.1} MB/s {cpu_us:>7.2} us CPU a record, first \
                batch after {first:.0?}",
            rate * bytes as f64 / 1e6
        );
        cpu.push((cpu_us, rate));
    }
    println!(
        "  of the native pipeline's CPU: read only {:.2}, a component in frames {:.2}, in lists {:.2}",
        cpu[0].0 / cpu[1].0,
        cpu[2].0 / cpu[1].0,
        cpu[3].0 / cpu[1].0
    );
}

/// From the start of the process on an empty table to the first line of output, compilation
/// included.
#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn first_record(rig: &Rig) {
    let stream = rig.stream("bench-first", 1).await;
    rig.fill(&stream, 1, 5).await;
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let host = start_host(
            rig,
            &format!("first-{round}"),
            "bench-first",
            "echo",
            &guest("echo"),
        );
        let output = rig.folder().join(format!("first-{round}/out.ndjson"));
        let started = Instant::now();
        eventually("the first record", || {
            output.metadata().is_ok_and(|metadata| metadata.len() > 0)
        })
        .await;
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

/// Resident memory of the real process: without shards, with 256 idle ones, and after they were
/// busy.
#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn memory(rig: &Rig) {
    let stream = rig.stream("bench-256", 256).await;
    let none = start_host(rig, "memory-none", "bench-256", "noop", b"");
    eventually("started", || none.log().contains("host started")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle = none.resident_kib();
    drop(none);
    let host = start_host(rig, "memory-256", "bench-256", "noop", &guest("noop"));
    let started = Instant::now();
    let table = LeaseTable::new(rig.clients.dynamodb.clone(), "noop");
    while !is_all_owned(&table).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let owned_after = started.elapsed();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let with_shards = host.resident_kib();
    rig.fill(&stream, 100_000, 1024).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let busy = host.resident_kib();
    println!("256 shards owned by one host {owned_after:.1?} after its start");
    println!(
        "resident memory: {} MiB without shards, {} MiB with 256 idle ones, {} MiB after 100,000 \
            records of 1 KiB",
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

fn start_host(rig: &Rig, id: &str, stream: &str, plugin: &str, bytes: &[u8]) -> Host {
    let own = rig.folder().join(id);
    std::fs::create_dir_all(own.join("plugins")).expect("a folder");
    if !bytes.is_empty() {
        std::fs::write(own.join("plugins").join(format!("{plugin}.wasm")), bytes).expect("written");
    }
    let config = format!(
        "stream = \"{stream}\"\nworker-id = \"{id}\"\n[plugin.{plugin}]\napplication = \
            \"{}\"\nconfig = {{ destination = \"out\" }}\n[sinks.out]\ntype = \"file\"\npath = \
            \"out.ndjson\"\n",
        if plugin == "noop" {
            "noop".to_owned()
        } else {
            id.to_owned()
        },
    );
    std::fs::write(own.join("shardmill.toml"), config).expect("written");
    Host::start("host", &["run", "--local=../data"], &own)
}
