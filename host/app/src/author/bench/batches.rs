//! What is delivered in a benchmark: lines of a file, or made-up records.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use shardmill_core::stream::{Batch, Position, Record, SequenceNumber};
use shardmill_worker::BatchLimits;

use crate::author::feed::{Feed, FeedError, FeedLine, KeySource};

/// The most input that is held, in bytes and records. It is delivered over and over, so a part
/// shows as much as the whole.
const BYTES_MAX: usize = 256 << 20;
const RECORDS_MAX: usize = 1_000_000;
/// Bytes of a made-up record, about the size that Kinesis bills as one twenty-fifth of a payload
/// unit.
const MADE_UP_BYTES: usize = 1 << 10;
/// Made-up records: some batches of the default size, more than fit in a processor's caches of the
/// first two levels.
const MADE_UP_RECORDS: usize = 4_096;

/// Lines of a file with their keys.
#[derive(Debug, Default)]
pub(crate) struct BenchInput {
    /// The lines, none of them blank; one at least.
    pub(crate) lines: Vec<FeedLine>,
}

/// An input that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchInputError {
    /// A line, or the file.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// More than is held.
    #[error(
        "a benchmark takes at most {RECORDS_MAX} records and {} MiB: use part of the input",
        BYTES_MAX >> 20
    )]
    TooMuch,
    /// Nothing to deliver.
    #[error("{0} has no lines")]
    Empty(String),
}

impl BenchInput {
    /// Reads all of `path`. Blocks, so call it on the blocking pool.
    pub(crate) fn read(path: &Path, key: KeySource) -> Result<Self, BenchInputError> {
        let mut feed = Feed::open(path, key)?;
        let (mut input, mut bytes) = (Self::default(), 0);
        while let Some(line) = feed.next_line()? {
            bytes += line.data.len() + line.partition_key.len();
            if input.lines.len() >= RECORDS_MAX || bytes > BYTES_MAX {
                return Err(BenchInputError::TooMuch);
            }
            input.lines.push(line);
        }
        if input.lines.is_empty() {
            Err(BenchInputError::Empty(path.display().to_string()))
        } else {
            Ok(input)
        }
    }

    /// Records of 1 KiB of JSON with rising numbers.
    pub(crate) fn made_up() -> Self {
        Self {
            lines: (0..MADE_UP_RECORDS).map(made_up_line).collect(),
        }
    }
}

fn made_up_line(n: usize) -> FeedLine {
    let head = format!("{{\"n\":{n},\"text\":\"");
    let text = "x".repeat(MADE_UP_BYTES - head.len() - 2);
    FeedLine {
        data: format!("{head}{text}\"}}").into_bytes(),
        partition_key: format!("key-{n}"),
    }
}

/// Cuts records into batches by count and bytes, as a host does; at least one. All of a batch's
/// records come with it, so it costs nothing to deliver it again.
pub(crate) fn batches(input: BenchInput, limits: &BatchLimits) -> Vec<Batch> {
    let (mut batches, mut records, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (n, line) in input.lines.into_iter().enumerate() {
        let size = line.data.len();
        let is_full = records.len() >= limits.records || bytes + size > limits.bytes;
        if is_full && !records.is_empty() {
            batches.push(batch(std::mem::take(&mut records)));
            bytes = 0;
        }
        bytes += size;
        records.push(record(n, line));
    }
    batches.push(batch(records));
    batches
}

fn batch(records: Vec<Record>) -> Batch {
    Batch {
        records: Arc::new(records),
        attempt: 1,
        millis_behind_latest: 0,
        trace: None,
    }
}

fn record(n: usize, line: FeedLine) -> Record {
    // As long as a real one: 56 digits.
    let sequence = SequenceNumber::parse(&format!(
        "496408714230561043218975610483298573829573{n:014}"
    ));
    Record {
        data: Bytes::from(line.data),
        partition_key: line.partition_key,
        explicit_hash_key: None,
        position: Position::plain(
            sequence.unwrap_or_else(|_| unreachable!("digits, and not too many")),
        ),
        // 2020-01-01, and a millisecond on with each.
        arrival_ms: 1_577_836_800_000 + n as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(records: usize, bytes: usize) -> BatchLimits {
        BatchLimits {
            records,
            bytes,
            ..BatchLimits::default()
        }
    }

    #[test]
    fn made_up_records_have_a_kibibyte_each_and_are_json() {
        let input = BenchInput::made_up();
        for line in [&input.lines[0], &input.lines[MADE_UP_RECORDS - 1]] {
            assert_eq!(line.data.len(), 1_024);
            assert!(serde_json::from_slice::<serde_json::Value>(&line.data).unwrap()["n"].is_u64());
        }
    }

    #[test]
    fn batches_hold_all_records_in_order_within_both_limits() {
        let cut = batches(BenchInput::made_up(), &limits(100, 50 << 10));
        assert!(
            cut.iter()
                .all(|batch| batch.records.len() <= 50 && !batch.records.is_empty())
        );
        let positions: Vec<_> = cut
            .iter()
            .flat_map(|batch| batch.records.iter().map(|record| &record.position))
            .collect();
        assert_eq!(positions.len(), MADE_UP_RECORDS);
        assert!(positions.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_record_larger_than_a_batch_may_be_is_a_batch_of_its_own() {
        let cut = batches(BenchInput::made_up(), &limits(100, 10));
        assert_eq!(cut.len(), MADE_UP_RECORDS);
    }
}
