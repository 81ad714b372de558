//! A size in the file. One that is far larger than any machine has would overflow in the host's
//! arithmetic.

use bytesize::ByteSize;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// The largest that a setting may be.
const LARGEST: ByteSize = ByteSize::pib(1);

/// A size that a setting may have.
pub(super) struct Bounded(pub(super) ByteSize);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let size = ByteSize::deserialize(deserializer)?;
        if size > LARGEST {
            return Err(D::Error::custom("a size is at most 1PiB"));
        }
        Ok(Self(size))
    }
}

/// A size that may be missing. For `#[serde(deserialize_with)]`.
pub(super) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ByteSize>, D::Error> {
    Bounded::deserialize(deserializer).map(|size| Some(size.0))
}
