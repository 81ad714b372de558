//! A row to write in another library's layout, and what such a row can express.

use super::value::{Row, Value};
use crate::lease::Checkpoint;
use crate::stream::StreamName;

/// Identifies an application's place in a library's tables.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// lifion-kinesis' consumer group; other libraries ignore it.
    pub group: &'a str,
    /// The stream that the checkpoints belong to.
    pub stream: &'a StreamName,
    /// When the stream was created, in milliseconds since the Unix epoch.
    pub stream_created_ms: u64,
    /// The stream's account, for the KCL; other libraries ignore it.
    pub account: &'a str,
    /// The time, in milliseconds since the Unix epoch, for columns that people read.
    pub wall_ms: u64,
}

/// A row to write: its key, what to set, and which attributes to remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowChange {
    /// Names and values of the key.
    pub key: Row,
    /// Attributes to set, in place of the old values.
    pub set: Row,
    /// Attributes that must be absent afterwards.
    pub remove: Vec<&'static str>,
}

/// The checkpoints that a library's row can express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Held<'a> {
    /// Everything up to this sequence number is done.
    After(&'a str),
    /// The shard is finished.
    Finished,
    /// Nothing read yet; start at the oldest record.
    Oldest,
    /// Nothing read yet; start at the next record.
    Next,
    /// Nothing read yet; start at a time that our configuration has.
    AtTime,
}

impl<'a> Held<'a> {
    pub(super) fn of(checkpoint: &'a Checkpoint) -> Self {
        match checkpoint {
            Checkpoint::At(position) => Self::After(position.sequence.as_str()),
            Checkpoint::ShardEnd => Self::Finished,
            Checkpoint::TrimHorizon => Self::Oldest,
            Checkpoint::Latest => Self::Next,
            Checkpoint::AtTimestamp | Checkpoint::Sought(_) => Self::AtTime,
        }
    }
}

/// A key or attributes of these names and values.
pub(super) fn row<const N: usize>(attributes: [(&str, Value); N]) -> Row {
    attributes
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
