//! The tables of other libraries, item by item: read whole, written only by an export, and nothing
//! decided. What the items mean is core's.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::migration::{
    Found, Library, Row, RowChange, Tables, Value, of_multi_stream, read,
};
use shardmill_core::ports::{LeaseStore, StoreError};

use super::LeaseTable;
use super::errors::store_error;
use super::lease_item::Item;
use super::scan;
use super::table::{self, Key};

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
    /// The row is as asked for.
    Written,
    /// It was already.
    Same,
    /// Somebody wrote to it meanwhile; it was left alone.
    Changed,
}

impl LibraryTables {
    /// The tables of `library` under `name`, whether they are there or not.
    pub fn new(client: Client, library: Library, name: impl Into<String>) -> Self {
        Self {
            client,
            library,
            name: name.into(),
        }
    }

    /// Recognises whose tables lie under `name`, by their keys; `None` if no library's do. A lease
    /// table of the KCL counts if it holds several streams.
    pub async fn find(client: &Client, name: &str) -> Result<Option<Self>, StoreError> {
        let of = |library| Some(Self::new(client.clone(), library, name));
        if let Some(found) = table::describe(client, name).await? {
            let key = table::key_of(&found);
            if let Some(library) = Library::of_key(&key) {
                return Ok(of(library));
            }
            if key == Library::KclMultiStream.key() {
                let tables = Self::new(client.clone(), Library::KclMultiStream, name);
                if !tables.places().await?.is_empty() {
                    return Ok(Some(tables));
                }
            }
        }
        let beside = Library::Kinsumer.checkpoints_table(name);
        let found = table::describe(client, &beside).await?;
        let is_kinsumer = found.is_some_and(|found| {
            Library::of_key(&table::key_of(&found)) == Some(Library::Kinsumer)
        });
        Ok(is_kinsumer.then(|| of(Library::Kinsumer)).flatten())
    }

    /// Whose they are.
    pub fn library(&self) -> Library {
        self.library
    }

    /// The table of checkpoints.
    pub fn checkpoints_table(&self) -> String {
        // Asked for by the table's own name, kinsumer's is that.
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

    /// All that they hold now, strongly consistent.
    pub async fn places(&self) -> Result<Vec<Found>, StoreError> {
        if self.library == Library::KclMultiStream {
            let leases = LeaseTable::new(self.client.clone(), self.name.as_str());
            return Ok(of_multi_stream(&leases.list_consistently().await?.leases));
        }
        let mut tables = Tables {
            checkpoints: self.rows(&self.checkpoints_table()).await?,
            workers: Vec::new(),
        };
        let checkpoints = self.checkpoints_table();
        let application = checkpoints
            .strip_suffix(&self.library.checkpoints_table(""))
            .unwrap_or(&checkpoints);
        if let Some(workers) = self.library.workers_table(application)
            && table::exists(&self.client, &workers).await?
        {
            tables.workers = self.rows(&workers).await?;
        }
        Ok(read(self.library, &tables))
    }

    async fn rows(&self, table: &str) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        scan::each_item(&self.client, table, (None, true), |item| {
            rows.push(row_of(item));
        })
        .await?;
        Ok(rows)
    }

    /// Makes the table of checkpoints if there is none, and refuses one with another key.
    pub async fn ensure(&self) -> Result<(), StoreError> {
        let key = self.library.key().iter().copied();
        let key: Vec<Key> = key.filter_map(Key::of_part).collect();
        table::ensure(&self.client, &self.checkpoints_table(), &key).await
    }

    /// Writes one row, if it is as it was read a moment before; attributes that the change does not
    /// name stay.
    pub async fn write(&self, change: &RowChange) -> Result<RowWritten, StoreError> {
        let table = self.checkpoints_table();
        let seen = self.item(&table, &change.key).await?;
        let wanted = overlaid(seen.as_ref(), change);
        if seen.as_ref() == Some(&wanted) {
            return Ok(RowWritten::Same);
        }
        let condition = unchanged(seen.as_ref(), change);
        let request = self
            .client
            .put_item()
            .table_name(&table)
            .set_item(Some(wanted))
            .condition_expression(condition.expression)
            .set_expression_attribute_names(Some(condition.names))
            .set_expression_attribute_values(
                Some(condition.values).filter(|values| !values.is_empty()),
            );
        match request.send().await {
            Ok(_) => Ok(RowWritten::Written),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(PutItemError::is_conditional_check_failed_exception) =>
            {
                Ok(RowWritten::Changed)
            }
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

/// The row as it is to be.
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
struct Condition {
    expression: String,
    names: HashMap<String, String>,
    values: Item,
}

/// That the row is as seen: each attribute has its value, and none of those that go has come.
fn unchanged(seen: Option<&Item>, change: &RowChange) -> Condition {
    let (mut names, mut values, mut all) = (HashMap::new(), Item::new(), Vec::new());
    let absent = match seen {
        None => change.key.keys().map(String::as_str).take(1).collect(),
        Some(seen) => {
            for (at, (name, value)) in seen.iter().enumerate() {
                names.insert(format!("#s{at}"), name.clone());
                values.insert(format!(":s{at}"), value.clone());
                all.push(format!("#s{at} = :s{at}"));
            }
            let gone = change.remove.iter().copied();
            gone.filter(|name| !seen.contains_key(*name))
                .collect::<Vec<&str>>()
        }
    };
    for (at, name) in absent.into_iter().enumerate() {
        names.insert(format!("#a{at}"), name.to_owned());
        all.push(format!("attribute_not_exists(#a{at})"));
    }
    Condition {
        expression: all.join(" AND "),
        names,
        values,
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

/// `None` for what cannot be written, which no change has.
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
