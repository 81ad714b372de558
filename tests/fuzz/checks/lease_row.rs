//! What must hold whatever a row of the lease table holds.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::Value;
use shardmill_core::lease::Lease;

use super::{Item, Row, classify, encode};

/// Reads the bytes as an item in DynamoDB's JSON, if they are one.
///
/// # Panics
///
/// If a row is called bad without words, or a lease is another one after it was written and read
/// back.
pub(super) fn check(bytes: &[u8]) {
    let Some(item) = item(bytes) else { return };
    match classify(&item) {
        Row::Foreign => {}
        Row::Bad(bad) => assert!(!bad.problem.is_empty()),
        Row::Lease(lease) => match classify(&encode(&lease)) {
            // These are not of a fresh row, or are rounded.
            Row::Lease(again) => assert_eq!(comparable(&again), comparable(&lease)),
            other => panic!("{lease:?} is read back as {other:?}"),
        },
    }
}

fn comparable(lease: &Lease) -> Lease {
    Lease {
        checkpoint_owner: None,
        bytes_per_second: None,
        ..lease.clone()
    }
}

fn item(bytes: &[u8]) -> Option<Item> {
    let Value::Object(attributes) = serde_json::from_slice(bytes).ok()? else {
        return None;
    };
    attributes
        .into_iter()
        .map(|(name, typed)| Some((name, value(&typed)?)))
        .collect()
}

fn value(typed: &Value) -> Option<AttributeValue> {
    let (kind, value) = typed.as_object()?.iter().next()?;
    let text = || value.as_str().map(str::to_owned);
    let texts = || {
        value
            .as_array()?
            .iter()
            .map(|text| text.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
    };
    Some(match kind.as_str() {
        "S" => AttributeValue::S(text()?),
        "N" => AttributeValue::N(text()?),
        "SS" => AttributeValue::Ss(texts()?),
        "NS" => AttributeValue::Ns(texts()?),
        "BOOL" => AttributeValue::Bool(value.as_bool()?),
        "NULL" => AttributeValue::Null(true),
        "L" => AttributeValue::L(
            value
                .as_array()?
                .iter()
                .map(self::value)
                .collect::<Option<_>>()?,
        ),
        _ => return None,
    })
}
