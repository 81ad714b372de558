//! A shard, its parents, and its part of the hash key space.

use std::fmt;

use super::{SequenceNumber, ShardId};

/// A shard as `ListShards` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// The shard's id, such as `shardId-000000000000`.
    pub id: ShardId,
    /// The one or two shards it was split or merged from; empty for a stream's first shards.
    pub parents: Vec<ShardId>,
    /// Its part of the hash key space.
    pub hash_range: HashKeyRange,
    /// The last sequence number it can hold, once it is closed.
    pub ending_sequence: Option<SequenceNumber>,
}

impl Shard {
    /// An open shard still takes records.
    pub fn is_open(&self) -> bool {
        self.ending_sequence.is_none()
    }
}

/// A part of the 128-bit hash key space; both bounds inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashKeyRange {
    start: u128,
    end: u128,
}

/// Bounds that are not decimal 128-bit numbers, or the wrong way round.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{start:?} to {end:?} is not a hash key range: expected two decimal 128-bit numbers, the \
        first not above the second"
)]
pub struct InvalidHashKeyRange {
    start: String,
    end: String,
}

impl HashKeyRange {
    /// The whole space, as one shard has it.
    pub const FULL: Self = Self {
        start: 0,
        end: u128::MAX,
    };

    /// A range with both bounds included; `None` if it would be empty.
    pub fn new(start: u128, end: u128) -> Option<Self> {
        (start <= end).then_some(Self { start, end })
    }

    /// Parses the decimal text that Kinesis and the KCL's lease rows use.
    pub fn parse(start: &str, end: &str) -> Result<Self, InvalidHashKeyRange> {
        let parsed = start.parse().ok().zip(end.parse().ok());
        parsed
            .and_then(|(start, end)| Self::new(start, end))
            .ok_or_else(|| InvalidHashKeyRange {
                start: start.to_owned(),
                end: end.to_owned(),
            })
    }

    /// Whether any hash key is in both.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// The lowest hash key, inclusive.
    pub fn start(self) -> u128 {
        self.start
    }

    /// The highest hash key, inclusive.
    pub fn end(self) -> u128 {
        self.end
    }
}

impl fmt::Display for HashKeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}..{}]", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_shown_by_its_bounds_and_never_runs_backwards() {
        let range = HashKeyRange::parse("5", "9").unwrap();
        assert_eq!(
            (range.to_string().as_str(), range.start(), range.end()),
            ("[5..9]", 5, 9)
        );
        for (start, end) in [
            ("9", "5"),
            ("", "5"),
            ("5", "x"),
            ("0", "340282366920938463463374607431768211456"),
        ] {
            assert!(HashKeyRange::parse(start, end).is_err(), "{start} to {end}");
        }
    }

    #[test]
    fn ranges_overlap_from_the_first_hash_key_that_they_share() {
        let range = |start, end| HashKeyRange::new(start, end).unwrap();
        for (other, expected) in [
            ((0, 4), false),
            ((0, 5), true),
            ((6, 7), true),
            ((9, 20), true),
            ((10, 20), false),
        ] {
            let other = range(other.0, other.1);
            assert_eq!(range(5, 9).overlaps(other), expected, "{other}");
            assert_eq!(other.overlaps(range(5, 9)), expected, "{other}");
        }
    }
}
