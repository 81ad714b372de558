use std::fmt;

use crate::lease::{Checkpoint, Sought};
use crate::stream::{SequenceNumber, Utc};

/// Where a shard is sent: the first record that is delivered next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The oldest record still kept.
    Horizon,
    /// The first record that arrived at or after this time, in milliseconds since the Unix epoch.
    Time(u64),
    /// The record with this number, or, if retention took it, the oldest one after it.
    Sequence(SequenceNumber),
}

impl Place {
    /// What the row of a shard shows that was sent here and has settled nothing since.
    pub fn checkpoint(&self) -> Checkpoint {
        match self {
            Self::Horizon => Checkpoint::Sought(Sought::Horizon),
            Self::Time(ms) => Checkpoint::Sought(Sought::Time(*ms)),
            Self::Sequence(number) => Checkpoint::Sought(Sought::Sequence(number.clone())),
        }
    }
}

/// Which way a place lies from where a shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Records that were settled are delivered again.
    Back,
    /// Records that were not settled are left out, if there are any in between.
    Forward,
}

impl Direction {
    /// The way from a shard's checkpoint to `place`. `arrival_ms`: when the last settled record
    /// arrived. `None` if only Kinesis could tell.
    pub fn to(place: &Place, checkpoint: &Checkpoint, arrival_ms: Option<u64>) -> Option<Self> {
        let is_back = match (checkpoint, place) {
            // Whoever asks for the oldest record wants all of them, also those that are settled by
            // the time the shard goes there.
            (
                Checkpoint::TrimHorizon | Checkpoint::At(_) | Checkpoint::Sought(_),
                Place::Horizon,
            ) => true,
            (Checkpoint::TrimHorizon | Checkpoint::Sought(Sought::Horizon), _) => false,
            (Checkpoint::At(settled), Place::Sequence(number)) => *number <= settled.sequence,
            (Checkpoint::At(_), Place::Time(ms)) => *ms <= arrival_ms?,
            (Checkpoint::Sought(Sought::Sequence(next)), Place::Sequence(number)) => number < next,
            (Checkpoint::Sought(Sought::Time(next)), Place::Time(ms)) => ms < next,
            (
                Checkpoint::Sought(_)
                | Checkpoint::AtTimestamp
                | Checkpoint::Latest
                | Checkpoint::ShardEnd,
                _,
            ) => return None,
        };
        Some(if is_back { Self::Back } else { Self::Forward })
    }
}

/// As it is written on the command line.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Horizon => f.write_str("horizon"),
            Self::Time(ms) => Utc(*ms).fmt(f),
            Self::Sequence(number) => number.fmt(f),
        }
    }
}
