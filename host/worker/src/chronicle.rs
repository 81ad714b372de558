//! Adds to the application's history what this host did: as operators wanted, and by itself.
//!
//! Nothing waits for it, and nothing depends on it: entries are written in the background, one
//! after the other, and what cannot be written is dropped. Of what a host does by itself only so
//! much is written that a bad day costs no money: each kind of deed has an allowance of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shardmill_core::control::{Deed, HistoryEntry};
use shardmill_core::lease::WorkerId;
use shardmill_core::ports::{Clock, Coordinator};
use shardmill_core::rollout::Change;
use shardmill_core::stream::ShardId;
use shardmill_core::text::shortened;
use shardmill_core::token_bucket::TokenBucket;
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::host_bell::Outcome;

/// Entries that wait to be written: the answers to a command for as many shards. A table that does
/// not answer must not cost memory.
const QUEUE_MAX: usize = 1_024;
/// Entries of one kind that are written at once: what happens when a host dies or a version is bad.
const AT_ONCE: u32 = 10;
/// After that, one of a kind is written so often: 1,440 a day, for as many units of capacity.
const ONE_EVERY: Duration = Duration::from_mins(1);
/// How much of an entry is kept: a write of up to 1 KB costs one unit (AWS).
const DETAILS_CHARS_MAX: usize = 500;

/// Takes in what this host did.
pub(crate) struct Chronicle {
    by: WorkerId,
    clock: Arc<dyn Clock>,
    queue: mpsc::Sender<Item>,
    /// Whether what the host does by itself is written too.
    has_own_deeds: bool,
    // Shared by the worker and its pipelines; never held across an await.
    allowances: Mutex<BTreeMap<Deed, Allowance>>,
}

/// Writes what a [`Chronicle`] took in.
pub(crate) struct ChronicleWriter {
    queue: mpsc::Receiver<Item>,
    coordinator: Arc<dyn Coordinator>,
    chronicle: Arc<Chronicle>,
    changes: broadcast::Receiver<Change>,
}

enum Item {
    Entry(HistoryEntry),
    /// To be answered once all entries before it were written.
    Flush(oneshot::Sender<()>),
}

/// How many entries of one kind may be written.
struct Allowance {
    bucket: TokenBucket,
    /// Entries that were left out since the last one.
    left_out: u64,
}

impl Chronicle {
    /// `changes`: what the plugin's rollout decides.
    pub(crate) fn new(
        by: WorkerId,
        clock: Arc<dyn Clock>,
        coordinator: Arc<dyn Coordinator>,
        changes: broadcast::Receiver<Change>,
        has_own_deeds: bool,
    ) -> (Arc<Self>, ChronicleWriter) {
        let (sender, queue) = mpsc::channel(QUEUE_MAX);
        let chronicle = Arc::new(Self {
            by,
            clock,
            queue: sender,
            has_own_deeds,
            allowances: Mutex::default(),
        });
        let writer = ChronicleWriter {
            queue,
            coordinator,
            chronicle: Arc::clone(&chronicle),
            changes,
        };
        (chronicle, writer)
    }

    /// Something was done to a shard, or not done, as an operator wanted, for the reason `why`.
    pub(crate) fn obeyed(&self, deed: Deed, shard: &ShardId, details: String, why: &str) {
        self.add(deed, Some(shard), details, why);
    }

    /// The process did what an operator wanted of it, for the reason `why`, or did not. `deeds` are
    /// the two.
    pub(crate) fn heeded(&self, deeds: [Deed; 2], outcome: &Outcome, why: &str) {
        let [done, not_done] = deeds;
        let (deed, details) = match outcome {
            Ok(details) => (done, details),
            Err(details) => (not_done, details),
        };
        let details = shortened(details, DETAILS_CHARS_MAX).into_owned();
        self.add(deed, None, details, why);
    }

    /// The host did something by itself.
    pub(crate) fn did(&self, deed: Deed, shard: Option<&ShardId>, details: &str) {
        if !self.has_own_deeds {
            return;
        }
        let Some(left_out) = self.allow(deed) else {
            return;
        };
        let mut details = shortened(details, DETAILS_CHARS_MAX).into_owned();
        if left_out > 0 {
            details = format!("{details} (and {left_out} more before, which were left out)");
        }
        self.add(deed, shard, details, "");
    }

    /// How many of this kind were left out since the last one; `None` if this one is too.
    fn allow(&self, deed: Deed) -> Option<u64> {
        let now = self.clock.now();
        let allowances = self.allowances.lock();
        let mut allowances = allowances.unwrap_or_else(PoisonError::into_inner);
        let allowance = allowances.entry(deed).or_insert_with(|| Allowance {
            bucket: TokenBucket::with_one_every(ONE_EVERY, AT_ONCE, now),
            left_out: 0,
        });
        if allowance.bucket.take(now) {
            return Some(std::mem::take(&mut allowance.left_out));
        }
        allowance.left_out += 1;
        None
    }

    fn add(&self, deed: Deed, shard: Option<&ShardId>, details: String, why: &str) {
        let entry = HistoryEntry {
            at_ms: self.clock.wall_ms(),
            by: self.by.to_string(),
            deed,
            shard: shard.cloned(),
            details,
            why: why.to_owned(),
        };
        if self.queue.try_send(Item::Entry(entry)).is_err() {
            tracing::debug!(%deed, "the history is not written fast enough: an entry is left out");
        }
    }

    /// Returns once all that was taken in before is written, or was tried to.
    pub(crate) async fn flush(&self) {
        let (answer, flushed) = oneshot::channel();
        if self.queue.send(Item::Flush(answer)).await.is_ok() {
            // An error means that the writer is gone: it writes nothing any more.
            let _ = flushed.await;
        }
    }

    fn rollout_changed(&self, change: &Change) {
        match change {
            Change::Canary(digest, site) => {
                self.did(Deed::Tried, None, &format!("{digest:.12} on {site}"));
            }
            Change::Promoted(digest, why) => {
                self.did(Deed::Promoted, None, &format!("{digest:.12}: {why}"));
            }
            Change::RolledBack(digest, why) => {
                self.did(Deed::RolledBack, None, &format!("{digest:.12}: {why}"));
            }
            Change::ShadowEnded(_, outcome) => self.did(Deed::ShadowEnded, None, outcome),
            Change::Offered(_)
            | Change::Suspected(..)
            | Change::Cleared(..)
            | Change::Proven(_)
            | Change::Withdrawn(_)
            | Change::Released(_) => {}
        }
    }
}

impl ChronicleWriter {
    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                Some(item) = self.queue.recv() => self.take(item).await,
                Ok(change) = self.changes.recv() => self.chronicle.rollout_changed(&change),
                // The chronicle is gone, which this holds itself.
                else => return,
            }
        }
    }

    async fn take(&self, item: Item) {
        match item {
            Item::Entry(entry) => {
                if let Err(error) = self.coordinator.record(&entry).await {
                    tracing::debug!(%error, deed = %entry.deed, "could not add to the history");
                }
            }
            Item::Flush(answer) => {
                // Whoever asked may have given up waiting.
                let _ = answer.send(());
            }
        }
    }
}
