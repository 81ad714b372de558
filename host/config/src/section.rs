//! A section of the file: a table and nothing else.
//!
//! What serde derives for a struct also takes a list, with the fields by position, so that
//! `retry = ["1s", "2s"]` would count as a section, and `[[retry]]` would fail with an error about
//! one of its keys.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

/// What is expected where a section belongs.
pub(super) const EXPECTED: &str = "a section";

/// A section that may be missing. For `#[serde(deserialize_with)]`, as the next two.
pub(super) fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    one(deserializer).map(Some)
}

/// Reads a section, and takes only a table for it.
pub(super) fn one<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Section::deserialize(deserializer).map(|section| section.0)
}

/// A section of sections, by their names.
pub(super) fn by_name<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let sections: BTreeMap<String, Section<T>> = BTreeMap::deserialize(deserializer)?;
    let named = sections.into_iter();
    Ok(named.map(|(name, section)| (name, section.0)).collect())
}

struct Section<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Section<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SectionVisitor(PhantomData))
    }
}

struct SectionVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SectionVisitor<T> {
    type Value = Section<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Section<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Section)
    }
}
