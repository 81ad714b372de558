//! The records of a dry run.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use shardmill_aws::PutEntry;
use shardmill_core::ports::StreamReader;
use shardmill_core::stream::StreamName;

use super::captured::CapturedStream;
use crate::author::feed::{Feed, FeedError, FeedLine, KeySource};

/// The stream that records are put into.
const STREAM: &str = "test";
/// Records that a dry run takes at most, and their bytes: all of them are held in memory.
const RECORDS_MAX: usize = 10_000_000;
const BYTES_MAX: usize = 1 << 30;

/// What a dry run delivers.
#[derive(Debug)]
pub(crate) enum DryRunInput {
    /// Records that are put into the embedded stream, in this order.
    Put(Vec<PutEntry>),
    /// Records that keep the shard and sequence number under which they were captured.
    Captured(Arc<CapturedStream>),
}

/// The input is too much for a dry run, or not readable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// A line, or the file.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// More than fits.
    #[error("a test takes at most {RECORDS_MAX} records and {} MiB: use part of the input, or \
        `shardmill dev --feed`", BYTES_MAX >> 20)]
    TooMuch,
}

impl DryRunInput {
    /// The number of records.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Put(entries) => entries.len(),
            Self::Captured(stream) => stream.count(),
        }
    }

    /// The stream that the records are in.
    pub(super) fn stream(&self) -> anyhow::Result<StreamName> {
        match self {
            Self::Put(_) => Ok(StreamName::new(STREAM)?),
            Self::Captured(stream) => Ok(stream.name().clone()),
        }
    }

    /// What the host reads from instead of Kinesis; `None` if it reads from Kinesis.
    pub(super) fn reader(&self) -> Option<Arc<dyn StreamReader>> {
        match self {
            Self::Put(_) => None,
            Self::Captured(stream) => Some(Arc::clone(stream) as Arc<dyn StreamReader>),
        }
    }
}

/// Reads the lines of `path` as records, and adds a broken record after every `spoil_every` lines.
/// Blocks, so call it on the blocking pool.
pub(crate) fn read_entries(
    path: &Path,
    key: KeySource,
    spoil_every: Option<u64>,
) -> Result<Vec<PutEntry>, InputError> {
    let mut feed = Feed::open(path, key)?;
    let mut entries = Vec::new();
    let (mut bytes, mut lines) = (0, 0);
    while let Some(line) = feed.next_line()? {
        lines += 1;
        bytes += line.data.len() + line.partition_key.len();
        if entries.len() >= RECORDS_MAX || bytes > BYTES_MAX {
            return Err(InputError::TooMuch);
        }
        let spoil = spoil_every.filter(|every| lines % every == 0);
        let broken = spoil.map(|every| FeedLine {
            data: spoiled(lines / every, &line.data),
            partition_key: line.partition_key.clone(),
        });
        entries.push(entry(line));
        entries.extend(broken.map(entry));
    }
    Ok(entries)
}

fn entry(line: FeedLine) -> PutEntry {
    PutEntry {
        partition_key: line.partition_key,
        explicit_hash_key: None,
        data: Bytes::from(line.data),
    }
}

/// The `n`th broken record, after `line`: empty, not UTF-8, or half of the line, in turn.
fn spoiled(n: u64, line: &[u8]) -> Vec<u8> {
    match n % 3 {
        1 => Vec::new(),
        2 => vec![0xff, 0x00, 0xfe],
        _ => line[..line.len() / 2].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_spoiled_input_has_every_line_and_in_turn_what_no_producer_meant() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"aaaa\nbbbb\ncccc\ndddd\n").unwrap();
        let data = |spoil| -> Vec<Vec<u8>> {
            read_entries(file.path(), KeySource::LineNumber, spoil)
                .unwrap()
                .iter()
                .map(|entry| entry.data.to_vec())
                .collect()
        };
        let lines: [&[u8]; 4] = [b"aaaa", b"bbbb", b"cccc", b"dddd"];
        assert_eq!(data(None), lines);
        let spoiled: [&[u8]; 7] = [
            b"aaaa",
            b"",
            b"bbbb",
            b"\xff\0\xfe",
            b"cccc",
            b"cc",
            b"dddd",
        ];
        assert_eq!(data(Some(1))[..7], spoiled);
        assert_eq!(data(Some(2)).len(), 6);
    }
}
