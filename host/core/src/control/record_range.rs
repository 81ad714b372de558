use std::fmt;

use crate::stream::{Position, SequenceNumber};

/// Kinesis records of one shard, from one number to another, both included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordRange {
    first: SequenceNumber,
    last: SequenceNumber,
}

impl RecordRange {
    /// `None` if `last` comes before `first`.
    pub fn new(first: SequenceNumber, last: SequenceNumber) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The first record that is meant.
    pub fn first(&self) -> &SequenceNumber {
        &self.first
    }

    /// The last record that is meant, itself included.
    pub fn last(&self) -> &SequenceNumber {
        &self.last
    }

    /// Whether a record, or one that was packed into it, is one of them.
    pub fn contains(&self, position: &Position) -> bool {
        self.first <= position.sequence && position.sequence <= self.last
    }
}

impl fmt::Display for RecordRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return self.first.fmt(f);
        }
        write!(f, "{} to {}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> SequenceNumber {
        SequenceNumber::parse(text).unwrap()
    }

    #[test]
    fn both_ends_belong_to_a_range_and_one_that_goes_backwards_is_none() {
        let range = RecordRange::new(number("9"), number("100")).unwrap();
        for (text, is_in) in [
            ("8", false),
            ("9", true),
            ("50", true),
            ("100", true),
            ("101", false),
        ] {
            assert_eq!(
                range.contains(&Position::plain(number(text))),
                is_in,
                "{text}"
            );
        }
        let packed = Position {
            sequence: number("100"),
            sub_sequence: 7,
        };
        assert!(
            range.contains(&packed),
            "and all that is packed into the last one"
        );
        assert_eq!(RecordRange::new(number("100"), number("9")), None);
        assert_eq!(range.to_string(), "9 to 100");
    }
}
