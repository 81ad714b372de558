//! How people name a record.

use std::fmt;

use crate::explain::shard_named;
use crate::stream::{Position, SequenceNumber, ShardId};

/// A record as people name it: `SHARD@SEQUENCE`. The shard is its id or the number in it. Inside an
/// aggregate `/` and the sub-sequence number follow; without them, any of the aggregate's records
/// is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordName {
    /// The shard that the record was read from.
    pub shard: ShardId,
    sequence: SequenceNumber,
    sub_sequence: Option<u64>,
}

/// A text that names no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no record: {problem}; write the shard and the sequence number, such as \
        3@49590338271490256608559692538361571095921575989136588898"
)]
pub struct InvalidRecordName {
    text: String,
    problem: String,
}

impl RecordName {
    /// Reads a name.
    ///
    /// # Errors
    /// It has no shard, or no sequence number.
    pub fn parse(text: &str) -> Result<Self, InvalidRecordName> {
        let bad = |problem: String| InvalidRecordName {
            text: text.to_owned(),
            problem,
        };
        let Some((shard, place)) = text.split_once('@') else {
            return Err(bad("it has no @".to_owned()));
        };
        let (sequence, sub_sequence) = match place.split_once('/') {
            Some((sequence, sub)) => (sequence, Some(sub)),
            None => (place, None),
        };
        let sub_sequence = sub_sequence.map(str::parse).transpose();
        Ok(Self {
            shard: shard_named(shard).map_err(|error| bad(error.to_string()))?,
            sequence: SequenceNumber::parse(sequence).map_err(|error| bad(error.to_string()))?,
            sub_sequence: sub_sequence.map_err(|error| bad(format!("after the /: {error}")))?,
        })
    }

    /// The name of the record at that position.
    pub fn of(shard: &ShardId, position: &Position) -> Self {
        Self {
            shard: shard.clone(),
            sequence: position.sequence.clone(),
            sub_sequence: (position.sub_sequence > 0).then_some(position.sub_sequence),
        }
    }

    /// Whether it names the record at that position of its shard.
    pub fn is_at(&self, position: &Position) -> bool {
        let is_sub = self
            .sub_sequence
            .is_none_or(|sub| sub == position.sub_sequence);
        is_sub && position.sequence == self.sequence
    }

    /// Whether the record may be one from `first` to `last` of its shard.
    pub fn may_be_within(&self, first: &Position, last: &Position) -> bool {
        (&first.sequence..=&last.sequence).contains(&&self.sequence)
    }
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.shard, self.sequence)?;
        match self.sub_sequence {
            Some(sub) => write!(f, "/{sub}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(sequence: &str, sub_sequence: u64) -> Position {
        Position {
            sequence: SequenceNumber::parse(sequence).unwrap(),
            sub_sequence,
        }
    }

    #[test]
    fn a_record_is_named_by_its_shard_and_its_sequence_number() {
        let plain = RecordName::parse("3@17").unwrap();
        assert_eq!(plain.to_string(), "shardId-000000000003@17");
        assert_eq!(RecordName::parse(&plain.to_string()), Ok(plain.clone()));
        assert!(plain.is_at(&position("17", 0)) && plain.is_at(&position("17", 5)));
        assert!(!plain.is_at(&position("18", 0)));
        let member = RecordName::parse("3@17/5").unwrap();
        assert!(member.is_at(&position("17", 5)) && !member.is_at(&position("17", 4)));
        assert!(member.may_be_within(&position("9", 0), &position("17", 2)));
        assert!(!member.may_be_within(&position("18", 0), &position("19", 0)));
        let of = RecordName::of(&plain.shard, &position("17", 5));
        assert_eq!(of, member);
    }

    #[test]
    fn what_names_no_record_is_refused_with_an_example() {
        for (text, problem) in [
            ("17", "it has no @"),
            ("3@", "sequence"),
            ("@17", "shard"),
            ("3@x", "sequence"),
            ("3@17/x", "after the /"),
            ("a b@17", "shard"),
        ] {
            let told = RecordName::parse(text).unwrap_err().to_string();
            assert!(told.contains(problem), "{told}");
            assert!(told.contains("such as 3@4959"), "{told}");
        }
    }
}
