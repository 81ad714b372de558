//! The version in the shadow of a plugin's version at work, on this host: which it is, on which
//! shards it runs, and what the comparison says so far. Each shard's part is in `pipeline/shadowing`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::ProcessorFactory;
use shardmill_core::rollout::{REASON_CHARS_MAX, RolloutState, VersionRow};
use shardmill_core::shadow::{Ruling, ShadowPolicy, Tally};
use shardmill_core::stream::ShardId;
use shardmill_core::text::shortened;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::metrics;
use crate::timer::Stopwatch;

/// What may wait for a plugin's shadow on all shards, in KiB: batches, and what the version at work
/// emitted. Beyond that, records are not compared.
const WAITING_KIB: usize = 64 << 10;
/// How long until another instance is made after one could not be.
const START_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// See the module's description. One for all streams of a plugin; cheap to clone.
#[derive(Clone)]
pub struct SharedShadow(Arc<Shared>);

struct Shared {
    plugin: PluginName,
    /// Whether one runs, so that a call need not lock it.
    is_on: AtomicBool,
    /// One permit for each KiB that waits.
    room: Arc<Semaphore>,
    // Locked for moments between calls; never held across an await.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    policy: ShadowPolicy,
    current: Option<Current>,
    /// The version at work, which it is compared with.
    at_work: Option<PluginDigest>,
    /// The last version that was there, also after its file has gone.
    last: Option<PluginDigest>,
    /// What runs on shards. Whoever feeds one that has ended finds its channel closed.
    tasks: JoinSet<()>,
}

struct Current {
    digest: PluginDigest,
    /// `None` if its file was refused.
    version: Option<Arc<dyn ProcessorFactory>>,
    since_ms: u64,
    tally: Tally,
    ended: Option<Ended>,
    /// Why the file that is there now is not what runs, if it is not.
    newer: Option<String>,
    not_started: Option<Stopwatch>,
}

/// Why a version does not run in the shadow.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ended {
    /// It was refused, promoted or dropped, or could not be.
    For(String),
    /// It is the version at work. It runs once another one is.
    IsAtWork,
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

    /// Runs the version in the shadow from now on, in place of another one; `wall_ms` is the time in
    /// milliseconds since the Unix epoch. The same version goes on as it is. Whether it begins.
    pub fn offer(&self, version: &Arc<dyn ProcessorFactory>, wall_ms: u64) -> bool {
        let mut inner = self.lock();
        let is_at_work = inner.at_work.as_ref() == Some(version.digest());
        if let Some(current) = &mut inner.current
            && current.version.is_some()
            && current.digest == *version.digest()
        {
            current.newer = None;
            let is_over = matches!(&current.ended, Some(Ended::For(_)));
            let begins = !is_over && !is_at_work && current.ended.take().is_some();
            if begins {
                current.tally = Tally::default();
                self.0.is_on.store(true, Ordering::Relaxed);
            }
            return begins;
        }
        inner.last = Some(version.digest().clone());
        inner.current = Some(Current {
            digest: version.digest().clone(),
            version: Some(Arc::clone(version)),
            since_ms: wall_ms,
            tally: Tally::default(),
            ended: is_at_work.then_some(Ended::IsAtWork),
            newer: None,
            not_started: None,
        });
        self.0.is_on.store(!is_at_work, Ordering::Relaxed);
        !is_at_work
    }

    /// The file of a version that was to run in the shadow was refused, for this reason. What runs
    /// there goes on.
    pub fn refuse(&self, digest: &PluginDigest, why: &str, wall_ms: u64) {
        let mut inner = self.lock();
        if self.is_on()
            && let Some(current) = &mut inner.current
        {
            current.newer = Some(format!("a newer file ({digest}) is refused: {why}"));
            return;
        }
        inner.last = Some(digest.clone());
        inner.current = Some(Current {
            digest: digest.clone(),
            version: None,
            since_ms: wall_ms,
            tally: Tally::default(),
            ended: Some(Ended::For(format!("refused: {why}"))),
            newer: None,
            not_started: None,
        });
    }

    /// From now on it is compared with this version at work; what was found before says nothing of
    /// that one.
    pub fn compare_with(&self, at_work: Option<&PluginDigest>) {
        let mut inner = self.lock();
        if inner.at_work.as_ref() == at_work {
            return;
        }
        inner.at_work = at_work.cloned();
        let at_work = inner.at_work.clone();
        inner.tasks.abort_all();
        let Some(current) = &mut inner.current else {
            return;
        };
        current.tally = Tally::default();
        if current.ended.is_none() && at_work.as_ref() == Some(&current.digest) {
            current.ended = Some(Ended::IsAtWork);
            self.0.is_on.store(false, Ordering::Relaxed);
        }
    }

    /// Nothing runs in the shadow any more, and nothing is known.
    pub fn withdraw(&self) {
        let mut inner = self.lock();
        inner.current = None;
        inner.tasks.abort_all();
        self.0.is_on.store(false, Ordering::Relaxed);
    }

    /// The version runs no more, for this reason; what is known of it stays.
    pub fn end(&self, why: &str) {
        let mut inner = self.lock();
        if let Some(current) = &mut inner.current {
            current.ended = Some(Ended::For(why.to_owned()));
        }
        inner.tasks.abort_all();
        self.0.is_on.store(false, Ordering::Relaxed);
    }

    /// Uses another policy from now on.
    pub fn set_policy(&self, policy: ShadowPolicy) {
        self.lock().policy = policy;
    }

    /// What is known of the version in the shadow, if there is one.
    pub fn report(&self) -> Option<ShadowReport> {
        let inner = self.lock();
        let current = inner.current.as_ref()?;
        Some(ShadowReport {
            digest: current.digest.clone(),
            since_ms: current.since_ms,
            tally: current.tally.clone(),
            ended: match &current.ended {
                Some(Ended::For(why)) => Some(why.clone()),
                Some(Ended::IsAtWork) => Some("waits: it is the version at work".to_owned()),
                None => None,
            },
            at_work: inner.at_work.clone(),
            newer: current.newer.clone(),
        })
    }

    /// What is to become of the version that runs in the shadow.
    pub fn rule(&self) -> Ruling {
        let inner = self.lock();
        match &inner.current {
            Some(current) if current.ended.is_none() => inner.policy.rule(&current.tally),
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
            reason: Some(shortened(&reason, REASON_CHARS_MAX).into_owned()),
        })
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Whether what the version `at_work` is given on this shard is for the shadow as well: not while
    /// the shard tries another version.
    pub(crate) fn is_wanted_on(&self, shard: &ShardId, at_work: &PluginDigest) -> bool {
        if !self.is_on() {
            return false;
        }
        let inner = self.lock();
        inner.at_work.as_ref() == Some(at_work) && inner.policy.picks(shard)
    }

    /// Whether the version is in the shadow, running or not, or was the last one there.
    pub(crate) fn has_had(&self, digest: &PluginDigest) -> bool {
        self.lock().last.as_ref() == Some(digest)
    }

    /// The version that is to run beside the shard, and whether it may send HTTP requests; `None`
    /// if none is to be started now.
    pub(crate) fn wanted_on(&self, shard: &ShardId) -> Option<(Arc<dyn ProcessorFactory>, bool)> {
        let inner = self.lock();
        let current = inner.current.as_ref()?;
        let has_just_failed = current
            .not_started
            .is_some_and(|since| since.elapsed() < START_AGAIN_AFTER);
        if current.ended.is_some() || has_just_failed || !inner.policy.picks(shard) {
            return None;
        }
        let version = Arc::clone(current.version.as_ref()?);
        Some((version, inner.policy.may_send_http))
    }

    /// Whether the version is the one that runs in the shadow.
    pub(crate) fn is_current(&self, digest: &PluginDigest) -> bool {
        let inner = self.lock();
        let current = inner.current.as_ref();
        current.is_some_and(|current| current.ended.is_none() && current.digest == *digest)
    }

    /// Room for so many bytes that wait, until it is dropped; `None` if there is none.
    pub(crate) fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        Arc::clone(&self.0.room).try_acquire_many_owned(kib).ok()
    }

    /// Runs a shard's part, until it ends by itself or no version runs in the shadow any more.
    pub(crate) fn spawn(&self, part: impl Future<Output = ()> + Send + 'static) {
        let mut inner = self.lock();
        while inner.tasks.try_join_next().is_some() {}
        inner.tasks.spawn(part);
    }

    /// An instance was made, or could not be.
    pub(crate) fn started(&self, digest: &PluginDigest, result: Result<(), String>) {
        self.with(digest, |current| {
            current.tally.starts += u64::from(result.is_ok());
            current.not_started = result.is_err().then(Stopwatch::start);
            current.tally.not_started = result.err();
        });
    }

    /// Records were not compared.
    pub(crate) fn missed(&self, records: u64) {
        self.count(metrics::SHADOW_RECORDS, "missed", records);
        if let Some(current) = &mut self.lock().current {
            current.tally.missed += records;
        }
    }

    /// The outputs that wait on a shard were `before`, and are `now`.
    pub(crate) fn waits(&self, digest: &PluginDigest, before: u64, now: u64) {
        self.with(digest, |current| {
            current.tally.waiting = (current.tally.waiting + now).saturating_sub(before);
        });
    }

    /// Adds to what is known of this version.
    pub(crate) fn add(&self, digest: &PluginDigest, found: &Tally) {
        self.count(metrics::SHADOW_RECORDS, "compared", found.records);
        for (result, count) in [
            ("same", found.same),
            ("only-at-work", found.only_at_work),
            ("only-shadow", found.only_shadow),
        ] {
            self.count(metrics::SHADOW_OUTPUTS, result, count);
        }
        for (result, count) in [
            ("only-at-work", found.at_work_failed),
            ("only-shadow", found.shadow_failed),
        ] {
            self.count(metrics::SHADOW_FAILURES, result, count);
        }
        self.with(digest, |current| current.tally.add(found));
    }

    fn with(&self, digest: &PluginDigest, change: impl FnOnce(&mut Current)) {
        let mut inner = self.lock();
        if let Some(current) = &mut inner.current
            && current.digest == *digest
        {
            change(current);
        }
    }

    fn count(&self, metric: &'static str, result: &'static str, by: u64) {
        if by > 0 {
            let plugin = self.0.plugin.to_string();
            ::metrics::counter!(metric, "plugin" => plugin, "result" => result).increment(by);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
