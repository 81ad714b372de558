//! Sequence numbers: decimal text of up to 186 bits and more, ordered as numbers, never as text.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrayvec::ArrayString;

/// Longest sequence number accepted, in digits. The API's pattern allows 129; the room is for
/// emulators.
const DIGITS_MAX: usize = 256;
/// Digits that need no allocation: Kinesis' numbers have 56 at most (186 bits), and each record has
/// one.
const INLINE_DIGITS: usize = 60;

/// A record's place in its shard: opaque but for its order, which is numeric.
///
/// Kept as text and not as an integer: every plugin is given the text of every record, and
/// dividing 186 bits by ten costs more than anything that is done with the number.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SequenceNumber(Digits);

/// Decimal digits without leading zeros. Each number has one form: what fits is inline.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Digits {
    Inline(ArrayString<INLINE_DIGITS>),
    Long(Arc<str>),
}

/// Text that is not a decimal number of a sane length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a sequence number: expected 1 to {DIGITS_MAX} decimal digits")]
pub struct InvalidSequenceNumber {
    text: String,
}

impl SequenceNumber {
    /// Parses decimal digits; leading zeros are dropped so that equal numbers are equal values.
    pub fn parse(text: &str) -> Result<Self, InvalidSequenceNumber> {
        // Looks at all bytes, whatever the first ones are: without a branch for each, the compiler
        // compares many at a time.
        let only_digits = text
            .bytes()
            .fold(true, |all, byte| all & byte.is_ascii_digit());
        if text.is_empty() || text.len() > DIGITS_MAX || !only_digits {
            let text = text.chars().take(40).collect();
            return Err(InvalidSequenceNumber { text });
        }
        let trimmed = text.trim_start_matches('0');
        let digits = if trimmed.is_empty() { "0" } else { trimmed };
        Ok(Self(match ArrayString::from(digits) {
            Ok(inline) => Digits::Inline(inline),
            Err(_) => Digits::Long(digits.into()),
        }))
    }

    /// The number in decimal, as Kinesis gave it.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Digits::Inline(digits) => digits,
            Digits::Long(digits) => digits,
        }
    }
}

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        // Without leading zeros a longer number is a larger one.
        let (digits, others) = (self.as_str(), other.as_str());
        (digits.len(), digits).cmp(&(others.len(), others))
    }
}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
    fn a_number_of_any_length_keeps_its_digits_and_its_order() {
        let lengths = [1, 56, INLINE_DIGITS, INLINE_DIGITS + 1, DIGITS_MAX];
        let numbers = lengths.map(|length| number(&"7".repeat(length)));
        assert!(numbers.is_sorted());
        for (number, length) in numbers.iter().zip(lengths) {
            assert_eq!(number.as_str(), "7".repeat(length));
            let padded = format!("{:0>DIGITS_MAX$}", number.as_str());
            assert_eq!(SequenceNumber::parse(&padded).as_ref(), Ok(number));
        }
    }

    #[test]
    fn anything_but_digits_is_refused() {
        for text in ["", "-1", "1.0", "LATEST", "٣", " 1"] {
            assert!(SequenceNumber::parse(text).is_err(), "{text:?}");
        }
        assert!(SequenceNumber::parse(&"1".repeat(DIGITS_MAX + 1)).is_err());
    }
}
