//! What a worker is doing, for people: read by the status page, the summary and `--until-idle`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use shardmill_core::lease::Checkpoint;
use shardmill_core::rollout::VersionRow;
use shardmill_core::stream::{Position, ShardId};
use shardmill_core::time::Moment;
use tokio::time::Instant;

mod blocked;
mod hosts_wanted;
mod measuring;
mod time_spent;

pub use blocked::{BlockedStatus, StageStatus, Why};
pub use hosts_wanted::HostsWantedStatus;
pub(crate) use time_spent::Activity;
pub use time_spent::TimeSpent;

/// The shared view of one worker. Cheap to clone.
///
/// A mutex, since each pipeline writes its own entry and readers want all of them at one moment;
/// never held across an await.
#[derive(Debug, Clone, Default)]
pub struct StatusBoard {
    inner: Arc<Mutex<WorkerStatus>>,
}

/// What one worker does, as `/status` shows it.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct WorkerStatus {
    /// The version offered to the pipelines.
    pub plugin_digest: Option<String>,
    /// The last version that was refused, and why.
    pub refused: Option<SwapRefusal>,
    /// The versions of this host: what runs, then what is tried, or why the newest one is not.
    pub versions: Vec<VersionStatus>,
    /// The versions that the live hosts of the fleet run, each with its hosts, as of the last pass.
    pub fleet_versions: BTreeMap<String, Vec<String>>,
    /// Where the application began on its stream, once that is known: what `LATEST` in a row means.
    pub starts_at: Option<String>,
    /// Completed passes over the lease table.
    pub passes: u64,
    /// Rows in the table, finished ones included, as of the last pass.
    pub lease_rows: usize,
    /// Rows whose shard has not ended, as of the last pass.
    pub unfinished_leases: usize,
    /// Who drains this host, and why, if an operator does.
    pub drained: Option<String>,
    /// Why the last pass failed, if it did.
    pub pass_error: Option<String>,
    /// What it waits for before it can look at its leases, if it waits.
    pub waits_on: Option<StageStatus>,
    /// Whether it waits for another version, since the one on offer was found bad by the fleet;
    /// then it holds no lease.
    pub is_version_quarantined: bool,
    /// Why it cannot write lease rows, if it cannot. The leases concerned are given up after a
    /// while.
    pub cannot_write: Option<String>,
    /// The worker that leads: lists shards, makes and removes leases.
    pub leader: Option<String>,
    /// Workers that share the leases, this one included, as of the last pass.
    pub workers: usize,
    /// Leases that this host could take and did not, each with the reason, as of the last pass.
    pub held_back: BTreeMap<String, String>,
    /// Leases that no host took for three lease durations, though nothing has to come before them,
    /// if this host leads.
    pub unowned_leases: Option<usize>,
    /// How many hosts the leader wants; `None` where it does not say.
    pub hosts_wanted: Option<HostsWantedStatus>,
    /// Whether this host takes part in saying how many hosts are wanted.
    #[serde(skip)]
    pub is_scaled: bool,
    /// Parts of the hash key space that no lease covers, as of the last audit by this host.
    pub coverage_holes: Vec<String>,
    /// The fan-out consumer, if shards are to be subscribed to.
    pub fan_out: Option<FanOutStatus>,
    /// When the last heartbeat that was written was sent.
    #[serde(rename = "heartbeat-age-seconds", serialize_with = "age")]
    pub heartbeat_at: Option<Instant>,
    /// Why none could be written since, if one failed.
    pub heartbeat_error: Option<String>,
    /// How long the worker's leases last without one.
    #[serde(skip)]
    pub lease_duration: Duration,
    /// Shards served by this worker, now or earlier in this run.
    pub shards: BTreeMap<String, ShardStatus>,
}

/// A version that did not take over.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SwapRefusal {
    /// Its digest, where it got that far.
    pub digest: Option<String>,
    /// Why it did not take over, for people.
    pub reason: String,
}

/// A version, and its state.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct VersionStatus {
    /// The SHA-256 of the component, in 64 hex digits.
    pub digest: String,
    /// Such as `active` or `canary(SHARD)`.
    pub state: String,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Why, if that is not obvious.
    pub reason: Option<String>,
}

/// The fan-out consumer that shards are subscribed to with.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FanOutStatus {
    /// Its name or ARN.
    pub consumer: String,
    /// Why shards are polled for now, if they are.
    pub unusable: Option<String>,
}

/// What the pipeline of one shard does, as `/status` shows it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ShardStatus {
    /// What its pipeline does.
    pub state: ShardState,
    /// What it does just now, and for how long.
    #[serde(flatten)]
    pub stage: StageStatus,
    /// Where the time went in this holding.
    #[serde(skip)]
    pub time: TimeSpent,
    /// The epoch of the holding.
    pub epoch: u64,
    /// The version at work.
    pub plugin_digest: Option<String>,
    /// The last settled position of this run.
    pub settled: Option<String>,
    /// When the last settled record arrived, in milliseconds since the Unix epoch.
    pub settled_arrival_ms: Option<u64>,
    /// The checkpoint in the table, as far as this host knows.
    #[serde(serialize_with = "as_text")]
    pub checkpoint: Checkpoint,
    /// The last record fetched in this run.
    #[serde(skip)]
    pub fetched: Option<Position>,
    /// Whether the last reply was empty and at the shard's tip.
    pub is_at_tip: bool,
    /// When that reply came, by this host's clock.
    #[serde(skip)]
    pub tip_at: Option<Moment>,
    /// How it is read.
    pub retrieval: ShardRetrieval,
    /// The age of the oldest record that is fetched and not settled, or how far the reader is
    /// behind if that is more, in milliseconds. 0 only if nothing waits.
    pub lag_ms: Option<u64>,
    /// Records that the plugin handled and does not commit yet.
    pub held_back_records: u64,
    /// How much of its limit the plugin's state takes that was saved last, in percent; `None` if
    /// none was saved in this run.
    pub state_percent: Option<u8>,
    /// Milliseconds behind the tip at the last reply: of the reader, which may be far ahead of what
    /// is settled.
    pub millis_behind_latest: Option<u64>,
    /// Records settled in this run.
    pub records: u64,
    /// Records that the plugin's filter kept from it in this run.
    pub filtered_records: u64,
    /// Batches in this run of which a record at least was settled.
    pub batches: u64,
    /// Calls because time has passed that worked, in this run.
    pub ticks: u64,
    /// Why it makes no progress, if so.
    pub blocked: Option<BlockedStatus>,
    /// Records that wait while others flow, since one of their key is tried again.
    pub parked: Parking,
    /// Records that the failure policy gave up in this run.
    pub given_up: GivenUp,
    /// Where records may have been trimmed before they were read, in this run.
    pub gaps: Gaps,
    /// Why it cannot read, if it cannot.
    pub read_error: Option<String>,
    /// What in its own host it waits for before it can read on, if that takes long.
    pub waits_for: Option<String>,
    /// Why its last subscription broke off or was not made; `None` once events come.
    pub subscription_error: Option<String>,
}

/// Records that wait while others flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Parking {
    /// Partition keys whose records are parked.
    pub keys: usize,
    /// Parked records, of all these keys.
    pub records: usize,
    /// What they cost the host's buffer.
    pub bytes: usize,
}

/// Records that were given up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct GivenUp {
    /// Stored as dead letters.
    pub dead_lettered: u64,
    /// Dropped, because the policy or a command skips them.
    pub skipped: u64,
    /// The last of them, and why.
    pub last: Option<String>,
}

/// Where records may be lost to retention.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Gaps {
    /// How many such places.
    pub count: u64,
    /// The last of them.
    pub last: Option<String>,
}

/// What a pipeline does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardState {
    /// Makes its first instance.
    Starting,
    /// Reads and delivers.
    Processing,
    /// Delivers nothing: an operator paused it.
    Paused,
    /// Delivers nothing: a record failed for good, and the failure policy says to stop there.
    Halted,
    /// Delivers what it has, then stops.
    Draining,
    /// The shard's end is checkpointed.
    Ended,
    /// The lease was given back.
    Released,
    /// The lease is somebody else's.
    Lost,
    /// The lease was given up because the shard made no progress here.
    GaveUp,
}

/// How a shard is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardRetrieval {
    /// By `GetRecords`, as configured.
    #[default]
    Polling,
    /// By a subscription.
    FanOut,
    /// By `GetRecords`, until there is a subscription.
    PollingForNow,
}

impl VersionStatus {
    pub(crate) fn of(row: &VersionRow) -> Self {
        let VersionRow {
            digest,
            state,
            since_ms,
            reason,
        } = row.clone();
        Self {
            digest: digest.as_str().to_owned(),
            state,
            since_ms,
            reason,
        }
    }
}

impl WorkerStatus {
    /// How long ago the last heartbeat that was written was sent, if one was.
    pub fn heartbeat_age(&self) -> Option<Duration> {
        self.heartbeat_at.map(|at| at.elapsed())
    }

    /// Whether the worker has looked at its leases, and every shard it serves is idle.
    pub fn is_idle(&self) -> bool {
        let mut held = self.shards.values().filter(|shard| {
            !matches!(
                shard.state,
                ShardState::Lost | ShardState::Released | ShardState::GaveUp
            )
        });
        self.passes > 0 && self.lease_rows > 0 && held.all(ShardStatus::is_idle)
    }
}

impl StatusBoard {
    /// A copy of everything, at one moment.
    pub fn snapshot(&self) -> WorkerStatus {
        self.lock().clone()
    }

    /// Records that a version was refused, or that one was accepted.
    pub(crate) fn set_refused(&self, refused: Option<SwapRefusal>) {
        self.lock().refused = refused;
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut WorkerStatus)) {
        change(&mut self.lock());
    }

    /// Shows what the worker waits for; the next pass that is over ends it.
    pub(crate) fn wait_on(&self, what: &str) {
        self.lock().waits_on = Some(StageStatus::new(what.to_owned()));
    }

    /// Shows a shard whose holding begins. The counts of an earlier holding in this run go on.
    pub(crate) fn begin_shard(&self, shard: &ShardId, starting: ShardStatus) {
        let mut known = self.lock();
        let earlier = known.shards.remove(shard.as_str());
        let starting = starting.after(earlier);
        known.shards.insert(shard.to_string(), starting);
    }

    pub(crate) fn update_shard(&self, shard: &ShardId, change: impl FnOnce(&mut ShardStatus)) {
        if let Some(status) = self.lock().shards.get_mut(shard.as_str()) {
            change(status);
        }
    }

    /// The last record fetched in this run, and how far the tip was ahead of the last reply, the
    /// empty ones included.
    pub(crate) fn last_reply(&self, shard: &ShardId) -> (Option<Position>, Option<u64>) {
        let known = self.lock();
        let status = known.shards.get(shard.as_str());
        status.map_or((None, None), |status| {
            (status.fetched.clone(), status.millis_behind_latest)
        })
    }

    /// Whether the last reply had nothing, since everything was read.
    pub(crate) fn is_at_tip(&self, shard: &ShardId) -> bool {
        self.lock()
            .shards
            .get(shard.as_str())
            .is_some_and(|status| status.is_at_tip)
    }

    /// When the last reply came, if that had nothing, since everything was read.
    pub(crate) fn tip_at(&self, shard: &ShardId) -> Option<Moment> {
        let known = self.lock();
        let status = known.shards.get(shard.as_str())?;
        if status.is_at_tip {
            status.tip_at
        } else {
            None
        }
    }

    fn lock(&self) -> MutexGuard<'_, WorkerStatus> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShardStatus {
    /// Whether everything fetched is checkpointed, and there is no more to fetch for now.
    pub fn is_idle(&self) -> bool {
        let is_covered = match (&self.fetched, &self.checkpoint) {
            (None, _) | (Some(_), Checkpoint::ShardEnd) => true,
            (Some(fetched), Checkpoint::At(position)) => position >= fetched,
            (
                Some(_),
                Checkpoint::TrimHorizon
                | Checkpoint::Latest
                | Checkpoint::AtTimestamp
                | Checkpoint::Sought(_),
            ) => false,
        };
        is_covered && (self.is_at_tip || self.state == ShardState::Ended)
    }

    /// The same, after an earlier holding of the shard in this run, whose counts go on.
    pub(crate) fn after(self, earlier: Option<Self>) -> Self {
        let Some(Self {
            records,
            filtered_records,
            batches,
            ticks,
            given_up,
            gaps,
            ..
        }) = earlier
        else {
            return self;
        };
        Self {
            records,
            filtered_records,
            batches,
            ticks,
            given_up,
            gaps,
            ..self
        }
    }

    /// A shard whose holding has just begun.
    pub fn starting(epoch: u64, checkpoint: Checkpoint) -> Self {
        Self {
            state: ShardState::Starting,
            stage: StageStatus::new("starting".to_owned()),
            time: TimeSpent::default(),
            epoch,
            plugin_digest: None,
            settled: None,
            settled_arrival_ms: None,
            checkpoint,
            fetched: None,
            is_at_tip: false,
            tip_at: None,
            lag_ms: None,
            held_back_records: 0,
            state_percent: None,
            retrieval: ShardRetrieval::Polling,
            millis_behind_latest: None,
            records: 0,
            filtered_records: 0,
            batches: 0,
            ticks: 0,
            blocked: None,
            parked: Parking::default(),
            given_up: GivenUp::default(),
            gaps: Gaps::default(),
            read_error: None,
            waits_for: None,
            subscription_error: None,
        }
    }
}

/// In seconds.
#[expect(clippy::ref_option, reason = "serde passes the field as it is")]
fn age<S: serde::Serializer>(at: &Option<Instant>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.serialize_some(&at.elapsed().as_secs_f64()),
        None => serializer.serialize_none(),
    }
}

fn as_text<S: serde::Serializer>(
    checkpoint: &Checkpoint,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(checkpoint)
}
