//! A worker's settings, checked once.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::lease::{LEASE_DURATION_MAX, WorkerId};
use shardmill_core::pipeline::{
    BatchLimits, CheckpointPolicy, FailurePolicy, Order, Parallelism, PolicyProblem, ReadRate,
    TickInterval,
};
use shardmill_core::plan::Balance;
use shardmill_core::plugin::{GuestLimits, Permissions, PluginName};
use shardmill_core::ports::REPLY_RECORDS_MAX;
use shardmill_core::rollout::{RolloutPolicy, RolloutProblem};
use shardmill_core::stream::{InitialPosition, StreamName};
use shardmill_filter::Filter;

use crate::retrieval::Retrieval;

/// Everything a worker needs to know, apart from its ports.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The plugin it serves.
    pub plugin: PluginName,
    /// The application: what leases and checkpoints are kept under.
    pub application: String,
    /// The stream it reads.
    pub stream: StreamName,
    /// The id under which this host owns leases.
    pub worker: WorkerId,
    /// Where shards start that were never checkpointed.
    pub initial_position: InitialPosition,
    /// How long leases last, and how often they are renewed and looked at.
    pub leases: LeaseOptions,
    /// How much is fetched at a time, and how fast.
    pub reads: ReadLimits,
    /// How records are read.
    pub retrieval: Retrieval,
    /// Which records the plugin gets; all of them without a filter.
    pub filter: Option<Arc<Filter>>,
    /// How many instances work on one shard at a time.
    pub parallelism: Parallelism,
    /// Batches, of each instance.
    pub batches: BatchLimits,
    /// When settled records are written to the lease table.
    pub checkpoints: CheckpointPolicy,
    /// How often an instance is called because time has passed, if its version wants that.
    pub tick: TickInterval,
    /// Waits after failures of reads, deliveries and sinks.
    pub backoff: Backoff,
    /// What is done about records that fail.
    pub failure: FailurePolicy,
    /// Names of the sinks that the plugin may emit to.
    pub destinations: Vec<String>,
    /// The plugin's own configuration values.
    pub config: Vec<(String, String)>,
    /// What an instance may use; `None` is what the engine gives any.
    pub limits: Option<GuestLimits>,
    /// Whether the plugin's state is kept with each checkpoint.
    pub keeps_state: bool,
    /// What the plugin is given beyond computing.
    pub permissions: Arc<Permissions>,
    /// How new versions of the plugin are taken up.
    pub rollout: RolloutPolicy,
    /// Whether the application's history also has what this host does by itself, and not only what
    /// it does for commands.
    pub records_own_deeds: bool,
}

/// How leases are kept.
#[derive(Debug, Clone, Copy)]
pub struct LeaseOptions {
    /// How long an owner may be silent before others take its lease (KCL `failoverTimeMillis`).
    pub duration: Duration,
    /// Time between renewals of an idle lease; a checkpoint counts as one.
    pub renew_every: Duration,
    /// Time between looks at the coordinator table's small rows, which say whether to look at the
    /// leases. 1 s: how soon a released lease is noticed.
    pub scan_every: Duration,
    /// Time between listings of the stream's shards.
    pub shard_sync_every: Duration,
    /// Most leases held at once.
    pub max_leases: usize,
    /// What hosts share out evenly.
    pub balance: Balance,
    /// Whether KCL 2.x workers share the table: then each row is renewed as they do it, and one
    /// host's heartbeat holds nothing. Found out by itself too, once a lease has an owner that is
    /// not registered.
    pub shared_with_kcl: bool,
    /// How long reading may fail before the reader is replaced, and after as long again the lease
    /// is given up.
    pub read_deadline: Duration,
    /// How long one call of the plugin may take before the instance is replaced, and after as long
    /// again the lease is given up. Far above what a component may take, which has limits of its
    /// own.
    pub plugin_deadline: Duration,
    /// How long outputs may fail to be stored before the lease is given up.
    pub checkpoint_deadline: Duration,
}

/// What AWS allows on one shard, or less.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadLimits {
    /// `GetRecords` calls a second (AWS limit: 5, shared by all polling consumers).
    pub calls_per_second: f64,
    /// Bytes a second (AWS limit: 2 MB).
    pub bytes_per_second: f64,
    /// Records asked for in one call, at most 10,000 (AWS limit).
    pub records_per_call: u32,
    /// Wait after a reply without records at the shard's tip. Doubles with each further one, up to
    /// `idle_max`.
    pub idle_every: Duration,
    /// The longest such wait: how late the first record on a silent shard may be noticed.
    pub idle_max: Duration,
}

/// A new subscription to a shard is refused for five seconds after the last one (AWS limit), and a
/// silent subscription brings an event every five seconds.
const SUBSCRIPTION_SILENT_MAX: Duration = Duration::from_secs(10);

/// Settings that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct InvalidOptions {
    /// The setting's key, as the configuration file names it.
    pub setting: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            renew_every: Duration::from_millis(3_600),
            scan_every: Duration::from_secs(1),
            shard_sync_every: Duration::from_mins(1),
            max_leases: usize::MAX,
            balance: Balance::Count,
            shared_with_kcl: false,
            read_deadline: Duration::from_mins(2),
            plugin_deadline: Duration::from_mins(15),
            checkpoint_deadline: Duration::from_mins(5),
        }
    }
}

impl LeaseOptions {
    /// How long after *sending* its last successful write a holder may still deliver. A tenth less
    /// than the duration: covers clocks that run 5 % apart (twice the rate error, see the invariant
    /// on holder deadlines).
    pub fn hold_for(&self) -> Duration {
        self.duration.saturating_sub(self.duration / 10)
    }

    /// Refuses settings that cannot work together. They are named by their keys in the
    /// configuration.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        self.validate_duration()?;
        for (setting, interval) in [
            ("leases.scan-every", self.scan_every),
            ("leases.shard-sync-every", self.shard_sync_every),
        ] {
            if interval.is_zero() {
                return refuse(setting, "must be above zero".to_owned());
            }
        }
        self.validate_deadlines()?;
        if self.max_leases == 0 {
            return refuse(
                "leases.max",
                "must be at least 1; leave it out for no limit".to_owned(),
            );
        }
        Ok(())
    }

    fn validate_duration(&self) -> Result<(), InvalidOptions> {
        if self.duration < Duration::from_secs(1) {
            return refuse(
                "leases.duration",
                format!("{:?} is too short; use at least 1s", self.duration),
            );
        }
        if self.duration > LEASE_DURATION_MAX {
            let problem = format!(
                "{:?} is too long: the shards of a dead host wait that long; use at most 1h",
                self.duration
            );
            return refuse("leases.duration", problem);
        }
        if self.renew_every.is_zero() || self.renew_every > self.duration.mul_f64(0.4) {
            let most = self.duration.mul_f64(0.4);
            return refuse(
                "leases.renew-every",
                format!(
                    "must be above zero and at most two fifths of leases.duration, {most:?}, so \
                        that two heartbeats fit into it"
                ),
            );
        }
        Ok(())
    }

    fn validate_deadlines(&self) -> Result<(), InvalidOptions> {
        for (setting, deadline) in [
            ("leases.read-deadline", self.read_deadline),
            ("leases.plugin-deadline", self.plugin_deadline),
            ("leases.checkpoint-deadline", self.checkpoint_deadline),
        ] {
            if deadline < self.duration {
                let duration = self.duration;
                return refuse(
                    setting,
                    format!("{deadline:?} is shorter than leases.duration, {duration:?}"),
                );
            }
        }
        Ok(())
    }
}

impl ReadLimits {
    /// Slower, and an iterator, which lives for five minutes (AWS limit), would expire between two
    /// calls.
    pub const SLOWEST: Duration = Duration::from_mins(5);

    /// How fast one shard may be read.
    pub(crate) fn rate(&self) -> ReadRate {
        ReadRate {
            call_interval: Duration::from_secs_f64(1.0 / self.calls_per_second),
            bytes_per_second: self.bytes_per_second,
            idle_every: self.idle_every,
            idle_max: self.idle_max,
        }
    }

    /// Refuses settings that cannot work together. They are named by their keys in the
    /// configuration.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        self.validate_rates()?;
        self.validate_idle_waits()?;
        if !(1..=REPLY_RECORDS_MAX).contains(&self.records_per_call) {
            let problem = format!(
                "{} is not between 1 and {REPLY_RECORDS_MAX}",
                self.records_per_call
            );
            return refuse("reads.records-per-call", problem);
        }
        Ok(())
    }

    fn validate_rates(&self) -> Result<(), InvalidOptions> {
        let slowest = Self::SLOWEST;
        // NaN compares as false, so it is refused here too.
        let is_often_enough = self.calls_per_second >= 1.0 / slowest.as_secs_f64();
        if !is_often_enough {
            let problem = format!(
                "{} is less than one call in {slowest:?}",
                self.calls_per_second
            );
            return refuse("reads.calls-per-second", problem);
        }
        let is_some = self.bytes_per_second >= 1.0;
        if !is_some {
            return refuse("reads.bytes-per-second", "must be at least 1".to_owned());
        }
        Ok(())
    }

    fn validate_idle_waits(&self) -> Result<(), InvalidOptions> {
        let slowest = Self::SLOWEST;
        for (setting, wait) in [
            ("reads.idle-every", self.idle_every),
            ("reads.idle-max", self.idle_max),
        ] {
            if wait > slowest {
                return refuse(
                    setting,
                    format!("must be at most {slowest:?}, when a shard iterator expires"),
                );
            }
        }
        if self.idle_max < self.idle_every {
            return refuse(
                "reads.idle-max",
                format!("must be at least reads.idle-every, {:?}", self.idle_every),
            );
        }
        Ok(())
    }
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            calls_per_second: 5.0,
            bytes_per_second: 2.0 * 1024.0 * 1024.0,
            records_per_call: REPLY_RECORDS_MAX,
            idle_every: Duration::from_millis(250),
            idle_max: Duration::from_secs(2),
        }
    }
}

impl WorkerOptions {
    /// Refuses settings that cannot work together.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        self.leases.validate()?;
        self.reads.validate()?;
        self.validate_consumer()?;
        if self.batches.records == 0 || self.batches.bytes == 0 {
            return refuse("batch", "records and bytes must be above zero".to_owned());
        }
        if self.batches.window > Duration::from_mins(5) {
            return refuse(
                "batch.window",
                "must be at most 300s, because a shard iterator expires after five minutes"
                    .to_owned(),
            );
        }
        if let Some(PolicyProblem { key, problem }) = self.failure.problem() {
            return refuse("failure", format!("{key}: {problem}"));
        }
        if let Some(RolloutProblem { key, problem }) = self.rollout.problem() {
            return refuse("rollout", format!("{key}: {problem}"));
        }
        self.validate_parallelism()
    }

    fn validate_parallelism(&self) -> Result<(), InvalidOptions> {
        if !self.parallelism.is_parallel() {
            return Ok(());
        }
        if self.failure.order == Order::Shard {
            let problem = "several instances for a shard keep the order of keys only: set \
                failure.order = \"key\"";
            return refuse("parallelism", problem.to_owned());
        }
        if self.keeps_state {
            let problem = "state is that of all records of a shard, which no one of several \
                instances has: leave grants.state out, or parallelism";
            return refuse("parallelism", problem.to_owned());
        }
        Ok(())
    }

    /// The most bytes that the plugin's state may have. No store holds what has no limit.
    pub(crate) fn state_bytes_max(&self) -> usize {
        self.limits.map_or(usize::MAX, |limits| limits.state_bytes)
    }

    /// How long nothing may be heard of a shard before it counts as one that cannot be read. The
    /// read deadline begins when the next answer is due: nothing is wrong with a silent shard that
    /// is asked seldom.
    pub(crate) fn heard_within(&self) -> Duration {
        let between_calls = Duration::from_secs_f64(self.reads.calls_per_second.recip());
        let silence = match self.retrieval.fan_out() {
            Some(_) => SUBSCRIPTION_SILENT_MAX,
            None => self.reads.idle_max.max(between_calls),
        };
        self.leases.read_deadline.saturating_add(silence)
    }

    fn validate_consumer(&self) -> Result<(), InvalidOptions> {
        let Some(fan_out) = self.retrieval.fan_out() else {
            return Ok(());
        };
        match fan_out.consumer.check_stream(self.stream.as_str()) {
            Ok(()) => Ok(()),
            Err(problem) => refuse("reads.consumer", problem),
        }
    }
}

fn refuse(setting: &'static str, problem: String) -> Result<(), InvalidOptions> {
    Err(InvalidOptions { setting, problem })
}
