//! Bringing the emulator back to what the journal holds.

use std::collections::BTreeMap;
use std::path::Path;

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

#[derive(Default)]
struct Journaled {
    streams: BTreeMap<String, (SavedStream, BTreeMap<String, StoredRecord>)>,
    /// Bytes of frames that no longer matter, roughly.
    dead_bytes: u64,
    record_bytes: BTreeMap<String, u64>,
}

impl Journaled {
    fn visit(&mut self, entry: Entry, bytes: u64) {
        match entry {
            Entry::Stream(saved) => match self.streams.get_mut(&saved.name) {
                Some((known, _)) => {
                    self.dead_bytes += bytes;
                    *known = saved;
                }
                None => {
                    self.streams
                        .insert(saved.name.clone(), (saved, BTreeMap::new()));
                }
            },
            Entry::StreamDeleted(name) => {
                self.streams.remove(&name);
                self.dead_bytes += bytes + self.record_bytes.remove(&name).unwrap_or(0);
            }
            Entry::Records(saved) => {
                let Some((_, records)) = self.streams.get_mut(&saved.stream) else {
                    return;
                };
                *self.record_bytes.entry(saved.stream).or_default() += bytes;
                records.extend(saved.records);
            }
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
    let mut records_left = Vec::new();
    for (name, (mut saved, mut records)) in journaled.streams {
        let Some(stream) = usable(&saved).map_err(|problem| emulator(&name, &problem))? else {
            continue;
        };
        count_sequences(&mut saved, records.keys());
        dead_bytes += drop_expired(&stream, &mut records);
        put_stream(store, &saved, stream).await?;
        let mut kept = KeptStream::new(saved);
        for key in records.keys() {
            note_key(&mut kept, key);
        }
        let records: Vec<_> = records.into_iter().collect();
        for chunk in records.chunks(CHUNK_RECORDS) {
            store
                .put_records_batch(&name, chunk)
                .await
                .map_err(|error| emulator(&name, &message(&error)))?;
        }
        records_left.push((kept.saved.clone(), records));
        streams.insert(name, kept);
    }
    if journal.len() >= COMPACT_BYTES_MIN && dead_bytes > journal.len() / 2 {
        let before = journal.len();
        let rewritten = journal.rewrite(
            records_left
                .into_iter()
                .flat_map(|(saved, records)| entries(saved, records)),
        );
        rewritten.map_err(StartError::io("rewrite the journal"))?;
        tracing::info!(
            before,
            after = journal.len(),
            "rewrote the embedded kinesis' journal"
        );
    }
    Ok(Keeper::new(Some(journal), streams))
}

/// The stream in a state it can stay in: what was being made was never answered for, what was being
/// deleted was.
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
    let failed = |problem: String| emulator(name, &problem);
    let mut first_hash_keys = Vec::new();
    for (shard, counter) in stream.shards.iter().zip(&saved.counters) {
        // A closed shard gives out no more.
        if shard.sequence_number_range.ending_sequence_number.is_none() {
            let hash_key: u128 = shard
                .hash_key_range
                .starting_hash_key
                .parse()
                .map_err(|_| {
                    failed(format!(
                        "shard {} has an unreadable hash key",
                        shard.shard_id
                    ))
                })?;
            first_hash_keys.push((hash_key, counter.saturating_add(SKIPPED_SEQUENCES)));
        }
    }
    store
        .put_stream(name, stream)
        .await
        .map_err(|error| failed(message(&error)))?;
    for consumer in saved
        .consumers()
        .map_err(|error| failed(error.to_string()))?
    {
        let arn = consumer.consumer_arn.clone();
        store
            .put_consumer(&arn, consumer)
            .await
            .map_err(|error| failed(message(&error)))?;
    }
    // The counters are private: the only way to raise one is to use its numbers up.
    for (hash_key, mut to_use_up) in first_hash_keys {
        while to_use_up > 0 {
            let chunk = to_use_up.min(CHUNK_RECORDS as u64);
            let keys = vec![hash_key; usize::try_from(chunk).unwrap_or(CHUNK_RECORDS)];
            store
                .allocate_sequences_batch(name, &keys)
                .await
                .map_err(|error| failed(message(&error)))?;
            to_use_up -= chunk;
        }
    }
    Ok(())
}

fn note_key(kept: &mut KeptStream, key: &str) {
    if let Some(last) = shard_index(key).and_then(|index| kept.last_keys.get_mut(index)) {
        *last = Some(key.to_owned());
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

fn entries(
    saved: SavedStream,
    records: Vec<(String, StoredRecord)>,
) -> impl Iterator<Item = Entry> {
    let stream = saved.name.clone();
    let mut records = records.into_iter();
    let chunks = std::iter::from_fn(move || {
        let chunk: Vec<_> = records.by_ref().take(CHUNK_RECORDS).collect();
        (!chunk.is_empty()).then(|| {
            Entry::Records(SavedRecords {
                stream: stream.clone(),
                records: chunk,
            })
        })
    });
    std::iter::once(Entry::Stream(saved)).chain(chunks)
}

fn emulator(stream: &str, problem: &str) -> StartError {
    StartError::Emulator {
        service: "kinesis",
        problem: format!("stream {stream}: {problem}"),
    }
}

fn message(error: &ferrokinesis::error::KinesisErrorResponse) -> String {
    format!(
        "{}: {}",
        error.body.error_type,
        error.body.message.as_deref().unwrap_or_default()
    )
}
