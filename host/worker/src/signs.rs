//! The signs of one held shard: what it does, what is in its way, how old the oldest record is that
//! it has not settled.
//!
//! The one way for trouble, whatever it is of: it sets the status, the gauge with its `why`, and
//! what the row says. The shard's gauges end with its holding: one that nobody updates any more would
//! tell of a shard that another host may serve by now.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_core::plugin::PluginName;
use shardmill_core::ports::Clock;
use shardmill_core::stream::ShardId;
use tokio::time::Instant;

use crate::metrics;
use crate::status::{BlockedStatus, StageStatus, StatusBoard, Why};

/// From here on a stage that waits for something takes long: shorter waits are ordinary.
pub(crate) const LONG: Duration = Duration::from_secs(5);
/// From here on the row says of records that are held back that they are: windows of some seconds
/// are ordinary.
const HELD_BACK_LONG: Duration = Duration::from_secs(30);
/// Failures in a row from which on the row says it, for people; a single failure is not worth a
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
    plugin: PluginName,
    shard: ShardId,
    clock: Arc<dyn Clock>,
    // Told by the pipeline, the reader and the keeper, each in a task of its own; never held across
    // an await.
    told: Mutex<Told>,
}

struct Told {
    stage: Stage,
    since: Instant,
    /// The worst first.
    troubles: BTreeMap<Why, Trouble>,
    /// That the present stage takes long is one of them.
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
    noted: Option<String>,
}

impl Stage {
    /// Whose fault it is if this takes long.
    fn why(&self) -> Option<Why> {
        match self {
            Self::Starting | Self::InPlugin => Some(Why::Plugin),
            Self::Storing(_) => Some(Why::Sink),
            Self::Checkpointing => Some(Why::Row),
            Self::Reading | Self::Waiting => None,
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
        }
    }
}

impl Signs {
    pub(crate) fn new(
        board: StatusBoard,
        plugin: PluginName,
        shard: ShardId,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let told = Told {
            stage: Stage::Starting,
            since: Instant::now(),
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
                plugin,
                shard,
                clock,
                told: Mutex::new(told),
            }),
        }
    }

    /// Whose drop ends the gauges.
    pub(crate) fn owner(&self) -> SignsOwner {
        SignsOwner(self.clone())
    }

    /// The pipeline does something else now.
    pub(crate) fn enter(&self, stage: Stage) {
        let mut told = self.lock();
        if told.stage == stage {
            return;
        }
        if std::mem::take(&mut told.is_stage_long)
            && let Some(why) = told.stage.why()
        {
            self.mend(&mut told, why);
        }
        let shown = StageStatus::new(stage.to_string());
        (told.stage, told.since) = (stage, Instant::now());
        self.shared
            .board
            .update_shard(&self.shared.shard, |status| status.stage = shown);
    }

    /// Something failed, the `attempts`th time in a row.
    pub(crate) fn failed(&self, why: Why, attempts: u32, reason: String) {
        let mut told = self.lock();
        let earlier = told.troubles.remove(&why).and_then(|trouble| trouble.noted);
        // Powers of two, as in the log: the row must not be written at every attempt.
        let noted =
            if attempts == NOTED_FROM || (attempts > NOTED_FROM && attempts.is_power_of_two()) {
                Some(format!("attempt {attempts} failed: {reason}"))
            } else {
                earlier.filter(|_| attempts > NOTED_FROM)
            };
        self.tell(
            &mut told,
            Trouble {
                shown: BlockedStatus {
                    why,
                    attempts,
                    reason,
                },
                noted,
            },
        );
    }

    /// Something is in the way, and nothing is tried just now.
    pub(crate) fn stands(&self, why: Why, attempts: u32, reason: &str) {
        self.tell_standing(&mut self.lock(), why, attempts, reason);
    }

    /// It works again.
    pub(crate) fn mended(&self, why: Why) {
        self.mend(&mut self.lock(), why);
    }

    /// What is fetched and not settled: when its oldest record arrived, and how many records the
    /// plugin holds back.
    pub(crate) fn unsettled(&self, oldest_ms: Option<u64>, held_back: u64) {
        let mut told = self.lock();
        if (told.oldest_ms, told.held_back) != (oldest_ms, held_back) {
            (told.oldest_ms, told.held_back) = (oldest_ms, held_back);
            self.show_lag(&mut told);
        }
    }

    /// How far the tip was ahead of the last reply.
    pub(crate) fn behind(&self, millis: Option<u64>) {
        let mut told = self.lock();
        told.behind_ms = millis;
        self.show_lag(&mut told);
    }

    /// The age of the oldest record that is not settled: at least as far as the reader is behind;
    /// zero only if nothing waits.
    pub(crate) fn lag_ms(&self) -> Option<u64> {
        self.lag(&self.lock())
    }

    /// Looks whether what the pipeline does takes long, and how time goes on. For who looks
    /// regularly, whatever the pipeline waits for.
    pub(crate) fn look(&self) {
        let mut told = self.lock();
        let is_long = told.since.elapsed() >= LONG;
        if let Some(why) = told
            .stage
            .why()
            .filter(|why| is_long && !told.troubles.contains_key(why))
        {
            let reason = format!("{} has taken more than {LONG:?}", told.stage);
            told.is_stage_long = true;
            self.tell_standing(&mut told, why, 0, &reason);
        }
        self.show_lag(&mut told);
    }

    /// What the row is to say of what is in the way.
    pub(crate) fn noted(&self) -> Option<String> {
        let told = self.lock();
        if let Some(noted) = told
            .troubles
            .values()
            .find_map(|trouble| trouble.noted.clone())
        {
            return Some(noted);
        }
        let age = self.age(&told).map(Duration::from_millis);
        let is_held_back = told.held_back > 0 && age.is_some_and(|age| age >= HELD_BACK_LONG);
        // In powers of two: the row must not be written for each record.
        let at_least = 1_u64 << told.held_back.checked_ilog2().unwrap_or_default();
        is_held_back.then(|| {
            format!("the plugin holds back at least {at_least} record(s), so the checkpoint waits")
        })
    }

    /// Sets a gauge of the shard.
    pub(crate) fn gauge(&self, metric: &'static str, value: f64) {
        self.set(&mut self.lock(), metric, None, value);
    }

    fn tell_standing(&self, told: &mut Told, why: Why, attempts: u32, reason: &str) {
        let shown = BlockedStatus {
            why,
            attempts,
            reason: reason.to_owned(),
        };
        self.tell(
            told,
            Trouble {
                shown,
                noted: Some(reason.to_owned()),
            },
        );
    }

    fn tell(&self, told: &mut Told, trouble: Trouble) {
        let why = trouble.shown.why;
        told.troubles.insert(why, trouble);
        self.set(told, metrics::BLOCKED, Some(why), 1.0);
        self.show(told);
    }

    fn mend(&self, told: &mut Told, why: Why) {
        if told.troubles.remove(&why).is_some() {
            self.set(told, metrics::BLOCKED, Some(why), 0.0);
            self.show(told);
        }
    }

    fn show(&self, told: &Told) {
        let worst = told
            .troubles
            .values()
            .next()
            .map(|trouble| trouble.shown.clone());
        self.shared
            .board
            .update_shard(&self.shared.shard, |status| status.blocked = worst);
    }

    fn show_lag(&self, told: &mut Told) {
        let lag = self.lag(told);
        let age = self
            .age(told)
            .unwrap_or_default()
            .max(told.behind_ms.unwrap_or_default());
        self.set(
            told,
            metrics::OLDEST_UNSETTLED_AGE,
            None,
            Duration::from_millis(age).as_secs_f64(),
        );
        self.set(told, metrics::HELD_BACK, None, told.held_back as f64);
        let held_back = told.held_back;
        self.shared
            .board
            .update_shard(&self.shared.shard, |status| {
                status.lag_ms = lag;
                status.held_back_records = held_back;
            });
    }

    /// How old the oldest record is that is fetched and not settled.
    pub(crate) fn age_ms(&self) -> Option<u64> {
        self.age(&self.lock())
    }

    fn lag(&self, told: &Told) -> Option<u64> {
        self.age(told).max(told.behind_ms)
    }

    /// How old the oldest unsettled record is, by this host's clock.
    fn age(&self, told: &Told) -> Option<u64> {
        Some(self.shared.clock.wall_ms().saturating_sub(told.oldest_ms?))
    }

    fn set(&self, told: &mut Told, metric: &'static str, why: Option<Why>, value: f64) {
        let Some(gauges) = &mut told.gauges else {
            return;
        };
        gauges.insert((metric, why));
        self.write(metric, why, value);
    }

    fn write(&self, metric: &'static str, why: Option<Why>, value: f64) {
        let Shared { plugin, shard, .. } = &*self.shared;
        let mut labels = vec![("plugin", plugin.to_string()), ("shard", shard.to_string())];
        labels.extend(why.map(|why| ("why", why.as_str().to_owned())));
        ::metrics::gauge!(metric, &labels).set(value);
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.shared
            .told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SignsOwner {
    /// Whoever holds the lease next says how the shard is. See [`metrics::ENDED`].
    fn drop(&mut self) {
        let gauges = self.0.lock().gauges.take();
        for (metric, why) in gauges.into_iter().flatten() {
            self.0.write(metric, why, metrics::ENDED);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
