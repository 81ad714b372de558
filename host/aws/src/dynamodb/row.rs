//! What all rows of the coordinator table have in common: their keys, and values of the simple
//! kinds.

use std::collections::HashMap;

use shardmill_core::fleet::Incarnation;
use shardmill_core::lease::WorkerId;
use shardmill_core::text::one_line;

use super::attributes::{Item, text};

/// The partition key.
pub(super) const KIND: &str = "kind";
/// The sort key.
pub(super) const ID: &str = "id";
/// The partition of the small rows.
pub(super) const FLEET: &str = "fleet";

pub(super) const WORKER: &str = "worker";
pub(super) const INCARNATION: &str = "incarnation";

/// The key of a row.
pub(super) fn key(kind: &str, id: &str) -> Item {
    HashMap::from([(KIND.to_owned(), text(kind)), (ID.to_owned(), text(id))])
}

pub(super) fn worker(item: &Item) -> Result<WorkerId, String> {
    WorkerId::new(string(item, WORKER)?).ok_or_else(|| format!("{WORKER} is empty"))
}

pub(super) fn incarnation(item: &Item) -> Result<Incarnation, String> {
    Incarnation::new(string(item, INCARNATION)?).ok_or_else(|| format!("{INCARNATION} is empty"))
}

pub(super) fn string<'a>(item: &'a Item, name: &str) -> Result<&'a str, String> {
    let value = item.get(name).ok_or_else(|| format!("{name} is missing"))?;
    value
        .as_s()
        .map(String::as_str)
        .map_err(|_| format!("{name} is not a string"))
}

/// Text for people, on one line.
pub(super) fn for_people(item: &Item, name: &str) -> Result<String, String> {
    string(item, name).map(|text| one_line(text).into_owned())
}

pub(super) fn unsigned(item: &Item, name: &str) -> Result<u64, String> {
    let value = item.get(name).ok_or_else(|| format!("{name} is missing"))?;
    let text = value
        .as_n()
        .map_err(|_| format!("{name} is not a number"))?;
    text.parse()
        .map_err(|_| format!("{name} {text} is not a whole number from 0 to 2^64-1"))
}
