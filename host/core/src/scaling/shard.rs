//! One shard between two samples: what it used, how fast it goes, and what it needs.

use std::time::Duration;

/// A shard is behind from this lag on: below it, what waits are batches and polls.
const BEHIND: Duration = Duration::from_secs(10);
/// A consumer that is in the plugin for this part of the time can hardly do more.
const ALWAYS: f64 = 0.9;
/// The part of the time from which on something is what a shard mostly waits for.
const MOSTLY: f64 = 0.5;
/// How long a new host takes until it reads, at least: what a shard falls behind until then on a
/// full host is to be worked off as well.
const HOST_STARTS_IN: f64 = 30.0;
/// Slower than this, in seconds of the stream a second, a shard makes no progress that shows what
/// its records cost.
const PACE_MIN: f64 = 0.05;

/// Where the time of a shard's pipeline went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Waiting for records to deliver.
    pub reading: Duration,
    /// In calls of the plugin.
    pub in_plugin: Duration,
    /// Waiting for sinks to store output.
    pub storing: Duration,
}

/// Whether a shard goes on at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stance {
    /// Its records are delivered.
    #[default]
    Flows,
    /// Something fails again and again, or takes too long.
    Blocked,
    /// An operator or the failure policy stopped it.
    Paused,
}

/// A held shard at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardSample {
    /// The epoch of the holding: another one is measured anew.
    pub epoch: u64,
    /// Records settled so far.
    pub records: u64,
    /// How old the oldest record is that is not settled; `None` before the first reply.
    pub lag: Option<Duration>,
    /// Where the time went so far.
    pub spent: Spent,
    /// Whether it goes on.
    pub stance: Stance,
    /// How many instances may work on it at a time.
    pub parallelism: usize,
}

/// What a shard did between two samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Seconds of the stream a second: 1 at the tip.
    pace: f64,
    pub(super) lag: Duration,
    /// The part of the time in the plugin.
    pub(super) busy: f64,
    reading: f64,
    storing: f64,
    /// Records a second.
    pub(super) records: f64,
    stance: Stance,
    parallelism: f64,
}

/// The host that a shard was measured on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around {
    /// Cores used for a second in the plugin.
    pub(super) cores_a_busy_second: f64,
    /// Whether the host's cores are in use, so that consumers wait for each other.
    pub(super) is_full: bool,
    /// How soon a backlog is to be worked off.
    pub(super) catch_up: Duration,
}

/// What a shard needs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Needs {
    /// Cores to keep up.
    pub(super) steady: f64,
    /// Cores to catch up in time.
    pub(super) needed: f64,
    /// Records that arrive a second.
    pub(super) arriving: f64,
    /// Records that wait.
    pub(super) backlog: f64,
}

/// What limits a shard that is behind, if that is not its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Plugin,
    Sink,
    Reading,
    Blocked,
    Paused,
}

impl Measured {
    /// `None` if the lease changed hands in between, or its lag is not known.
    pub(super) fn between(
        first: &ShardSample,
        last: &ShardSample,
        elapsed: Duration,
    ) -> Option<Self> {
        if first.epoch != last.epoch || elapsed.is_zero() {
            return None;
        }
        let (lag_before, lag) = (first.lag?, last.lag?);
        let seconds = elapsed.as_secs_f64();
        let part = |before: Duration, after: Duration| {
            (after.saturating_sub(before).as_secs_f64() / seconds).min(1.0)
        };
        let pace = 1.0 - (lag.as_secs_f64() - lag_before.as_secs_f64()) / seconds;
        Some(Self {
            pace: pace.max(0.0),
            lag,
            busy: part(first.spent.in_plugin, last.spent.in_plugin),
            reading: part(first.spent.reading, last.spent.reading),
            storing: part(first.spent.storing, last.spent.storing),
            records: last.records.saturating_sub(first.records) as f64 / seconds,
            stance: last.stance,
            parallelism: last.parallelism.max(1) as f64,
        })
    }

    /// What it needs, if it used so many `cores`.
    pub(super) fn needs(&self, cores: f64, around: &Around) -> Needs {
        let most = self.cores_max(cores, around);
        if self.pace < PACE_MIN || self.stance == Stance::Blocked {
            return self.needs_without_progress(cores, most);
        }
        let most = match self.limit(around) {
            // On no host it would get or store more.
            Some(Limit::Reading | Limit::Sink) => cores,
            _ => most,
        };
        let a_stream_second = cores / self.pace;
        let catch_up = around.catch_up.as_secs_f64().max(1.0);
        let lag = self.lag.as_secs_f64();
        let to_come = if around.is_full {
            (1.0 - self.pace).max(0.0) * HOST_STARTS_IN
        } else {
            0.0
        };
        let arriving = self.records / self.pace;
        Needs {
            steady: a_stream_second.min(most),
            needed: (a_stream_second * (1.0 + (lag + to_come) / catch_up)).min(most),
            arriving,
            backlog: arriving * lag,
        }
    }

    /// Without progress nothing shows what a record costs. A consumer at work may need all it can
    /// use; one that waits needs no more than now.
    fn needs_without_progress(&self, cores: f64, most: f64) -> Needs {
        let may_work = self.stance == Stance::Flows && self.busy >= MOSTLY;
        let needed = if may_work { most } else { cores.min(most) };
        Needs {
            steady: needed,
            needed,
            ..Needs::default()
        }
    }

    /// The most cores that its consumer can use, wherever it runs. On a host with idle cores it
    /// uses what it can, for the time it is at work. On a full one it might use whole cores, if it
    /// had them.
    fn cores_max(&self, cores: f64, around: &Around) -> f64 {
        let of_one = around.cores_a_busy_second;
        let each = if around.is_full {
            of_one.max(1.0)
        } else {
            of_one
        };
        // With parallel keys several instances share what one second in the plugin used.
        let of_all = self.parallelism * each.min(1.0);
        each.max(of_all).max(cores)
    }

    /// Whether it is stopped, so that nothing shows what its records cost, and they come all at once
    /// when it goes on. One that is paused reads nothing, so that nobody knows what waits; one that
    /// is blocked has a lag.
    pub(super) fn is_stopped(&self) -> bool {
        match self.stance {
            Stance::Flows => false,
            Stance::Paused => true,
            Stance::Blocked => self.is_behind(),
        }
    }

    /// Whether it is more than a few batches behind.
    pub(super) fn is_behind(&self) -> bool {
        self.lag >= BEHIND
    }

    /// Why more hosts would not help, if so.
    pub(super) fn limit(&self, around: &Around) -> Option<Limit> {
        match self.stance {
            Stance::Paused => return Some(Limit::Paused),
            Stance::Blocked => return Some(Limit::Blocked),
            Stance::Flows => {}
        }
        // On a full host, whatever takes long may do so for want of a core.
        if !self.is_behind() || around.is_full {
            None
        } else if self.busy >= ALWAYS {
            Some(Limit::Plugin)
        } else if self.storing >= MOSTLY {
            Some(Limit::Sink)
        } else if self.reading >= MOSTLY {
            Some(Limit::Reading)
        } else {
            None
        }
    }
}
