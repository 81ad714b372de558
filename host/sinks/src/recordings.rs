//! A recording as lines of JSON: a head, each batch with its records, and an end by which one sees
//! that it is whole. The format is versioned.
//!
//! ```text
//! {"shardmill-recording":1, "application":…, "digest":…, "failure":…}
//! {"batch":{"attempt":1,"millis-behind-latest":0,"records":2}}     the run-up, oldest first
//! {"shardmill-record":1, …}                                        as `shardmill capture` writes it
//! {"shardmill-record":1, …}
//! {"batch":{"attempt":3,"millis-behind-latest":0,"records":1}}     the last one is what failed
//! {"shardmill-record":1, …}
//! {"end":{"batches":2,"checksum":"…"}}
//! ```

mod error;
mod head;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shardmill_core::hash::stable;
use shardmill_core::recording::Recording;
use shardmill_core::stream::{Batch, ShardId, StreamName};

use self::error::damaged;
pub use self::error::{RECORDING_VERSION, RecordingError};
use self::head::Head;
pub use self::head::Summary;
use crate::captured::Captured;

/// Where in a recording something is read.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Batch(BatchLine),
    End(EndLine),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct BatchLine {
    attempt: u32,
    millis_behind_latest: u64,
    records: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct EndLine {
    batches: usize,
    /// Of all bytes before this line. Shows damage, not forgery.
    checksum: String,
}

/// The recording as a whole file.
pub fn encode(recording: &Recording) -> Vec<u8> {
    let mut file = Vec::new();
    add(&mut file, &Head::of(recording));
    for batch in &recording.run_up {
        add_batch(&mut file, batch, recording);
    }
    add_batch(&mut file, &recording.batch, recording);
    let end = EndLine {
        batches: recording.run_up.len() + 1,
        checksum: checksum(&file),
    };
    add(&mut file, &Line::End(end));
    file
}

/// Reads the whole file of a recording.
///
/// # Errors
/// It is something else, of a later version, or damaged.
pub fn decode(file: &[u8]) -> Result<Recording, RecordingError> {
    let (head, rest) = split_line(file);
    let head = Head::read(head)?;
    let end_at = rest
        .trim_ascii_end()
        .iter()
        .rposition(|byte| *byte == b'\n');
    let end_at = end_at.map_or(0, |at| at + 1);
    let (batches, end) = rest.split_at(end_at);
    let Ok(Line::End(end)) = serde_json::from_slice(end) else {
        return Err(damaged("it has no end, so it was cut off"));
    };
    if end.checksum != checksum(&file[..file.len() - (rest.len() - end_at)]) {
        return Err(damaged("its bytes are not those that were written"));
    }
    let mut batches = read_batches(batches, &head)?;
    if batches.len() != end.batches {
        return Err(damaged(
            "it has another number of batches than its end says",
        ));
    }
    let failed = batches.pop();
    head.recording(batches, failed.ok_or_else(|| damaged("it has no batch"))?)
}

/// Reads the first line of a recording: what it is of, without its records.
///
/// # Errors
/// As [`decode`]. What follows that line is not looked at.
pub fn summary(first_line: &[u8]) -> Result<Summary, RecordingError> {
    Head::read(first_line)?.summary()
}

fn add(file: &mut Vec<u8>, line: &impl Serialize) {
    // Writing strings and numbers to a vector cannot fail.
    let line = serde_json::to_vec(line).unwrap_or_default();
    file.extend(line);
    file.push(b'\n');
}

fn add_batch(file: &mut Vec<u8>, batch: &Batch, recording: &Recording) {
    let line = BatchLine {
        attempt: batch.attempt,
        millis_behind_latest: batch.millis_behind_latest,
        records: batch.records.len(),
    };
    add(file, &Line::Batch(line));
    for record in batch.records.iter() {
        let captured = Captured {
            stream: recording.context.stream.clone(),
            shard: recording.context.shard.clone(),
            record: record.clone(),
        };
        file.extend(captured.encode());
        file.push(b'\n');
    }
}

fn read_batches(mut lines: &[u8], head: &Head) -> Result<Vec<Batch>, RecordingError> {
    let of = (head.stream()?, head.shard()?);
    let mut batches = Vec::new();
    while !lines.is_empty() {
        let (line, mut rest) = split_line(lines);
        let Ok(Line::Batch(line)) = serde_json::from_slice(line) else {
            return Err(damaged("a batch should begin where none does"));
        };
        let mut records = Vec::new();
        for _ in 0..line.records {
            let (record, after) = split_line(rest);
            records.push(read_record(record, &of)?);
            rest = after;
        }
        batches.push(Batch {
            records: Arc::new(records),
            attempt: line.attempt,
            millis_behind_latest: line.millis_behind_latest,
            trace: None,
        });
        lines = rest;
    }
    if batches.iter().any(|batch| batch.records.is_empty()) {
        return Err(damaged("a batch has no records"));
    }
    Ok(batches)
}

fn read_record(
    line: &[u8],
    of: &(StreamName, ShardId),
) -> Result<shardmill_core::stream::Record, RecordingError> {
    let captured = Captured::decode(line).map_err(damaged)?;
    if captured.stream != of.0 || captured.shard != of.1 {
        return Err(damaged("a record of another shard is in it"));
    }
    Ok(captured.record)
}

/// The first line, without its end, and what follows.
fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:016x}", stable(bytes.iter().copied()))
}

#[cfg(test)]
mod tests;
