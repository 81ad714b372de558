//! A plugin that fails on everything, with a full backlog on 16 shards, beside one that works, on
//! one host: what the second loses by it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use harness::guests::guest;
use harness::native::NativePlugin;
use harness::process::eventually;
use harness::rig::{Rig, Running, options, unlimited};
use shardmill_aws::{PutEntry, StreamWriter};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Processed, ProcessorFactory};
use shardmill_core::stream::{InitialPosition, StreamName};
use shardmill_wasm::{Runtime, RuntimeOptions};
use shardmill_worker::{ReadLimits, Retrieval, WorkerOptions};
use tokio::time::Instant;

const SHARDS: u32 = 16;
const ROUNDS: usize = 5;
/// Records of the backlog that fails: more than four of the largest replies on each shard.
const FAILING: u64 = 42 * SHARDS as u64;
/// The backlog that is worked off, in records and the bytes of each.
const BACKLOG: (u64, usize) = (30_000, 10 << 10);
/// How long records are put whose way is timed, and how many at a time.
const TIMED_FOR: Duration = Duration::from_secs(15);
const PUT_EVERY: Duration = Duration::from_millis(50);
const PUT_AT_ONCE: u32 = 32;

/// One run of the plugin that works.
#[derive(Default)]
struct Runs {
    /// At the rates that AWS allows, which are the default.
    seconds: Vec<f64>,
    /// As fast as the stack answers.
    unlimited: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

struct Scene<'a> {
    rig: &'a Rig,
    failing: (StreamName, Arc<dyn ProcessorFactory>),
    working: (StreamName, Arc<dyn ProcessorFactory>),
    timed: StreamName,
}

/// Alone and beside the other take turns in one run; their ratio is what counts.
#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
pub(crate) async fn measure(rig: &Rig) {
    let engine = Runtime::new(RuntimeOptions::default()).expect("an engine");
    let component = async |name: &str| -> Arc<dyn ProcessorFactory> {
        let plugin = PluginName::new(name).expect("valid");
        let loaded = engine
            .load(plugin, Bytes::from(guest(name)))
            .await
            .expect("loads");
        let factory: Arc<dyn ProcessorFactory> = Arc::new(loaded);
        factory
    };
    let failing = rig.stream("bench-failing", SHARDS).await;
    rig.fill(&failing, FAILING, (1 << 20) - 64).await;
    let working = rig.stream("bench-working", SHARDS).await;
    rig.fill(&working, BACKLOG.0, BACKLOG.1).await;
    let timed = rig.stream("bench-timed", SHARDS).await;
    let (failing, working) = (
        (failing, component("evil").await),
        (working, component("noop").await),
    );
    let scene = Scene {
        rig,
        failing,
        working,
        timed,
    };
    let (mut alone, mut beside) = (Runs::default(), Runs::default());
    for round in 0..ROUNDS {
        scene.run(&format!("alone-{round}"), &mut alone).await;
        let neighbour = scene.start_failing(round).await;
        scene.run(&format!("beside-{round}"), &mut beside).await;
        neighbour.stop().await;
    }
    println!(
        "\na plugin that works, alone and beside one that fails on {SHARDS} shards with a full backlog"
    );
    report("alone", &alone);
    report("beside", &beside);
    println!(
        "  beside/alone: throughput {:.2}, unlimited {:.2}, p50 {:.2}, p99 {:.2}",
        median(&alone.seconds) / median(&beside.seconds),
        median(&alone.unlimited) / median(&beside.unlimited),
        median(&beside.p50) / median(&alone.p50),
        median(&beside.p99) / median(&alone.p99)
    );
}

impl Scene<'_> {
    /// Starts the plugin that fails, and waits until it holds all it will.
    async fn start_failing(&self, round: usize) -> Running {
        let (stream, plugin) = &self.failing;
        let mut options = default_options("failing", stream, &format!("failing-{round}"));
        options.config = vec![("misbehave".to_owned(), "trap".to_owned())];
        let neighbour = self.rig.run(options, plugin);
        let is_blocked = || {
            let shards = neighbour.status.snapshot().shards;
            shards
                .values()
                .filter(|shard| shard.blocked.is_some())
                .count()
                == SHARDS as usize
        };
        eventually("every shard fails", is_blocked).await;
        neighbour
    }

    async fn run(&self, application: &str, runs: &mut Runs) {
        let (stream, plugin) = &self.working;
        let options = default_options("working", stream, application);
        let measure = self.rig.work_off(options, plugin, BACKLOG.0).await;
        runs.seconds.push(measure.working());
        let mut options = default_options("working", stream, &format!("unlimited-{application}"));
        options.reads = unlimited(10_000);
        runs.unlimited.push(
            self.rig
                .work_off(options, plugin, BACKLOG.0)
                .await
                .working(),
        );
        let latencies = self.latencies(application).await;
        runs.p50.push(latencies[latencies.len() / 2]);
        runs.p99.push(latencies[latencies.len() * 99 / 100]);
    }

    /// From `PutRecords` to the call of `process`, in order, in seconds.
    async fn latencies(&self, application: &str) -> Vec<f64> {
        let started = Instant::now();
        let latencies: Arc<Mutex<Vec<f64>>> = Arc::default();
        let noted = Arc::clone(&latencies);
        let plugin: Arc<dyn ProcessorFactory> = Arc::new(
            NativePlugin::new(1, move |_, batch| {
                let now = started.elapsed().as_secs_f64();
                let sent = |data: &Bytes| std::str::from_utf8(data).ok()?.parse::<f64>().ok();
                let took = batch
                    .records
                    .iter()
                    .filter_map(|record| Some(now - sent(&record.data)?));
                noted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend(took);
                Ok(Processed::default())
            })
            .unwatched(),
        );
        let mut options = default_options("timed", &self.timed, &format!("timed-{application}"));
        options.initial_position = InitialPosition::Latest;
        let running = self.rig.run(options, &plugin);
        let is_reading = || {
            running
                .status
                .snapshot()
                .shards
                .values()
                .filter(|shard| shard.is_at_tip)
                .count()
        };
        eventually("every shard is read", || is_reading() == SHARDS as usize).await;
        let writer = StreamWriter::new(self.rig.clients.kinesis.clone(), self.timed.clone());
        let mut ticks = tokio::time::interval(PUT_EVERY);
        let (mut put, begun) = (0, Instant::now());
        while begun.elapsed() < TIMED_FOR {
            ticks.tick().await;
            let data = Bytes::from(started.elapsed().as_secs_f64().to_string());
            let entry = |n: u32| PutEntry {
                partition_key: (put + n).to_string(),
                explicit_hash_key: None,
                data: data.clone(),
            };
            writer
                .put_all((0..PUT_AT_ONCE).map(entry), |_, _| {})
                .await
                .expect("put");
            put += PUT_AT_ONCE;
        }
        let count = || {
            latencies
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .len()
        };
        eventually("all came", || count() >= put as usize).await;
        running.stop().await;
        let mut latencies = latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        latencies.sort_by(f64::total_cmp);
        latencies
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
fn report(what: &str, runs: &Runs) {
    let rate = |seconds: &[f64]| BACKLOG.0 as f64 / median(seconds);
    println!(
        "  {what:8} {:>8.0} records/s at the default rates, {:>8.0} without, p50 {:>6.0} ms, p99 \
            {:>6.0} ms, median of {ROUNDS}",
        rate(&runs.seconds),
        rate(&runs.unlimited),
        median(&runs.p50) * 1e3,
        median(&runs.p99) * 1e3
    );
}

fn median(runs: &[f64]) -> f64 {
    let mut runs = runs.to_vec();
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

/// As a host has them by default.
fn default_options(plugin: &str, stream: &StreamName, application: &str) -> WorkerOptions {
    let mut options = options(
        stream,
        application,
        ReadLimits::default(),
        Retrieval::Polling,
    );
    options.plugin = PluginName::new(plugin).expect("valid");
    options
}
