//! Tables whose names differ only in capitals. DynamoDB keeps them apart, SQLite does not.
//!
//! The first of them is kept under its own name, any further one under an alias, in which small
//! letters are followed by which of them are capitals: `orders..case-0` beside `Orders`. The alias
//! alone says which name it stands for, so nothing else has to be kept. Who asks sees only names.
//! The text of PartiQL statements is left as it is.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dynoxide::Database;
use dynoxide::actions::list_tables::ListTablesRequest;
use dynoxide::errors::DynoxideError;
use serde_json::{Map, Value};

/// Stands between the small letters and the digits. No name that somebody chooses has it.
const MARK: &str = "..case-";
/// DynamoDB's limit.
const NAME_CHARS_MAX: usize = 255;
/// Letters of a name for which one digit says whether they are capitals.
const LETTERS_A_DIGIT: usize = 5;
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Where requests and replies have the name or the ARN of a table as a text.
const NAMED_BY: [&str; 10] = [
    "TableName",
    "TableArn",
    "ExclusiveStartTableName",
    "LastEvaluatedTableName",
    "ResourceArn",
    "StreamArn",
    "LatestStreamArn",
    "IndexArn",
    "message",
    "Message",
];
/// Where names are a list.
const LISTED_BY: &str = "TableNames";
/// Where names are the keys of an object.
const KEYED_BY: [&str; 5] = [
    "RequestItems",
    "Responses",
    "UnprocessedItems",
    "UnprocessedKeys",
    "ItemCollectionMetrics",
];

/// The names that are kept under an alias.
#[derive(Debug, Default)]
pub(super) struct Aliases {
    /// By name. Locked for a look-up, never across an await.
    by_name: Mutex<BTreeMap<String, String>>,
}

/// Why a table of a name cannot be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadName {
    #[error(
        "the embedded DynamoDB keeps a table {name:?} beside one whose name differs only in \
            capitals as {alias:?}, which is longer than {NAME_CHARS_MAX} characters: choose a \
            shorter name"
    )]
    TooLong { name: String, alias: String },
    #[error(
        "the embedded DynamoDB has names such as {0:?} for tables whose names differ only in \
            capitals: choose a name without {MARK:?}"
    )]
    Reserved(String),
}

impl Aliases {
    /// The aliases of the tables that there are.
    pub(super) fn of(database: &Database) -> Result<Self, DynoxideError> {
        let kept = names(database)?;
        let aliases = kept.into_iter().filter_map(|alias| {
            let name = name_of(&alias)?;
            Some((name, alias))
        });
        Ok(Self {
            by_name: Mutex::new(aliases.collect()),
        })
    }

    pub(super) fn are_none(&self) -> bool {
        self.with(|by_name| by_name.is_empty())
    }

    /// Gives a table that is about to be made an alias, if it needs one beside those that there
    /// are.
    pub(super) fn admit(&self, name: &str, kept: &[String]) -> Result<(), BadName> {
        if name_of(name).is_some() {
            return Err(BadName::Reserved(name.to_owned()));
        }
        let is_taken = |other: &String| other != name && other.eq_ignore_ascii_case(name);
        if !kept.iter().any(is_taken) {
            return Ok(());
        }
        let alias = alias_of(name);
        if alias.len() > NAME_CHARS_MAX {
            let name = name.to_owned();
            return Err(BadName::TooLong { name, alias });
        }
        self.with(|by_name| by_name.insert(name.to_owned(), alias));
        Ok(())
    }

    /// Puts aliases in place of the names in a request.
    pub(super) fn put_in(&self, request: &mut Value) {
        let pairs = self.with(|by_name| by_name.clone());
        change(request, &|text| match pairs.get(text) {
            Some(alias) => alias.clone(),
            None => in_arn(text, &pairs),
        });
    }

    /// Puts names in place of the aliases in a reply.
    pub(super) fn take_out(&self, reply: &mut Value) {
        let pairs = self.with(|by_name| by_name.clone());
        change(reply, &|text| {
            let mut text = text.to_owned();
            for (name, alias) in &pairs {
                text = text.replace(alias, name);
            }
            text
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> T {
        act(&mut self.by_name.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The tables as they are kept.
pub(super) fn names(database: &Database) -> Result<Vec<String>, DynoxideError> {
    let mut names = Vec::new();
    loop {
        let page = database.list_tables(ListTablesRequest {
            exclusive_start_table_name: names.last().cloned(),
            ..ListTablesRequest::default()
        })?;
        names.extend(page.table_names);
        if page.last_evaluated_table_name.is_none() {
            return Ok(names);
        }
    }
}

fn alias_of(name: &str) -> String {
    let letters = name.as_bytes().chunks(LETTERS_A_DIGIT);
    let digits: String = letters.map(digit_of).collect();
    // What is left out is small, as in `name_of`.
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    };
    format!("{}{MARK}{digits}", name.to_ascii_lowercase())
}

/// The digit that says which of these letters are capitals, a bit each.
fn digit_of(letters: &[u8]) -> char {
    let bits = letters.iter().enumerate();
    let bits = bits.map(|(at, letter)| usize::from(letter.is_ascii_uppercase()) << at);
    char::from(DIGITS[bits.sum::<usize>()])
}

/// Whether the letter at a place is a capital, by the digits of an alias. What they leave out is
/// small.
fn is_capital(digits: &str, at: usize) -> bool {
    let digit = digits.as_bytes().get(at / LETTERS_A_DIGIT);
    let bits = digit.and_then(|digit| DIGITS.iter().position(|known| known == digit));
    bits.is_some_and(|bits| bits >> (at % LETTERS_A_DIGIT) & 1 == 1)
}

/// The name that an alias stands for; `None` if it is none.
fn name_of(alias: &str) -> Option<String> {
    let (small, digits) = alias.rsplit_once(MARK)?;
    let mut name = String::new();
    for (at, letter) in small.chars().enumerate() {
        if is_capital(digits, at) {
            name.push(letter.to_ascii_uppercase());
        } else {
            name.push(letter);
        }
    }
    (alias_of(&name) == alias).then_some(name)
}

/// `arn:aws:dynamodb:REGION:ACCOUNT:table/NAME`, and what may follow it after a slash.
fn in_arn(text: &str, pairs: &BTreeMap<String, String>) -> String {
    let Some((head, rest)) = text.split_once(":table/") else {
        return text.to_owned();
    };
    let (name, tail) = match rest.find('/') {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    match pairs.get(name) {
        Some(alias) => format!("{head}:table/{alias}{tail}"),
        None => text.to_owned(),
    }
}

/// Changes the names of tables. Attributes of items are never texts of these keys: each is an
/// object that has its type as a key.
fn change(value: &mut Value, renamed: &impl Fn(&str) -> String) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| change(value, renamed)),
        Value::Object(fields) => fields
            .iter_mut()
            .for_each(|(key, value)| change_field(key, value, renamed)),
        _ => (),
    }
}

fn change_field(key: &str, value: &mut Value, renamed: &impl Fn(&str) -> String) {
    change(value, renamed);
    match value {
        Value::String(text) if NAMED_BY.contains(&key) => *text = renamed(text),
        Value::Array(names) if key == LISTED_BY => {
            for name in names {
                if let Value::String(name) = name {
                    *name = renamed(name);
                }
            }
        }
        Value::Object(fields) if KEYED_BY.contains(&key) => {
            let of_tables = std::mem::take(fields).into_iter();
            *fields = of_tables
                .map(|(name, value)| (renamed(&name), value))
                .collect::<Map<_, _>>();
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_has_no_capitals_and_says_which_name_it_stands_for() {
        for (name, alias) in [
            ("orders", "orders..case-0"),
            ("Orders", "orders..case-1"),
            ("ORDERS", "orders..case-v1"),
            ("a.b-C_9", "a.b-c_9..case-g"),
        ] {
            assert_eq!(alias_of(name), alias);
            assert_eq!(name_of(alias).as_deref(), Some(name));
        }
        for other in ["orders", "orders..case-", "orders..case-00", "o..case-x"] {
            assert_eq!(name_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_gets_an_alias_only_beside_one_that_differs_in_capitals() {
        let aliases = Aliases::default();
        let kept = ["Orders".to_owned(), "x".repeat(NAME_CHARS_MAX)];
        assert_eq!(aliases.admit("Orders", &kept), Ok(()));
        assert_eq!(aliases.admit("Flights", &kept), Ok(()));
        assert!(aliases.are_none());
        assert_eq!(aliases.admit("orders", &kept), Ok(()));
        assert!(!aliases.are_none());
        let long = aliases.admit(&"X".repeat(NAME_CHARS_MAX), &kept);
        assert!(matches!(long, Err(BadName::TooLong { .. })), "{long:?}");
        let reserved = aliases.admit("orders..case-1", &kept);
        assert!(matches!(reserved, Err(BadName::Reserved(_))));
    }

    #[test]
    fn only_names_of_tables_are_changed_and_attributes_of_items_are_not() {
        let aliases = Aliases::default();
        aliases.admit("orders", &["Orders".to_owned()]).unwrap();
        let arn = |name: &str| format!("arn:aws:dynamodb:us-east-1:0:table/{name}/stream/1");
        let with = |orders: &str| {
            serde_json::json!({
                "TableName": orders,
                "StreamArn": arn(orders),
                "TransactItems": [{"Put": {"TableName": orders}}],
                "RequestItems": {orders: [], "Orders": []},
                "TableNames": ["Orders", orders],
                "Item": {"TableName": {"S": "orders"}, "message": {"S": "orders"}},
            })
        };
        let mut value = with("orders");
        aliases.put_in(&mut value);
        assert_eq!(value, with("orders..case-0"));
        aliases.take_out(&mut value);
        assert_eq!(value, with("orders"));
    }
}
