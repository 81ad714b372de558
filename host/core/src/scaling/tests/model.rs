//! A fleet under a load that changes, scaled by its own figure: the real meter, leader's decision
//! and planner around simple hosts, shards and machines, a second at a time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{
    Damper, Figure, FleetLoad, HostLoad, Meter, ProcessSample, Sample, ScalingPolicy, ShardSample,
    Shards, Spent, Stance, assess,
};
use crate::fleet::WorkerRow;
use crate::lease::{Availability, Checkpoint, Lease, LeaseCounter, WorkerId};
use crate::plan::{Balance, FleetView, ObservedLease, ObservedWorker, PlanLimits, Step, plan};
use crate::stream::{HashKeyRange, InitialPosition, Shard, ShardId};
use crate::time::Moment;

/// A shard counts as behind from here on, as in the figure.
const BEHIND_SECONDS: f64 = 10.0;
/// Between two heartbeats.
const BEAT_SECONDS: f64 = 3.6;
/// After a load has changed, no measurement shows it sooner: some batches and a heartbeat.
const MEASURED_AFTER_SECONDS: f64 = 10.0;

/// What a run is drawn from.
#[derive(Debug, Clone)]
pub(super) struct Draw {
    pub(super) seed: u64,
    pub(super) shards: u32,
    /// Cores of a host.
    pub(super) cores: u32,
    /// Core-seconds that a record costs in the plugin.
    pub(super) cost: f64,
    /// What it costs beside that, for a part of it: reading, storing.
    pub(super) overhead: f64,
    /// Cores that the mean shard needs in the plugin before the load rises.
    pub(super) of_a_shard: f64,
    /// How much the shards differ.
    pub(super) skew: f64,
    pub(super) start_seconds: f64,
    /// How often the autoscaler asks.
    pub(super) poll_seconds: f64,
    pub(super) policy: ScalingPolicy,
    /// The leader changes at this second of the rise, if it does.
    pub(super) leader_changes_at: Option<u32>,
    pub(super) rise_seconds: u32,
}

/// How a run went.
#[derive(Debug)]
pub(super) struct Run {
    /// The figures one after the other, without repeats.
    pub(super) figures: Vec<usize>,
    /// Until nothing was behind any more, from the rise.
    pub(super) cleared_after: f64,
    /// The figure before the load rose, and at the end.
    pub(super) before: usize,
    pub(super) at_end: usize,
    pub(super) most: usize,
    /// Whether a shard was behind in the last minute of the rise, or later than a quarter of an
    /// hour after it.
    pub(super) is_behind_late: bool,
}

/// Who decides how many hosts there are.
#[derive(Clone, Copy)]
pub(super) enum Scaler {
    Figure,
    /// Wants the right number as soon as anything can be measured.
    Knowing(usize),
}

struct Machine {
    id: WorkerId,
    is_draining: bool,
    meter: Meter,
    load: Option<HostLoad>,
    cpu: f64,
    in_plugins: f64,
    beats_at: f64,
}

struct ModelShard {
    lease: Lease,
    rate: f64,
    /// Records by the second of their arrival.
    queue: VecDeque<(f64, f64)>,
    spent: Spent,
    records: f64,
    hands_over_at: Option<f64>,
}

pub(super) struct Model {
    draw: Draw,
    dice: Dice,
    now: f64,
    shards: Vec<ModelShard>,
    hosts: Vec<Machine>,
    starting: Vec<f64>,
    started: u32,
    damper: Damper,
    figure: Option<Figure>,
    figures: Vec<usize>,
    polled_at: f64,
    rises_at: f64,
    is_settled: bool,
}

/// Numbers that look random; the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, from: f64, to: f64) -> f64 {
        from + self.roll() * (to - from)
    }

    /// From the first to the last, both included.
    fn count(&mut self, first: u32, last: u32) -> u32 {
        let span = f64::from(last - first + 1);
        first + u32::try_from(super::load::whole(self.roll() * span)).unwrap()
    }
}

impl Draw {
    /// One of all fleets and loads that a fleet can follow: five times the load fits on as many
    /// hosts as there are shards.
    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            dice.roll();
        }
        let seconds = |at: f64| Duration::from_secs_f64(at.round());
        Self {
            seed,
            shards: dice.count(4, 24),
            cores: dice.count(1, 4),
            cost: dice.between(0.001, 0.02),
            overhead: dice.between(0.0, 0.6),
            of_a_shard: dice.between(0.03, 0.1),
            skew: dice.between(0.0, 0.3),
            start_seconds: dice.between(15.0, 90.0),
            poll_seconds: dice.between(5.0, 15.0),
            policy: ScalingPolicy {
                catch_up: seconds(dice.between(30.0, 120.0)),
                settle: seconds(dice.between(60.0, 300.0)),
                ..ScalingPolicy::default()
            },
            leader_changes_at: (dice.roll() < 0.5).then(|| dice.count(0, 1_200)),
            rise_seconds: 1_800,
        }
    }
}

fn moment(seconds: f64) -> Moment {
    Moment::from_origin(Duration::from_secs_f64(seconds))
}

impl Model {
    pub(super) fn new(draw: &Draw) -> Self {
        let mut dice = Dice(draw.seed | 1);
        let shards = (0..draw.shards)
            .map(|number| {
                let shard = Shard {
                    id: ShardId::new(format!("shardId-{number:012}")).unwrap(),
                    parents: Vec::new(),
                    hash_range: HashKeyRange::FULL,
                    ending_sequence: None,
                };
                let part = dice.between(1.0 - draw.skew, 1.0 + draw.skew);
                ModelShard {
                    lease: Lease {
                        hash_range: None,
                        ..Lease::fresh(&shard, Checkpoint::TrimHorizon)
                    },
                    rate: draw.of_a_shard / draw.cost * part,
                    queue: VecDeque::new(),
                    spent: Spent::default(),
                    records: 0.0,
                    hands_over_at: None,
                }
            })
            .collect();
        let mut model = Self {
            draw: draw.clone(),
            dice,
            now: 1_000.0,
            shards,
            hosts: Vec::new(),
            starting: Vec::new(),
            started: 0,
            damper: Damper::new(moment(1_000.0)),
            figure: None,
            figures: Vec::new(),
            polled_at: 0.0,
            rises_at: 0.0,
            is_settled: false,
        };
        model.add_host();
        model
    }

    /// Runs until the load is normal, then five times that, then normal again.
    pub(super) fn run(mut self, scaler: Scaler) -> Run {
        let settle = u32::try_from(self.draw.policy.settle.as_secs()).unwrap();
        self.pass(600 + 2 * settle, 1.0, Scaler::Figure);
        let before = self.figure.as_ref().unwrap().wanted;
        self.figures = vec![before];
        self.rises_at = self.now;
        let mut cleared_at = self.now;
        let mut is_behind_late = false;
        for second in 0..self.draw.rise_seconds {
            if self.draw.leader_changes_at == Some(second) {
                self.damper = Damper::new(moment(self.now));
            }
            self.second(5.0, scaler);
            if self.lag() >= BEHIND_SECONDS {
                cleared_at = self.now;
                is_behind_late |= second + 60 > self.draw.rise_seconds;
            }
        }
        let most = self.figure.as_ref().unwrap().wanted;
        for second in 0..(1_800 + 6 * settle) {
            self.second(1.0, Scaler::Figure);
            is_behind_late |= second > 900 && self.lag() >= BEHIND_SECONDS;
        }
        Run {
            before,
            at_end: self.figure.as_ref().unwrap().wanted,
            most: self.figures.iter().copied().max().unwrap_or(most),
            figures: self.figures,
            cleared_after: cleared_at - self.rises_at,
            is_behind_late,
        }
    }

    fn pass(&mut self, seconds: u32, load: f64, scaler: Scaler) {
        for _ in 0..seconds {
            self.second(load, scaler);
        }
    }

    fn second(&mut self, load: f64, scaler: Scaler) {
        self.now += 1.0;
        self.arrive(load);
        self.start_hosts();
        self.move_leases();
        self.work();
        self.beat();
        self.lead();
        self.scale(scaler);
    }

    fn arrive(&mut self, load: f64) {
        let now = self.now;
        for shard in &mut self.shards {
            let count = shard.rate * load * self.dice.between(0.8, 1.2);
            shard.queue.push_back((now, count));
        }
    }

    /// The greatest lag of a shard.
    fn lag(&self) -> f64 {
        let lags = self.shards.iter().map(|shard| shard.lag(self.now));
        lags.fold(0.0, f64::max)
    }

    fn add_host(&mut self) {
        self.started += 1;
        self.hosts.push(Machine {
            id: WorkerId::new(&format!("host-{:04}", self.started)).unwrap(),
            is_draining: false,
            meter: Meter::default(),
            load: None,
            cpu: 0.0,
            in_plugins: 0.0,
            beats_at: self.now + self.dice.between(0.0, BEAT_SECONDS),
        });
        self.is_settled = false;
    }

    fn start_hosts(&mut self) {
        let now = self.now;
        let up = self.starting.iter().filter(|at| **at <= now).count();
        self.starting.retain(|at| *at > now);
        for _ in 0..up {
            self.add_host();
        }
    }

    /// Each host plans with what it sees, and each owner hands over what it is asked for.
    fn move_leases(&mut self) {
        let now = self.now;
        for shard in &mut self.shards {
            if shard.hands_over_at.is_some_and(|at| at <= now) {
                shard.lease.owner = None;
                shard.hands_over_at = None;
            }
        }
        let gone = |host: &Machine| host.is_draining;
        for host in self.hosts.iter().filter(|host| gone(host)) {
            for shard in &mut self.shards {
                if shard.lease.owner.as_ref() == Some(&host.id) {
                    shard.lease.owner = None;
                }
            }
        }
        self.hosts.retain(|host| !gone(host));
        if self.is_settled {
            return;
        }
        let mut has_moved = false;
        for at in 0..self.hosts.len() {
            let me = self.hosts[at].id.clone();
            for step in self.plan_of(&me) {
                has_moved = true;
                self.apply(&me, &step);
            }
        }
        let is_moving =
            |shard: &ModelShard| shard.lease.owner.is_none() || shard.hands_over_at.is_some();
        self.is_settled = !has_moved && !self.shards.iter().any(is_moving);
    }

    fn plan_of(&self, me: &WorkerId) -> Vec<Step> {
        let leases = self.observed(me);
        let workers = self.workers();
        let view = FleetView {
            me,
            leases: &leases,
            workers: &workers,
            shards: None,
            is_bootstrapped: true,
        };
        let limits = PlanLimits {
            initial_position: InitialPosition::TrimHorizon,
            max_leases: usize::MAX,
            balance: Balance::Count,
            shared_with_kcl: false,
            overdue_after: Duration::from_secs(30),
            finished_rows_stay: Duration::from_secs(20),
        };
        plan(&view, &limits).steps
    }

    fn observed(&self, me: &WorkerId) -> Vec<ObservedLease> {
        let lease = |shard: &ModelShard| ObservedLease {
            availability: match shard.lease.owner {
                Some(_) => Availability::Held,
                None => Availability::Free,
            },
            idle_for: Duration::ZERO,
            is_mine: shard.lease.owner.as_ref() == Some(me),
            is_claim_fresh: self.is_there(shard.lease.claimant.as_ref()),
            has_owner_left: false,
            is_owner_new: false,
            finished_for: Duration::ZERO,
            is_avoided: false,
            lease: shard.lease.clone(),
        };
        self.shards.iter().map(lease).collect()
    }

    /// A claim of a host that has left is void.
    fn is_there(&self, claimant: Option<&WorkerId>) -> bool {
        self.hosts.iter().any(|host| Some(&host.id) == claimant)
    }

    fn workers(&self) -> Vec<ObservedWorker> {
        let worker = |host: &Machine| ObservedWorker {
            id: host.id.clone(),
            is_alive: true,
            is_draining: host.is_draining,
            max_leases: usize::MAX,
        };
        self.hosts.iter().map(worker).collect()
    }

    fn apply(&mut self, me: &WorkerId, step: &Step) {
        let key = step.key().clone();
        let wait = self.dice.between(0.2, 2.0);
        let now = self.now;
        let shard = self.shards.iter_mut().find(|shard| shard.lease.key == key);
        let shard = shard.unwrap();
        match step {
            Step::Take { .. } if shard.lease.owner.is_none() => {
                shard.lease.owner = Some(me.clone());
                shard.lease.claimant = None;
                shard.lease.counter = LeaseCounter(shard.lease.counter.0 + 1);
                // A new holding.
                (shard.spent, shard.records) = (Spent::default(), 0.0);
            }
            Step::Claim { .. } if shard.lease.claimant.is_none() => {
                shard.lease.claimant = Some(me.clone());
                shard.hands_over_at = Some(now + wait);
            }
            Step::Take { .. } | Step::Claim { .. } | Step::HandOver { .. } => {}
            Step::Create { .. } | Step::Delete { .. } | Step::Release { .. } => {
                panic!("{step:?}");
            }
        }
    }

    /// Shards share the cores of their host evenly, and each uses one at most for its plugin.
    fn work(&mut self) {
        let Draw {
            cores,
            cost,
            overhead,
            ..
        } = self.draw;
        for host in &mut self.hosts {
            let mut held: Vec<(&mut ModelShard, f64)> = Vec::new();
            for shard in &mut self.shards {
                if shard.lease.owner.as_ref() == Some(&host.id) {
                    let cost = cost * self.dice.between(0.8, 1.2);
                    held.push((shard, cost));
                }
            }
            // Who wants little is served first; the others share what is left.
            held.sort_by(|a, b| {
                let wants = |of: &(&mut ModelShard, f64)| of.0.pending() * of.1;
                wants(a).total_cmp(&wants(b))
            });
            let mut left = f64::from(cores);
            let count = held.len();
            for (at, (shard, cost)) in held.into_iter().enumerate() {
                let all_in = cost * (1.0 + overhead);
                let wanted = (shard.pending() * all_in).min(1.0 + overhead);
                let given = wanted.min(left / (count - at) as f64);
                left -= given;
                let used = given / (1.0 + overhead);
                shard.take(given / all_in);
                let has_more = shard.pending() > 1e-6;
                let busy = if has_more { 1.0 } else { used };
                shard.spent.in_plugin += Duration::from_secs_f64(busy);
                shard.spent.reading += Duration::from_secs_f64(1.0 - busy);
                host.cpu += given;
                host.in_plugins += busy;
            }
        }
    }

    fn beat(&mut self) {
        let now = self.now;
        for host in &mut self.hosts {
            if host.beats_at > now {
                continue;
            }
            host.beats_at += BEAT_SECONDS;
            let held = self.shards.iter();
            let held = held.filter(|shard| shard.lease.owner.as_ref() == Some(&host.id));
            let shards: BTreeMap<ShardId, ShardSample> = held
                .map(|shard| (shard.lease.key.shard_id(), shard.sample(now)))
                .collect();
            host.meter.take(Sample {
                at: moment(now),
                process: ProcessSample {
                    cpu: Duration::from_secs_f64(host.cpu),
                    in_plugins: Duration::from_secs_f64(host.in_plugins),
                    in_standalone: Duration::ZERO,
                    applications: 1,
                    cores_milli: u64::from(self.draw.cores) * 1_000,
                },
                shards,
            });
            host.load = host.meter.load(&self.draw.policy);
        }
    }

    fn lead(&mut self) {
        let workers = self.workers();
        let mut shards = Shards {
            readable: self.shards.len(),
            ..Shards::default()
        };
        for owner in self
            .shards
            .iter()
            .filter_map(|shard| shard.lease.owner.as_ref())
        {
            *shards.held.entry(owner.clone()).or_default() += 1;
        }
        let rows: Vec<WorkerRow> = self.hosts.iter().map(Machine::row).collect();
        let fleet = FleetLoad::of(&shards, &workers, rows.iter(), usize::MAX);
        let policy = self.draw.policy;
        let assessed = assess(&policy, &fleet);
        let next = self
            .damper
            .next(&policy, &assessed, self.figure.as_ref(), moment(self.now));
        let Some(next) = next else {
            return;
        };
        assert!(next.wanted <= self.shards.len(), "never above the shards");
        if self.figures.last() != Some(&next.wanted) {
            self.figures.push(next.wanted);
        }
        self.figure = Some(next);
    }

    fn scale(&mut self, scaler: Scaler) {
        if self.now - self.polled_at < self.draw.poll_seconds {
            return;
        }
        let wanted = match scaler {
            Scaler::Knowing(_) if self.now < self.rises_at + MEASURED_AFTER_SECONDS => return,
            Scaler::Knowing(hosts) => hosts,
            Scaler::Figure => match &self.figure {
                Some(figure) => figure.wanted,
                None => return,
            },
        };
        self.polled_at = self.now;
        let there = self.hosts.len();
        while there + self.starting.len() < wanted {
            let start = self.draw.start_seconds * self.dice.between(0.8, 1.2);
            self.starting.push(self.now + start);
        }
        while there + self.starting.len() > wanted && self.starting.pop().is_some() {}
        for host in self
            .hosts
            .iter_mut()
            .rev()
            .take(there.saturating_sub(wanted))
        {
            host.is_draining = true;
            self.is_settled = false;
        }
    }
}

impl Machine {
    fn row(&self) -> WorkerRow {
        WorkerRow {
            load: self.load.clone(),
            ..WorkerRow::beating(self.id.as_str())
        }
    }
}

impl ModelShard {
    fn pending(&self) -> f64 {
        self.queue.iter().map(|(_, count)| count).sum()
    }

    fn lag(&self, now: f64) -> f64 {
        self.queue.front().map_or(0.0, |(at, _)| now - at)
    }

    fn take(&mut self, records: f64) {
        self.records += records;
        let mut left = records + 1e-6;
        while let Some((_, count)) = self.queue.front_mut() {
            if *count > left {
                *count -= left;
                return;
            }
            left -= *count;
            self.queue.pop_front();
        }
    }

    fn sample(&self, now: f64) -> ShardSample {
        ShardSample {
            epoch: self.lease.counter.0,
            records: super::load::whole(self.records),
            lag: Some(Duration::from_secs_f64(self.lag(now))),
            spent: self.spent,
            stance: Stance::Flows,
            parallelism: 1,
        }
    }
}
