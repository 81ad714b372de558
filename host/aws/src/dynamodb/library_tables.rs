//! The tables of other libraries, item by item: read whole, and written only by an export. Core
//! decides what the items mean.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::migration::{
    Found, Library, Row, RowChange, Tables, Value, of_multi_stream, read,
};
use shardmill_core::ports::{LeaseStore, StoreError};

use super::LeaseTable;
use super::attributes::Item;
use super::errors::{is_condition_failed, store_error};
use super::scan::{self, Pages};
use super::table::{self, Key};
use super::table_options::TableOptions;

/// The tables of one application, or of one program, of a library.
#[derive(Debug, Clone)]
pub struct LibraryTables {
    client: Client,
    library: Library,
    name: String,
}

/// The answer of [`LibraryTables::write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowWritten {
    /// The row was written.
    Written,
    /// The row already had these values.
    Same,
    /// Another program wrote to it meanwhile; it was left alone.
    Changed,
}

impl LibraryTables {
    /// The tables of `library` under `name`, whether they exist or not.
    pub fn new(client: Client, library: Library, name: impl Into<String>) -> Self {
        Self {
            client,
            library,
            name: name.into(),
        }
    }

    /// Recognises whose tables are under `name` by their keys; `None` if no library's are. A lease
    /// table of the KCL counts if it holds several streams.
    pub async fn find(client: &Client, name: &str) -> Result<Option<Self>, StoreError> {
        let of = |library| Self::new(client.clone(), library, name);
        if let Some(found) = table::describe(client, name).await? {
            let key = table::key_of(&found);
            if let Some(library) = Library::of_key(&key) {
                return Ok(Some(of(library)));
            }
            if key == Library::KclMultiStream.key() {
                let tables = of(Library::KclMultiStream);
                if !tables.places().await?.is_empty() {
                    return Ok(Some(tables));
                }
            }
        }
        let beside = Library::Kinsumer.checkpoints_table(name);
        let Some(found) = table::describe(client, &beside).await? else {
            return Ok(None);
        };
        match Library::of_key(&table::key_of(&found)) {
            Some(Library::Kinsumer) => Ok(Some(of(Library::Kinsumer))),
            _ => Ok(None),
        }
    }

    /// The library that the tables belong to.
    pub fn library(&self) -> Library {
        self.library
    }

    /// The name of the table of checkpoints.
    pub fn checkpoints_table(&self) -> String {
        // kinsumer's tables may have been asked for by the name of this very table.
        match self.library {
            Library::Kinsumer
                if self
                    .name
                    .ends_with(&Library::Kinsumer.checkpoints_table("")) =>
            {
                self.name.clone()
            }
            library => library.checkpoints_table(&self.name),
        }
    }

    /// All the checkpoints that the tables hold now, strongly consistent.
    pub async fn places(&self) -> Result<Vec<Found>, StoreError> {
        if self.library == Library::KclMultiStream {
            let leases = LeaseTable::new(self.client.clone(), self.name.as_str());
            return Ok(of_multi_stream(&leases.list_consistently().await?.leases));
        }
        let tables = Tables {
            checkpoints: self.rows(&self.checkpoints_table()).await?,
            workers: self.worker_rows().await?,
        };
        Ok(read(self.library, &tables))
    }

    /// Empty if the library keeps no table of workers, or if the table does not exist.
    async fn worker_rows(&self) -> Result<Vec<Row>, StoreError> {
        let checkpoints = self.checkpoints_table();
        let application = checkpoints
            .strip_suffix(&self.library.checkpoints_table(""))
            .unwrap_or(&checkpoints);
        match self.library.workers_table(application) {
            Some(workers) if table::exists(&self.client, &workers).await? => {
                self.rows(&workers).await
            }
            _ => Ok(Vec::new()),
        }
    }

    async fn rows(&self, table: &str) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        let pages = Pages {
            are_consistent: true,
            ..Pages::default()
        };
        scan::each_item(&self.client, table, pages, |item| rows.push(row_of(item))).await?;
        Ok(rows)
    }

    /// Creates the table of checkpoints if it does not exist, and refuses one with another key.
    pub async fn ensure(&self) -> Result<(), StoreError> {
        let parts = self.library.key().iter();
        let key: Vec<Key> = parts.filter_map(|part| Key::of_part(part)).collect();
        let options = TableOptions::default();
        table::ensure(&self.client, &self.checkpoints_table(), &key, &options).await
    }

    /// Writes one row, if it is still as it was read a moment before; attributes that the change
    /// does not name stay.
    pub async fn write(&self, change: &RowChange) -> Result<RowWritten, StoreError> {
        let table = self.checkpoints_table();
        let seen = self.item(&table, &change.key).await?;
        let wanted = overlaid(seen.as_ref(), change);
        if seen.as_ref() == Some(&wanted) {
            return Ok(RowWritten::Same);
        }
        let condition = unchanged(seen.as_ref(), change);
        let values = (!condition.values.is_empty()).then_some(condition.values);
        let request = self
            .client
            .put_item()
            .table_name(&table)
            .set_item(Some(wanted))
            .condition_expression(condition.expression)
            .set_expression_attribute_names(Some(condition.names))
            .set_expression_attribute_values(values);
        match request.send().await {
            Ok(_) => Ok(RowWritten::Written),
            Err(error) if is_condition_failed(&error) => Ok(RowWritten::Changed),
            Err(error) => Err(store_error(&table, &error)),
        }
    }

    async fn item(&self, table: &str, key: &Row) -> Result<Option<Item>, StoreError> {
        let request = self
            .client
            .get_item()
            .table_name(table)
            .set_key(Some(item_of(key)))
            .consistent_read(true);
        let reply = request.send().await;
        Ok(reply.map_err(|error| store_error(table, &error))?.item)
    }
}

/// The row with `change` applied to it.
fn overlaid(seen: Option<&Item>, change: &RowChange) -> Item {
    let mut item = seen.cloned().unwrap_or_default();
    for name in &change.remove {
        item.remove(*name);
    }
    item.extend(item_of(&change.key));
    item.extend(item_of(&change.set));
    item
}

/// A condition with the names and values in it.
#[derive(Default)]
struct Condition {
    expression: String,
    names: HashMap<String, String>,
    values: Item,
}

/// The condition that the row is as seen: each attribute has its value, and none of those that
/// `change` removes was added.
fn unchanged(seen: Option<&Item>, change: &RowChange) -> Condition {
    let mut condition = Condition::default();
    let Some(seen) = seen else {
        if let Some(name) = change.key.keys().next() {
            condition.require_absent(0, name);
        }
        return condition;
    };
    for (at, (name, value)) in seen.iter().enumerate() {
        condition.require_equal(at, name, value);
    }
    let removed = change.remove.iter();
    let absent = removed.filter(|name| !seen.contains_key(**name));
    for (at, name) in absent.enumerate() {
        condition.require_absent(at, name);
    }
    condition
}

impl Condition {
    fn require_equal(&mut self, at: usize, name: &str, value: &AttributeValue) {
        self.and(&format!("#s{at} = :s{at}"));
        self.names.insert(format!("#s{at}"), name.to_owned());
        self.values.insert(format!(":s{at}"), value.clone());
    }

    fn require_absent(&mut self, at: usize, name: &str) {
        self.and(&format!("attribute_not_exists(#a{at})"));
        self.names.insert(format!("#a{at}"), name.to_owned());
    }

    fn and(&mut self, requirement: &str) {
        if !self.expression.is_empty() {
            self.expression.push_str(" AND ");
        }
        self.expression.push_str(requirement);
    }
}

fn row_of(item: Item) -> Row {
    item.into_iter()
        .map(|(name, value)| (name, value_of(value)))
        .collect()
}

fn item_of(row: &Row) -> Item {
    row.iter()
        .filter_map(|(name, value)| Some((name.clone(), attribute_of(value)?)))
        .collect()
}

fn value_of(attribute: AttributeValue) -> Value {
    match attribute {
        AttributeValue::S(text) => Value::Text(text),
        AttributeValue::N(number) => Value::Number(number),
        AttributeValue::Bool(flag) => Value::Flag(flag),
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::Ss(texts) => Value::Texts(texts),
        AttributeValue::M(map) => Value::Map(row_of(map)),
        AttributeValue::L(list) => Value::List(list.into_iter().map(value_of).collect()),
        _ => Value::Other,
    }
}

/// `None` for a value that cannot be written; no change has one.
fn attribute_of(value: &Value) -> Option<AttributeValue> {
    Some(match value {
        Value::Text(text) => AttributeValue::S(text.clone()),
        Value::Number(number) => AttributeValue::N(number.clone()),
        Value::Flag(flag) => AttributeValue::Bool(*flag),
        Value::Null => AttributeValue::Null(true),
        Value::Texts(texts) => AttributeValue::Ss(texts.clone()),
        Value::Map(map) => AttributeValue::M(item_of(map)),
        Value::List(list) => AttributeValue::L(list.iter().filter_map(attribute_of).collect()),
        Value::Other => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> AttributeValue {
        AttributeValue::S(value.to_owned())
    }

    fn change() -> RowChange {
        RowChange {
            key: Row::from([("Shard".to_owned(), Value::text("s1"))]),
            set: Row::from([("Place".to_owned(), Value::text("9"))]),
            remove: vec!["Owner"],
        }
    }

    #[test]
    fn what_a_change_does_not_name_stays_and_an_owner_goes() {
        let seen = Item::from([
            ("Shard".to_owned(), text("s1")),
            ("Place".to_owned(), text("5")),
            ("Owner".to_owned(), text("w")),
            ("Note".to_owned(), text("kept")),
        ]);
        let wanted = overlaid(Some(&seen), &change());
        assert_eq!(wanted["Place"], text("9"));
        assert_eq!(wanted["Note"], text("kept"));
        assert!(!wanted.contains_key("Owner"));
    }

    #[test]
    fn a_row_is_written_only_if_it_is_as_seen_and_nobody_came_to_own_it() {
        let none = unchanged(None, &change());
        assert_eq!(none.expression, "attribute_not_exists(#a0)");
        assert_eq!(none.names["#a0"], "Shard");
        let seen = Item::from([("Shard".to_owned(), text("s1"))]);
        let some = unchanged(Some(&seen), &change());
        assert_eq!(some.expression, "#s0 = :s0 AND attribute_not_exists(#a0)");
        assert_eq!(some.names["#a0"], "Owner");
    }

    #[test]
    fn values_survive_both_ways() {
        let row = Row::from([
            (
                "map".to_owned(),
                Value::Map(Row::from([("n".to_owned(), Value::number(7))])),
            ),
            ("none".to_owned(), Value::Null),
            ("flag".to_owned(), Value::Flag(true)),
            ("list".to_owned(), Value::List(vec![Value::text("a")])),
            ("set".to_owned(), Value::Texts(vec!["x".to_owned()])),
        ]);
        assert_eq!(row_of(item_of(&row)), row);
    }
}
