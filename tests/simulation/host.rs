//! One host: the real worker over real adapters and SDK clients. The only place that puts a worker
//! together.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_async::time::SystemTimeSource;
use shardmill_aws::{
    AwsClients, AwsOptions, CoordinatorTable, KinesisFanOut, KinesisReader, LeaseTable,
    WireSetting, clients_from,
};
use shardmill_core::lease::WorkerId;
use shardmill_core::ports::{
    Clock, Coordinator, DeadLetters, LeaseStore, ProcessorFactory, StreamReader, Subscriptions,
};
use shardmill_core::scaling::ScalingPolicy;
use shardmill_core::time::Moment;
use shardmill_invariants::history::{HostChange, Micros, What};
use shardmill_worker::{
    Freezer, HostBell, Meters, Ports, ProcessLoad, Recordings, Scaling, SharedRollout, StatusBoard,
    Tap, TickClock, Worker, WorkerError, WorkerOptions,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bugs::{
    Mixed, PortBug, WrongCoordinator, WrongDeadLetters, WrongReader, WrongStore, WrongSubscriptions,
};
use crate::memory::{Net, NetCoordinator, NetFanOut, NetReader, NetStore};
use crate::observed::{ObservedCoordinator, ObservedStore};
use crate::plugin::{HostPlace, SimulatedPlugin};
use crate::schedule::StartSettings;
use crate::sharing::Sharing;
use crate::shown;
use crate::sink::SimulatedSink;
use crate::system::EPOCH;
use crate::tables::Tables;
use crate::weather::Fault;
use crate::wire::Wire;
use crate::world::{Run, World, lock};

/// How long a host may take to drain; what is left then is left to expire.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// Shards of a listing's page, as the real adapter has it.
const PAGE_SHARDS: usize = 1_000;
/// Shards of a page so small that most listings have several.
const SMALL_PAGE_SHARDS: u16 = 2;

/// A machine with its own clocks; processes come and go on it.
pub struct Machine {
    run: Arc<Run>,
    /// By which name the network knows it, if not by that of its process.
    path: Option<String>,
    /// How fast its monotonic clock runs; 1 is right.
    rate: f64,
    /// What its monotonic clock showed when the run began.
    offset: Duration,
    /// How far its wall clock is ahead of (or behind) true time.
    wall_error_ms: Mutex<i64>,
    /// Processes that were not killed.
    running: Mutex<BTreeSet<String>>,
}

/// One running process. Dropping it is a crash.
pub struct Host {
    /// Its worker id.
    pub name: String,
    machine: Arc<Machine>,
    plugins: Vec<HostPlugin>,
    freeze: watch::Sender<bool>,
    stop: CancellationToken,
    workers: JoinSet<Result<(), WorkerError>>,
    /// How many of them ended because another process has its name.
    replaced: usize,
    /// Whether one of them ended for any other reason, which none ever should.
    has_failed: bool,
    /// Who looks at its status pages.
    watchers: JoinSet<()>,
}

/// One plugin of a process.
struct HostPlugin {
    world: Arc<World>,
    /// What its worker says of itself.
    status: StatusBoard,
    versions: watch::Sender<Arc<dyn ProcessorFactory>>,
}

impl Machine {
    /// A machine whose monotonic clock runs at `rate`.
    pub fn new(run: Arc<Run>, rate: f64, offset: Duration) -> Arc<Self> {
        Self::on_path(None, run, rate, offset)
    }

    /// The same, known to the network by the name `path`.
    pub fn on_path(path: Option<String>, run: Arc<Run>, rate: f64, offset: Duration) -> Arc<Self> {
        Arc::new(Self {
            run,
            path,
            rate,
            offset,
            wall_error_ms: Mutex::new(0),
            running: Mutex::default(),
        })
    }

    /// What its suspend-aware monotonic clock shows.
    pub fn local_micros(&self) -> Micros {
        let since = self.now().since(Moment::default());
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// By which name the network knows it while its process has the name `host`.
    pub fn path<'a>(&'a self, host: &'a str) -> &'a str {
        self.path.as_deref().unwrap_or(host)
    }

    /// Whether the process of this name runs, as far as it was not killed.
    pub fn is_running(&self, host: &str) -> bool {
        lock(&self.running).contains(host)
    }

    /// Moves the wall clock.
    pub fn jump_wall_clock(&self, error_ms: i64) {
        *lock(&self.wall_error_ms) = error_ms;
    }
}

impl Clock for Machine {
    fn now(&self) -> Moment {
        Moment::from_origin(self.offset + self.run.elapsed().mul_f64(self.rate))
    }

    fn wall_ms(&self) -> u64 {
        let now = u64::try_from((EPOCH + self.run.elapsed()).as_millis()).unwrap_or(u64::MAX);
        now.saturating_add_signed(*lock(&self.wall_error_ms))
    }
}

impl Host {
    /// Starts a process named `name` on `machine`: a worker for each of `plugins`, which are given
    /// with the version that they begin with, and which may fetch `budget_bytes` together.
    pub fn start(
        plugins: &[(Arc<World>, u64)],
        machine: &Arc<Machine>,
        name: &str,
        settings: StartSettings,
        budget_bytes: usize,
    ) -> Self {
        let (freeze, is_frozen) = watch::channel(false);
        let mut host = Self {
            name: name.to_owned(),
            machine: Arc::clone(machine),
            plugins: Vec::new(),
            freeze,
            stop: CancellationToken::new(),
            workers: JoinSet::new(),
            replaced: 0,
            has_failed: false,
            watchers: JoinSet::new(),
        };
        machine.run.begins(name);
        let mut sharing = Sharing::new(budget_bytes, machine.run.bug);
        for (world, version) in plugins {
            host.start_worker(world, *version, settings, &mut sharing, is_frozen.clone());
        }
        host
    }

    fn start_worker(
        &mut self,
        world: &Arc<World>,
        version: u64,
        settings: StartSettings,
        sharing: &mut Sharing,
        is_frozen: watch::Receiver<bool>,
    ) {
        let plugin = self.version(world, version, true);
        let digest = plugin.digest().as_str().to_owned();
        let (versions, offered) = watch::channel(plugin);
        let mut options = WorkerOptions {
            worker: WorkerId::new(&self.name).expect("not empty"),
            initial_position: settings.initial_position,
            ..world.plan.options.clone()
        };
        options.leases.max_leases = settings.max_leases;
        let status = StatusBoard::default();
        let ports = ports(
            world,
            &self.machine,
            &options,
            sharing,
            offered,
            is_frozen.clone(),
        );
        let worker = Worker::new(ports, options, status.clone()).expect("valid options");
        let host = self.name.clone();
        if self.machine.run.is_alone(&host) {
            world.note(What::Host {
                host: host.clone(),
                change: HostChange::Started,
            });
        }
        world.note(What::Offered {
            host: host.clone(),
            digest,
            is_good: true,
        });
        lock(&self.machine.running).insert(host.clone());
        self.watchers
            .spawn(shown::watch(Arc::clone(world), host, status.clone()));
        // Its tasks stand still while it is paused, and so must what it does between them.
        let freezer = Freezer::by(is_frozen);
        let stopped = self.stop.clone();
        self.workers
            .spawn(freezer.guard(async move { Box::pin(worker.run(stopped, DRAIN_LIMIT)).await }));
        self.plugins.push(HostPlugin {
            world: Arc::clone(world),
            status,
            versions,
        });
    }

    fn version(
        &self,
        world: &Arc<World>,
        version: u64,
        can_start: bool,
    ) -> Arc<dyn ProcessorFactory> {
        let place = HostPlace {
            world: Arc::clone(world),
            machine: Arc::clone(&self.machine),
            host: self.name.clone(),
        };
        let keeps_state = world.plan.options.keeps_state;
        Arc::new(SimulatedPlugin::new(version, can_start, keeps_state, place))
    }

    /// Offers another version of a plugin, which is counted from 0.
    pub fn offer(&self, plugin: usize, version: u64, can_start: bool) {
        let HostPlugin {
            world, versions, ..
        } = &self.plugins[plugin];
        let version = self.version(world, version, can_start);
        world.note(What::Offered {
            host: self.name.clone(),
            digest: version.digest().as_str().to_owned(),
            is_good: can_start,
        });
        versions.send_replace(version);
    }

    /// Whether some version of a plugin has handled records on it, so that there is one to go back
    /// to.
    pub fn has_run(&self, plugin: usize) -> bool {
        self.plugins[plugin]
            .status
            .snapshot()
            .shards
            .values()
            .any(|shard| shard.records > 0)
    }

    /// Stops it as SIGSTOP does, or lets it go on.
    pub fn pause(&self, is_paused: bool) {
        if self.freeze.send_replace(is_paused) != is_paused {
            self.change(if is_paused {
                HostChange::Paused
            } else {
                HostChange::Resumed
            });
        }
    }

    /// Kills it: no task of it runs again. What it sent may still arrive.
    pub async fn crash(mut self) {
        self.change(HostChange::Crashed);
        // Aborting reaches nested tasks one by one, and some of them may be due already: none may
        // run any more.
        self.freeze.send_replace(true);
        self.is_gone();
        self.workers.abort_all();
        while self.workers.join_next().await.is_some() {}
    }

    /// Stops it as SIGTERM does, and waits for its end.
    pub async fn stop(mut self) {
        self.pause(false);
        self.change(HostChange::Stopping);
        self.stop.cancel();
        while let Some(ended) = self.workers.join_next().await {
            match ended {
                Ok(Ok(()) | Err(WorkerError::Replaced { .. })) => {}
                Ok(Err(error)) => panic!("a worker of {} failed: {error}", self.name),
                Err(error) if error.is_panic() => {
                    std::panic::resume_unwind(error.into_panic());
                }
                Err(_) => {}
            }
        }
        self.change(HostChange::Stopped);
        self.is_gone();
    }

    /// Whether one of its workers has ended by itself, which none ever should as long as no other
    /// process has its name.
    pub fn has_ended(&mut self) -> bool {
        self.look_for_ends();
        self.has_failed
    }

    /// Whether it has ended because another process has its name.
    pub fn was_replaced(&mut self) -> bool {
        self.look_for_ends();
        self.replaced == self.plugins.len()
    }

    fn look_for_ends(&mut self) {
        while let Some(ended) = self.workers.try_join_next() {
            if matches!(ended, Ok(Err(WorkerError::Replaced { .. }))) {
                self.replaced += 1;
            } else {
                self.has_failed = true;
            }
        }
    }

    /// It was replaced, and is gone.
    pub fn bury(self) {
        self.change(HostChange::Crashed);
        self.is_gone();
    }

    fn is_gone(&self) {
        lock(&self.machine.running).remove(&self.name);
        self.machine.run.ends(&self.name);
    }

    fn change(&self, change: HostChange) {
        if !self.machine.run.is_alone(&self.name) {
            return;
        }
        for plugin in &self.plugins {
            plugin.world.note(What::Host {
                host: self.name.clone(),
                change,
            });
        }
    }
}

/// What a host reaches of the cloud.
struct Reach {
    reader: Arc<dyn StreamReader>,
    subscriptions: Option<Arc<dyn Subscriptions>>,
    store: Arc<dyn LeaseStore>,
    coordinator: Arc<dyn Coordinator>,
}

fn ports(
    world: &Arc<World>,
    machine: &Arc<Machine>,
    options: &WorkerOptions,
    sharing: &mut Sharing,
    versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
    is_frozen: watch::Receiver<bool>,
) -> Ports {
    let host = options.worker.as_str();
    let reach = match &world.tables {
        Tables::Emulated(_) => over_the_wire(world, options),
        Tables::Memory(_) => over_the_ports(world, machine, options),
    };
    let Reach {
        reader,
        subscriptions,
        store,
        coordinator,
    } = match world.bug {
        Some(bug) => reach.with(bug, host, world, &sharing.mixed),
        None => reach,
    };
    let reader = sharing.reader(
        world,
        Arc::clone(machine) as Arc<dyn Clock>,
        options,
        reader,
    );
    let budget = sharing.share();
    let (world, machine) = (Arc::clone(world), Arc::clone(machine));
    let coordinator = ObservedCoordinator {
        table: coordinator,
        world: Arc::clone(&world),
        machine: Arc::clone(&machine),
        host: host.to_owned(),
    };
    let store = ObservedStore {
        table: store,
        world: Arc::clone(&world),
        machine: Arc::clone(&machine),
        host: host.to_owned(),
    };
    let sink = Arc::new(SimulatedSink::new(Arc::clone(&world), world.bug));
    let letters = Arc::clone(&sink) as Arc<dyn DeadLetters>;
    Ports {
        reader,
        standalone: None,
        subscriptions,
        store: Arc::new(store),
        coordinator: Arc::new(coordinator),
        sink,
        dead_letters: match world.bug {
            Some(bug) => Arc::new(WrongDeadLetters::new(letters, bug)),
            None => letters,
        },
        tick_clock: TickClock::of(Arc::clone(&machine) as Arc<dyn Clock>),
        clock: machine as Arc<dyn Clock>,
        budget,
        versions,
        rollout: SharedRollout::new(
            options.plugin.clone(),
            options.worker.clone(),
            options.rollout,
        ),
        recordings: Recordings::off(),
        tap: Tap::default(),
        meters: Meters::off(),
        tracer: None,
        bell: HostBell::default(),
        scaling: Some(scaling()),
        freezer: Freezer::by(is_frozen),
    }
}

/// Every host measures its load, and the leader says how many are wanted: it must disturb nothing.
/// No simulated second costs processor time.
fn scaling() -> Scaling {
    Scaling {
        policy: ScalingPolicy::default(),
        process: ProcessLoad::new(2.0, || Duration::ZERO),
        is_standalone: false,
    }
}

impl Reach {
    /// The same with a bug.
    fn with(self, bug: PortBug, host: &str, world: &World, mixed: &Mixed) -> Self {
        let wrong = |subscriptions| {
            Arc::new(WrongSubscriptions::new(subscriptions, bug)) as Arc<dyn Subscriptions>
        };
        Self {
            reader: Arc::new(WrongReader::new(self.reader, bug)),
            subscriptions: self.subscriptions.map(wrong),
            store: Arc::new(WrongStore::new(self.store, bug)),
            coordinator: Arc::new(WrongCoordinator::new(
                self.coordinator,
                bug,
                host,
                world.plan.name(),
                Arc::clone(&mixed.start),
            )),
        }
    }
}

/// Pages so small that a listing's token is used; in other runs as the product has them.
fn are_pages_small(world: &World) -> bool {
    world.weather().chance(Fault::ExpiredNextToken) > 0.0
}

fn over_the_ports(world: &Arc<World>, machine: &Machine, options: &WorkerOptions) -> Reach {
    let host = options.worker.as_str();
    let net = Net {
        world: Arc::clone(world),
        host: host.into(),
        path: machine.path(host).into(),
    };
    let page_shards = if are_pages_small(world) {
        usize::from(SMALL_PAGE_SHARDS)
    } else {
        PAGE_SHARDS
    };
    let has_consumer = options.retrieval.fan_out().is_some();
    Reach {
        reader: Arc::new(NetReader::new(net.clone(), page_shards)),
        subscriptions: has_consumer
            .then(|| Arc::new(NetFanOut::new(net.clone())) as Arc<dyn Subscriptions>),
        store: Arc::new(NetStore::new(net.clone())),
        coordinator: Arc::new(NetCoordinator::new(net)),
    }
}

fn over_the_wire(world: &Arc<World>, options: &WorkerOptions) -> Reach {
    let clients = clients(world, options.worker.as_str());
    let subscriptions = options.retrieval.fan_out().map(|_| {
        let fan_out = KinesisFanOut::new(clients.kinesis.clone(), options.stream.clone())
            .on_shared_connections()
            .speaking(clients.wire.clone());
        Arc::new(fan_out) as Arc<dyn Subscriptions>
    });
    let reader = KinesisReader::new(clients.kinesis, options.stream.clone()).speaking(clients.wire);
    let reader = if are_pages_small(world) {
        reader.with_page_shards(SMALL_PAGE_SHARDS)
    } else {
        reader
    };
    Reach {
        reader: Arc::new(reader),
        subscriptions,
        store: Arc::new(LeaseTable::new(
            clients.dynamodb.clone(),
            &options.application,
        )),
        coordinator: Arc::new(CoordinatorTable::new(
            clients.dynamodb,
            &options.application,
        )),
    }
}

/// The product's clients on a simulated wire. The system's time is simulated, so that the ordinary
/// time source follows.
fn clients(world: &Arc<World>, host: &str) -> AwsClients {
    let credentials = Credentials::from_keys("simulated", "simulated", None);
    let shared = SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(Wire::new(Arc::clone(world), host))
        .time_source(SystemTimeSource::new())
        .sleep_impl(TokioSleep::new())
        .build();
    let options = AwsOptions {
        // The network looks into requests and replies to cut, hold and judge them.
        wire: WireSetting::Json,
        ..AwsOptions::default()
    };
    clients_from(&shared, &options).expect("a region is given")
}
