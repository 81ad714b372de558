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
use shardmill_core::time::Moment;
use shardmill_invariants::history::{HostChange, Micros, What};
use shardmill_worker::{
    ByteBudget, ByteShare, Freezer, Ports, RingBudget, SharedRollout, SharedStream, StatusBoard,
    Worker, WorkerOptions,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bugs::{
    PortBug, WrongCoordinator, WrongDeadLetters, WrongReader, WrongStore, WrongSubscriptions,
};
use crate::memory::{Net, NetCoordinator, NetFanOut, NetReader, NetStore};
use crate::observed::{ObservedCoordinator, ObservedStore};
use crate::options::APPLICATION;
use crate::plugin::{HostPlace, SimulatedPlugin};
use crate::shown;
use crate::sink::SimulatedSink;
use crate::system::EPOCH;
use crate::tables::Tables;
use crate::weather::Fault;
use crate::wire::Wire;
use crate::world::{World, lock};

/// How long a host may take to drain; what is left then is left to expire.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// Shards of a listing's page, as the real adapter has it.
const PAGE_SHARDS: usize = 1_000;
/// Shards of a page so small that most listings have several.
const SMALL_PAGE_SHARDS: u16 = 2;

/// A machine with clocks of its own; processes come and go on it.
pub struct Machine {
    world: Arc<World>,
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
    /// What it says of itself.
    pub status: StatusBoard,
    machine: Arc<Machine>,
    versions: watch::Sender<Arc<dyn ProcessorFactory>>,
    keeps_state: bool,
    freeze: watch::Sender<bool>,
    stop: CancellationToken,
    process: JoinSet<()>,
    /// Who looks at its status page.
    _watcher: JoinSet<()>,
}

impl Machine {
    /// A machine whose monotonic clock runs at `rate`.
    pub fn new(world: Arc<World>, rate: f64, offset: Duration) -> Arc<Self> {
        Arc::new(Self {
            world,
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
        Moment::from_origin(self.offset + self.world.elapsed().mul_f64(self.rate))
    }

    fn wall_ms(&self) -> u64 {
        let now = u64::try_from((EPOCH + self.world.elapsed()).as_millis()).unwrap_or(u64::MAX);
        now.saturating_add_signed(*lock(&self.wall_error_ms))
    }
}

impl Host {
    /// Starts a process named `name` on `machine`, with version `version` of the plugin, which may
    /// fetch `budget_bytes`.
    pub fn start(
        world: &Arc<World>,
        machine: &Arc<Machine>,
        name: &str,
        options: &WorkerOptions,
        budget_bytes: usize,
        version: u64,
    ) -> Self {
        let place = HostPlace {
            world: Arc::clone(world),
            machine: Arc::clone(machine),
            host: name.to_owned(),
        };
        let plugin: Arc<dyn ProcessorFactory> = Arc::new(SimulatedPlugin::new(
            version,
            true,
            options.keeps_state,
            place,
        ));
        let digest = plugin.digest().as_str().to_owned();
        let (versions, offered) = watch::channel(plugin);
        let keeps_state = options.keeps_state;
        let options = WorkerOptions {
            worker: WorkerId::new(name).expect("not empty"),
            ..options.clone()
        };
        let status = StatusBoard::default();
        let (freeze, is_frozen) = watch::channel(false);
        let bytes = ByteBudget::new(budget_bytes).expect("large enough");
        let ring = RingBudget::of(&bytes, budget_bytes);
        let budget = bytes.share().expect("the first");
        let mut ports = ports(world, machine, &options, budget, offered, is_frozen);
        // As every host reads, also with one plugin.
        ports.reader = Arc::new(
            SharedStream::new(&(&options.stream).into(), ports.reader, options.reads, ring)
                .reader(),
        );
        let worker = Worker::new(ports, options, status.clone()).expect("valid options");
        world.note(What::Host {
            host: name.to_owned(),
            change: HostChange::Started,
        });
        world.note(What::Offered {
            host: name.to_owned(),
            digest,
            is_good: true,
        });
        lock(&machine.running).insert(name.to_owned());
        let (stop, mut process) = (CancellationToken::new(), JoinSet::new());
        let stopped = stop.clone();
        let mut watcher = JoinSet::new();
        watcher.spawn(shown::watch(
            Arc::clone(world),
            name.to_owned(),
            status.clone(),
        ));
        process.spawn(async move {
            worker
                .run(stopped, DRAIN_LIMIT)
                .await
                .expect("the table is right")
        });
        Self {
            name: name.to_owned(),
            status,
            machine: Arc::clone(machine),
            versions,
            keeps_state,
            freeze,
            stop,
            process,
            _watcher: watcher,
        }
    }

    /// Offers another version of the plugin.
    pub fn offer(&self, version: u64, can_start: bool) {
        let machine = Arc::clone(&self.machine);
        let place = HostPlace {
            world: Arc::clone(&machine.world),
            machine,
            host: self.name.clone(),
        };
        let plugin = SimulatedPlugin::new(version, can_start, self.keeps_state, place);
        let digest = plugin.digest().as_str().to_owned();
        self.machine.world.note(What::Offered {
            host: self.name.clone(),
            digest,
            is_good: can_start,
        });
        self.versions.send_replace(Arc::new(plugin));
    }

    /// Whether some version has handled records on it, so that there is one to go back to.
    pub fn has_run(&self) -> bool {
        self.status
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
        lock(&self.machine.running).remove(&self.name);
        self.process.abort_all();
        while self.process.join_next().await.is_some() {}
    }

    /// Stops it as SIGTERM does, and waits for its end.
    pub async fn stop(mut self) {
        self.pause(false);
        self.change(HostChange::Stopping);
        self.stop.cancel();
        while let Some(ended) = self.process.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        self.change(HostChange::Stopped);
        lock(&self.machine.running).remove(&self.name);
    }

    /// Whether its worker has ended by itself, which it never should.
    pub fn has_ended(&mut self) -> bool {
        self.process.try_join_next().is_some()
    }

    fn change(&self, change: HostChange) {
        self.machine.world.note(What::Host {
            host: self.name.clone(),
            change,
        });
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
    budget: ByteShare,
    versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
    is_frozen: watch::Receiver<bool>,
) -> Ports {
    let host = options.worker.as_str();
    let reach = match &world.tables {
        Tables::Emulated(_) => over_the_wire(world, options),
        Tables::Memory(_) => over_the_ports(world, options),
    };
    let Reach {
        reader,
        subscriptions,
        store,
        coordinator,
    } = match world.bug {
        Some(bug) => reach.with(bug, host),
        None => reach,
    };
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
        subscriptions,
        store: Arc::new(store),
        coordinator: Arc::new(coordinator),
        sink,
        dead_letters: match world.bug {
            Some(bug) => Arc::new(WrongDeadLetters::new(letters, bug)),
            None => letters,
        },
        clock: machine as Arc<dyn Clock>,
        budget,
        versions,
        rollout: SharedRollout::new(
            options.plugin.clone(),
            options.worker.clone(),
            options.rollout,
        ),
        freezer: Freezer::by(is_frozen),
    }
}

impl Reach {
    /// The same with a bug.
    fn with(self, bug: PortBug, host: &str) -> Self {
        let wrong = |subscriptions| {
            Arc::new(WrongSubscriptions::new(subscriptions, bug)) as Arc<dyn Subscriptions>
        };
        Self {
            reader: Arc::new(WrongReader::new(self.reader, bug)),
            subscriptions: self.subscriptions.map(wrong),
            store: Arc::new(WrongStore::new(self.store, bug)),
            coordinator: Arc::new(WrongCoordinator::new(self.coordinator, bug, host)),
        }
    }
}

/// Pages so small that a listing's token is used; in other runs as the product has them.
fn are_pages_small(world: &World) -> bool {
    world.weather().chance(Fault::ExpiredNextToken) > 0.0
}

fn over_the_ports(world: &Arc<World>, options: &WorkerOptions) -> Reach {
    let net = Net {
        world: Arc::clone(world),
        host: options.worker.as_str().into(),
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
        store: Arc::new(LeaseTable::new(clients.dynamodb.clone(), APPLICATION)),
        coordinator: Arc::new(CoordinatorTable::new(clients.dynamodb, APPLICATION)),
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
