//! A worker in this process, measured while it works off a stream of the embedded stack, which runs
//! in its own process: so the processor time counted is the host's.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_aws::{
    AwsClients, AwsOptions, CoordinatorTable, KinesisFanOut, KinesisReader, LeaseTable, PutEntry,
    StaticCredentials, StreamAdmin, StreamWriter, connect,
};
use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::{CheckpointPolicy, FailurePolicy, Parallelism, TickInterval};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{ProcessorFactory, StreamReader, Tracer};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::{ConsumerName, FanOutConsumer, InitialPosition, ReadFrom, StreamName};
use shardmill_worker::{
    BatchLimits, ByteBudget, FanOut, Freezer, HostBell, LeaseOptions, Meters, Ports, ReadLimits,
    Recordings, Retrieval, SharedRollout, StatusBoard, Tap, TickClock, Worker, WorkerOptions,
};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fake_dead_letters::FakeDeadLetters;
use crate::fleet::{CollectingSink, TokioClock};
use crate::process::{Host, eventually};

/// The stack, and clients for it.
pub struct Rig {
    /// Clients.
    pub clients: AwsClients,
    /// Takes the traces of workers that are started from now on.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// One host's, shared by all workers that run at a time.
    budget: ByteBudget,
    folder: TempDir,
    _stack: Host,
}

/// What a run took.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// From start to the last record settled.
    pub seconds: f64,
    /// Processor time of this process.
    pub cpu_seconds: f64,
    /// From start to the first records settled.
    pub first: Duration,
}

impl Measure {
    /// Seconds from the first records settled to the last: what it takes to own the shards, and for
    /// a consumer to be made, left out.
    pub fn working(&self) -> f64 {
        self.seconds - self.first.as_secs_f64()
    }
}

/// A worker that runs until it is stopped.
pub struct Running {
    /// What it says of itself.
    pub status: StatusBoard,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Rig {
    /// Starts the stack in a fresh folder.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("plugins")).expect("a folder");
        let stack = Host::start("stack", &["dev"], folder.path());
        let endpoints = folder.path().join("data/endpoints.json");
        eventually("the stack runs", || endpoints.exists()).await;
        let text = std::fs::read_to_string(endpoints).expect("readable");
        let endpoints: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let options = AwsOptions {
            region: Some("us-east-1".to_owned()),
            kinesis_endpoint: endpoints["kinesis"].as_str().map(str::to_owned),
            dynamodb_endpoint: endpoints["dynamodb"].as_str().map(str::to_owned),
            credentials: Some(StaticCredentials::dummy()),
            ..AwsOptions::default()
        };
        let budget = ByteBudget::new(256 << 20).expect("large enough");
        Self {
            clients: connect(&options).await.expect("clients"),
            tracer: None,
            budget,
            folder,
            _stack: stack,
        }
    }

    /// A folder for whatever a measurement needs; the stack's data lies in `data` below it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// An empty stream.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    pub async fn stream(&self, name: &str, shards: u32) -> StreamName {
        let stream = StreamName::new(name).expect("valid");
        StreamAdmin::new(self.clients.kinesis.clone())
            .ensure_stream(&stream, shards)
            .await
            .expect("a stream");
        stream
    }

    /// Lets `stream` take records of 10 MiB (AWS limit).
    ///
    /// # Panics
    ///
    /// If that is refused.
    pub async fn take_large_records(&self, stream: &StreamName) {
        crate::embedded::take_large_records(&self.clients.kinesis, stream).await;
    }

    /// Puts `records` of `bytes` each, spread over the shards; gives the records a second.
    ///
    /// # Panics
    ///
    /// If a put fails.
    pub async fn fill(&self, stream: &StreamName, records: u64, bytes: usize) -> f64 {
        let data = Bytes::from(vec![b'x'; bytes]);
        self.fill_with(stream, records, data).await
    }

    /// The same with records of `data`.
    ///
    /// # Panics
    ///
    /// If a put fails.
    pub async fn fill_with(&self, stream: &StreamName, records: u64, data: Bytes) -> f64 {
        let entry = |n: u64| PutEntry {
            partition_key: n.to_string(),
            explicit_hash_key: None,
            data: data.clone(),
        };
        let started = Instant::now();
        let writer = StreamWriter::new(self.clients.kinesis.clone(), stream.clone());
        writer
            .put_all((0..records).map(entry), |_, _| {})
            .await
            .expect("put");
        records as f64 / started.elapsed().as_secs_f64()
    }

    /// Polls everything and throws it away: the price of the SDK alone.
    ///
    /// # Panics
    ///
    /// If a call fails, or not everything is there.
    pub async fn read_only(&self, stream: &StreamName, records: u64, per_call: u32) -> Measure {
        let (cpu, started) = (cpu_seconds(), Instant::now());
        let reader = Arc::new(KinesisReader::new(
            self.clients.kinesis.clone(),
            stream.clone(),
        ));
        let mut readers = JoinSet::new();
        for shard in reader.list_shards().await.expect("shards") {
            let reader = Arc::clone(&reader);
            readers.spawn(async move {
                let mut next = reader
                    .iterator(&shard.id, &ReadFrom::TrimHorizon)
                    .await
                    .expect("an iterator");
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
        Measure {
            seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds() - cpu,
            first: Duration::ZERO,
        }
    }

    /// Starts a worker.
    ///
    /// # Panics
    ///
    /// If its options contradict each other.
    pub fn run(&self, options: WorkerOptions, plugin: &Arc<dyn ProcessorFactory>) -> Running {
        let ports = self.ports(&options, Arc::clone(plugin));
        let status = StatusBoard::default();
        let worker = Worker::new(ports, options, status.clone()).expect("valid options");
        let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
        let stopped = stop.clone();
        task.spawn(async move {
            Box::pin(worker.run(stopped, Duration::from_secs(10)))
                .await
                .expect("the worker ends well");
        });
        Running { status, stop, task }
    }

    /// Runs a worker on its own table until it has settled `records`.
    pub async fn work_off(
        &self,
        options: WorkerOptions,
        plugin: &Arc<dyn ProcessorFactory>,
        records: u64,
    ) -> Measure {
        let (cpu, started) = (cpu_seconds(), Instant::now());
        let running = self.run(options, plugin);
        let mut first = None;
        while running.settled() < records {
            if running.settled() > 0 {
                first.get_or_insert_with(|| started.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let measure = Measure {
            seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds() - cpu,
            first: first.unwrap_or_default(),
        };
        running.stop().await;
        measure
    }

    fn ports(&self, options: &WorkerOptions, plugin: Arc<dyn ProcessorFactory>) -> Ports {
        let (kinesis, dynamodb) = (&self.clients.kinesis, &self.clients.dynamodb);
        let (_versions, offered) = watch::channel(plugin);
        Ports {
            reader: Arc::new(KinesisReader::new(kinesis.clone(), options.stream.clone())),
            standalone: None,
            subscriptions: Some(Arc::new(KinesisFanOut::new(
                kinesis.clone(),
                options.stream.clone(),
            ))),
            store: Arc::new(LeaseTable::new(
                dynamodb.clone(),
                options.application.as_str(),
            )),
            coordinator: Arc::new(CoordinatorTable::new(
                dynamodb.clone(),
                &options.application,
            )),
            sink: Arc::new(CollectingSink::default()),
            dead_letters: Arc::new(FakeDeadLetters::default()),
            clock: Arc::new(TokioClock::default()),
            tick_clock: TickClock::of(Arc::new(TokioClock::default())),
            budget: self.budget.share().expect("room for it"),
            versions: offered,
            rollout: SharedRollout::new(
                options.plugin.clone(),
                options.worker.clone(),
                options.rollout,
            ),
            recordings: Recordings::off(),
            tap: Tap::default(),
            meters: Meters::off(),
            tracer: self.tracer.clone(),
            bell: HostBell::default(),
            scaling: None,
            freezer: Freezer::never(),
        }
    }
}

impl Running {
    /// Records settled so far.
    pub fn settled(&self) -> u64 {
        self.status
            .snapshot()
            .shards
            .values()
            .map(|shard| shard.records)
            .sum()
    }

    /// Stops and waits for the end.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.join_all().await;
    }
}

/// Processor time of this process so far.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Reads as fast as the stack answers.
pub fn unlimited(records_per_call: u32) -> ReadLimits {
    ReadLimits {
        calls_per_second: 1e6,
        bytes_per_second: 1e12,
        records_per_call,
        ..ReadLimits::default()
    }
}

/// Enhanced fan-out with its own consumer.
///
/// # Panics
///
/// If `consumer` is no name.
pub fn fan_out(consumer: &str) -> Retrieval {
    let consumer = FanOutConsumer::Named(ConsumerName::new(consumer).expect("valid"));
    Retrieval::FanOut(FanOut {
        consumer,
        deregister_on_exit: true,
    })
}

/// Defaults but for what is given.
///
/// # Panics
///
/// Never: the names are valid.
pub fn options(
    stream: &StreamName,
    application: &str,
    reads: ReadLimits,
    retrieval: Retrieval,
) -> WorkerOptions {
    WorkerOptions {
        plugin: PluginName::new("noop").expect("valid"),
        application: application.to_owned(),
        stream: stream.clone(),
        worker: WorkerId::new("bench").expect("not empty"),
        initial_position: InitialPosition::TrimHorizon,
        leases: LeaseOptions::default(),
        reads,
        retrieval,
        filter: None,
        parallelism: Parallelism::ONE,
        batches: BatchLimits::default(),
        checkpoints: CheckpointPolicy::default(),
        backoff: Backoff::standard(),
        failure: FailurePolicy::default(),
        destinations: vec!["stdout".to_owned()],
        config: Vec::new(),
        limits: None,
        keeps_state: false,
        tick: TickInterval::default(),
        permissions: Arc::default(),
        records_own_deeds: true,
        rollout: RolloutPolicy::off(),
    }
}
