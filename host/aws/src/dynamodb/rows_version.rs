//! Which versions of shardmill may use an application's tables.
//!
//! Rows only ever gain attributes, so versions work side by side. Should that end one day, whoever
//! writes rows that this version would misread says so first, in a row of its own.

use shardmill_core::ports::StoreError;

use super::attributes::Item;
use super::row::{ID, string, unsigned};

/// The id of that row, in the partition of the fleet's rows. It sorts before workers, so that every
/// look has it.
const FORMAT: &str = "format";
/// The lowest version of the rows that a shardmill must know which uses the tables.
const OLDEST_READER: &str = "oldestReader";
/// The version of the rows that this one knows.
const ROWS_VERSION: u64 = 1;

/// Refuses the tables if `item` says that this shardmill would misread them. What it says in a way
/// that cannot be read is taken for the same.
pub(super) fn check(table: &str, item: &Item) -> Result<(), StoreError> {
    if string(item, ID) != Ok(FORMAT) {
        return Ok(());
    }
    let oldest = unsigned(item, OLDEST_READER);
    if oldest.as_ref().is_ok_and(|oldest| *oldest <= ROWS_VERSION) {
        return Ok(());
    }
    let needed = oldest.map_or_else(|problem| problem, |oldest| oldest.to_string());
    Err(StoreError::WrongTable {
        table: table.to_owned(),
        problem: format!(
            "a newer shardmill wrote rows of version {needed} there, and this one knows version \
                {ROWS_VERSION}: use the newer one (docs/upgrades.md)"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::attributes::{number, text};
    use super::super::row::{FLEET, key};
    use super::*;

    #[test]
    fn tables_of_rows_that_this_version_would_misread_are_refused_and_all_others_are_not() {
        let says = |value| {
            let mut item = key(FLEET, FORMAT);
            item.insert(OLDEST_READER.to_owned(), value);
            check("totals-coordinator", &item)
        };
        assert_eq!(says(number(ROWS_VERSION)), Ok(()));
        for newer in [number(ROWS_VERSION + 1), text("two"), number(u64::MAX)] {
            let refused = says(newer).unwrap_err().to_string();
            assert!(refused.contains("use the newer one"), "{refused}");
        }
        assert!(check("totals-coordinator", &key(FLEET, FORMAT)).is_err());
        assert_eq!(check("totals-coordinator", &key(FLEET, "later")), Ok(()));
    }
}
