//! Where in a shard something is, and where reading starts.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use super::SequenceNumber;

/// A user record's place in its shard. Ordered by sequence number, then by sub-sequence number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The sequence number of the Kinesis record that holds it.
    pub sequence: SequenceNumber,
    /// The user record inside a KPL aggregate; 0 for a plain record.
    pub sub_sequence: u64,
}

impl Position {
    /// The position of a plain (not aggregated) record.
    pub fn plain(sequence: SequenceNumber) -> Self {
        Self {
            sequence,
            sub_sequence: 0,
        }
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
    /// Only what is put after the application began.
    Latest,
    /// The first record that arrived at or after this time, in milliseconds since the Unix epoch.
    AtTimestamp(u64),
}

/// As it is written in the configuration.
impl fmt::Display for InitialPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrimHorizon => f.write_str("trim-horizon"),
            Self::Latest => f.write_str("latest"),
            Self::AtTimestamp(ms) => Utc(*ms).fmt(f),
        }
    }
}

/// A time in milliseconds since the Unix epoch, as people read it.
#[derive(Debug, Clone, Copy)]
pub struct Utc(pub u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The year 10000, which the format has no place for.
        const TOO_LATE_MS: u64 = 253_402_300_800_000;
        let Self(ms) = *self;
        if ms >= TOO_LATE_MS {
            return write!(f, "{ms} ms after 1970");
        }
        let time = UNIX_EPOCH + Duration::from_millis(ms);
        if ms.is_multiple_of(1_000) {
            humantime::format_rfc3339_seconds(time).fmt(f)
        } else {
            humantime::format_rfc3339_millis(time).fmt(f)
        }
    }
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
    /// This record and what follows. Used to resume: the reader drops what the checkpoint covers,
    /// which is what makes a half-processed KPL aggregate resume exactly (KCL rule).
    AtSequenceNumber(SequenceNumber),
    /// What follows this record, which was already fetched in this run.
    AfterSequenceNumber(SequenceNumber),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_shown_as_it_is_configured() {
        assert_eq!(InitialPosition::TrimHorizon.to_string(), "trim-horizon");
        assert_eq!(InitialPosition::Latest.to_string(), "latest");
        assert_eq!(
            InitialPosition::AtTimestamp(1_767_225_600_000).to_string(),
            "2026-01-01T00:00:00Z"
        );
        assert_eq!(
            Utc(u64::MAX).to_string(),
            "18446744073709551615 ms after 1970"
        );
    }
}
