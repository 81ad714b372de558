//! Rules for one value, as Lambda and `EventBridge` have them.

use std::cmp::Ordering;

/// A rule for a value that is not an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rule {
    Null,
    Bool(bool),
    Number(Number),
    Text(Compare, String),
    /// All bounds must hold.
    Numeric(Vec<(Bound, Number)>),
    /// Whether there is a value.
    Exists(bool),
    /// There is a value, and none of these rules holds for it.
    AnythingBut(Vec<Rule>),
}

/// How a text is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compare {
    pub(crate) part: Part,
    pub(crate) ignores_case: bool,
}

/// The part of a text that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Prefix,
    Suffix,
}

/// A bound of `numeric`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Equal,
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// A number, compared by its value: 5 and 5.0 are equal. Whole numbers of up to 64 bits are exact.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Whole(i128),
    Fraction(f64),
}

/// A value of a record that is not an object or an array.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(&'a str),
}

impl Rule {
    pub(crate) fn holds(&self, value: Scalar<'_>) -> bool {
        match (self, value) {
            (Self::Null, Scalar::Null) => true,
            (Self::Bool(wanted), Scalar::Bool(value)) => *wanted == value,
            (Self::Number(wanted), Scalar::Number(value)) => *wanted == value,
            (Self::Text(compare, wanted), Scalar::Text(value)) => compare.holds(wanted, value),
            (Self::Numeric(bounds), Scalar::Number(value)) => bounds
                .iter()
                .all(|(bound, limit)| bound.holds(value, *limit)),
            (Self::Exists(wanted), _) => *wanted,
            (Self::AnythingBut(rules), value) => !rules.iter().any(|rule| rule.holds(value)),
            _ => false,
        }
    }
}

impl Compare {
    fn holds(self, wanted: &str, value: &str) -> bool {
        match (self.part, self.ignores_case) {
            (Part::Whole, false) => value == wanted,
            (Part::Prefix, false) => value.starts_with(wanted),
            (Part::Suffix, false) => value.ends_with(wanted),
            (Part::Whole, true) => lower(value).eq(lower(wanted)),
            (Part::Prefix, true) => begins(lower(value), lower(wanted)),
            (Part::Suffix, true) => {
                let reversed = |text: &str| lower(text).collect::<Vec<_>>().into_iter().rev();
                begins(reversed(value), reversed(wanted))
            }
        }
    }
}

fn lower(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(char::to_lowercase)
}

fn begins(mut text: impl Iterator<Item = char>, mut wanted: impl Iterator<Item = char>) -> bool {
    wanted.all(|letter| text.next() == Some(letter))
}

impl Bound {
    fn holds(self, value: Number, limit: Number) -> bool {
        let Some(order) = value.partial_cmp(&limit) else {
            return false;
        };
        match self {
            Self::Equal => order.is_eq(),
            Self::Below => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Above => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

impl Number {
    /// As an IEEE double, with which all others are compared.
    fn as_f64(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Fraction(fraction) => fraction,
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(own), Self::Whole(other)) => Some(own.cmp(other)),
            _ => self.as_f64().partial_cmp(&other.as_f64()),
        }
    }
}
