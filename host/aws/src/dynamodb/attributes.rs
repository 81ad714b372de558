//! What an item of any table is made of.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

/// A DynamoDB item.
pub(super) type Item = HashMap<String, AttributeValue>;

pub(super) fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

pub(super) fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// The value of an attribute that must be there.
pub(super) fn require<T>(value: Option<T>, name: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("{name} is missing"))
}

/// A text; `None` if there is none.
pub(super) fn string<'a>(item: &'a Item, name: &str) -> Result<Option<&'a str>, String> {
    match item.get(name) {
        None | Some(AttributeValue::Null(_)) => Ok(None),
        Some(AttributeValue::S(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{name} is not a string")),
    }
}

/// DynamoDB numbers are decimal text; a counter at 2^53 and beyond stays exact.
pub(super) fn unsigned(item: &Item, name: &str) -> Result<Option<u64>, String> {
    match item.get(name) {
        None | Some(AttributeValue::Null(_)) => Ok(None),
        Some(AttributeValue::N(text)) => text
            .parse()
            .map(Some)
            .map_err(|_| format!("{name} {text} is not a whole number from 0 to 2^64-1")),
        Some(_) => Err(format!("{name} is not a number")),
    }
}
