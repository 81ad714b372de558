//! What goes through plugins, for whoever watches it live. Costs one load of a number a call while
//! nobody does, reads nothing from a stream, and holds up no shard: what a watcher does not take in
//! time is dropped and counted.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{GuestLines, Processed, RecordFailure};
use shardmill_core::shadow::{Difference, Side};
use shardmill_core::stream::{Batch, Emitted, Position, Record, ShardId};
use tokio::sync::mpsc;

/// Bytes that are shown of a record or of output; they are copied, so that no reply is kept alive.
const SHOWN_BYTES_MAX: usize = 4 << 10;
/// Samples that wait for a watcher, some 3 MiB at most.
const WAITING_MAX: usize = 512;
/// Watchers at once. Each costs the pipelines time.
const WATCHERS_MAX: usize = 8;
/// Samples of a kind that one call gives to one watcher; more are counted as dropped.
const OF_CALL_MAX: usize = 50;
/// Records and pieces of output of one call that a watcher's filter looks at.
const LOOKED_AT_MAX: usize = 1_000;

/// The calls of all plugins of a host. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tap(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// How many there are in the list, so that a call need not lock it.
    count: AtomicUsize,
    // Locked for the time of one call's samples; never held across an await.
    watchers: Mutex<Vec<Arc<Watcher>>>,
}

/// What a watcher wants to see.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// What is shown of a call; nothing else counts as left out.
    pub kinds: BTreeSet<SampleKind>,
    /// Only what plugins of this application are given and make.
    pub application: String,
    /// Only of this shard, if one is named.
    pub shard: Option<ShardId>,
    /// Only with this key, if one is named: the partition key of a record, or the key that output
    /// was emitted with.
    pub key: Option<String>,
    /// Only what contains this text; what is longer than what is shown is looked through as well.
    pub contains: Option<String>,
}

struct Watcher {
    wanted: Wanted,
    samples: mpsc::Sender<Sample>,
    dropped: AtomicU64,
}

/// Somebody who watches, until this is dropped.
pub struct Watch {
    watcher: Arc<Watcher>,
    samples: mpsc::Receiver<Sample>,
    tap: Tap,
}

/// No more can watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{WATCHERS_MAX} others are watching already")]
pub struct TooManyWatchers;

/// Something that went through a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Whether it is a record, output, a failure or a line.
    pub kind: SampleKind,
    /// The shard that it belongs to.
    pub shard: ShardId,
    /// The record, if it is about one.
    pub position: Option<Position>,
    /// The sink that output was emitted for.
    pub destination: Option<String>,
    /// The partition key, or the key that output was emitted with.
    pub key: String,
    /// The beginning of the data, or the message of a failure.
    pub data: Vec<u8>,
    /// The length of the whole, in bytes.
    pub bytes: usize,
}

/// What a sample shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SampleKind {
    /// A record that a plugin was given.
    Record,
    /// What a plugin emitted.
    Output,
    /// A record that failed, or a whole call.
    Failure,
    /// A line that a plugin logged.
    Log,
    /// What only the version at work emitted, and the one in its shadow did not.
    OnlyAtWork,
    /// What only the version in the shadow emitted.
    OnlyShadow,
}

impl Tap {
    /// Begins to watch; what went through before is not shown.
    pub fn watch(&self, wanted: Wanted) -> Result<Watch, TooManyWatchers> {
        let (sender, samples) = mpsc::channel(WAITING_MAX);
        let watcher = Arc::new(Watcher {
            wanted,
            samples: sender,
            dropped: AtomicU64::new(0),
        });
        let mut watchers = self.lock();
        if watchers.len() >= WATCHERS_MAX {
            return Err(TooManyWatchers);
        }
        watchers.push(Arc::clone(&watcher));
        self.0.count.store(watchers.len(), Ordering::Relaxed);
        drop(watchers);
        Ok(Watch {
            watcher,
            samples,
            tap: self.clone(),
        })
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.0.count.load(Ordering::Relaxed) > 0
    }

    /// A call has ended; called only while somebody watches.
    pub(crate) fn called(&self, call: &Call<'_>) {
        for watcher in self
            .lock()
            .iter()
            .filter(|watcher| watcher.wants_from(call.application, call.shard))
        {
            watcher.show(call);
        }
    }

    /// Two versions emitted different things; called for few calls.
    pub(crate) fn differed(&self, differing: &Differing<'_>) {
        if !self.is_watched() {
            return;
        }
        let watchers = self.lock();
        let wanting = watchers
            .iter()
            .filter(|watcher| watcher.wants_from(differing.application, differing.shard));
        for watcher in wanting {
            watcher.show_differences(differing);
        }
    }

    fn remove(&self, gone: &Arc<Watcher>) {
        let mut watchers = self.lock();
        watchers.retain(|watcher| !Arc::ptr_eq(watcher, gone));
        self.0.count.store(watchers.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Watcher>>> {
        self.0
            .watchers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sample {
    /// Whether there is more than is shown.
    pub fn is_cut(&self) -> bool {
        self.data.len() < self.bytes
    }
}

impl SampleKind {
    /// Every kind once, in the order in which one call shows them.
    pub const ALL: [Self; 6] = [
        Self::Record,
        Self::Output,
        Self::Failure,
        Self::Log,
        Self::OnlyAtWork,
        Self::OnlyShadow,
    ];

    /// The word for one, as programs are shown it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Output => "output",
            Self::Failure => "failure",
            Self::Log => "log",
            Self::OnlyAtWork => "only-at-work",
            Self::OnlyShadow => "only-shadow",
        }
    }

    /// The word by which requests name the kind.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Record => "records",
            Self::Output => "outputs",
            Self::Failure => "failures",
            Self::Log | Self::OnlyAtWork | Self::OnlyShadow => self.code(),
        }
    }

    /// Whether it shows the data of a record or of output, in which fields can be masked.
    pub fn is_data(self) -> bool {
        match self {
            Self::Record | Self::Output | Self::OnlyAtWork | Self::OnlyShadow => true,
            Self::Failure | Self::Log => false,
        }
    }
}

impl GuestLines for Tap {
    fn are_wanted(&self) -> bool {
        self.is_watched()
    }

    fn line(&self, application: &str, shard: &ShardId, line: &str) {
        for watcher in self.lock().iter() {
            // A line has no key.
            if watcher.wants_from(application, shard) && watcher.wanted.key.is_none() {
                let is_wanted = |line: &&str| watcher.is_wanted("", line.as_bytes());
                watcher.show_some(SampleKind::Log, &[line], is_wanted, |line| {
                    sample(shard, SampleKind::Log, "", line.as_bytes())
                });
            }
        }
    }
}

/// A call that has ended, and what came of it.
pub(crate) struct Call<'a> {
    pub(crate) application: &'a str,
    pub(crate) shard: &'a ShardId,
    pub(crate) batch: &'a Batch,
    pub(crate) result: &'a Result<Processed, ProcessorError>,
}

/// What only one of two versions emitted.
pub(crate) struct Differing<'a> {
    pub(crate) application: &'a str,
    pub(crate) shard: &'a ShardId,
    pub(crate) differences: &'a [Difference],
}

impl Watcher {
    fn wants_from(&self, application: &str, shard: &ShardId) -> bool {
        let wanted = self.wanted.shard.as_ref();
        self.wanted.application == application && wanted.is_none_or(|wanted| wanted == shard)
    }

    fn show(&self, call: &Call<'_>) {
        self.show_records(call);
        match call.result {
            Ok(processed) => {
                self.show_output(call, &processed.emitted);
                self.show_failures(call, &processed.outcome.failures);
            }
            Err(error) => {
                let kind = SampleKind::Failure;
                let message = error.to_string();
                self.show_some(
                    kind,
                    &[message],
                    |_| true,
                    |message| sample(call.shard, kind, "", message.as_bytes()),
                );
            }
        }
    }

    fn show_records(&self, call: &Call<'_>) {
        let is_wanted = |record: &Record| self.is_wanted(&record.partition_key, &record.data);
        self.show_some(
            SampleKind::Record,
            &call.batch.records,
            is_wanted,
            |record| {
                let key = &record.partition_key;
                Sample {
                    position: Some(record.position.clone()),
                    ..sample(call.shard, SampleKind::Record, key, &record.data)
                }
            },
        );
    }

    fn show_output(&self, call: &Call<'_>, emitted: &[Emitted]) {
        let is_wanted = |piece: &Emitted| self.is_wanted(&piece.key, &piece.data);
        self.show_some(SampleKind::Output, emitted, is_wanted, |piece| Sample {
            destination: Some(piece.destination.clone()),
            ..sample(call.shard, SampleKind::Output, &piece.key, &piece.data)
        });
    }

    fn show_failures(&self, call: &Call<'_>, failures: &[RecordFailure]) {
        let record = |failure: &RecordFailure| call.batch.records.get(failure.index as usize);
        let is_wanted = |failure: &RecordFailure| {
            record(failure).is_some_and(|of| self.is_wanted(&of.partition_key, &of.data))
        };
        self.show_some(SampleKind::Failure, failures, is_wanted, |failure| {
            let of = record(failure);
            let key = of.map_or("", |of| of.partition_key.as_str());
            Sample {
                position: of.map(|of| of.position.clone()),
                ..sample(
                    call.shard,
                    SampleKind::Failure,
                    key,
                    failure.message.as_bytes(),
                )
            }
        });
    }

    fn show_differences(&self, differing: &Differing<'_>) {
        for (kind, side) in [
            (SampleKind::OnlyAtWork, Side::AtWork),
            (SampleKind::OnlyShadow, Side::Shadow),
        ] {
            let is_wanted = |one: &Difference| {
                one.side == side && self.is_wanted(&one.output.key, &one.output.data)
            };
            self.show_some(kind, differing.differences, is_wanted, |one| {
                let output = &one.output;
                Sample {
                    destination: Some(output.destination.clone()),
                    ..sample(differing.shard, kind, &output.key, &output.data)
                }
            });
        }
    }

    /// Shows the first of those that are wanted among the first of all; counts the other ones.
    fn show_some<T>(
        &self,
        kind: SampleKind,
        all: &[T],
        is_wanted: impl Fn(&T) -> bool,
        sample_of: impl Fn(&T) -> Sample,
    ) {
        if !self.wanted.kinds.contains(&kind) {
            return;
        }
        let (looked_at, others) = all.split_at(all.len().min(LOOKED_AT_MAX));
        let wanted = looked_at.iter().filter(|one| is_wanted(one));
        for (n, one) in wanted.enumerate() {
            if n < OF_CALL_MAX {
                self.send(sample_of(one));
            } else {
                self.drop_many(1);
            }
        }
        self.drop_many(others.len());
    }

    fn is_wanted(&self, key: &str, data: &[u8]) -> bool {
        let wanted = &self.wanted;
        let has_key = wanted.key.as_deref().is_none_or(|wanted| wanted == key);
        let text = wanted.contains.as_deref().filter(|text| !text.is_empty());
        has_key && text.is_none_or(|text| memchr::memmem::find(data, text.as_bytes()).is_some())
    }

    fn send(&self, sample: Sample) {
        if self.samples.try_send(sample).is_err() {
            self.drop_many(1);
        }
    }

    fn drop_many(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

fn sample(shard: &ShardId, kind: SampleKind, key: &str, data: &[u8]) -> Sample {
    Sample {
        kind,
        shard: shard.clone(),
        position: None,
        destination: None,
        key: key.to_owned(),
        data: data[..data.len().min(SHOWN_BYTES_MAX)].to_vec(),
        bytes: data.len(),
    }
}

impl Watch {
    /// What comes next; waits for it.
    pub async fn next(&mut self) -> Option<Sample> {
        self.samples.recv().await
    }

    /// How many samples were dropped since this was asked last.
    pub fn take_dropped(&self) -> u64 {
        self.watcher.dropped.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tap.remove(&self.watcher);
    }
}

#[cfg(test)]
mod tests;
