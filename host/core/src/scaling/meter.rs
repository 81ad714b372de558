//! What a host makes of its own samples.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::load::{HostLoad, from_milli, thousandths, whole};
use super::policy::ScalingPolicy;
use super::shard::{Around, Limit, Measured, ShardSample};
use crate::stream::ShardId;
use crate::time::Moment;

/// Over how long a load is measured: several batches and checkpoints, so that single ones do not
/// show; short against the time in which a host starts.
const WINDOW: Duration = Duration::from_secs(20);
/// The same on a host that has become full: what came before says less than what comes now, and
/// each second of a backlog counts. On such a host consumers are always at work, so that less time
/// shows enough.
const WINDOW_WHEN_FULL: Duration = Duration::from_secs(7);
/// Shorter, and a batch more or less would count twice.
const WINDOW_MIN: Duration = Duration::from_secs(5);
/// Samples closer than this replace one another, so that a window has at most 21, whatever the
/// heartbeat's interval is.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// The part of its cores from which on a host counts as full. Below `FULL`: a host of two cores
/// whose one consumer waits for the other is half idle for moments.
const HOST_FULL: f64 = 0.8;
/// The part of its cores that a host is taken to have for what is scaled, however much its
/// standalone applications use.
const CORES_LEFT_MIN: f64 = 0.1;

/// Measures the load of one application on one host.
#[derive(Debug, Default)]
pub struct Meter {
    /// The oldest one first.
    samples: VecDeque<Sample>,
}

/// Everything that is measured, at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When it was taken, on the host's own clock.
    pub at: Moment,
    /// What the process used so far.
    pub process: ProcessSample,
    /// The shards that the host holds for the application.
    pub shards: BTreeMap<ShardId, ShardSample>,
}

/// What the whole process used so far, for all its plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessSample {
    /// Processor time, over all threads.
    pub cpu: Duration,
    /// Time that consumers of all plugins were in their plugin.
    pub in_plugins: Duration,
    /// The part of it in plugins of standalone applications. Each host runs all of these, so that
    /// what they use is not to be had on any.
    pub in_standalone: Duration,
    /// Applications of the process that are measured, so that what no call explains can be divided
    /// among them; zero counts as one.
    pub applications: u64,
    /// The cores that it may use, in thousandths.
    pub cores_milli: u64,
}

/// The process between two samples.
struct ProcessUse {
    cores: f64,
    used: f64,
    /// Consumers in a plugin at a time.
    busy: f64,
    /// Those of standalone applications.
    busy_standalone: f64,
    applications: f64,
}

/// A load, and how far it can be trusted.
struct Seen {
    load: HostLoad,
    /// Whether the host's cores were in use.
    is_full: bool,
}

impl Meter {
    /// Takes in a sample. One that comes too soon after the last one but one replaces the last.
    pub fn take(&mut self, sample: Sample) {
        let before = self.samples.len().checked_sub(2);
        let before = before.and_then(|index| self.samples.get(index));
        if before.is_some_and(|before| sample.at.since(before.at) < SAMPLE_EVERY) {
            self.samples.pop_back();
        }
        let from = sample.at - WINDOW;
        self.samples.push_back(sample);
        // One that is older than the window stays as its beginning.
        while self.samples.get(1).is_some_and(|second| second.at <= from) {
            self.samples.pop_front();
        }
    }

    /// What was measured; `None` before there is enough to go by. Of the whole window and the last
    /// seconds of a full host, what needs more counts.
    pub fn load(&self, policy: &ScalingPolicy) -> Option<HostLoad> {
        let long = self.load_since(0, policy)?.load;
        let newest = self.samples.back()?.at;
        let recent = self.samples.iter().rposition(|sample| {
            let age = newest.since(sample.at);
            age >= WINDOW_WHEN_FULL
        });
        let recent = recent.and_then(|first| self.load_since(first, policy));
        Some(match recent {
            Some(recent) if recent.is_full && recent.load.needed_milli > long.needed_milli => {
                recent.load
            }
            _ => long,
        })
    }

    /// What was measured from the sample at `first` on.
    fn load_since(&self, first: usize, policy: &ScalingPolicy) -> Option<Seen> {
        let last = self.samples.back()?;
        let from = self.samples.get(first)?;
        let elapsed = last.at.since(from.at);
        if elapsed < WINDOW_MIN {
            return None;
        }
        let process = ProcessUse::between(&from.process, &last.process, elapsed);
        let measured = self.measured(first, last);
        let busy: f64 = measured.values().map(|shard| shard.busy).sum();
        let used = process.share_of(busy);
        let around = Around {
            cores_a_busy_second: if busy > 0.0 { used / busy } else { 0.0 },
            is_full: process.is_full(),
            catch_up: policy.catch_up,
        };
        let mut load = HostLoad {
            cores_milli: thousandths(process.cores_left()),
            process_milli: thousandths(process.used),
            used_milli: thousandths(used),
            busy_milli: thousandths(busy),
            ..HostLoad::default()
        };
        for (id, shard) in &measured {
            let part = if busy > 0.0 {
                shard.busy / busy
            } else {
                1.0 / measured.len() as f64
            };
            load.note(id, shard, &around);
            if !shard.is_stopped() {
                load.add(shard, used * part, &around);
            }
        }
        Some(Seen {
            load,
            is_full: process.is_full(),
        })
    }

    /// How many samples are kept.
    #[cfg(test)]
    pub(super) fn samples(&self) -> usize {
        self.samples.len()
    }

    /// Each shard, from the first sample at `first` or later that has this holding of it.
    fn measured(&self, first: usize, last: &Sample) -> BTreeMap<ShardId, Measured> {
        let mut measured = BTreeMap::new();
        for (id, now) in &last.shards {
            let known = self.samples.iter().skip(first).find_map(|sample| {
                let then = sample.shards.get(id)?;
                (then.epoch == now.epoch && then.lag.is_some()).then_some((sample.at, then))
            });
            let Some((at, then)) = known else { continue };
            let elapsed = last.at.since(at);
            if elapsed >= WINDOW_MIN
                && let Some(shard) = Measured::between(then, now, elapsed)
            {
                measured.insert(id.clone(), shard);
            }
        }
        measured
    }
}

impl ProcessUse {
    fn between(first: &ProcessSample, last: &ProcessSample, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        let used = last.cpu.saturating_sub(first.cpu).as_secs_f64() / seconds;
        let at_a_time = |before: Duration, after: Duration| {
            after.saturating_sub(before).as_secs_f64() / seconds
        };
        Self {
            cores: from_milli(last.cores_milli),
            used,
            busy: at_a_time(first.in_plugins, last.in_plugins),
            busy_standalone: at_a_time(first.in_standalone, last.in_standalone),
            applications: last.applications.max(1) as f64,
        }
    }

    /// The cores that standalone applications leave to those that hosts divide among themselves.
    /// Never less than a small part, of which so many hosts are wanted that somebody looks.
    fn cores_left(&self) -> f64 {
        if self.busy <= 0.0 {
            return self.cores;
        }
        let of_standalone = self.used * (self.busy_standalone / self.busy).min(1.0);
        (self.cores - of_standalone).max(self.cores * CORES_LEFT_MIN)
    }

    fn is_full(&self) -> bool {
        self.used >= HOST_FULL * self.cores
    }

    /// What an application used whose consumers were in the plugin for `busy`: the process's time
    /// in proportion to that, what was read and stored for it included. If no plugin was called, as
    /// where filters drop every record, each application is taken to have used the same.
    fn share_of(&self, busy: f64) -> f64 {
        if self.busy > 0.0 {
            self.used * (busy / self.busy).min(1.0)
        } else {
            self.used / self.applications
        }
    }
}

impl HostLoad {
    /// Adds what a shard needs that used so many `cores`.
    fn add(&mut self, shard: &Measured, cores: f64, around: &Around) {
        let needs = shard.needs(cores, around);
        self.shards += 1;
        add(&mut self.arriving_milli, needs.arriving);
        self.backlog = self.backlog.saturating_add(whole(needs.backlog.round()));
        add(&mut self.steady_milli, needs.steady);
        add(&mut self.needed_milli, needs.needed);
        self.heaviest_milli = self.heaviest_milli.max(thousandths(needs.steady));
    }

    /// Adds how fast and how far a shard is, and what limits it.
    fn note(&mut self, id: &ShardId, shard: &Measured, around: &Around) {
        add(&mut self.records_milli, shard.records);
        let lag_ms = u64::try_from(shard.lag.as_millis()).unwrap_or(u64::MAX);
        if shard.is_behind() && lag_ms > self.lag_ms {
            self.worst = Some(id.clone());
        }
        self.lag_ms = self.lag_ms.max(lag_ms);
        let bound = &mut self.bound;
        match shard.limit(around) {
            Some(Limit::Plugin) => bound.plugin += 1,
            Some(Limit::Sink) => bound.sink += 1,
            Some(Limit::Reading) => bound.reading += 1,
            Some(Limit::Blocked) => bound.blocked += 1,
            Some(Limit::Paused) => bound.paused += 1,
            None => {}
        }
    }
}

/// Adds to a sum in thousandths.
fn add(sum: &mut u64, value: f64) {
    *sum = sum.saturating_add(thousandths(value));
}
