//! Reads files of captured records, which `shardmill capture` writes and `shardmill test --captured`
//! delivers; dead letters are read too.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use shardmill_sinks::Captured;
use shardmill_sinks::letters::{Fragment, InputError, Item, LetterInput, input_name, open_input};

/// Longest line: 10 MiB of data (AWS limit) in base64, and room for the rest.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of records that are held in all: a test takes a sample.
const BYTES_MAX: usize = 1 << 30;
/// Bytes that each record takes in addition to its data and keys: its position, and its
/// allocations.
const RECORD_OVERHEAD_BYTES: usize = 256;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is not what it should be.
    #[error("{place}: {problem}; a line is what `shardmill capture` or a failure policy writes")]
    BadLine {
        /// File and line, counted from 1.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// More than is held.
    #[error("a test takes at most {} MiB of records, counting about 400 bytes for each in \
        addition to its data: use part of the input", BYTES_MAX >> 20)]
    TooMuch,
}

/// Records that are held in memory, up to a bound.
#[derive(Default)]
struct Held {
    records: Vec<Captured>,
    bytes: usize,
}

impl Held {
    fn add(&mut self, record: Captured) -> Result<(), CaptureError> {
        self.bytes += held_bytes(&record);
        if self.bytes > BYTES_MAX {
            return Err(CaptureError::TooMuch);
        }
        self.records.push(record);
        Ok(())
    }
}

fn held_bytes(captured: &Captured) -> usize {
    let names = captured.stream.as_str().len() + captured.shard.as_str().len();
    captured.record.cost_bytes() + names + RECORD_OVERHEAD_BYTES
}

/// Reads a file, plain or gzip: captured records, or dead letters, if its first line is one.
/// Blocks, so call it on the blocking pool.
pub(crate) fn read(path: &Path) -> Result<Vec<Captured>, CaptureError> {
    let failed = |source| CaptureError::Read {
        path: path.to_owned(),
        source,
    };
    let mut input = open_input(path).map_err(failed)?;
    let mut held = Held::default();
    let mut number = 0_u64;
    loop {
        let mut line = Vec::new();
        let mut bounded = input.by_ref().take(LINE_BYTES_MAX);
        if bounded.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(held.records);
        }
        number += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match Captured::decode(&line) {
            Ok(record) => held.add(record)?,
            Err(_) if held.records.is_empty() && Fragment::decode(&line).is_ok() => {
                return read_letters(path);
            }
            Err(problem) => {
                let place = format!("{}, line {number}", input_name(path));
                return Err(CaptureError::BadLine { place, problem });
            }
        }
    }
}

fn read_letters(path: &Path) -> Result<Vec<Captured>, CaptureError> {
    let bad = |problem: String| CaptureError::BadLine {
        place: input_name(path),
        problem,
    };
    let cannot = |error: InputError| bad(error.to_string());
    let mut input = LetterInput::open(vec![path.to_owned()]).map_err(cannot)?;
    let mut held = Held::default();
    while let Some(item) = input.next_item().map_err(cannot)? {
        match item {
            Item::Letter(letter) => held.add(Captured::from(*letter))?,
            Item::Damaged { problem, .. } => return Err(bad(problem)),
        }
    }
    if let Some(incomplete) = input.incomplete().first() {
        let missing = &incomplete.missing;
        return Err(bad(format!(
            "parts {missing:?} of a dead letter are missing"
        )));
    }
    Ok(held.records)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shardmill_core::plugin::{PluginDigest, PluginName};
    use shardmill_core::ports::DeadLetter;
    use shardmill_core::stream::{Position, Record, SequenceNumber, ShardId, StreamName};
    use shardmill_sinks::letters::encode;

    use super::*;

    fn letter() -> DeadLetter {
        let Captured {
            stream,
            shard,
            record,
        } = captured("49590338271490256608559692538361571095", b"x");
        DeadLetter {
            record,
            stream,
            shard,
            application: "delays".into(),
            plugin: PluginName::new("delays").unwrap(),
            digest: PluginDigest::from_hex(&"ab".repeat(32)).unwrap(),
            reason: "the plugin trapped: unreachable".into(),
            attempts: 5,
            failed_at_ms: 1_700_000_100_000,
        }
    }

    fn captured(sequence: &str, data: &'static [u8]) -> Captured {
        let record = Record {
            data: Bytes::from_static(data),
            partition_key: "é\"".to_owned(),
            explicit_hash_key: Some("7".to_owned()),
            position: Position {
                sequence: SequenceNumber::parse(sequence).unwrap(),
                sub_sequence: 3,
            },
            arrival_ms: 9,
        };
        let stream = StreamName::new("orders").unwrap();
        Captured {
            stream,
            shard: ShardId::new("shardId-000000000001").unwrap(),
            record,
        }
    }

    fn file(lines: &[&[u8]]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.join(&b'\n')).unwrap();
        file
    }

    #[test]
    fn a_record_is_read_as_it_was_written_whatever_its_data() {
        let all = [
            captured("1", b"{\"a\":1}\n"),
            captured("2", b"\xff\0"),
            captured("3", b""),
        ];
        let lines: Vec<_> = all.iter().map(Captured::encode).collect();
        assert!(lines.iter().all(|line| !line.contains(&b'\n')));
        let file = file(&[&lines[0], b"", &lines[1], &lines[2]]);
        assert_eq!(read(file.path()).unwrap(), all);
    }

    #[test]
    fn a_file_of_dead_letters_is_read_as_their_records() {
        let letter = letter();
        let file = file(&[&encode(&letter, None)[0]]);
        let read = read(file.path()).unwrap();
        assert_eq!(
            (read.len(), &read[0].record, &read[0].shard),
            (1, &letter.record, &letter.shard)
        );
    }

    #[test]
    fn keys_and_places_take_room_and_not_only_data() {
        let mut record = captured("1", b"");
        let place = held_bytes(&record);
        assert!(
            place > std::mem::size_of::<Captured>() + 100,
            "{place}: what is allocated for its names costs as well"
        );
        record.record.partition_key = "k".repeat(1 << 20);
        record.record.explicit_hash_key = Some("7".repeat(1 << 20));
        assert!(held_bytes(&record) > 2 << 20);
    }

    #[test]
    fn a_line_that_is_something_else_is_named() {
        let good = captured("1", b"x").encode();
        let file = file(&[&good, b"{\"flight\":1}"]);
        let told = read(file.path()).unwrap_err().to_string();
        assert!(
            told.contains("line 2: not a captured record") && told.contains("shardmill capture"),
            "{told}"
        );
        let later = String::from_utf8(good)
            .unwrap()
            .replace("\"shardmill-record\":1", "\"shardmill-record\":2");
        assert!(
            Captured::decode(later.as_bytes())
                .unwrap_err()
                .contains("version 2")
        );
    }
}
