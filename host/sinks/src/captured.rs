//! A record with its place in a shard, as a line of JSON. The keys are those of a dead letter
//! without those about the failure.

use std::fmt::Display;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shardmill_core::ports::DeadLetter;
use shardmill_core::stream::{Position, Record, SequenceNumber, ShardId, StreamName};

use crate::letters::is_readable;

/// The version that is written, and the only one that is read.
pub const CAPTURED_VERSION: u32 = 1;

/// A record, and where it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The stream that it was read from.
    pub stream: StreamName,
    /// The shard that it was read from.
    pub shard: ShardId,
    /// The record as it was delivered.
    pub record: Record,
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
    /// One line without its end. Data that is not UTF-8, or would grow more by its escapes, is in
    /// base64.
    pub fn encode(&self) -> Vec<u8> {
        let Record {
            data,
            partition_key,
            explicit_hash_key,
            position,
            arrival_ms,
        } = &self.record;
        let text = std::str::from_utf8(data)
            .ok()
            .filter(|text| is_readable(text));
        let line = Line {
            version: CAPTURED_VERSION,
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

    /// Reads one line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(line: &[u8]) -> Result<Self, String> {
        let line: Line = serde_json::from_slice(line)
            .map_err(|error| format!("not a captured record: {error}"))?;
        if line.version != CAPTURED_VERSION {
            return Err(format!(
                "a record of version {}, but this shardmill reads version {CAPTURED_VERSION}",
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
