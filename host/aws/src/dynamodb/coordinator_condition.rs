//! The conditions under which rows of the coordinator table are written and removed.

use shardmill_core::fleet::WorkerRow;

use super::attributes::{Item, number, text};

/// True while a worker's row is unchanged since it was read; its values are [`as_seen`].
pub(super) const AS_SEEN: &str = "incarnation = :run AND beat = :beat";
/// The same of an entry of the list of standalone hosts.
pub(super) const BEAT_AS_SEEN: &str = "beat = :seen";

/// The condition on a row under which a write is applied.
pub(super) struct Condition {
    pub(super) expression: &'static str,
    pub(super) values: Item,
}

impl Condition {
    /// The row does not exist.
    pub(super) fn is_new() -> Self {
        Self {
            expression: "attribute_not_exists(id)",
            values: Item::new(),
        }
    }

    /// The expression holds with this number as `:seen`.
    pub(super) fn is_as_seen(expression: &'static str, seen: u64) -> Self {
        Self {
            expression,
            values: Item::from([(":seen".to_owned(), number(seen))]),
        }
    }
}

/// The values of [`AS_SEEN`].
pub(super) fn as_seen(row: &WorkerRow) -> Item {
    Item::from([
        (":run".to_owned(), text(row.incarnation.as_str())),
        (":beat".to_owned(), number(row.beat)),
    ])
}
