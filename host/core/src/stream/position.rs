//! Where in a shard something is, and where reading starts.

use std::fmt;

use super::SequenceNumber;

/// A user record's place in its shard. Ordered by sequence number, then by sub-sequence number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The Kinesis record.
    pub sequence: SequenceNumber,
    /// The user record inside a KPL aggregate; 0 for a plain record.
    pub sub_sequence: u64,
}

impl Position {
    /// The position of a plain (not aggregated) record.
    pub fn plain(sequence: SequenceNumber) -> Self {
        Self { sequence, sub_sequence: 0 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sub_sequence {
            0 => write!(f, "{}", self.sequence),
            sub => write!(f, "{}/{sub}", self.sequence),
        }
    }
}

/// Where an application starts on a shard that it has never checkpointed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialPosition {
    /// The oldest record still kept.
    TrimHorizon,
    /// Only what is put after the first read.
    Latest,
    /// The first record that arrived at or after this time, in milliseconds since the Unix epoch.
    AtTimestamp(u64),
}

/// Where a shard iterator is asked to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFrom {
    /// The oldest record still kept.
    TrimHorizon,
    /// Only what is put after the iterator was made.
    Latest,
    /// The first record that arrived at or after this time, in milliseconds since the Unix epoch.
    AtTimestamp(u64),
    /// This record and what follows. Used to resume: the reader drops what the checkpoint covers, which is what makes
    /// a half-processed KPL aggregate resume exactly (KCL rule).
    AtSequenceNumber(SequenceNumber),
    /// What follows this record, which was already fetched in this run.
    AfterSequenceNumber(SequenceNumber),
}
