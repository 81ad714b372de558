//! Who asked for something, why and when, as attributes of a map.

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::control::Asked;

use super::attributes::{Item, number, text};
use super::row::{for_people, unsigned};

const BY: &str = "by";
const WHY: &str = "why";
const AT: &str = "atMillis";

pub(super) fn encode_asked(asked: &Asked) -> Item {
    Item::from([
        (BY.to_owned(), text(&asked.by)),
        (WHY.to_owned(), text(&asked.why)),
        (AT.to_owned(), number(asked.at_ms)),
    ])
}

pub(super) fn part<'a>(item: &'a Item, name: &str) -> Result<Option<&'a Item>, String> {
    let value = item.get(name).map(AttributeValue::as_m).transpose();
    value.map_err(|_| format!("{name} is not a map"))
}

pub(super) fn decode_asked(item: &Item) -> Result<Asked, String> {
    Ok(Asked {
        by: for_people(item, BY)?,
        why: for_people(item, WHY)?,
        at_ms: unsigned(item, AT)?,
    })
}
