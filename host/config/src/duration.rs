//! A duration in the file or of a flag. One that is far longer than anyone means would overflow in
//! the host's arithmetic; one that is far shorter is a unit that somebody mistyped.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// The longest that a setting may be: `"100years"`. A year has 365.25 days, as it is parsed.
const LONGEST: Duration = Duration::from_hours(36_525 * 24);

/// The shortest that is not zero: timers count in milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);

/// A duration that a setting may have.
pub(super) struct Bounded(pub(super) Duration);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time = humantime_serde::Serde::<Duration>::deserialize(deserializer)?.into_inner();
        check(time).map(Self).map_err(D::Error::custom)
    }
}

/// A duration that may be missing. For `#[serde(deserialize_with)]`.
pub(super) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    Bounded::deserialize(deserializer).map(|time| Some(time.0))
}

/// The duration that a flag has, within the bounds of the file's.
///
/// # Errors
/// What is wrong with it, and how a duration is written.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; a duration is written such as 500ms, 10s or 5m"))?;
    Ok(check(time)?)
}

fn check(time: Duration) -> Result<Duration, &'static str> {
    if time > LONGEST {
        return Err("a duration is at most 100 years");
    }
    if !time.is_zero() && time < SHORTEST {
        return Err("a duration is 0s or at least 1ms");
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_has_the_bounds_of_a_setting() {
        assert_eq!(parse_duration("100years"), Ok(LONGEST));
        assert_eq!(parse_duration("1ms"), Ok(SHORTEST));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        for (text, expected) in [
            ("101years", "at most 100 years"),
            ("18446744073709551615s", "at most 100 years"),
            ("1ns", "at least 1ms"),
            ("999us", "at least 1ms"),
            ("10", "such as 500ms, 10s or 5m"),
            ("99999999999999999999s", "such as 500ms, 10s or 5m"),
            ("-1s", "such as 500ms, 10s or 5m"),
        ] {
            let told = parse_duration(text).unwrap_err();
            assert!(told.contains(expected), "{text}: {told}");
        }
    }
}
