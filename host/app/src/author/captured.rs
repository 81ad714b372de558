//! Records with their place in a shard, as lines of JSON: `shardmill capture` writes them and
//! `shardmill test --captured` delivers them. The keys are those of a dead letter without those
//! about the failure; dead letters are read too.

use std::fmt::Display;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shardmill_core::ports::DeadLetter;
use shardmill_core::stream::{Position, Record, SequenceNumber, ShardId, StreamName};
use shardmill_sinks::letters::{Fragment, InputError, Item, LetterInput, input_name, open_input};

/// The version that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;
/// Longest line: 10 MiB of data (AWS limit) in base64, and room for the rest.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of records that are held in all: a test takes a sample.
const BYTES_MAX: usize = 1 << 30;
/// Bytes that each record takes in addition to its data and keys: its position, and its
/// allocations.
const PLACE_BYTES: usize = 256;

/// A record, and where it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Captured {
    /// The stream.
    pub(crate) stream: StreamName,
    /// The shard.
    pub(crate) shard: ShardId,
    /// The record.
    pub(crate) record: Record,
}

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

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Line {
    #[serde(rename = "shardmill-record")]
    version: u32,
    stream: String,
    shard: String,
    sequence_number: String,
    #[serde(default)]
    sub_sequence_number: u64,
    partition_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    explicit_hash_key: Option<String>,
    arrival_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

impl Captured {
    /// One line without its end. Data that is not UTF-8 is in base64.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Record {
            data,
            partition_key,
            explicit_hash_key,
            position,
            arrival_ms,
        } = &self.record;
        let text = std::str::from_utf8(data).ok();
        let line = Line {
            version: VERSION,
            stream: self.stream.to_string(),
            shard: self.shard.to_string(),
            sequence_number: position.sequence.to_string(),
            sub_sequence_number: position.sub_sequence,
            partition_key: partition_key.clone(),
            explicit_hash_key: explicit_hash_key.clone(),
            arrival_ms: *arrival_ms,
            data: text.map(str::to_owned),
            data_base64: text.is_none().then(|| STANDARD.encode(data)),
        };
        // Writing strings and numbers to a vector cannot fail.
        serde_json::to_vec(&line).unwrap_or_default()
    }

    fn held_bytes(&self) -> usize {
        let names = self.stream.as_str().len() + self.shard.as_str().len();
        self.record.cost_bytes() + names + PLACE_BYTES
    }

    /// Reads one line; the error says what is wrong with it.
    pub(crate) fn decode(line: &[u8]) -> Result<Self, String> {
        let line: Line = serde_json::from_slice(line)
            .map_err(|error| format!("not a captured record: {error}"))?;
        if line.version != VERSION {
            return Err(format!(
                "a record of version {}, but this shardmill reads version {VERSION}",
                line.version
            ));
        }
        let data = data_of(line.data, line.data_base64)?;
        let position = Position {
            sequence: parsed(SequenceNumber::parse(&line.sequence_number))?,
            sub_sequence: line.sub_sequence_number,
        };
        Ok(Self {
            stream: parsed(StreamName::new(&line.stream))?,
            shard: parsed(ShardId::new(&line.shard))?,
            record: Record {
                data,
                partition_key: line.partition_key,
                explicit_hash_key: line.explicit_hash_key,
                position,
                arrival_ms: line.arrival_ms,
            },
        })
    }
}

impl From<DeadLetter> for Captured {
    fn from(letter: DeadLetter) -> Self {
        Self {
            stream: letter.stream,
            shard: letter.shard,
            record: letter.record,
        }
    }
}

fn data_of(text: Option<String>, base64: Option<String>) -> Result<Bytes, String> {
    match (text, base64) {
        (Some(text), None) => Ok(Bytes::from(text)),
        (None, Some(base64)) => parsed(STANDARD.decode(base64)).map(Bytes::from),
        _ => Err("it must have exactly one of data and data-base64".to_owned()),
    }
}

fn parsed<T, E: Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Records that are held in memory, up to a bound.
#[derive(Default)]
struct Held {
    records: Vec<Captured>,
    bytes: usize,
}

impl Held {
    fn add(&mut self, record: Captured) -> Result<(), CaptureError> {
        self.bytes += record.held_bytes();
        if self.bytes > BYTES_MAX {
            return Err(CaptureError::TooMuch);
        }
        self.records.push(record);
        Ok(())
    }
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
    use shardmill_core::plugin::{PluginDigest, PluginName};
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
        let place = record.held_bytes();
        assert!(
            place > std::mem::size_of::<Captured>() + 100,
            "{place}: what is allocated for its names costs as well"
        );
        record.record.partition_key = "k".repeat(1 << 20);
        record.record.explicit_hash_key = Some("7".repeat(1 << 20));
        assert!(record.held_bytes() > 2 << 20);
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
