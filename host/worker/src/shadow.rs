//! The version in the shadow of a plugin's version at work, on this host: which it is, on which
//! shards it runs, and what the comparison says so far. Each shard's part is in
//! `pipeline/shadowing`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::ProcessorFactory;
use shardmill_core::rollout::{RolloutState, VersionRow};
use shardmill_core::shadow::{Ruling, ShadowPolicy, Tally};
use shardmill_core::stream::ShardId;
use shardmill_core::text::shortened;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::metrics;
use crate::timer::Stopwatch;

/// What may wait for a plugin's shadow on all shards, in KiB: batches, and outputs. Beyond that,
/// records are not compared.
const WAITING_KIB: usize = 64 << 10;
/// How long until another instance is made after one could not be.
const START_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long after a file has gone a wish about it may still come: another host may have acted on
/// it, which has the same folder.
const GONE_FOR: Duration = Duration::from_secs(30);
/// How much of the findings is shown in the host's row: figures, a place, and a reason.
const FOUND_CHARS_MAX: usize = 700;

/// See the module's description. One for all streams of a plugin; cheap to clone.
#[derive(Clone)]
pub struct SharedShadow(Arc<Shared>);

struct Shared {
    plugin: PluginName,
    /// Whether one runs, so that a call need not lock it. Set by [`Shared::change`] only.
    is_on: AtomicBool,
    /// One permit for each KiB that waits.
    room: Arc<Semaphore>,
    // Locked for moments between calls; never held across an await. Where the rollout's is locked
    // too, that one was first.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    policy: ShadowPolicy,
    current: Option<Current>,
    /// The version at work, which it is compared with.
    at_work: Option<PluginDigest>,
    /// The last version whose file has gone, and since when.
    gone: Option<(PluginDigest, Stopwatch)>,
    /// What runs on shards. Whoever feeds one that has ended finds its channel closed.
    tasks: JoinSet<()>,
    /// Raised when all that runs is ended: what it still says does not count.
    generation: Generation,
}

struct Current {
    digest: PluginDigest,
    /// `None` if its file was refused.
    version: Option<Arc<dyn ProcessorFactory>>,
    since_ms: u64,
    phase: Phase,
    tally: Tally,
    /// Why the file that is there now is not what runs, if it is not.
    newer: Option<String>,
    not_started: Option<Stopwatch>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Runs,
    /// It is the version at work: it runs once another one is.
    IsAtWork,
    /// It was refused, promoted or dropped, for this reason.
    Over(String),
}

/// Distinguishes runs that were ended from those since.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Generation(u64);

/// A version that is to run beside a shard.
pub(crate) struct WantedShadow {
    pub(crate) version: Arc<dyn ProcessorFactory>,
    pub(crate) may_send_http: bool,
    pub(crate) generation: Generation,
}

/// A shadow, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowReport {
    /// The SHA-256 of its component.
    pub digest: PluginDigest,
    /// When it was put there, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// What the comparison says.
    pub tally: Tally,
    /// Why it does not run, if it does not.
    pub ended: Option<String>,
    /// The version at work that it is compared with.
    pub at_work: Option<PluginDigest>,
    /// Why the file that is there now is not what runs, if it is not.
    pub newer: Option<String>,
}

impl SharedShadow {
    pub(crate) fn new(plugin: PluginName) -> Self {
        Self(Arc::new(Shared {
            plugin,
            is_on: AtomicBool::new(false),
            room: Arc::new(Semaphore::new(WAITING_KIB)),
            inner: Mutex::default(),
        }))
    }

    // What runs.

    /// Runs the version in the shadow from now on, in place of another one; `wall_ms` is the time
    /// in milliseconds since the Unix epoch. The same version goes on as it is, and one that is
    /// over stays so. Whether it begins.
    pub fn offer(&self, version: &Arc<dyn ProcessorFactory>, wall_ms: u64) -> bool {
        self.0.change(|inner| {
            let is_at_work = inner.at_work.as_ref() == Some(version.digest());
            if let Some(current) = &mut inner.current
                && current.version.is_some()
                && current.digest == *version.digest()
            {
                let begins = current.phase == Phase::IsAtWork && !is_at_work;
                if begins {
                    current.phase = Phase::Runs;
                }
                return begins;
            }
            inner.end_runs();
            inner.current = Some(Current {
                digest: version.digest().clone(),
                version: Some(Arc::clone(version)),
                since_ms: wall_ms,
                phase: if is_at_work {
                    Phase::IsAtWork
                } else {
                    Phase::Runs
                },
                tally: Tally::default(),
                newer: None,
                not_started: None,
            });
            !is_at_work
        })
    }

    /// The file of a version that was to run in the shadow was refused, for this reason. What is
    /// there already stays.
    pub fn refuse(&self, digest: Option<&PluginDigest>, why: &str, wall_ms: u64) {
        self.0.change(|inner| {
            if let Some(current) = &mut inner.current
                && (current.version.is_some() || digest.is_none_or(|new| *new == current.digest))
            {
                if current.version.is_some() {
                    current.newer = Some(format!("a newer file is refused: {why}"));
                }
                return;
            }
            inner.current = digest.map(|digest| Current {
                digest: digest.clone(),
                version: None,
                since_ms: wall_ms,
                phase: Phase::Over(format!("refused: {why}")),
                tally: Tally::default(),
                newer: None,
                not_started: None,
            });
        });
    }

    /// No newer file is refused any more.
    pub fn accept(&self) {
        self.0.change(|inner| {
            if let Some(current) = &mut inner.current {
                current.newer = None;
            }
        });
    }

    /// From now on it is compared with this version at work; what was found before says nothing of
    /// that one.
    pub(crate) fn compare_with(&self, at_work: Option<&PluginDigest>) {
        self.0.change(|inner| {
            if inner.at_work.as_ref() == at_work {
                return;
            }
            inner.at_work = at_work.cloned();
            inner.end_runs();
            let Some(current) = &mut inner.current else {
                return;
            };
            current.tally = Tally::default();
            if current.phase == Phase::Runs && at_work == Some(&current.digest) {
                current.phase = Phase::IsAtWork;
            }
        });
    }

    /// Its file has gone: nothing runs in the shadow any more, and nothing is known.
    pub fn withdraw(&self) {
        self.0.change(|inner| {
            inner.end_runs();
            if let Some(gone) = inner.current.take() {
                inner.gone = Some((gone.digest, Stopwatch::start()));
            }
        });
    }

    /// The version runs no more, for this reason; what is known of it stays.
    pub fn end(&self, digest: &PluginDigest, why: &str) {
        self.0.change(|inner| {
            if let Some(current) = &mut inner.current
                && current.digest == *digest
            {
                current.phase = Phase::Over(why.to_owned());
                inner.end_runs();
            }
        });
    }

    /// Uses another policy from now on.
    pub fn set_policy(&self, policy: ShadowPolicy) {
        self.0.change(|inner| {
            if inner.policy.may_send_http != policy.may_send_http {
                // Instances that may send requests must not go on if they may not any more.
                inner.end_runs();
            }
            inner.policy = policy;
        });
    }

    // What is known.

    /// What is known of the version in the shadow, if there is one.
    pub fn report(&self) -> Option<ShadowReport> {
        let inner = self.0.lock();
        let current = inner.current.as_ref()?;
        Some(ShadowReport {
            digest: current.digest.clone(),
            since_ms: current.since_ms,
            tally: current.tally.clone(),
            ended: match &current.phase {
                Phase::Runs => None,
                Phase::IsAtWork => Some("waits: it is the version at work".to_owned()),
                Phase::Over(why) => Some(why.clone()),
            },
            at_work: inner.at_work.clone(),
            newer: current.newer.clone(),
        })
    }

    /// What is to become of the version that runs in the shadow.
    pub fn rule(&self) -> Ruling {
        let inner = self.0.lock();
        match &inner.current {
            Some(current) if current.phase == Phase::Runs => inner.policy.rule(&current.tally),
            Some(_) | None => Ruling::GoOn,
        }
    }

    /// The version, as hosts show it among the plugin's versions.
    pub(crate) fn row(&self) -> Option<VersionRow> {
        let report = self.report()?;
        let mut reason = report.ended.unwrap_or_else(|| report.tally.to_string());
        if let Some(newer) = report.newer {
            reason = format!("{newer}; {reason}");
        }
        Some(VersionRow {
            digest: report.digest,
            state: RolloutState::Shadow.to_string(),
            since_ms: report.since_ms,
            reason: Some(shortened(&reason, FOUND_CHARS_MAX).into_owned()),
        })
    }

    /// Whether the version is in the shadow, running or not, or was until a moment ago.
    pub(crate) fn has_had(&self, digest: &PluginDigest) -> bool {
        let inner = self.0.lock();
        let is_there = |current: &Current| current.digest == *digest;
        let has_just_gone = |(gone, since): &(PluginDigest, Stopwatch)| {
            gone == digest && since.elapsed() <= GONE_FOR
        };
        inner.current.as_ref().is_some_and(is_there)
            || inner.gone.as_ref().is_some_and(has_just_gone)
    }

    // For the shards.

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Whether what the version `at_work` is given on this shard is for the shadow as well: not
    /// while the shard tries another version.
    pub(crate) fn is_wanted_on(&self, shard: &ShardId, at_work: &PluginDigest) -> bool {
        if !self.is_on() {
            return false;
        }
        let inner = self.0.lock();
        inner.at_work.as_ref() == Some(at_work) && inner.policy.picks(shard)
    }

    /// The version that is to run beside the shard; `None` if none is to be started now.
    pub(crate) fn wanted_on(&self, shard: &ShardId) -> Option<WantedShadow> {
        let inner = self.0.lock();
        let current = inner.current.as_ref()?;
        let has_just_failed = current
            .not_started
            .is_some_and(|since| since.elapsed() < START_AGAIN_AFTER);
        if current.phase != Phase::Runs || has_just_failed || !inner.policy.picks(shard) {
            return None;
        }
        Some(WantedShadow {
            version: Arc::clone(current.version.as_ref()?),
            may_send_http: inner.policy.may_send_http,
            generation: inner.generation,
        })
    }

    /// Whether runs of this generation go on.
    pub(crate) fn goes_on(&self, generation: Generation) -> bool {
        self.0.lock().generation == generation
    }

    /// Room for so many bytes that wait, until it is dropped; `None` if there is none.
    pub(crate) fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        Arc::clone(&self.0.room).try_acquire_many_owned(kib).ok()
    }

    /// Runs a shard's part, until it ends by itself or its generation does.
    pub(crate) fn spawn(&self, part: impl Future<Output = ()> + Send + 'static) {
        let mut inner = self.0.lock();
        while inner.tasks.try_join_next().is_some() {}
        inner.tasks.spawn(part);
    }

    /// An instance was made, or could not be.
    pub(crate) fn started(&self, generation: Generation, result: Result<(), String>) {
        self.with(generation, |current| {
            current.tally.starts += u64::from(result.is_ok());
            current.not_started = result.is_err().then(Stopwatch::start);
            current.tally.not_started = result.err();
        });
    }

    /// Records were not given to the shadow.
    pub(crate) fn missed(&self, records: u64) {
        self.count(metrics::SHADOW_RECORDS, "missed", records);
        if let Some(current) = &mut self.0.lock().current {
            current.tally.missed += records;
        }
    }

    /// The outputs that wait on a shard were `before`, and are `now`.
    pub(crate) fn waits(&self, generation: Generation, before: u64, now: u64) {
        self.with(generation, |current| {
            debug_assert!(
                current.tally.waiting >= before,
                "what waits on a shard is part of what waits"
            );
            current.tally.waiting = (current.tally.waiting + now).saturating_sub(before);
        });
    }

    /// Adds what a run found.
    pub(crate) fn add(&self, generation: Generation, found: &Tally) {
        let is_counted = self.with(generation, |current| current.tally.add(found));
        if !is_counted {
            return;
        }
        self.count(metrics::SHADOW_RECORDS, "compared", found.records);
        self.count(metrics::SHADOW_RECORDS, "missed", found.missed);
        for (result, count) in [
            ("same", found.same),
            ("only-at-work", found.only_at_work),
            ("only-shadow", found.only_shadow),
            ("undecided", found.undecided),
        ] {
            self.count(metrics::SHADOW_OUTPUTS, result, count);
        }
        for (result, count) in [
            ("only-at-work", found.at_work_failed),
            ("only-shadow", found.shadow_failed),
            ("held-back", found.held_back),
        ] {
            self.count(metrics::SHADOW_FAILURES, result, count);
        }
    }

    /// Changes what is known, if runs of this generation go on. Whether they do.
    fn with(&self, generation: Generation, change: impl FnOnce(&mut Current)) -> bool {
        let mut inner = self.0.lock();
        if inner.generation != generation {
            return false;
        }
        inner.current.as_mut().map(change).is_some()
    }

    fn count(&self, metric: &'static str, result: &'static str, by: u64) {
        if by > 0 {
            let plugin = self.0.plugin.to_string();
            ::metrics::counter!(metric, "plugin" => plugin, "result" => result).increment(by);
        }
    }
}

impl Shared {
    /// Changes what runs.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let changed = change(&mut inner);
        let runs = |current: &Current| current.phase == Phase::Runs;
        let is_on = inner.current.as_ref().is_some_and(runs);
        self.is_on.store(is_on, Ordering::Relaxed);
        changed
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Ends all that runs. One may be in the middle of a poll, so what it still says is ignored.
    fn end_runs(&mut self) {
        self.generation.0 += 1;
        self.tasks.abort_all();
        if let Some(current) = &mut self.current {
            current.tally.waiting = 0;
            current.not_started = None;
        }
    }
}
