//! Hosts on fakes and the paused clock: the real worker, with everything around it in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::lease::{Checkpoint, Lease, WorkerId};
use shardmill_core::pipeline::{CheckpointPolicy, FailurePolicy, Parallelism, TickInterval};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{
    Clock, Coordinator, DeadLetters, LeaseStore, Origin, PortFuture, ProcessorFactory, Sink,
    SinkError, StreamReader, Subscriptions, Tracer,
};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::{Emitted, InitialPosition, LeaseKey, ShardId, StreamName, StreamRef};
use shardmill_core::time::Moment;
use shardmill_worker::{
    BatchLimits, ByteBudget, Freezer, HostBell, LeaseOptions, Meters, Ports, ReadLimits,
    Recordings, Retrieval, RingBudget, Scaling, ShardStatus, SharedRollout, SharedShadow,
    SharedStream, StatusBoard, Tap, TickClock, Worker, WorkerError, WorkerOptions,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fake_coordinator::FakeCoordinator;
use crate::fake_dead_letters::FakeDeadLetters;
use crate::fake_fan_out::FakeFanOut;
use crate::fake_lease_store::FakeLeaseStore;
use crate::fake_stream::FakeStream;

/// Tokio's clock, paused or not, as the host's clock; wall time stands still unless it is set.
pub struct TokioClock {
    origin: Instant,
    wall_ms: Arc<AtomicU64>,
    /// How often the time was asked for.
    reads: Arc<AtomicU64>,
    /// For how many seconds the machine was suspended: the clock went on, timers did not.
    suspended_seconds: Arc<AtomicU64>,
}

/// Keeps what is flushed; can be broken.
#[derive(Default)]
pub struct CollectingSink {
    /// While true, every write and flush fails.
    pub is_broken: AtomicBool,
    /// How long a write takes.
    pub write_seconds: AtomicU64,
    /// Flushes so far.
    pub flushes: AtomicUsize,
    kept: Mutex<Vec<Emitted>>,
}

/// A stream, a table and a sink that hosts share.
pub struct TestFleet {
    /// The stream.
    pub stream: Arc<FakeStream>,
    /// Enhanced fan-out on it.
    pub fan_out: Arc<FakeFanOut>,
    /// The table.
    pub store: Arc<FakeLeaseStore>,
    /// The table beside it.
    pub coordinator: Arc<FakeCoordinator>,
    /// The sink.
    pub sink: Arc<CollectingSink>,
    /// Where records go that are given up.
    pub dead_letters: Arc<FakeDeadLetters>,
    /// The hosts' wall clock, in milliseconds since the Unix epoch.
    pub wall_ms: Arc<AtomicU64>,
    /// How often hosts asked for the time.
    pub clock_reads: Arc<AtomicU64>,
    /// For how many seconds all machines were suspended so far.
    pub suspended_seconds: Arc<AtomicU64>,
    /// Where hosts started from now on keep batches that failed.
    pub recordings: Recordings,
    /// Shows what goes through plugins.
    pub tap: Tap,
    /// Takes the traces of hosts started from now on.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// Rings when something is wanted of this process.
    pub bell: HostBell,
    /// How hosts started from now on are scaled, and what their process uses.
    pub scaling: Option<Scaling>,
    /// Settings of hosts started from now on.
    pub options: WorkerOptions,
    /// Set if what is started here is one of several plugins of a host: the host's budget.
    pub budget: Option<ByteBudget>,
    /// Set if hosts read as the real ones do, by a read that plugins of a host share.
    shared: Option<SharedStream>,
}

/// The tables of a fleet as one of its hosts sees them: what goes wrong with them, goes wrong for
/// this host.
pub struct OwnTables {
    /// The lease table.
    pub store: Arc<FakeLeaseStore>,
    /// The table beside it.
    pub coordinator: Arc<FakeCoordinator>,
}

/// One running host. Dropping it is a crash.
pub struct TestHost {
    /// What it says of itself.
    pub status: StatusBoard,
    /// What runs in the shadow of its plugin.
    pub shadow: SharedShadow,
    versions: watch::Sender<Arc<dyn ProcessorFactory>>,
    stop: CancellationToken,
    task: JoinSet<Result<(), WorkerError>>,
}

impl Default for TokioClock {
    fn default() -> Self {
        // A minute in the past, so that subtracting from the first moments works as on a real host.
        Self {
            origin: Instant::now(),
            wall_ms: Arc::new(AtomicU64::new(1)),
            reads: Arc::default(),
            suspended_seconds: Arc::default(),
        }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let suspended = Duration::from_secs(self.suspended_seconds.load(Ordering::Relaxed));
        Moment::from_origin(Duration::from_mins(1) + self.origin.elapsed() + suspended)
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::Relaxed)
    }
}

impl CollectingSink {
    /// The data of everything written so far, in order.
    pub fn lines(&self) -> Vec<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter()
            .map(|emitted| String::from_utf8_lossy(&emitted.data).into_owned())
            .collect()
    }

    fn check(&self) -> Result<(), SinkError> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(SinkError {
                sink: "out".to_owned(),
                message: "broken by the test".to_owned(),
            });
        }
        Ok(())
    }
}

impl Sink for CollectingSink {
    fn write(
        &self,
        _: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(
                self.write_seconds.load(Ordering::Relaxed),
            ))
            .await;
            self.check()?;
            self.kept
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(emitted.iter().cloned());
            Ok(())
        })
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            self.check()?;
            self.flushes.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }
}

impl TestFleet {
    /// A fleet without hosts on a stream of `shards`.
    ///
    /// # Panics
    ///
    /// Never: its names are valid.
    pub fn new(shards: u32) -> Self {
        let options = WorkerOptions {
            plugin: PluginName::new("plugin").expect("valid"),
            application: "plugin".to_owned(),
            stream: StreamName::new("stream").expect("valid"),
            worker: WorkerId::new("unnamed").expect("valid"),
            initial_position: InitialPosition::TrimHorizon,
            leases: LeaseOptions::default(),
            reads: ReadLimits::default(),
            retrieval: Retrieval::Polling,
            filter: None,
            parallelism: Parallelism::ONE,
            batches: BatchLimits {
                records: 10,
                ..BatchLimits::default()
            },
            checkpoints: CheckpointPolicy {
                records: 50,
                bytes: 1 << 20,
                age: Duration::from_secs(2),
            },
            backoff: Backoff::standard(),
            failure: FailurePolicy::default(),
            destinations: vec!["out".to_owned()],
            config: Vec::new(),
            limits: None,
            keeps_state: false,
            tick: TickInterval::default(),
            permissions: Arc::default(),
            records_own_deeds: true,
            rollout: RolloutPolicy::default(),
        };
        let stream = Arc::new(FakeStream::new(shards));
        Self {
            fan_out: Arc::new(FakeFanOut::new(Arc::clone(&stream))),
            stream,
            store: Arc::new(FakeLeaseStore::new()),
            coordinator: Arc::new(FakeCoordinator::new()),
            sink: Arc::new(CollectingSink::default()),
            dead_letters: Arc::new(FakeDeadLetters::default()),
            wall_ms: Arc::new(AtomicU64::new(1)),
            clock_reads: Arc::default(),
            suspended_seconds: Arc::default(),
            recordings: Recordings::off(),
            tap: Tap::default(),
            tracer: None,
            bell: HostBell::default(),
            scaling: None,
            options,
            budget: None,
            shared: None,
        }
    }

    /// The same fleet, whose hosts read as the real ones do: each shard once, for all their
    /// plugins.
    ///
    /// # Panics
    ///
    /// Never: its names are valid.
    #[must_use]
    pub fn sharing_reads(mut self) -> Self {
        let budget_bytes = 64 << 20;
        let ring = RingBudget::of(
            &ByteBudget::new(budget_bytes).expect("large enough"),
            budget_bytes,
        );
        let stream = StreamRef::parse("stream").expect("valid");
        let reader = Arc::clone(&self.stream) as Arc<dyn StreamReader>;
        let clock = Arc::new(TokioClock::default());
        let limits = self.options.reads;
        self.shared = Some(SharedStream::new(&stream, reader, clock, limits, ring));
        self
    }

    /// The fleet of another application on the same stream, whose plugins run in the same hosts: it
    /// shares their reads if they do.
    #[must_use]
    pub fn neighbour(&self) -> Self {
        Self {
            stream: Arc::clone(&self.stream),
            fan_out: Arc::clone(&self.fan_out),
            shared: self.shared.clone(),
            ..Self::new(1)
        }
    }

    /// Starts a host.
    ///
    /// # Panics
    ///
    /// If the options contradict each other.
    pub fn start(&self, id: &str, plugin: impl ProcessorFactory + 'static) -> TestHost {
        self.start_guarded(id, plugin, Freezer::never(), self.tables())
    }

    /// Starts a host that sees the tables with its own faults.
    ///
    /// # Panics
    ///
    /// If the options contradict each other.
    pub fn start_apart(
        &self,
        id: &str,
        plugin: impl ProcessorFactory + 'static,
    ) -> (TestHost, OwnTables) {
        let own = OwnTables {
            store: Arc::new(self.store.seen_apart()),
            coordinator: Arc::new(self.coordinator.seen_apart()),
        };
        let seen = OwnTables {
            store: Arc::clone(&own.store),
            coordinator: Arc::clone(&own.coordinator),
        };
        (self.start_guarded(id, plugin, Freezer::never(), seen), own)
    }

    fn tables(&self) -> OwnTables {
        OwnTables {
            store: Arc::clone(&self.store),
            coordinator: Arc::clone(&self.coordinator),
        }
    }

    /// Starts a host that runs no code while `is_frozen` holds true.
    ///
    /// # Panics
    ///
    /// If the options contradict each other.
    pub fn start_frozen_by(
        &self,
        id: &str,
        plugin: impl ProcessorFactory + 'static,
        is_frozen: watch::Receiver<bool>,
    ) -> TestHost {
        self.start_guarded(id, plugin, Freezer::by(is_frozen), self.tables())
    }

    fn start_guarded(
        &self,
        id: &str,
        plugin: impl ProcessorFactory + 'static,
        freezer: Freezer,
        tables: OwnTables,
    ) -> TestHost {
        let version: Arc<dyn ProcessorFactory> = Arc::new(plugin);
        let options = WorkerOptions {
            worker: WorkerId::new(id).expect("not empty"),
            ..self.options.clone()
        };
        let (versions, offered) = watch::channel(version);
        let budget = self
            .budget
            .clone()
            .unwrap_or_else(|| ByteBudget::new(64 << 20).expect("large enough"));
        let clock: Arc<dyn Clock> = Arc::new(TokioClock {
            wall_ms: Arc::clone(&self.wall_ms),
            reads: Arc::clone(&self.clock_reads),
            suspended_seconds: Arc::clone(&self.suspended_seconds),
            ..TokioClock::default()
        });
        let rollout = SharedRollout::new(
            options.plugin.clone(),
            options.worker.clone(),
            options.rollout,
        );
        let ports = Ports {
            reader: match &self.shared {
                Some(shared) => Arc::new(shared.reader()),
                None => Arc::clone(&self.stream) as Arc<dyn StreamReader>,
            },
            standalone: None,
            subscriptions: Some(Arc::clone(&self.fan_out) as Arc<dyn Subscriptions>),
            store: tables.store as Arc<dyn LeaseStore>,
            coordinator: tables.coordinator as Arc<dyn Coordinator>,
            sink: Arc::clone(&self.sink) as Arc<dyn Sink>,
            dead_letters: Arc::clone(&self.dead_letters) as Arc<dyn DeadLetters>,
            tick_clock: TickClock::of(Arc::clone(&clock)),
            clock,
            budget: budget.share().expect("room for it"),
            versions: offered,
            rollout: rollout.clone(),
            recordings: self.recordings.clone(),
            tap: self.tap.clone(),
            meters: Meters::off(),
            tracer: self.tracer.clone(),
            bell: self.bell.clone(),
            scaling: self.scaling.clone(),
            freezer: freezer.clone(),
        };
        let status = StatusBoard::default();
        let worker = Worker::new(ports, options, status.clone()).expect("valid options");
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        let stopped = stop.clone();
        task.spawn(
            freezer
                .guard(async move { Box::pin(worker.run(stopped, Duration::from_secs(20))).await }),
        );
        TestHost {
            status,
            shadow: rollout.shadow().clone(),
            versions,
            stop,
            task,
        }
    }

    /// Puts `count` records, each saying its number, spread over the shards.
    pub fn put(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            // Steps of the golden ratio spread any run of numbers evenly.
            let hash_key = u128::from(number).wrapping_mul(u128::MAX / 1_618_034 * 1_000_000);
            self.stream
                .put_at(hash_key, &format!("key-{number}"), number.to_string());
        }
    }

    /// The row of a shard.
    pub fn row(&self, shard: &ShardId) -> Option<Lease> {
        self.store.row(&LeaseKey::of_shard(shard))
    }

    /// Whether every record put so far is checkpointed.
    pub fn is_all_checkpointed(&self) -> bool {
        self.stream.shards().iter().all(|shard| {
            let Some(last) = self.stream.last(&shard.id) else {
                return true;
            };
            self.row(&shard.id).is_some_and(|row| match row.checkpoint {
                Checkpoint::ShardEnd => true,
                Checkpoint::At(position) => position >= last,
                Checkpoint::TrimHorizon
                | Checkpoint::Latest
                | Checkpoint::AtTimestamp
                | Checkpoint::Sought(_) => false,
            })
        })
    }

    /// Whether the output holds exactly the numbers of `numbers`, each once, in any order.
    pub fn has_exactly(&self, numbers: std::ops::Range<u32>) -> bool {
        let mut found: Vec<u32> = self
            .sink
            .lines()
            .iter()
            .filter_map(|line| line.parse().ok())
            .collect();
        found.sort_unstable();
        found == numbers.collect::<Vec<_>>()
    }
}

impl TestHost {
    /// What it says of a shard.
    pub fn shard(&self, shard: &ShardId) -> Option<ShardStatus> {
        self.status.snapshot().shards.get(shard.as_str()).cloned()
    }

    /// Offers another version of the plugin.
    pub fn offer(&self, plugin: impl ProcessorFactory + 'static) {
        self.versions.send_replace(Arc::new(plugin));
    }

    /// Stops once `is_so`.
    pub async fn stop_when(self, is_so: impl FnMut() -> bool) {
        until("the host has done its part", is_so).await;
        self.stop().await;
    }

    /// Stops as on SIGTERM, and waits for the end.
    ///
    /// # Panics
    ///
    /// If it ended by itself before, or for another reason.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.task.join_next().await {
            ended.expect("no panic").expect("a planned end");
        }
    }

    /// Waits until it ends by itself, with an error that says `message`.
    ///
    /// # Panics
    ///
    /// If it ends otherwise, or not within an hour of simulated time.
    pub async fn ended_with(mut self, message: &str) {
        let ended = tokio::time::timeout(Duration::from_hours(1), self.task.join_next()).await;
        let ended = ended
            .expect("never ended")
            .expect("one task")
            .expect("no panic");
        let error = ended.expect_err("an error").to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// Waits, on the paused clock, until `is_so`.
///
/// # Panics
///
/// After an hour of simulated time.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_hours(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
