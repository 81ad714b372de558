//! Knows what the journal already holds, and adds what is new.

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
/// Far above the delays that the emulator is given; a stream that is still changing is then saved
/// as it is.
const SETTLE_POLLS_MAX: usize = 2_000;

/// A request that changes the emulator's state holds this exclusively; requests that read records
/// share it. So a reader sees only what the journal holds, and records of a shard appear in order.
#[derive(Debug)]
pub(super) struct Keeper {
    journal: Option<Journal>,
    streams: BTreeMap<String, KeptStream>,
    /// Whether the emulator may have changed since the journal was last written. Set before every
    /// change, so that the next request catches up if this one's client goes away or its journal
    /// write fails.
    is_behind: bool,
    /// Whether no more changes are accepted. A connection that outlives the stack must not write to
    /// a journal that another process may hold by now.
    is_closed: bool,
}

/// What the journal holds of one stream.
#[derive(Debug)]
pub(super) struct KeptStream {
    saved: SavedStream,
    /// The last journaled key of each shard.
    last_keys: Vec<Option<String>>,
}

impl KeptStream {
    pub(super) fn new(saved: SavedStream) -> Self {
        let last_keys = vec![None; saved.counters.len()];
        Self { saved, last_keys }
    }

    /// Notes that the journal holds the record under `key`, and all before it.
    pub(super) fn note_key(&mut self, key: &str) {
        if let Some(last) = shard_index(key).and_then(|index| self.last_keys.get_mut(index)) {
            *last = Some(key.to_owned());
        }
    }

    /// The records that the journal lacks. Complete, because puts are exclusive and keys only rise.
    async fn new_records(&self, store: &Store) -> SavedRecords {
        let stream = self.saved.name.clone();
        let mut records = Vec::new();
        for (index, last) in self.last_keys.iter().enumerate() {
            let (first, end) = shard_keys(index);
            let from = last.as_ref().map_or(first, |last| format!("{last}\0"));
            let found = store.get_records_range_limited(&stream, &from, &end, usize::MAX);
            records.append(&mut found.await);
        }
        SavedRecords { stream, records }
    }
}

impl Keeper {
    pub(super) fn new(journal: Option<Journal>, streams: BTreeMap<String, KeptStream>) -> Self {
        Self {
            journal,
            streams,
            is_behind: false,
            is_closed: false,
        }
    }

    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// To be called before the emulator is asked to change anything.
    pub(super) async fn expect_change(&mut self, store: &Store) -> io::Result<()> {
        if self.is_closed {
            return Err(io::Error::other("the embedded stack has stopped"));
        }
        self.catch_up(store).await?;
        self.is_behind = true;
        Ok(())
    }

    /// To be called once the change is kept.
    pub(super) fn change_is_kept(&mut self) {
        self.is_behind = false;
    }

    /// Makes sure that everything is on disk, and accepts no more changes.
    pub(super) async fn close(&mut self, store: &Store) -> io::Result<()> {
        self.is_closed = true;
        self.catch_up(store).await?;
        self.journal.as_ref().map_or(Ok(()), Journal::sync)
    }

    /// Keeps what an earlier request did not.
    pub(super) async fn catch_up(&mut self, store: &Store) -> io::Result<()> {
        if self.is_behind {
            self.keep_streams(store).await?;
            self.keep_records(store).await?;
            self.is_behind = false;
        }
        Ok(())
    }

    /// Appends the records that the journal lacks.
    pub(super) async fn keep_records(&mut self, store: &Store) -> io::Result<()> {
        if self.journal.is_none() {
            return Ok(());
        }
        let mut entries = Vec::new();
        for kept in self.streams.values() {
            let new = kept.new_records(store).await;
            if !new.records.is_empty() {
                entries.push(Entry::Records(new));
            }
        }
        self.append(entries)
    }

    fn append(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        if let Some(journal) = &mut self.journal
            && !entries.is_empty()
        {
            journal.append(&entries)?;
        }
        for entry in entries {
            self.note(entry);
        }
        Ok(())
    }

    /// Waits until no stream is changing, then appends every stream that differs from what the
    /// journal holds.
    pub(super) async fn keep_streams(&mut self, store: &Store) -> io::Result<()> {
        settle(store).await;
        let names = store.list_stream_names().await;
        let gone = self.streams.keys().filter(|name| !names.contains(name));
        let mut entries: Vec<Entry> = gone.cloned().map(Entry::StreamDeleted).collect();
        for name in &names {
            let Some(saved) = SavedStream::capture(store, name).await else {
                continue;
            };
            let known = self.streams.get(name);
            if !known.is_some_and(|kept| kept.saved.is_same_but_for_counters(&saved)) {
                entries.push(Entry::Stream(saved));
            }
        }
        self.append(entries)
    }

    /// Notes that the journal now holds `entry`.
    fn note(&mut self, entry: Entry) {
        match entry {
            Entry::StreamDeleted(name) => drop(self.streams.remove(&name)),
            Entry::Stream(saved) => {
                if let Some(kept) = self.streams.get_mut(&saved.name) {
                    kept.last_keys.resize(saved.counters.len(), None);
                    kept.saved = saved;
                } else {
                    let name = saved.name.clone();
                    self.streams.insert(name, KeptStream::new(saved));
                }
            }
            Entry::Records(saved) => {
                if let Some(kept) = self.streams.get_mut(&saved.stream) {
                    for (key, _) in &saved.records {
                        kept.note_key(key);
                    }
                }
            }
        }
    }
}

/// The lowest key of a shard and the lowest of the next one.
pub(super) fn shard_keys(index: usize) -> (String, String) {
    let index = i64::try_from(index).unwrap_or(i64::MAX);
    (
        format!("{}/", shard_ix_to_hex(index)),
        shard_ix_to_hex(index.saturating_add(1)),
    )
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
    tracing::warn!(
        code = "local-stream-changing",
        "an embedded stream is still changing after {SETTLE_POLLS_MAX} polls"
    );
}

async fn is_changing(store: &Store) -> bool {
    for name in store.list_stream_names().await {
        let Ok(stream) = store.get_stream(&name).await else {
            continue;
        };
        let consumers = store.list_consumers_for_stream(&stream.stream_arn).await;
        if stream.stream_status != StreamStatus::Active
            || consumers
                .iter()
                .any(|consumer| consumer.consumer_status != ConsumerStatus::Active)
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use ferrokinesis::actions::{Operation, dispatch};
    use ferrokinesis::store::StoreOptions;
    use serde_json::{Value, json};

    use super::super::restore::restore;
    use super::*;

    fn store() -> Store {
        let quick = StoreOptions {
            create_stream_ms: 1,
            update_stream_ms: 1,
            ..StoreOptions::default()
        };
        Store::new(quick)
    }

    async fn send(store: &Store, operation: Operation, request: Value) {
        dispatch(store, operation, request).await.unwrap();
    }

    async fn shards_and_records(dir: &std::path::Path) -> (usize, usize) {
        let store = store();
        restore(&store, Some(dir)).await.unwrap();
        let shards = store
            .get_stream("s")
            .await
            .map_or(0, |stream| stream.shards.len());
        (shards, store.get_record_store("s").await.len())
    }

    #[tokio::test]
    async fn what_a_request_cut_off_half_way_changed_is_kept_by_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = store();
        let mut keeper = restore(&store, Some(dir.path())).await.unwrap();
        // The client of each goes away before the journal is written.
        keeper.expect_change(&store).await.unwrap();
        send(
            &store,
            Operation::CreateStream,
            json!({"StreamName": "s", "ShardCount": 1}),
        )
        .await;
        keeper.expect_change(&store).await.unwrap();
        assert_eq!(shards_and_records(dir.path()).await, (1, 0));

        let split = json!({
            "StreamName": "s", "ShardToSplit": "shardId-000000000000", "NewStartingHashKey": "1000",
        });
        send(&store, Operation::SplitShard, split).await;
        keeper.expect_change(&store).await.unwrap();
        send(
            &store,
            Operation::PutRecord,
            json!({"StreamName": "s", "PartitionKey": "k", "Data": "YQ=="}),
        )
        .await;
        assert!(keeper.is_behind());
        keeper.catch_up(&store).await.unwrap();
        assert_eq!(shards_and_records(dir.path()).await, (3, 1));
    }

    #[tokio::test]
    async fn a_closed_keeper_takes_no_more_changes() {
        let dir = tempfile::tempdir().unwrap();
        let store = store();
        let mut keeper = restore(&store, Some(dir.path())).await.unwrap();
        keeper.close(&store).await.unwrap();
        assert!(keeper.expect_change(&store).await.is_err());
    }
}
