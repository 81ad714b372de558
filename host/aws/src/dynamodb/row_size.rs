//! How large rows are, in the bytes that DynamoDB counts units by: made from the same conversion
//! that the adapters send, to compute what a fleet costs.
//!
//! Sizes as in "DynamoDB item sizes and formats" of the developer guide: names and strings in UTF-8
//! bytes, a number about a byte for two digits and one more, a boolean one byte, a list or map
//! three bytes and one for each element.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::fleet::{LeaderRow, Mail, WorkerRow};
use shardmill_core::lease::{Lease, WorkerId};

use super::attributes::Item;
use super::coordinator_item;
use super::lease_item;
use super::mail_item;

/// Bytes of a row of the lease table, with every attribute that `lease` has.
pub fn lease_row(lease: &Lease) -> usize {
    of_item(&lease_item::encode(lease))
}

/// Bytes of a worker's row of the coordinator table.
pub fn worker_row(row: &WorkerRow) -> usize {
    of_item(&coordinator_item::encode_worker(row))
}

/// Bytes of the leader's record.
pub fn leader_row(row: &LeaderRow) -> usize {
    of_item(&coordinator_item::encode_leader(row))
}

/// Bytes of the row with what the leader left for `worker`.
pub fn mail_row(worker: &WorkerId, mail: &Mail) -> usize {
    of_item(&mail_item::encode(worker, mail))
}

/// Bytes of any row.
pub(super) fn of_item(item: &Item) -> usize {
    item.iter()
        .map(|(name, value)| name.len() + of_value(value))
        .sum()
}

fn of_value(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(digits) => digits.len().div_ceil(2) + 1,
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        AttributeValue::L(values) => {
            3 + values
                .iter()
                .map(|value| 1 + of_value(value))
                .sum::<usize>()
        }
        AttributeValue::M(item) => 3 + item.len() + of_item(item),
        // Booleans and nulls; no row of ours has any of the others.
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamodb::attributes::{number, text};

    #[test]
    fn names_and_values_are_counted_as_dynamodb_does() {
        let nested = Item::from([("ab".to_owned(), text("cde"))]);
        let item = Item::from([
            ("key".to_owned(), text("äb")),
            ("n".to_owned(), number(12_345)),
            ("flag".to_owned(), AttributeValue::Bool(true)),
            (
                "set".to_owned(),
                AttributeValue::Ss(vec!["x".into(), "yz".into()]),
            ),
            (
                "list".to_owned(),
                AttributeValue::L(vec![AttributeValue::M(nested)]),
            ),
        ]);
        let expected = (3 + 3) + (1 + 4) + (4 + 1) + (3 + 3) + (4 + 3 + 1 + (3 + 1 + 2 + 3));
        assert_eq!(of_item(&item), expected);
    }
}
