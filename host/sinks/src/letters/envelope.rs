//! One dead letter as lines of JSON, and back. The format is versioned:
//! docs/how-to/poison-records.md describes version 1.
//!
//! A letter is one line, unless its target accepts no line that long. Then its data is cut into
//! parts, each with all the rest of the letter, so that each part can be understood alone and their
//! order does not matter.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::DeadLetter;
use shardmill_core::recording::RecordName;
use shardmill_core::stream::{Position, Record, SequenceNumber, ShardId, StreamName};
use shardmill_core::text::shortened;

/// The version that is written, and the only one that is read.
pub const LETTER_VERSION: u32 = 1;
/// The key that distinguishes a dead letter from other lines.
pub(super) const MARK: &str = "shardmill-dead-letter";
/// Characters of a reason that are kept. With everything else but the data, a line stays below 32
/// KiB even if every character is escaped, which is half of the smallest line that a sink may be
/// set to.
const REASON_CHARS_MAX: usize = 4_000;

/// A text of at most this many bytes with its escapes is written as text even if base64 is shorter,
/// unless there is more than one escape for each byte: what the rest of the smallest line leaves.
const READABLE_BYTES_MAX: usize = 32 << 10;

/// Longest name of a DynamoDB table (AWS limit), which an application's name is. Readers of letters
/// keep and show it.
const APPLICATION_BYTES_MAX: usize = 255;

/// One line of a dead letter: the whole letter, or a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// The letter; if the line is a part, with the part's data only.
    pub letter: DeadLetter,
    /// Which part it is; `None` if it is the whole letter.
    pub(crate) piece: Option<Piece>,
}

/// Which part of a letter a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Counted from 1.
    pub(crate) part: u32,
    /// How many there are.
    pub(crate) parts: u32,
    /// Bytes of all parts' data together.
    pub(crate) data_bytes: u64,
}

/// Why a line cannot be read as a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LetterError {
    /// It is marked as a dead letter, but cannot be read.
    #[error("a damaged dead letter: {0}")]
    Damaged(String),
    /// It was written by a later version of shardmill.
    #[error(
        "a dead letter of version {0}, but this shardmill reads version {LETTER_VERSION}: use a \
            newer shardmill"
    )]
    Version(u32),
    /// It is something else.
    #[error("not a dead letter")]
    Other,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Line {
    #[serde(rename = "shardmill-dead-letter")]
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_bytes: Option<u64>,
    application: String,
    plugin: String,
    digest: String,
    stream: String,
    shard: String,
    sequence_number: String,
    #[serde(default)]
    sub_sequence_number: u64,
    partition_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    explicit_hash_key: Option<String>,
    arrival_ms: u64,
    failed_at_ms: u64,
    attempts: u32,
    reason: String,
    /// For people: how to run the record again, as it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    debug: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

/// The letter as lines without their ends, none longer than `bytes_max` (at least 64 KiB) if that
/// is given.
pub fn encode(letter: &DeadLetter, bytes_max: Option<usize>) -> Vec<Bytes> {
    let whole = Line::head(letter).with_data(&letter.record.data).to_bytes();
    match bytes_max {
        Some(bytes_max) if whole.len() > bytes_max => encode_parts(letter, bytes_max),
        _ => vec![whole],
    }
}

fn encode_parts(letter: &DeadLetter, bytes_max: usize) -> Vec<Bytes> {
    let data = &letter.record.data;
    // The longest that the head can be, so that every part fits.
    let longest = Piece {
        part: u32::MAX,
        parts: u32::MAX,
        data_bytes: data.len() as u64,
    };
    let head = Line::head(letter).with_piece(longest).with_base64(&[]);
    // Base64 makes four bytes of three.
    let room = (bytes_max.saturating_sub(head.to_bytes().len()) / 4 * 3).max(3);
    let parts = u32::try_from(data.len().div_ceil(room)).unwrap_or(u32::MAX);
    let mut lines = Vec::new();
    for (slice, part) in data.chunks(room).zip(1..) {
        let piece = Piece {
            part,
            parts,
            ..longest
        };
        let line = Line::head(letter).with_piece(piece).with_base64(slice);
        lines.push(line.to_bytes());
    }
    lines
}

impl Fragment {
    /// The line that it was read from, or one that reads the same.
    pub fn encode(&self) -> Bytes {
        let data = &self.letter.record.data;
        let head = Line::head(&self.letter);
        let line = match self.piece {
            None => head.with_data(data),
            Some(piece) => head.with_piece(piece).with_base64(data),
        };
        line.to_bytes()
    }

    /// Reads one line of a file of letters. Fails on a line that is no whole dead letter.
    pub fn decode(line: &[u8]) -> Result<Self, LetterError> {
        let mut line = Line::read(line)?;
        let piece = line.piece().map_err(damaged)?;
        let data = line.take_data().map_err(damaged)?;
        let letter = line.letter(data).map_err(damaged)?;
        Ok(Self { letter, piece })
    }
}

impl Line {
    fn read(line: &[u8]) -> Result<Self, LetterError> {
        let read: Self = serde_json::from_slice(line).map_err(|error| {
            if has_mark(line) {
                damaged(error)
            } else {
                LetterError::Other
            }
        })?;
        if read.version != LETTER_VERSION {
            return Err(LetterError::Version(read.version));
        }
        if read.application.len() > APPLICATION_BYTES_MAX {
            return Err(damaged(format_args!(
                "application is longer than a table's name may be, {APPLICATION_BYTES_MAX} bytes"
            )));
        }
        Ok(read)
    }

    fn piece(&self) -> Result<Option<Piece>, &'static str> {
        match (self.part, self.parts, self.data_bytes) {
            (None, None, None) => Ok(None),
            (Some(part), Some(parts), Some(data_bytes)) if (1..=parts).contains(&part) => {
                Ok(Some(Piece {
                    part,
                    parts,
                    data_bytes,
                }))
            }
            _ => Err("part, parts and data-bytes contradict each other"),
        }
    }

    fn take_data(&mut self) -> Result<Bytes, String> {
        match (self.data.take(), self.data_base64.take()) {
            (Some(text), None) => Ok(text.into()),
            (None, Some(base64)) => {
                let data = STANDARD.decode(base64).map_err(|error| error.to_string())?;
                Ok(data.into())
            }
            _ => Err("it must have exactly one of data and data-base64".to_owned()),
        }
    }

    fn letter(self, data: Bytes) -> Result<DeadLetter, Box<dyn std::error::Error>> {
        let record = Record {
            data,
            partition_key: self.partition_key,
            explicit_hash_key: self.explicit_hash_key,
            position: Position {
                sequence: SequenceNumber::parse(&self.sequence_number)?,
                sub_sequence: self.sub_sequence_number,
            },
            arrival_ms: self.arrival_ms,
        };
        Ok(DeadLetter {
            record,
            stream: StreamName::new(&self.stream)?,
            shard: ShardId::new(&self.shard)?,
            application: self.application,
            plugin: PluginName::of_label(&self.plugin)?,
            digest: PluginDigest::from_hex(&self.digest).ok_or("digest is not a SHA-256 in hex")?,
            reason: shortened(&self.reason, REASON_CHARS_MAX).into_owned(),
            attempts: self.attempts,
            failed_at_ms: self.failed_at_ms,
        })
    }

    fn head(letter: &DeadLetter) -> Self {
        Self {
            version: LETTER_VERSION,
            part: None,
            parts: None,
            data_bytes: None,
            application: letter.application.clone(),
            plugin: letter.plugin.to_string(),
            digest: letter.digest.as_str().to_owned(),
            stream: letter.stream.to_string(),
            shard: letter.shard.to_string(),
            sequence_number: letter.record.position.sequence.to_string(),
            sub_sequence_number: letter.record.position.sub_sequence,
            partition_key: letter.record.partition_key.clone(),
            explicit_hash_key: letter.record.explicit_hash_key.clone(),
            arrival_ms: letter.record.arrival_ms,
            failed_at_ms: letter.failed_at_ms,
            attempts: letter.attempts,
            reason: shortened(&letter.reason, REASON_CHARS_MAX).into_owned(),
            debug: Some(debug_command(letter)),
            data: None,
            data_base64: None,
        }
    }

    fn with_piece(self, piece: Piece) -> Self {
        Self {
            part: Some(piece.part),
            parts: Some(piece.parts),
            data_bytes: Some(piece.data_bytes),
            ..self
        }
    }

    /// Text stays readable, unless escapes would make it longer than base64, and long: a letter
    /// must not grow beyond that. JSON is all quotes, and most of it is short.
    fn with_data(self, data: &[u8]) -> Self {
        match std::str::from_utf8(data) {
            Ok(text) if is_readable(text) => Self {
                data: Some(text.to_owned()),
                ..self
            },
            _ => self.with_base64(data),
        }
    }

    fn with_base64(self, data: &[u8]) -> Self {
        Self {
            data_base64: Some(STANDARD.encode(data)),
            ..self
        }
    }

    fn to_bytes(&self) -> Bytes {
        // Writing strings and numbers to a vector cannot fail.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// The command that runs the record again. It needs the host's configuration, which only its user
/// knows.
fn debug_command(letter: &DeadLetter) -> String {
    let record = RecordName::of(&letter.shard, &letter.record.position);
    format!("shardmill debug {} {record}", letter.application)
}

fn damaged(problem: impl fmt::Display) -> LetterError {
    LetterError::Damaged(problem.to_string())
}

/// Whether a line that cannot be read was meant to be a dead letter.
fn has_mark(line: &[u8]) -> bool {
    let mark = format!("\"{MARK}\"");
    line.windows(mark.len()).any(|at| at == mark.as_bytes())
}

/// Whether text is stored as text.
pub(crate) fn is_readable(text: &str) -> bool {
    let base64_bytes = text.len().div_ceil(3) * 4;
    let escaped = escaped_bytes(text);
    let is_short = escaped <= READABLE_BYTES_MAX && escaped <= 2 * text.len();
    escaped <= base64_bytes || is_short
}

/// The bytes of a text in JSON, without its quotes.
fn escaped_bytes(text: &str) -> usize {
    let mut bytes = 0;
    for byte in text.bytes() {
        bytes += match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
            0..0x20 => 6,
            _ => 1,
        };
    }
    bytes
}

#[cfg(test)]
pub(crate) mod tests;
