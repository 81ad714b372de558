//! A duration in the file. One that is far longer than anyone means would overflow in the host's
//! arithmetic.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// The longest that a setting may be: `"100years"`. A year has 365.25 days, as it is parsed.
const LONGEST: Duration = Duration::from_hours(36_525 * 24);

/// A duration that a setting may have.
pub(super) struct Bounded(pub(super) Duration);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time = humantime_serde::Serde::<Duration>::deserialize(deserializer)?.into_inner();
        if time > LONGEST {
            return Err(D::Error::custom("a duration is at most 100 years"));
        }
        Ok(Self(time))
    }
}

/// A duration that may be missing. For `#[serde(deserialize_with)]`.
pub(super) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    Bounded::deserialize(deserializer).map(|time| Some(time.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_years_is_the_longest_that_a_setting_may_be() {
        let longest = humantime::parse_duration("100years").unwrap();
        assert_eq!(longest, LONGEST);
    }
}
