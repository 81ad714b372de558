//! Sequence numbers: decimal text of up to 186 bits and more, ordered as numbers, never as text.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Longest sequence number accepted, in digits. The API's pattern allows 129; the room is for
/// emulators.
const DIGITS_MAX: usize = 256;

/// A record's place in its shard: opaque but for its order, which is numeric.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SequenceNumber(Arc<str>);

/// Text that is not a decimal number of a sane length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a sequence number: expected 1 to {DIGITS_MAX} decimal digits")]
pub struct InvalidSequenceNumber {
    text: String,
}

impl SequenceNumber {
    /// Parses decimal digits; leading zeros are dropped so that equal numbers are equal values.
    pub fn parse(text: &str) -> Result<Self, InvalidSequenceNumber> {
        let is_decimal = !text.is_empty()
            && text.len() <= DIGITS_MAX
            && text.bytes().all(|b| b.is_ascii_digit());
        if !is_decimal {
            let text = text.chars().take(40).collect();
            return Err(InvalidSequenceNumber { text });
        }
        let trimmed = text.trim_start_matches('0');
        Ok(Self(if trimmed.is_empty() {
            "0".into()
        } else {
            trimmed.into()
        }))
    }

    /// The number in decimal, as Kinesis gave it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        // Without leading zeros a longer number is a larger one.
        (self.0.len(), &*self.0).cmp(&(other.0.len(), &*other.0))
    }
}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> SequenceNumber {
        SequenceNumber::parse(text).unwrap()
    }

    #[test]
    fn numbers_of_different_lengths_compare_as_numbers_not_as_text() {
        assert!(number("9") < number("10"));
        assert!(number("99999999999999999999") < number("100000000000000000000"));
        assert_eq!(number("007"), number("7"));
        assert_eq!(number("000"), number("0"));
    }

    #[test]
    fn anything_but_digits_is_refused() {
        for text in ["", "-1", "1.0", "LATEST", "٣", " 1"] {
            assert!(SequenceNumber::parse(text).is_err(), "{text:?}");
        }
        assert!(SequenceNumber::parse(&"1".repeat(DIGITS_MAX + 1)).is_err());
    }
}
