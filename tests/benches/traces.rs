//! What traces cost: `cargo bench --bench traces`. Prints a report; asserts nothing, since machines
//! differ.
//!
//! The embedded stack and the collector run in processes of their own, so that the CPU time counted
//! is the host's, sending included. Without traces and with some take turns in one run, and their
//! ratio is what counts.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use harness::native::NativePlugin;
use harness::otlp::OtlpCollector;
use harness::rig::{Rig, options, unlimited};
use shardmill_config::Config;
use shardmill_core::ports::ProcessorFactory;
use shardmill_core::stream::StreamName;
use shardmill_serve::Traces;
use shardmill_worker::{BatchLimits, Retrieval};

const SHARDS: u32 = 4;
const ROUNDS: usize = 9;
/// Parts of all batches that are traced; the first run is without traces.
const PARTS: [Option<f64>; 4] = [None, Some(0.0), Some(0.01), Some(1.0)];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let tokio = tokio::runtime::Runtime::new().expect("a runtime");
    if let [_, word, file] = &arguments[..]
        && word == "--collect"
    {
        return tokio.block_on(collect(Path::new(file)));
    }
    let records: u64 = std::env::var("SHARDMILL_RECORDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100_000);
    tokio.block_on(run(records));
    tokio.shutdown_background();
}

/// The collector's own process: says where it listens, and takes spans until it is killed.
async fn collect(file: &Path) {
    let collector = OtlpCollector::start().await;
    std::fs::write(file, &collector.url).expect("written");
    std::future::pending::<()>().await;
}

/// Ends the process with it.
struct Collector(Child);

impl Drop for Collector {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn collector(folder: &Path) -> (Collector, String) {
    let file = folder.join("collector");
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    let child = command.arg("--collect").arg(&file).spawn();
    let child = Collector(child.expect("it starts"));
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let url = std::fs::read_to_string(&file).unwrap_or_default();
        if !url.is_empty() {
            return (child, url);
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn run(records: u64) {
    let mut rig = Rig::start().await;
    let (_collector, url) = collector(rig.folder()).await;
    for bytes in [100, 1024] {
        let stream = rig.stream(&format!("bench-{bytes}"), SHARDS).await;
        rig.fill(&stream, records, bytes).await;
        for batch in [1_000, 10] {
            println!("\n{records} records of {bytes} B in batches of {batch}, {SHARDS} shards");
            compare(&mut rig, &stream, (records, batch), &url).await;
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn compare(rig: &mut Rig, stream: &StreamName, (records, batch): (u64, usize), url: &str) {
    let plugin: Arc<dyn ProcessorFactory> = Arc::new(NativePlugin::no_op(1).unwatched());
    let mut runs = [const { Vec::new() }; PARTS.len()];
    for round in 0..ROUNDS {
        for (at, part) in PARTS.iter().enumerate() {
            let application = format!("{stream}-{batch}-{at}-{round}");
            let mut options = options(stream, &application, unlimited(10_000), Retrieval::Polling);
            options.batches = BatchLimits {
                records: batch,
                ..BatchLimits::default()
            };
            let traces = part.map(|part| traces(url, part));
            rig.tracer = traces.as_ref().map(Traces::tracer);
            let sending = traces.map(Traces::send);
            let measure = rig.work_off(options, &plugin, records).await;
            rig.tracer = None;
            if let Some(sending) = sending {
                sending.finish().await;
            }
            runs[at].push(measure.cpu_seconds * 1e6 / records as f64);
        }
    }
    let median = |mut runs: Vec<f64>| {
        runs.sort_by(f64::total_cmp);
        runs[runs.len() / 2]
    };
    let medians = runs.map(median);
    for (part, cpu_us) in PARTS.iter().zip(medians) {
        let what = part.map_or("off".to_owned(), |part| format!("{} %", part * 100.0));
        let ratio = cpu_us / medians[0];
        println!("  {what:>6} {cpu_us:>7.3} us CPU a record, {ratio:.3} of it without traces");
    }
}

fn traces(url: &str, part: f64) -> Traces {
    let text = format!("[traces]\nenabled = true\nendpoint = \"{url}\"\nsample = {part:?}\n");
    let config = Config::parse(&text, Path::new(".")).expect("valid");
    let traces = Traces::of(&config).expect("a client");
    traces.expect("enabled")
}
