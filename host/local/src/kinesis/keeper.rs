//! Knows what the journal holds already, and adds what is new.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use ferrokinesis::sequence::shard_ix_to_hex;
use ferrokinesis::store::Store;
use ferrokinesis::types::{ConsumerStatus, StreamStatus};

use super::entry::{Entry, SavedRecords, SavedStream};
use super::journal::Journal;

/// The emulator changes streams in the background a few milliseconds after it answered.
const SETTLE_POLL: Duration = Duration::from_millis(1);
/// Far above the delays that the emulator is given; a stream that is still changing is then saved as it stands.
const SETTLE_POLLS_MAX: usize = 2_000;

/// Whoever changes the emulator's state holds this exclusively; whoever reads records shares it. So a reader sees only
/// what the journal holds, and records of a shard appear in order.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) journal: Option<Journal>,
    pub(super) streams: BTreeMap<String, KeptStream>,
}

/// What the journal holds of one stream.
#[derive(Debug)]
pub(super) struct KeptStream {
    pub(super) saved: SavedStream,
    /// The last journaled key of each shard.
    pub(super) last_keys: Vec<Option<String>>,
}

impl KeptStream {
    pub(super) fn new(saved: SavedStream) -> Self {
        let last_keys = vec![None; saved.counters.len()];
        Self { saved, last_keys }
    }
}

impl Keeper {
    /// Appends the records that the journal lacks. Complete, because puts are exclusive and keys only rise.
    pub(super) async fn keep_records(&mut self, store: &Store) -> io::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        for kept in self.streams.values_mut() {
            let mut fresh = Vec::new();
            for (index, last) in kept.last_keys.iter().enumerate() {
                let (first, end) = shard_keys(index);
                let from = last.as_ref().map_or(first, |last| format!("{last}\0"));
                fresh.append(&mut store.get_records_range_limited(&kept.saved.name, &from, &end, usize::MAX).await);
            }
            if fresh.is_empty() {
                continue;
            }
            let entry = Entry::Records(SavedRecords { stream: kept.saved.name.clone(), records: fresh });
            journal.append(std::slice::from_ref(&entry))?;
            if let Entry::Records(saved) = entry {
                for (key, _) in saved.records {
                    if let Some(last) = shard_index(&key).and_then(|index| kept.last_keys.get_mut(index)) {
                        *last = Some(key);
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits until no stream is changing, then appends every stream that is not as the journal has it.
    pub(super) async fn keep_streams(&mut self, store: &Store) -> io::Result<()> {
        settle(store).await;
        let names = store.list_stream_names().await;
        let mut entries = Vec::new();
        self.streams.retain(|name, _| {
            let is_there = names.contains(name);
            if !is_there {
                entries.push(Entry::StreamDeleted(name.clone()));
            }
            is_there
        });
        for name in names {
            let Some(saved) = SavedStream::capture(store, &name).await else { continue };
            match self.streams.get_mut(&name) {
                Some(kept) if kept.saved.is_same_but_for_counters(&saved) => {}
                Some(kept) => {
                    kept.last_keys.resize(saved.counters.len(), None);
                    entries.push(Entry::Stream(saved.clone()));
                    kept.saved = saved;
                }
                None => {
                    entries.push(Entry::Stream(saved.clone()));
                    self.streams.insert(name, KeptStream::new(saved));
                }
            }
        }
        match &mut self.journal {
            Some(journal) if !entries.is_empty() => journal.append(&entries),
            Some(_) | None => Ok(()),
        }
    }
}

/// The lowest key of a shard and the lowest of the next one.
pub(super) fn shard_keys(index: usize) -> (String, String) {
    let index = i64::try_from(index).unwrap_or(i64::MAX);
    (format!("{}/", shard_ix_to_hex(index)), shard_ix_to_hex(index.saturating_add(1)))
}

pub(super) fn shard_index(key: &str) -> Option<usize> {
    usize::from_str_radix(key.split('/').next()?, 16).ok()
}

async fn settle(store: &Store) {
    for _ in 0..SETTLE_POLLS_MAX {
        if !is_changing(store).await {
            return;
        }
        tokio::time::sleep(SETTLE_POLL).await;
    }
    tracing::warn!("an embedded stream is still changing after {SETTLE_POLLS_MAX} polls");
}

async fn is_changing(store: &Store) -> bool {
    for name in store.list_stream_names().await {
        let Ok(stream) = store.get_stream(&name).await else { continue };
        let consumers = store.list_consumers_for_stream(&stream.stream_arn).await;
        if stream.stream_status != StreamStatus::Active
            || consumers.iter().any(|consumer| consumer.consumer_status != ConsumerStatus::Active)
        {
            return true;
        }
    }
    false
}
