//! An item of another library's table, without types of the database client.

use std::collections::BTreeMap;

/// The attributes of an item.
pub type Row = BTreeMap<String, Value>;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number, in decimal as in DynamoDB.
    Number(String),
    /// True or false.
    Flag(bool),
    /// DynamoDB's NULL, which many libraries write for an absent value.
    Null,
    /// A set of texts.
    Texts(Vec<String>),
    /// A map.
    Map(Row),
    /// A list.
    List(Vec<Value>),
    /// Bytes, or a set of numbers or of bytes: no library keeps progress in them.
    Other,
}

impl Value {
    /// The text as a value.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The number as a value, in decimal digits as DynamoDB sends it.
    pub fn number(number: impl ToString + Copy) -> Self {
        Self::Number(number.to_string())
    }
}

/// A text that may be missing; NULL and the empty text count as missing.
pub(super) fn text<'a>(row: &'a Row, name: &str) -> Result<Option<&'a str>, String> {
    match row.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("{name} is not a text")),
    }
}

/// A text that must be there.
pub(super) fn required<'a>(row: &'a Row, name: &str) -> Result<&'a str, String> {
    text(row, name)?.ok_or_else(|| format!("{name} is missing"))
}

/// A number or text unchanged, for comparison only; empty if it is missing.
pub(super) fn shown(row: &Row, name: &str) -> String {
    match row.get(name) {
        Some(Value::Text(text) | Value::Number(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Whether the attribute is a number.
pub(super) fn has_number(row: &Row, name: &str) -> bool {
    matches!(row.get(name), Some(Value::Number(_)))
}

/// A map that may be missing.
pub(super) fn map<'a>(row: &'a Row, name: &str) -> Option<&'a Row> {
    match row.get(name) {
        Some(Value::Map(map)) => Some(map),
        _ => None,
    }
}
