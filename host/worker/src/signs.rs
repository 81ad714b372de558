//! The signs of one held shard: what it does, what blocks it, and how old its oldest unsettled
//! record is.
//!
//! All trouble takes this one path, whatever its cause: it sets the status, the gauge with its
//! `why`, and what the row says. The shard's gauges end with its holding: a gauge that is not
//! updated any more would show a shard that another host may serve by now.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::metrics::{Gauge, SharedString};
use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::Clock;
use shardmill_core::stream::ShardId;

use crate::metrics;
use crate::status::{Activity, BlockedStatus, ShardStatus, StageStatus, StatusBoard, Why};
use crate::timer::Stopwatch;

/// A stage that waits for something counts as long after this time; shorter waits are normal.
pub(crate) const LONG: Duration = Duration::from_secs(5);
/// The row says that records are held back after this time; windows of some seconds are normal.
const HELD_BACK_LONG: Duration = Duration::from_secs(30);
/// Failures in a row from which on the row says so, for people; a single failure is not worth a
/// write.
const NOTED_FROM: u32 = 3;

/// What the pipeline of a shard does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Makes an instance of the plugin.
    Starting,
    /// Waits for the reader.
    Reading,
    /// Calls the plugin.
    InPlugin,
    /// Waits for sinks: what is stored, and in which.
    Storing(String),
    /// Waits for the row.
    Checkpointing,
    /// Waits before it tries again.
    Waiting,
    /// Waits for an operator.
    Paused,
}

/// A shard's signs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Signs {
    shared: Arc<Shared>,
}

/// Ends the gauges of a shard when it is dropped.
pub(crate) struct SignsOwner(Signs);

struct Shared {
    board: StatusBoard,
    shard: ShardId,
    clock: Arc<dyn Clock>,
    plugin_label: SharedString,
    shard_label: SharedString,
    // Changed by the pipeline, the reader and the keeper, each in a task of its own; never held
    // across an await.
    condition: Mutex<Condition>,
}

/// How the shard is doing.
struct Condition {
    stage: Stage,
    since: Stopwatch,
    /// The worst first.
    troubles: BTreeMap<Why, Trouble>,
    /// Whether one of them is that the present stage takes long.
    is_stage_long: bool,
    /// When the oldest record arrived that was fetched and is not settled, in milliseconds since
    /// the Unix epoch.
    oldest_ms: Option<u64>,
    /// How far the tip was ahead of the last reply, in milliseconds.
    behind_ms: Option<u64>,
    held_back: u64,
    /// The gauges that were set, by name and `why`; `None` once the holding has ended.
    gauges: Option<BTreeSet<(&'static str, Option<Why>)>>,
}

struct Trouble {
    shown: BlockedStatus,
    /// What the row says of it.
    note: Option<String>,
}

impl Stage {
    /// The part that is to blame if this takes long.
    fn why(&self) -> Option<Why> {
        match self {
            Self::Starting | Self::InPlugin => Some(Why::Plugin),
            Self::Storing(_) => Some(Why::Sink),
            Self::Checkpointing => Some(Why::Row),
            Self::Reading | Self::Waiting | Self::Paused => None,
        }
    }

    /// What the time goes into.
    fn activity(&self) -> Activity {
        match self {
            Self::Reading => Activity::Reading,
            Self::Starting | Self::InPlugin => Activity::InPlugin,
            Self::Storing(_) => Activity::Storing,
            Self::Checkpointing | Self::Waiting | Self::Paused => Activity::Other,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("creating an instance of the plugin"),
            Self::Reading => f.write_str("waiting for records"),
            Self::InPlugin => f.write_str("in the plugin"),
            Self::Storing(what) => write!(f, "storing {what}"),
            Self::Checkpointing => f.write_str("checkpointing"),
            Self::Waiting => f.write_str("waiting to try again"),
            Self::Paused => f.write_str("paused"),
        }
    }
}

impl Signs {
    pub(crate) fn new(
        board: StatusBoard,
        plugin: &PluginName,
        shard: ShardId,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let condition = Condition {
            stage: Stage::Starting,
            since: Stopwatch::start(),
            troubles: BTreeMap::new(),
            is_stage_long: false,
            oldest_ms: None,
            behind_ms: None,
            held_back: 0,
            gauges: Some(BTreeSet::new()),
        };
        Self {
            shared: Arc::new(Shared {
                board,
                plugin_label: metrics::label(plugin),
                shard_label: Arc::<str>::from(shard.as_str()).into(),
                shard,
                clock,
                condition: Mutex::new(condition),
            }),
        }
    }

    /// Ends the gauges when it is dropped.
    pub(crate) fn owner(&self) -> SignsOwner {
        SignsOwner(self.clone())
    }

    /// The pipeline does something else now.
    pub(crate) fn enter(&self, stage: Stage) {
        let mut condition = self.lock();
        if condition.stage != stage {
            self.begin(&mut condition, stage, Stopwatch::start());
        }
    }

    /// The oldest of several calls of the plugin under way was started with `since`.
    pub(crate) fn is_in_plugin(&self, since: Stopwatch) {
        let mut condition = self.lock();
        if condition.stage != Stage::InPlugin || condition.since != since {
            self.begin(&mut condition, Stage::InPlugin, since);
        }
    }

    fn begin(&self, condition: &mut Condition, stage: Stage, since: Stopwatch) {
        if std::mem::take(&mut condition.is_stage_long)
            && let Some(why) = condition.stage.why()
        {
            self.clear_trouble(condition, why);
        }
        let shown = StageStatus::since(stage.to_string(), since);
        condition.stage = stage;
        condition.since = since;
        let activity = condition.stage.activity();
        self.update_status(|status| {
            status.stage = shown;
            status.time.begin(activity);
        });
    }

    /// Something failed, the `attempts`th time in a row.
    pub(crate) fn failed(&self, why: Why, attempts: u32, reason: String) {
        let mut condition = self.lock();
        if condition.stage.why() == Some(why) {
            // That it takes long ends with the stage; that it failed does not.
            condition.is_stage_long = false;
        }
        let earlier = condition.troubles.remove(&why);
        let earlier = earlier.and_then(|trouble| trouble.note);
        // Powers of two, as in the log: the row must not be written at every attempt.
        let is_noted = attempts == NOTED_FROM || attempts > NOTED_FROM && is_worth_a_line(attempts);
        let note = if is_noted {
            Some(format!("attempt {attempts} failed: {reason}"))
        } else if attempts > NOTED_FROM {
            earlier
        } else {
            None
        };
        let shown = BlockedStatus {
            why,
            attempts,
            reason,
        };
        self.show_trouble(&mut condition, Trouble { shown, note });
    }

    /// Reports that something blocks the shard, while nothing is tried.
    pub(crate) fn report(&self, why: Why, attempts: u32, reason: &str) {
        self.report_trouble(&mut self.lock(), why, attempts, reason);
    }

    /// Reports that it works again.
    pub(crate) fn clear(&self, why: Why) {
        self.clear_trouble(&mut self.lock(), why);
    }

    /// What is fetched and not settled: when its oldest record arrived, and how many records the
    /// plugin holds back.
    pub(crate) fn unsettled(&self, oldest_ms: Option<u64>, held_back: u64) {
        let mut condition = self.lock();
        if condition.oldest_ms != oldest_ms || condition.held_back != held_back {
            condition.oldest_ms = oldest_ms;
            condition.held_back = held_back;
            self.show_lag(&mut condition);
        }
    }

    /// How far the tip was ahead of the last reply, in milliseconds.
    pub(crate) fn behind(&self, millis: Option<u64>) {
        let mut condition = self.lock();
        condition.behind_ms = millis;
        self.show_lag(&mut condition);
    }

    /// The age of the oldest record that is not settled, in milliseconds: at least as far as the
    /// reader is behind. Zero only if nothing waits.
    pub(crate) fn lag_ms(&self) -> Option<u64> {
        self.lag(&self.lock())
    }

    /// How old the oldest record is that is fetched and not settled, in milliseconds.
    pub(crate) fn age_ms(&self) -> Option<u64> {
        self.age(&self.lock())
    }

    /// Shows that the pipeline's stage takes long, if it does, and that records get older. To be
    /// called regularly, whatever the pipeline waits for.
    pub(crate) fn look(&self) {
        let mut condition = self.lock();
        if condition.since.elapsed() >= LONG
            && let Some(why) = condition.stage.why()
            && !condition.troubles.contains_key(&why)
        {
            let reason = format!("{} has taken more than {LONG:?}", condition.stage);
            condition.is_stage_long = true;
            self.report_trouble(&mut condition, why, 0, &reason);
        }
        self.show_lag(&mut condition);
    }

    /// What the row should say about the trouble.
    pub(crate) fn note(&self) -> Option<String> {
        let condition = self.lock();
        let mut troubles = condition.troubles.values();
        troubles
            .find_map(|trouble| trouble.note.clone())
            .or_else(|| self.note_of_held_back(&condition))
    }

    fn note_of_held_back(&self, condition: &Condition) -> Option<String> {
        let age = Duration::from_millis(self.age(condition)?);
        if condition.held_back == 0 || age < HELD_BACK_LONG {
            return None;
        }
        // In powers of two: the row must not be written for each record.
        let at_least = 1_u64 << condition.held_back.ilog2();
        Some(format!(
            "the plugin holds back at least {at_least} record(s), so the checkpoint waits"
        ))
    }

    /// What of the shard is settled in a second, as far as it was measured.
    pub(crate) fn throughput(&self, records: Option<u64>, bytes: Option<u64>) {
        let measured = [
            (metrics::RECORDS_PER_SECOND, records),
            (metrics::BYTES_PER_SECOND, bytes),
        ];
        for (metric, rate) in measured {
            if let Some(rate) = rate {
                self.gauge(metric, rate as f64);
            }
        }
    }

    /// Sets a gauge of the shard.
    pub(crate) fn gauge(&self, metric: &'static str, value: f64) {
        self.set(&mut self.lock(), metric, None, value);
    }

    fn report_trouble(&self, condition: &mut Condition, why: Why, attempts: u32, reason: &str) {
        let shown = BlockedStatus {
            why,
            attempts,
            reason: reason.to_owned(),
        };
        let note = Some(reason.to_owned());
        self.show_trouble(condition, Trouble { shown, note });
    }

    fn show_trouble(&self, condition: &mut Condition, trouble: Trouble) {
        let why = trouble.shown.why;
        condition.troubles.insert(why, trouble);
        self.set(condition, metrics::BLOCKED, Some(why), 1.0);
        self.show_worst(condition);
    }

    fn clear_trouble(&self, condition: &mut Condition, why: Why) {
        if condition.troubles.remove(&why).is_some() {
            self.set(condition, metrics::BLOCKED, Some(why), 0.0);
            self.show_worst(condition);
        }
    }

    fn show_worst(&self, condition: &Condition) {
        let worst = condition.troubles.values().next();
        let worst = worst.map(|trouble| trouble.shown.clone());
        self.update_status(|status| status.blocked = worst);
    }

    fn show_lag(&self, condition: &mut Condition) {
        let lag = self.lag(condition);
        let age = Duration::from_millis(lag.unwrap_or_default());
        let held_back = condition.held_back;
        self.set(
            condition,
            metrics::OLDEST_UNSETTLED_AGE,
            None,
            age.as_secs_f64(),
        );
        self.set(condition, metrics::HELD_BACK, None, held_back as f64);
        self.update_status(|status| {
            status.lag_ms = lag;
            status.held_back_records = held_back;
        });
    }

    fn lag(&self, condition: &Condition) -> Option<u64> {
        self.age(condition).max(condition.behind_ms)
    }

    /// How old the oldest unsettled record is, by this host's clock.
    fn age(&self, condition: &Condition) -> Option<u64> {
        let wall_ms = self.shared.clock.wall_ms();
        Some(wall_ms.saturating_sub(condition.oldest_ms?))
    }

    fn update_status(&self, change: impl FnOnce(&mut ShardStatus)) {
        self.shared.board.update_shard(&self.shared.shard, change);
    }

    fn set(&self, condition: &mut Condition, metric: &'static str, why: Option<Why>, value: f64) {
        if let Some(gauges) = &mut condition.gauges {
            gauges.insert((metric, why));
            self.shared.gauge(metric, why).set(value);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Condition> {
        self.shared
            .condition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn gauge(&self, metric: &'static str, why: Option<Why>) -> Gauge {
        let plugin = self.plugin_label.clone();
        let shard = self.shard_label.clone();
        if let Some(why) = why {
            let why = why.as_str();
            ::metrics::gauge!(metric, "plugin" => plugin, "shard" => shard, "why" => why)
        } else {
            ::metrics::gauge!(metric, "plugin" => plugin, "shard" => shard)
        }
    }
}

impl Drop for SignsOwner {
    /// The host that holds the lease next shows how the shard is doing. See [`metrics::ENDED`].
    fn drop(&mut self) {
        let gauges = self.0.lock().gauges.take();
        for (metric, why) in gauges.into_iter().flatten() {
            self.0.shared.gauge(metric, why).set(metrics::ENDED);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
