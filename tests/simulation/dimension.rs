//! What a run may have beyond what the first seeds drew: each dimension from its own dice, so
//! that seeds keep their meaning when another one comes. Only over the ports.

use std::time::Duration;

use shardmill_core::pipeline::{FailurePolicy, Order, Parallelism, TickInterval};

use crate::past::{self, Past};
use crate::producer::Producer;
use crate::refusal;
use crate::schedule::Schedule;
use crate::sink::{EMITS, TICKS};
use crate::weather::Fault;

/// The least that a host may be given for what it has fetched.
const BUDGET_MIN: usize = 20 << 20;

/// Something that a run may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Dimension {
    /// The plugin emits, and what it emits must be stored before it is checkpointed.
    Outputs,
    /// Requests are refused, throttled or in conflict, by table, right and host.
    Refusals,
    /// One host cannot reach the coordinator table for long, while it writes lease rows.
    LongCuts,
    /// Reads, calls and sinks are given up within the run.
    Deadlines,
    /// Hosts hold no more than some leases, a number that changes with a restart.
    MaxLeases,
    /// Rows of workers are removed by hand.
    RemovedWorkers,
    /// Now and then many hosts and shards.
    Many,
    /// Records and reshards from before the first host.
    Past,
    /// Retention takes records and shards away while hosts run.
    Retention,
    /// Hosts begin at the latest record or at a time, and are configured again between runs.
    Starts,
    /// All machines are suspended, and wake up: clocks go on, timers do not.
    Suspensions,
    /// Somebody edits lease rows by hand.
    Edits,
    /// Large records, and a budget that holds few of them.
    Large,
    /// Takes are answered seconds later.
    LateTakes,
    /// Calls to tables hang, and only the host gives them up.
    Hangs,
    /// One host may not write lease rows when all else is healed.
    LostRights,
    /// Somebody removes lease rows by hand.
    DeletedRows,
    /// Nothing is wrong but that all records of some keys fail, slowly.
    FailingKeys,
    /// Two or three plugins a host, most on the same stream; some fail on everything.
    Plugins,
    /// Two living processes under one worker id.
    Twins,
    /// Several instances of the plugin work on a shard at a time, each on keys of its own.
    ParallelKeys,
    /// An operator pauses shards, sends them elsewhere, has records skipped and hosts drained.
    Commands,
    /// The plugin is called because time has passed; it keeps state, and emits at ticks.
    Ticks,
}

/// The first of the seeds that have [`Dimension::Commands`] without being asked: those before keep
/// what they mean.
pub const COMMANDS_FROM: u64 = 15_000_000;

/// Some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimensions(u32);

impl Dimensions {
    /// These.
    pub fn of(dimensions: &[Dimension]) -> Self {
        Self(
            dimensions
                .iter()
                .fold(0, |all, dimension| all | dimension.bit()),
        )
    }

    /// Those that are usual for `seed`.
    pub fn usual(seed: u64) -> Self {
        let usual = Self::of(Dimension::USUAL);
        if seed < COMMANDS_FROM {
            return usual;
        }
        usual.and(&[Dimension::Commands])
    }

    /// These, too.
    #[must_use]
    pub fn and(self, dimensions: &[Dimension]) -> Self {
        Self(self.0 | Self::of(dimensions).0)
    }

    /// All but these.
    #[must_use]
    pub fn without(self, dimensions: &[Dimension]) -> Self {
        Self(self.0 & !Self::of(dimensions).0)
    }

    /// Whether it is one of them.
    pub fn has(self, dimension: Dimension) -> bool {
        self.0 & dimension.bit() != 0
    }
}

impl Dimension {
    /// Every one, in the order in which they are drawn.
    pub const ALL: [Self; 23] = [
        Self::Outputs,
        Self::Refusals,
        Self::LongCuts,
        Self::Deadlines,
        Self::MaxLeases,
        Self::RemovedWorkers,
        Self::Many,
        Self::Past,
        Self::Retention,
        Self::Starts,
        Self::Suspensions,
        Self::Edits,
        Self::Large,
        Self::LateTakes,
        Self::Hangs,
        Self::LostRights,
        Self::DeletedRows,
        Self::FailingKeys,
        Self::Plugins,
        Self::Twins,
        Self::ParallelKeys,
        Self::Commands,
        Self::Ticks,
    ];

    /// Those that are drawn unless others are asked for; the others find what is not fixed yet.
    pub const USUAL: &[Self] = &[
        Self::Outputs,
        Self::Refusals,
        Self::LongCuts,
        Self::Deadlines,
        Self::MaxLeases,
        Self::RemovedWorkers,
        Self::Many,
        Self::Past,
        Self::Retention,
        Self::Starts,
        Self::Suspensions,
        Self::Edits,
        Self::Large,
        Self::LateTakes,
        Self::Hangs,
        Self::LostRights,
        Self::FailingKeys,
        Self::Plugins,
        Self::ParallelKeys,
    ];

    fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Dice of its own.
    fn dice(self, seed: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(seed ^ 0xd1_3e00_0000 ^ ((self as u64 + 1) << 8))
    }

    /// Adds to `schedule` what `seed` has of it.
    pub fn draw(self, seed: u64, schedule: &mut Schedule) {
        let dice = &mut self.dice(seed);
        let leases = &mut schedule.options.leases;
        match self {
            Self::Outputs if dice.bool() => schedule
                .options
                .config
                .push((EMITS.to_owned(), "yes".to_owned())),
            Self::Refusals if dice.u32(0..5) < 2 => {
                schedule.storms.refusals = Some(Duration::from_secs(dice.u64(5..30)));
                schedule.refusal_lasts_max =
                    refusal::LASTS_MAX.mul_f64(10_f64.powf(-1.5 * dice.f64()));
            }
            Self::LongCuts if dice.u32(0..5) == 0 => {
                schedule.storms.long_cuts = Some(Duration::from_secs(dice.u64(10..60)));
                schedule.faults_for = schedule.faults_for.max(leases.duration * 24);
            }
            Self::Deadlines if dice.u32(0..10) < 3 => {
                let mut few_leases = || leases.duration.mul_f64(1.0 + 2.0 * dice.f64());
                (leases.read_deadline, leases.checkpoint_deadline) = (few_leases(), few_leases());
                leases.plugin_deadline = few_leases().max(Duration::from_secs(15));
            }
            Self::MaxLeases if dice.u32(0..4) == 0 => {
                schedule.max_leases = Some(dice.usize(1..=4));
                // A crash keeps what a host may no longer hold in its name.
                schedule
                    .storms
                    .crashes
                    .get_or_insert(Duration::from_secs(dice.u64(4..30)));
            }
            // Who cannot register again for long is taken for a KCL's worker (see
            // docs/simulation.md).
            Self::RemovedWorkers if dice.u32(0..5) == 0 && schedule.storms.long_cuts.is_none() => {
                (schedule.storms.refusals, schedule.storms.partitions) = (None, None);
                schedule.storms.outages = None;
                schedule.storms.removals = Some(Duration::from_secs(dice.u64(8..40)));
            }
            Self::Many => match dice.u32(0..512) {
                0 => schedule.is_of((dice.usize(24..=64), dice.u32(64..=256))),
                1..8 => schedule.is_of((dice.usize(6..=16), dice.u32(8..=48))),
                _ => {}
            },
            Self::Past if dice.u32(0..5) < 2 => schedule.past = Some(Past::draw(dice)),
            Self::Retention if dice.u32(0..5) == 0 => {
                let past = schedule.past.unwrap_or_else(|| Past::draw(dice));
                schedule.past = Some(past.as_old_as_retention(dice));
                schedule.storms.trims = Some(Duration::from_secs(dice.u64(1..8)));
            }
            Self::Suspensions if dice.u32(0..4) == 0 => {
                schedule.storms.suspensions = Some(Duration::from_secs(dice.u64(4..30)));
            }
            Self::Edits if dice.u32(0..5) == 0 => {
                schedule.storms.edits = Some(Duration::from_secs(dice.u64(4..40)));
            }
            Self::Large if dice.u32(0..4) == 0 => {
                schedule.producer.large = 0.5 * 10_f64.powf(-dice.f64());
                schedule.budget_bytes = BUDGET_MIN + dice.usize(..BUDGET_MIN);
                schedule.options.batches.bytes = dice.usize(20_000..1 << 20);
            }
            Self::LateTakes if dice.u32(0..6) == 0 => {
                schedule
                    .weather
                    .chances
                    .insert(Fault::LateTake, 0.3 + 0.7 * dice.f64());
                schedule
                    .storms
                    .suspensions
                    .get_or_insert(Duration::from_secs(dice.u64(2..10)));
            }
            Self::Hangs if dice.u32(0..6) == 0 && schedule.storms.removals.is_none() => {
                schedule
                    .weather
                    .chances
                    .insert(Fault::Hang, 0.05 * 10_f64.powf(-1.5 * dice.f64()));
            }
            Self::LostRights if dice.u32(0..8) == 0 => {
                (schedule.loses_right, schedule.has_drill) = (true, false);
                schedule.hosts = schedule.hosts.max(2);
            }
            Self::DeletedRows if dice.u32(0..5) == 0 => {
                schedule.storms.deletions = Some(Duration::from_secs(dice.u64(4..40)));
            }
            Self::FailingKeys if dice.u32(0..16) == 0 => schedule.has_failing_keys(dice),
            Self::Twins if dice.u32(0..8) == 0 && !schedule.is_calm() => {
                schedule.storms.twins = Some(Duration::from_secs(dice.u64(6..40)));
            }
            Self::Commands if dice.u32(0..3) > 0 && !schedule.is_calm() => {
                schedule.storms.commands = Some(Duration::from_secs(dice.u64(2..16)));
            }
            Self::Ticks if schedule.may_tick() => schedule.ticks(dice),
            Self::Plugins if dice.u32(0..5) == 0 => schedule.have_neighbours(dice),
            Self::ParallelKeys if dice.u32(0..2) == 0 && schedule.may_be_parallel() => {
                let parallelism = Parallelism::new(dice.u32(2..=8));
                schedule.options.parallelism = parallelism.unwrap_or_default();
            }
            Self::Starts if dice.bool() => {
                schedule.positions = past::draw_positions(dice, schedule.past);
            }
            _ => {}
        }
    }
}

impl Schedule {
    /// Whether its first plugin works in an order that several instances keep, and no pace is asked
    /// of it that fits one.
    fn may_be_parallel(&self) -> bool {
        self.options.failure.order == Order::Key && !self.is_calm()
    }

    /// Whether the plugin may keep state, which ticks are most about.
    fn may_tick(&self) -> bool {
        self.options.failure.order == Order::Shard && !self.options.parallelism.is_parallel()
    }

    fn ticks(&mut self, dice: &mut fastrand::Rng) {
        self.options.keeps_state = true;
        let every = Duration::from_secs(dice.u64(1..=6));
        self.options.tick = TickInterval::new(every).unwrap_or_default();
        for key in [EMITS, TICKS] {
            self.options.config.retain(|(kept, _)| kept != key);
            self.options.config.push((key.to_owned(), "yes".to_owned()));
        }
    }

    /// All else is calm: what waits then waits for a key that fails.
    fn has_failing_keys(&mut self, dice: &mut fastrand::Rng) {
        self.options.failure = FailurePolicy {
            order: Order::Key,
            ..FailurePolicy::default()
        };
        self.options.keeps_state = false;
        self.options.reads.records_per_call = if dice.bool() { 1_000 } else { dice.u32(8..=32) };
        self.producer = Producer {
            has_few_keys: true,
            failing_keys: dice.u32(3..=5),
            ..Producer::default()
        };
        self.is_calm_but_for_records();
        (self.hosts, self.shards) = (dice.usize(1..=2), dice.u32(1..=2));
        self.faults_for = Duration::from_secs(dice.u64(320..380));
    }

    fn is_of(&mut self, (hosts, shards): (usize, u32)) {
        (self.hosts, self.shards) = (hosts, shards);
        self.hosts_max = hosts + 4;
        self.shards_max = shards as usize + 16;
    }
}
