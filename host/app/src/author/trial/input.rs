//! The records of a trial.

use std::path::Path;

use bytes::Bytes;
use shardmill_aws::PutEntry;

use crate::author::feed::{Feed, FeedError, FeedLine, KeySource};

/// Records that a trial takes at most, and their bytes: all of them are held in memory.
const RECORDS_MAX: usize = 10_000_000;
const BYTES_MAX: usize = 1 << 30;

/// Records, in the order in which they are put.
#[derive(Debug, Default)]
pub(crate) struct TrialInput {
    /// The records.
    pub(crate) entries: Vec<PutEntry>,
}

/// The input is too much for a trial, or not readable.
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

impl TrialInput {
    /// Reads `path`, and puts a record that no producer meant after each `spoil_every` lines.
    /// Blocks, so call it on the blocking pool.
    pub(crate) fn read(
        path: &Path,
        key: KeySource,
        spoil_every: Option<u64>,
    ) -> Result<Self, InputError> {
        let mut feed = Feed::open(path, key)?;
        let (mut input, mut bytes, mut lines) = (Self::default(), 0, 0);
        while let Some(FeedLine {
            data,
            partition_key,
        }) = feed.next_line()?
        {
            lines += 1;
            bytes += data.len() + partition_key.len();
            if input.entries.len() >= RECORDS_MAX || bytes > BYTES_MAX {
                return Err(InputError::TooMuch);
            }
            let spoil = spoil_every.filter(|every| lines % every == 0);
            let extra =
                spoil.map(|every| entry(spoiled(lines / every, &data), partition_key.clone()));
            let entry = entry(data, partition_key);
            input.entries.push(entry);
            input.entries.extend(extra);
        }
        Ok(input)
    }
}

fn entry(data: Vec<u8>, partition_key: String) -> PutEntry {
    PutEntry {
        partition_key,
        explicit_hash_key: None,
        data: Bytes::from(data),
    }
}

/// The `n`th record that no producer meant, after `line`: empty, no UTF-8, or the line cut in half,
/// in turn.
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
            let input = TrialInput::read(file.path(), KeySource::LineNumber, spoil).unwrap();
            input
                .entries
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
