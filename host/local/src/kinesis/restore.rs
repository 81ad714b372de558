//! Brings the emulator back to what the journal holds.

use std::collections::BTreeMap;
use std::path::Path;

use ferrokinesis::error::KinesisErrorResponse;
use ferrokinesis::sequence::parse_sequence;
use ferrokinesis::store::Store;
use ferrokinesis::types::{StoredRecord, Stream, StreamStatus};
use ferrokinesis::util::current_time_ms;

use super::entry::{Entry, SavedRecords, SavedStream};
use super::journal::Journal;
use super::keeper::{Keeper, KeptStream, shard_index};
use crate::error::StartError;

const FILE: &str = "kinesis.journal";
/// A journal this small is never worth rewriting.
const COMPACT_BYTES_MIN: u64 = 4 * 1024 * 1024;
/// Records moved at once, so that a large stream is not held twice.
const CHUNK_RECORDS: usize = 1_000;
/// Sequence numbers left out at a restart. A put that was under way when the process died may have
/// shown its numbers to a reader without being journaled; a put has at most 500 records, and one is
/// under way at a time.
const SKIPPED_SEQUENCES: u64 = 1_000;

/// What the journal holds.
#[derive(Default)]
struct Journaled {
    streams: BTreeMap<String, JournaledStream>,
    /// Bytes of frames that no longer matter, roughly.
    dead_bytes: u64,
}

struct JournaledStream {
    saved: SavedStream,
    /// By the emulator's key.
    records: BTreeMap<String, StoredRecord>,
    /// Bytes of the frames that hold the records.
    record_bytes: u64,
}

/// A stream that goes into a rewritten journal.
struct Survivor {
    saved: SavedStream,
    records: Vec<(String, StoredRecord)>,
}

impl Journaled {
    fn visit(&mut self, entry: Entry, bytes: u64) {
        match entry {
            Entry::Stream(saved) => {
                if let Some(known) = self.streams.get_mut(&saved.name) {
                    self.dead_bytes += bytes;
                    known.saved = saved;
                } else {
                    let name = saved.name.clone();
                    self.streams.insert(name, JournaledStream::new(saved));
                }
            }
            Entry::StreamDeleted(name) => {
                let deleted = self.streams.remove(&name);
                self.dead_bytes += bytes + deleted.map_or(0, |stream| stream.record_bytes);
            }
            Entry::Records(saved) => {
                if let Some(stream) = self.streams.get_mut(&saved.stream) {
                    stream.record_bytes += bytes;
                    stream.records.extend(saved.records);
                }
            }
        }
    }
}

impl JournaledStream {
    fn new(saved: SavedStream) -> Self {
        Self {
            saved,
            records: BTreeMap::new(),
            record_bytes: 0,
        }
    }
}

/// Fills `store` from the journal in `data_dir`; without one nothing is kept.
pub(super) async fn restore(store: &Store, data_dir: Option<&Path>) -> Result<Keeper, StartError> {
    let Some(dir) = data_dir else {
        return Ok(Keeper::new(None, BTreeMap::new()));
    };
    let mut journaled = Journaled::default();
    let mut journal = Journal::open(&dir.join(FILE), |entry, bytes| {
        journaled.visit(entry, bytes);
    })?;
    let mut streams = BTreeMap::new();
    let mut dead_bytes = journaled.dead_bytes;
    let mut survivors = Vec::new();
    for (name, mut journaled) in journaled.streams {
        let usable = usable(&journaled.saved).map_err(|problem| emulator(&name, &problem))?;
        let Some(stream) = usable else {
            continue;
        };
        count_sequences(&mut journaled.saved, journaled.records.keys());
        dead_bytes += drop_expired(&stream, &mut journaled.records);
        put_stream(store, &journaled.saved, stream).await?;
        let survivor = Survivor {
            saved: journaled.saved,
            records: journaled.records.into_iter().collect(),
        };
        survivor.put_records(store).await?;
        streams.insert(name, survivor.kept());
        survivors.push(survivor);
    }
    if journal.len() >= COMPACT_BYTES_MIN && dead_bytes > journal.len() / 2 {
        rewrite(&mut journal, survivors)?;
    }
    Ok(Keeper::new(Some(journal), streams))
}

impl Survivor {
    async fn put_records(&self, store: &Store) -> Result<(), StartError> {
        let name = &self.saved.name;
        for chunk in self.records.chunks(CHUNK_RECORDS) {
            let put = store.put_records_batch(name, chunk).await;
            put.map_err(|error| emulator(name, &message(&error)))?;
        }
        Ok(())
    }

    fn kept(&self) -> KeptStream {
        let mut kept = KeptStream::new(self.saved.clone());
        for (key, _) in &self.records {
            kept.note_key(key);
        }
        kept
    }

    fn into_entries(self) -> impl Iterator<Item = Entry> {
        let stream = self.saved.name.clone();
        let mut records = self.records.into_iter();
        let chunks = std::iter::from_fn(move || {
            let chunk: Vec<_> = records.by_ref().take(CHUNK_RECORDS).collect();
            if chunk.is_empty() {
                return None;
            }
            Some(Entry::Records(SavedRecords {
                stream: stream.clone(),
                records: chunk,
            }))
        });
        std::iter::once(Entry::Stream(self.saved)).chain(chunks)
    }
}

fn rewrite(journal: &mut Journal, survivors: Vec<Survivor>) -> Result<(), StartError> {
    let before = journal.len();
    let entries = survivors.into_iter().flat_map(Survivor::into_entries);
    journal
        .rewrite(entries)
        .map_err(StartError::io("rewrite the journal"))?;
    tracing::info!(
        before,
        after = journal.len(),
        "rewrote the embedded kinesis' journal"
    );
    Ok(())
}

/// The stream in a state that it can stay in. `None` if it was being created, which was never
/// answered, or being deleted, which was.
fn usable(saved: &SavedStream) -> Result<Option<Stream>, String> {
    let mut stream = saved.stream().map_err(|error| error.to_string())?;
    match stream.stream_status {
        StreamStatus::Creating | StreamStatus::Deleting => return Ok(None),
        StreamStatus::Updating => stream.stream_status = StreamStatus::Active,
        StreamStatus::Active => {}
    }
    Ok(Some(stream))
}

/// Raises each shard's counter above every sequence number it gave out.
fn count_sequences<'a>(saved: &mut SavedStream, keys: impl Iterator<Item = &'a String>) {
    for key in keys {
        let sequence = key
            .split('/')
            .nth(1)
            .and_then(|text| parse_sequence(text).ok());
        let given_out = sequence.and_then(|sequence| sequence.seq_ix).unwrap_or(0);
        if let Some(counter) = shard_index(key).and_then(|index| saved.counters.get_mut(index)) {
            *counter = (*counter).max(given_out.saturating_add(1));
        }
    }
}

async fn put_stream(store: &Store, saved: &SavedStream, stream: Stream) -> Result<(), StartError> {
    let name = &saved.name;
    let counters = open_counters(saved, &stream)?;
    let put = store.put_stream(name, stream).await;
    put.map_err(|error| emulator(name, &message(&error)))?;
    let consumers = saved.consumers();
    for consumer in consumers.map_err(|error| emulator(name, &error.to_string()))? {
        let arn = consumer.consumer_arn.clone();
        let put = store.put_consumer(&arn, consumer).await;
        put.map_err(|error| emulator(name, &message(&error)))?;
    }
    for counter in counters {
        let used_up = counter.use_up(store, name).await;
        used_up.map_err(|error| emulator(name, &message(&error)))?;
    }
    Ok(())
}

/// The counter of sequence numbers of an open shard.
struct OpenCounter {
    /// A hash key of the shard.
    hash_key: u128,
    /// How many numbers the shard must not give out again.
    used: u64,
}

/// A closed shard gives out no more numbers.
fn open_counters(saved: &SavedStream, stream: &Stream) -> Result<Vec<OpenCounter>, StartError> {
    let mut counters = Vec::new();
    for (shard, counter) in stream.shards.iter().zip(&saved.counters) {
        if shard.sequence_number_range.ending_sequence_number.is_some() {
            continue;
        }
        let Ok(hash_key) = shard.hash_key_range.starting_hash_key.parse() else {
            let problem = format!("shard {} has an unreadable hash key", shard.shard_id);
            return Err(emulator(&saved.name, &problem));
        };
        counters.push(OpenCounter {
            hash_key,
            used: counter.saturating_add(SKIPPED_SEQUENCES),
        });
    }
    Ok(counters)
}

impl OpenCounter {
    /// The counters are private: the only way to raise one is to use its numbers up.
    async fn use_up(&self, store: &Store, stream: &str) -> Result<(), KinesisErrorResponse> {
        let mut left = self.used;
        while left > 0 {
            let chunk = left.min(CHUNK_RECORDS as u64);
            let keys = vec![self.hash_key; usize::try_from(chunk).unwrap_or(CHUNK_RECORDS)];
            store.allocate_sequences_batch(stream, &keys).await?;
            left -= chunk;
        }
        Ok(())
    }
}

fn drop_expired(stream: &Stream, records: &mut BTreeMap<String, StoredRecord>) -> u64 {
    let retention_s = u64::from(stream.retention_period_hours) * 3_600;
    let oldest_kept = (current_time_ms() / 1_000).saturating_sub(retention_s) as f64;
    let mut dropped = 0;
    records.retain(|key, record| {
        let is_kept = record.approximate_arrival_timestamp >= oldest_kept;
        if !is_kept {
            dropped += (key.len() + record.partition_key.len() + record.data.len()) as u64;
        }
        is_kept
    });
    dropped
}

fn emulator(stream: &str, problem: &str) -> StartError {
    StartError::Emulator {
        service: "kinesis",
        problem: format!("stream {stream}: {problem}"),
    }
}

fn message(error: &KinesisErrorResponse) -> String {
    format!(
        "{}: {}",
        error.body.error_type,
        error.body.message.as_deref().unwrap_or_default()
    )
}
