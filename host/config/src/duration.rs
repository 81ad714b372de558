//! A duration of the file. One that is far longer than anybody means would overflow where the host
//! counts with it.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// The longest that a setting may be: 100 years, without leap days.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

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
