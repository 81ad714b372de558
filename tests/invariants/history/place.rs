//! Where a record is in its shard.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A place in a shard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The Kinesis record.
    pub sequence: Sequence,
    /// The user record inside an aggregate; 0 for a plain record.
    pub sub: u64,
}

/// A sequence number, ordered as a number of any length, never as text. Cheap to clone: a history
/// names each many times.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Sequence(Arc<str>);

impl Sequence {
    /// Decimal digits; leading zeros do not matter.
    pub fn new(digits: &str) -> Self {
        Self(digits.trim_start_matches('0').into())
    }
}

impl PartialOrd for Sequence {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sequence {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0.len(), &self.0).cmp(&(other.0.len(), &other.0))
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "0" } else { &self.0 })
    }
}

impl Place {
    /// A plain record.
    pub fn plain(digits: &str) -> Self {
        Self {
            sequence: Sequence::new(digits),
            sub: 0,
        }
    }
}
