//! What one seed draws before its run begins.

use std::time::Duration;

use shardmill_core::pipeline::Order;
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::{ConsumerName, FanOutConsumer, InitialPosition};
use shardmill_worker::{FanOut, Retrieval, WorkerOptions};

use crate::dimension::{Dimension, Dimensions};
use crate::options::{self, CONSUMER};
use crate::past::Past;
use crate::plugins::{Conduct, PluginPlan};
use crate::poison::{Poisons, draw_policy};
use crate::producer::Producer;
use crate::weather::{Fault, Weather};

/// What the hosts of a run work over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Over {
    /// Fakes of the ports, behind the simulated network.
    Ports,
    /// The real adapters and the SDK, with emulators behind the simulated network.
    Wire,
}

/// One seed of this many goes over the wire, unless something else is asked for.
pub const WIRE_EVERY: u64 = 16;

/// What a run is asked to be, beside its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// What its hosts work over.
    pub over: Over,
    /// No failure policy, no aggregates and no fan-out: as seeds from before them mean.
    pub is_plain: bool,
    /// What else it may have.
    pub dimensions: Dimensions,
}

impl Over {
    /// As `seed` has it, unless something else is asked for.
    pub fn of(seed: u64) -> Self {
        if seed.is_multiple_of(WIRE_EVERY) {
            Self::Wire
        } else {
            Self::Ports
        }
    }
}

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// The settings of its hosts.
    pub options: WorkerOptions,
    /// What goes wrong before the healing.
    pub weather: Weather,
    /// Hosts at the beginning.
    pub hosts: usize,
    /// Shards at the beginning.
    pub shards: u32,
    /// How long faults are on.
    pub faults_for: Duration,
    /// What happens to hosts, paths and shards; `None` never.
    pub storms: Storms,
    /// What the first plugin does until the run is healed.
    pub conduct: Conduct,
    /// Further plugins of each host.
    pub neighbours: Vec<PluginPlan>,
    /// Bytes that lie in each stream before the first host, in large records.
    pub backlog_bytes: usize,
    /// Greatest error of a host's clock rate, as a part of 1; the product allows for 0.05.
    pub clock_error_max: f64,
    /// Longest wait between two puts.
    pub put_every_max: Duration,
    /// How long a subscription to a shard lasts, if there are any.
    pub subscription_lasts: Duration,
    /// What is put into the stream.
    pub producer: Producer,
    /// Hosts of the run at most.
    pub hosts_max: usize,
    /// Open and closed shards of the run at most: a storm must end.
    pub shards_max: usize,
    /// Most leases that some of the hosts will hold, if any has a limit.
    pub max_leases: Option<usize>,
    /// Whether any host had one, once the run is healed and new ones have none.
    pub had_limits: bool,
    /// Where hosts begin: each start draws one of these.
    pub positions: Vec<InitialPosition>,
    /// What was in the stream before the first host.
    pub past: Option<Past>,
    /// Bytes that a host may have fetched.
    pub budget_bytes: usize,
    /// How long a refusal lasts at most.
    pub refusal_lasts_max: Duration,
    /// Whether one host of several may not write lease rows when all else is healed.
    pub loses_right: bool,
    /// Whether the healed fleet, once settled, loses a host in order and one by a crash, and then
    /// has a quiet time.
    pub has_drill: bool,
}

/// What a host is configured with anew at each start, for all of its plugins.
#[derive(Debug, Clone, Copy)]
pub struct StartSettings {
    /// Leases of an application that it holds at most.
    pub max_leases: usize,
    /// Where an application begins.
    pub initial_position: InitialPosition,
}

/// Mean times between events of each kind; `None` if the kind does not happen in this run.
#[derive(Debug, Clone, Default)]
pub struct Storms {
    /// A host is killed, and started again.
    pub crashes: Option<Duration>,
    /// A host is stopped in order, and started again.
    pub stops: Option<Duration>,
    /// A host joins, or leaves for good.
    pub scaling: Option<Duration>,
    /// A path between a host and a service breaks.
    pub partitions: Option<Duration>,
    /// DynamoDB is gone for everybody.
    pub outages: Option<Duration>,
    /// A shard is split, or two are merged.
    pub reshards: Option<Duration>,
    /// Another version of the plugin is offered.
    pub versions: Option<Duration>,
    /// A host stops running code, as on SIGSTOP, and goes on later.
    pub pauses: Option<Duration>,
    /// Somebody deregisters the fan-out consumer.
    pub deregistrations: Option<Duration>,
    /// Somebody else subscribes with it.
    pub intruders: Option<Duration>,
    /// Some requests are refused.
    pub refusals: Option<Duration>,
    /// A host cannot reach the coordinator table for more than six leases' time.
    pub long_cuts: Option<Duration>,
    /// Somebody removes a worker's row.
    pub removals: Option<Duration>,
    /// Retention takes what is a day old.
    pub trims: Option<Duration>,
    /// All machines are suspended, and wake up.
    pub suspensions: Option<Duration>,
    /// Somebody edits a lease row.
    pub edits: Option<Duration>,
    /// Somebody removes a lease row.
    pub deletions: Option<Duration>,
    /// Another process begins under the name of one that runs.
    pub twins: Option<Duration>,
    /// An operator gives a command.
    pub commands: Option<Duration>,
    /// How long an outage lasts.
    pub outage_lasts: Duration,
}

impl Schedule {
    /// The plan of `seed`.
    pub fn draw(seed: u64, scope: Scope) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed ^ 0x5ced_01e5);
        let mut later = fastrand::Rng::with_seed(seed ^ 0x1a7e_0001);
        let faults_for = match dice.u32(0..100) {
            0..60 => Duration::from_secs(dice.u64(20..50)),
            60..97 => Duration::from_secs(dice.u64(50..120)),
            _ => Duration::from_secs(dice.u64(300..900)),
        };
        let mut every = |chance: f64, seconds: std::ops::Range<u64>| {
            let wanted = dice.f64() < chance;
            let mean = Duration::from_secs(dice.u64(seconds));
            wanted.then_some(mean)
        };
        let storms = Storms {
            crashes: every(0.5, 4..30),
            stops: every(0.4, 6..30),
            scaling: every(0.3, 8..30),
            partitions: every(0.4, 5..30),
            outages: every(0.15, 20..60),
            reshards: every(0.5, 4..30),
            versions: every(0.4, 5..20),
            pauses: every(0.3, 6..30),
            ..Storms::default()
        };
        // Hours cost little: hosts without leases only knock now and then.
        let outage_lasts = if dice.u32(0..10) == 0 {
            dice.u64(3_600..4 * 3_600)
        } else {
            dice.u64(5..60)
        };
        let storms = Storms {
            outage_lasts: Duration::from_secs(outage_lasts),
            ..storms
        };
        let mut schedule = Self {
            options: options::draw(&mut dice, &mut later),
            weather: Weather::draw(&mut dice, &mut later),
            hosts: dice.usize(1..=4),
            shards: dice.u32(1..=4),
            faults_for,
            storms,
            conduct: Conduct::Usual,
            neighbours: Vec::new(),
            backlog_bytes: 0,
            clock_error_max: if dice.bool() { 0.0 } else { 0.045 },
            put_every_max: Duration::from_millis(dice.u64(500..4_000)),
            has_drill: later.u32(0..3) == 0,
            hosts_max: 6,
            shards_max: 14,
            max_leases: None,
            had_limits: false,
            positions: vec![InitialPosition::TrimHorizon],
            past: None,
            budget_bytes: 64 << 20,
            refusal_lasts_max: Duration::ZERO,
            loses_right: false,
            subscription_lasts: Duration::ZERO,
            producer: Producer::default(),
        };
        if !scope.is_plain {
            schedule.draw_policy(&mut fastrand::Rng::with_seed(seed ^ 0x9015_0001));
            schedule.draw_retrieval(&mut fastrand::Rng::with_seed(seed ^ 0xfa90_0001));
            schedule.draw_state(&mut fastrand::Rng::with_seed(seed ^ 0x57a7_0001));
            schedule.draw_rollout(&mut fastrand::Rng::with_seed(seed ^ 0x2011_0001));
            schedule
                .producer
                .draw_aggregates(&mut fastrand::Rng::with_seed(seed ^ 0xa669_0001));
        }
        if scope.over == Over::Ports && !scope.is_plain {
            for dimension in Dimension::ALL {
                if scope.dimensions.has(dimension) {
                    dimension.draw(seed, &mut schedule);
                }
            }
        }
        schedule
    }

    /// The settings of a host that starts now, as far as they differ from start to start.
    pub fn settings_of_a_start(&self, dice: &mut fastrand::Rng) -> StartSettings {
        let max_leases = match self.max_leases {
            Some(most) if dice.bool() => dice.usize(1..=most),
            _ => self.options.leases.max_leases,
        };
        let initial_position = match self.positions[..] {
            [position] => position,
            _ => self.positions[dice.usize(..self.positions.len())],
        };
        StartSettings {
            max_leases,
            initial_position,
        }
    }

    /// A third of the runs have a plugin that keeps state, where the configuration would allow it.
    fn draw_state(&mut self, dice: &mut fastrand::Rng) {
        if dice.u32(0..3) > 0 || self.options.failure.order == Order::Key {
            return;
        }
        self.options.keeps_state = true;
        if dice.bool() {
            self.weather
                .chances
                .insert(Fault::SaveFails, 0.3 * 10_f64.powf(-1.5 * dice.f64()));
        }
    }

    /// A third of the runs subscribe.
    fn draw_retrieval(&mut self, dice: &mut fastrand::Rng) {
        if dice.u32(0..3) > 0 {
            return;
        }
        self.options.retrieval = Retrieval::FanOut(FanOut {
            consumer: FanOutConsumer::Named(ConsumerName::new(CONSUMER).expect("valid")),
            deregister_on_exit: dice.bool(),
        });
        self.subscription_lasts = Duration::from_secs(dice.u64(6..60));
        for (fault, most) in [
            (Fault::CutSubscription, 0.2),
            (Fault::SilentSubscription, 0.05),
        ] {
            if dice.u32(0..3) == 0 {
                self.weather
                    .chances
                    .insert(fault, most * 10_f64.powf(-1.5 * dice.f64()));
            }
        }
        let mut every = |chance: f64, seconds: std::ops::Range<u64>| {
            let wanted = dice.f64() < chance;
            wanted.then_some(Duration::from_secs(dice.u64(seconds)))
        };
        self.storms.deregistrations = every(0.2, 10..60);
        self.storms.intruders = every(0.3, 5..30);
    }

    /// A third of the runs try versions before all shards run them.
    fn draw_rollout(&mut self, dice: &mut fastrand::Rng) {
        if dice.u32(0..3) > 0 {
            return;
        }
        self.options.rollout = RolloutPolicy {
            canary_records: dice.u64(1..60),
            canary_batches: dice.u64(1..6),
            canary_for: Duration::from_secs(dice.u64(3..20)),
            probation: Duration::from_secs(dice.u64(5..90)),
            share: if dice.bool() { 1.0 } else { 0.5 },
            share_wait: Duration::from_secs(dice.u64(30..120)),
            ..RolloutPolicy::default()
        };
        // Or too few of these runs would ever see a version.
        self.storms.versions = Some(Duration::from_secs(dice.u64(5..20)));
    }

    /// Half of the runs have a policy of their own, and poison for it.
    fn draw_policy(&mut self, dice: &mut fastrand::Rng) {
        if dice.bool() {
            return;
        }
        let policy = draw_policy(dice);
        self.producer.poisons = Poisons::draw(dice, &policy, self.clock_error_max > 0.0);
        self.producer.suit(&policy);
        self.options.failure = policy;
        if dice.u32(0..3) == 0 {
            self.weather
                .chances
                .insert(Fault::DeadLetterError, 0.5 * 10_f64.powf(-1.5 * dice.f64()));
        }
    }
}
