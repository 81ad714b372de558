//! The plugins of a run's hosts: each its own application, most on the same stream, behind
//! one budget and the shared reads of each host.

use std::time::Duration;

use shardmill_core::pipeline::{CheckpointPolicy, Order};
use shardmill_core::plugin::PluginName;
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::{ConsumerName, FanOutConsumer, InitialPosition};
use shardmill_worker::{FanOut, LeaseOptions, Retrieval, WorkerOptions};

use crate::options::APPLICATION;
use crate::poison::{Poisons, draw_policy};
use crate::schedule::{Schedule, Storms};
use crate::sink::EMITS;
use crate::weather::Weather;

/// A plugin is refused if a host has less than this for each (the largest reply of Kinesis).
const BUDGET_EACH: usize = 10 << 20;

/// One plugin of every host of a run.
#[derive(Debug, Clone)]
pub struct PluginPlan {
    /// The settings of its workers.
    pub options: WorkerOptions,
    /// Which of the run's streams it reads, counted from 0.
    pub stream: usize,
    /// What it does until the run is healed.
    pub conduct: Conduct,
    /// Whether it handles what is poison to others.
    pub is_immune: bool,
}

/// What a plugin does with records until the run is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conduct {
    /// What weather and records make it do.
    Usual,
    /// It handles everything, whatever the weather.
    Faultless,
    /// It fails on everything, in this way.
    Fails(Failing),
    /// Each call takes seconds.
    Slow {
        /// At least so many milliseconds, and up to ten seconds more.
        least_ms: u64,
    },
    /// No call comes back before it is cut off.
    Stuck,
}

/// How a plugin fails on a whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// It traps.
    Trap,
    /// It returns an error.
    Error,
    /// It reports each record, and asks for another try.
    Retry,
    /// It reports each record, and says that it will never work.
    Reject,
}

impl PluginPlan {
    /// The plugin that each run has.
    pub fn first(schedule: &Schedule) -> Self {
        Self {
            options: schedule.options.clone(),
            stream: 0,
            conduct: schedule.conduct,
            is_immune: schedule.conduct == Conduct::Faultless,
        }
    }

    /// The plugin's name.
    pub fn name(&self) -> &str {
        self.options.plugin.as_str()
    }

    /// Whether nothing but others can keep it from its pace, in a run that is calm but for some
    /// plugins and keys.
    pub fn keeps_pace(&self, schedule: &Schedule) -> bool {
        let is_by_key = self.options.failure.order == Order::Key;
        match self.conduct {
            Conduct::Faultless => schedule.is_calm(),
            Conduct::Usual => schedule.producer.failing_keys > 0 && is_by_key,
            Conduct::Fails(_) | Conduct::Slow { .. } | Conduct::Stuck => false,
        }
    }
}

impl Conduct {
    /// Whether it does anything wrong by itself.
    pub fn is_troubled(self) -> bool {
        matches!(self, Self::Fails(_) | Self::Slow { .. } | Self::Stuck)
    }

    fn any(dice: &mut fastrand::Rng) -> Self {
        match dice.u32(0..8) {
            0..4 => Self::Usual,
            4 => Self::Faultless,
            5 => Self::Slow { least_ms: 2_000 },
            6 => Self::Stuck,
            _ => Self::Fails(Failing::of(dice.u64(0..4))),
        }
    }

    /// Beside one that must keep its pace: what fails soon holds little, so most are slow.
    fn troubled(dice: &mut fastrand::Rng) -> Self {
        match dice.u32(0..6) {
            0..4 => Self::Slow { least_ms: 15_000 },
            4 => Self::Stuck,
            _ => Self::Fails(Failing::of(dice.u64(0..4))),
        }
    }
}

impl Failing {
    /// One of the four ways.
    pub fn of(number: u64) -> Self {
        match number % 4 {
            0 => Self::Trap,
            1 => Self::Error,
            2 => Self::Retry,
            _ => Self::Reject,
        }
    }
}

impl Schedule {
    /// All plugins of each host, in the order in which it starts them.
    pub fn plugins(&self) -> Vec<PluginPlan> {
        let first = PluginPlan::first(self);
        [vec![first], self.neighbours.clone()].concat()
    }

    /// Whether nothing is wrong before the healing but with some keys or some plugins.
    pub fn is_calm(&self) -> bool {
        self.producer.failing_keys > 0 || self.backlog_bytes > 0
    }

    /// Hosts have one or two plugins more. In a third of these runs nothing is wrong but with some
    /// of them, so that the others must keep their pace.
    pub fn have_neighbours(&mut self, dice: &mut fastrand::Rng) {
        let plugins = 1 + dice.usize(1..=2);
        // By key, what waits to be tried again is held while others are read.
        let replies_each = if self.producer.failing_keys > 0 { 2 } else { 1 };
        self.budget_bytes = self.budget_bytes.max(plugins * replies_each * BUDGET_EACH);
        let is_pace_asked = self.producer.failing_keys == 0 && dice.u32(0..3) == 0;
        let mut conducts: Vec<_> = (0..plugins).map(|_| Conduct::any(dice)).collect();
        if is_pace_asked {
            self.is_calm_but_for_plugins(plugins, dice);
            conducts[..2].copy_from_slice(&[Conduct::Faultless, Conduct::troubled(dice)]);
        }
        dice.shuffle(&mut conducts);
        if is_pace_asked || dice.u32(0..4) == 0 {
            self.conduct = conducts[0];
        }
        for (conduct, number) in conducts.into_iter().skip(1).zip(2..) {
            let plan = self.neighbour(number, conduct, dice);
            self.neighbours.push(plan);
        }
    }

    /// There is more in each stream than a host has room for, and none of it is the weather's
    /// fault.
    fn is_calm_but_for_plugins(&mut self, plugins: usize, dice: &mut fastrand::Rng) {
        self.is_calm_but_for_records();
        self.producer.poisons = Poisons::default();
        let least = plugins * BUDGET_EACH;
        self.budget_bytes = least + dice.usize(..BUDGET_EACH / 2);
        self.backlog_bytes = self.budget_bytes + dice.usize(..BUDGET_EACH);
        self.options.reads.records_per_call = dice.u32(100..=200);
        self.options.batches.records = dice.usize(2..=10);
        self.options.batches.bytes = dice.usize(100_000..1 << 20);
        (self.hosts, self.shards) = (dice.usize(1..=2), dice.u32(2..=4));
        self.faults_for = Duration::from_secs(dice.u64(200..240));
    }

    /// What keeps a plugin from its pace then is in the records, or with other plugins.
    pub(crate) fn is_calm_but_for_records(&mut self) {
        let usual = LeaseOptions::default();
        let leases = &mut self.options.leases;
        leases.read_deadline = usual.read_deadline;
        leases.plugin_deadline = usual.plugin_deadline;
        leases.checkpoint_deadline = usual.checkpoint_deadline;
        self.options.rollout = RolloutPolicy::off();
        (self.weather, self.storms, self.past) = (Weather::default(), Storms::default(), None);
        self.positions = vec![InitialPosition::TrimHorizon];
        (self.max_leases, self.loses_right) = (None, false);
    }

    fn neighbour(&self, number: usize, conduct: Conduct, dice: &mut fastrand::Rng) -> PluginPlan {
        let mut options = self.options.clone();
        options.plugin = PluginName::new(&format!("plugin-{number}")).expect("valid");
        options.application = format!("{APPLICATION}-{number}");
        let has_own_policy = dice.u32(0..5) < 2;
        if has_own_policy {
            options.failure = draw_policy(dice);
        }
        options.keeps_state = options.failure.order == Order::Shard && dice.u32(0..3) == 0;
        if self.backlog_bytes == 0 {
            options.batches.records = dice.usize(1..=40);
        }
        options.checkpoints = CheckpointPolicy {
            records: dice.u64(1..100),
            age: Duration::from_millis(dice.u64(100..5_000)),
            ..options.checkpoints
        };
        options.config.retain(|(key, _)| key != EMITS);
        if dice.u32(0..4) == 0 {
            options.config.push((EMITS.to_owned(), "yes".to_owned()));
        }
        if dice.bool() {
            options.rollout = RolloutPolicy::off();
        }
        options.retrieval = match &options.retrieval {
            Retrieval::FanOut(of_first) if dice.bool() => Retrieval::FanOut(FanOut {
                consumer: FanOutConsumer::Named(
                    ConsumerName::new(&options.application).expect("valid"),
                ),
                deregister_on_exit: of_first.deregister_on_exit,
            }),
            _ => Retrieval::Polling,
        };
        PluginPlan {
            options,
            stream: usize::from(dice.u32(0..4) == 0),
            conduct,
            // What its own policy cannot come to terms with is no poison to it.
            is_immune: has_own_policy || conduct == Conduct::Faultless,
        }
    }
}
