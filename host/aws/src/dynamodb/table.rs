//! Makes sure that a table exists and has the right key.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::delete_table::DeleteTableError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, KeySchemaElement, KeyType, PointInTimeRecoverySpecification,
    ScalarAttributeType, TableDescription, TableStatus,
};
use shardmill_core::migration::Library;
use shardmill_core::ports::StoreError;

use super::errors::store_error;
use super::table_options::{Creation, TableOptions};

/// Real DynamoDB takes 5 to 20 s to make a table.
const ACTIVE_WAIT_MAX: Duration = Duration::from_mins(2);
/// Real DynamoDB takes some seconds to delete a table, or minutes if it is large.
const GONE_WAIT_MAX: Duration = Duration::from_mins(5);
/// The embedded stack is ready at once and should not be waited for long.
const POLL_FIRST: Duration = Duration::from_millis(20);
/// DescribeTable allows ten calls a second and more (AWS limit).
const POLL_MAX: Duration = Duration::from_secs(2);

/// Why commands and hosts that mean no single standalone host cannot use a table of such hosts.
pub(super) const OF_STANDALONE: &str = "it belongs to standalone hosts, each of which reads all \
    shards by itself: name one as APPLICATION@HOST (`shardmill plugins` lists them); for hosts that \
    share the shards, name another application";
/// Its key, as [`key_of`] has it.
const STANDALONE_KEY: [&str; 2] = ["HASH host S", "RANGE leaseKey S"];

/// One part of a table's key; all are strings.
#[derive(Debug, Clone, Copy)]
pub(super) enum Key {
    Hash(&'static str),
    Range(&'static str),
}

/// Creates the table if it does not exist and hosts may, checks its key, and waits until it can be
/// used.
pub(super) async fn ensure(
    client: &Client,
    table: &str,
    keys: &[Key],
    options: &TableOptions,
) -> Result<(), StoreError> {
    until_usable(client, table, keys, options).await?;
    if options.has_recovery {
        switch_on_recovery(client, table).await;
    }
    Ok(())
}

async fn until_usable(
    client: &Client,
    table: &str,
    keys: &[Key],
    options: &TableOptions,
) -> Result<(), StoreError> {
    let mut poll = POLL_FIRST;
    let mut waited = Duration::ZERO;
    loop {
        let found = describe(client, table).await?;
        let status = match &found {
            None => {
                create(client, table, keys, options).await?;
                "not there"
            }
            Some(found) => {
                check_key(table, found, keys)?;
                match found.table_status() {
                    Some(TableStatus::Active | TableStatus::Updating) => return Ok(()),
                    other => other.map_or("of unknown status", TableStatus::as_str),
                }
            }
        };
        if waited >= ACTIVE_WAIT_MAX {
            let message = format!("table {table} is still {status} after {waited:?}");
            return Err(StoreError::Refused { message });
        }
        tokio::time::sleep(poll).await;
        waited += poll;
        poll = (poll * 2).min(POLL_MAX);
    }
}

/// Whether the table exists, usable or not.
pub(super) async fn exists(client: &Client, table: &str) -> Result<bool, StoreError> {
    Ok(describe(client, table).await?.is_some())
}

pub(super) async fn describe(
    client: &Client,
    table: &str,
) -> Result<Option<TableDescription>, StoreError> {
    match client.describe_table().table_name(table).send().await {
        Ok(reply) => Ok(reply.table),
        Err(error)
            if error
                .as_service_error()
                .is_some_and(DescribeTableError::is_resource_not_found_exception) =>
        {
            Ok(None)
        }
        Err(error) => Err(store_error(table, &error)),
    }
}

/// Deletes the table, and returns once it is gone. One that does not exist is gone.
pub(super) async fn remove(client: &Client, table: &str) -> Result<(), StoreError> {
    let (mut poll, mut waited) = (POLL_FIRST, Duration::ZERO);
    while let Some(found) = describe(client, table).await? {
        if found.table_status() != Some(&TableStatus::Deleting) {
            request_removal(client, table).await?;
        }
        if waited >= GONE_WAIT_MAX {
            let message = format!("table {table} is still being deleted after {waited:?}");
            return Err(StoreError::Refused { message });
        }
        tokio::time::sleep(poll).await;
        waited += poll;
        poll = (poll * 2).min(POLL_MAX);
    }
    Ok(())
}

async fn request_removal(client: &Client, table: &str) -> Result<(), StoreError> {
    match client.delete_table().table_name(table).send().await {
        Ok(_) => Ok(()),
        // Another command was faster.
        Err(error)
            if error
                .as_service_error()
                .is_some_and(DeleteTableError::is_resource_not_found_exception) =>
        {
            Ok(())
        }
        Err(error) => Err(store_error(table, &error)),
    }
}

/// At each start, since a host may have died between making a table and this. Without it the table
/// can be used, so a failure is no reason to serve nothing.
async fn switch_on_recovery(client: &Client, table: &str) {
    let specification =
        PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true);
    let Ok(specification) = specification.build() else {
        return;
    };
    let request = client.update_continuous_backups().table_name(table);
    let reply = request
        .point_in_time_recovery_specification(specification)
        .send()
        .await;
    if let Err(error) = reply {
        let error = store_error(table, &error);
        tracing::warn!(
            table,
            %error,
            code = "recovery-not-set",
            "point-in-time recovery of a table cannot be switched on; tried again at the next \
                start"
        );
    }
}

async fn create(
    client: &Client,
    table: &str,
    keys: &[Key],
    options: &TableOptions,
) -> Result<(), StoreError> {
    if options.creation == Creation::Never {
        return Err(is_missing(table, keys));
    }
    let request = client.create_table().table_name(table);
    let mut request = options.apply(request).map_err(|error| refused(&error))?;
    for key in keys {
        request = request
            .key_schema(key.schema().map_err(|error| refused(&error))?)
            .attribute_definitions(key.definition().map_err(|error| refused(&error))?);
    }
    match request.send().await {
        Ok(_) => Ok(()),
        // Another host was faster.
        Err(error)
            if error
                .as_service_error()
                .is_some_and(CreateTableError::is_resource_in_use_exception) =>
        {
            Ok(())
        }
        Err(error) => Err(store_error(table, &error)),
    }
}

fn is_missing(table: &str, keys: &[Key]) -> StoreError {
    let key: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let message = format!(
        "there is no table {table}, and tables.create is \"never\": create it with the key [{}]",
        key.join(", ")
    );
    StoreError::Refused { message }
}

fn refused(error: &BuildError) -> StoreError {
    StoreError::Refused {
        message: error.to_string(),
    }
}

pub(super) fn check_key(
    table: &str,
    found: &TableDescription,
    keys: &[Key],
) -> Result<(), StoreError> {
    let key = key_of(found);
    let expected: Vec<String> = keys.iter().map(ToString::to_string).collect();
    if key == expected {
        return Ok(());
    }
    Err(StoreError::WrongTable {
        table: table.to_owned(),
        problem: wrong_key(&key, &expected),
    })
}

/// Never advises to delete a table: this program does not know what is in it.
fn wrong_key(key: &[String], expected: &[String]) -> String {
    let library = Library::of_key(key);
    let (found, expected) = (key.join(", "), expected.join(", "));
    if key == STANDALONE_KEY {
        return OF_STANDALONE.to_owned();
    }
    match library {
        Some(library) => format!(
            "it holds checkpoints of {library} (its key is [{found}], a lease table's is \
                [{expected}]): keep it, and name another application, which continues where \
                {library} stopped once `shardmill import` has filled its table"
        ),
        None => {
            format!("its key is [{found}], and should be [{expected}]: name another application")
        }
    }
}

/// The parts of a table's key, sorted, each such as `HASH name S`.
pub(super) fn key_of(found: &TableDescription) -> Vec<String> {
    let mut key = Vec::new();
    for part in found.key_schema() {
        let name = part.attribute_name();
        let kind = part.key_type().as_str();
        key.push(format!("{kind} {name} {}", type_of(found, name)));
    }
    key.sort();
    key
}

fn type_of<'a>(found: &'a TableDescription, attribute: &str) -> &'a str {
    found
        .attribute_definitions()
        .iter()
        .find(|definition| definition.attribute_name() == attribute)
        .map_or("?", |definition| definition.attribute_type().as_str())
}

impl Key {
    /// Reads `HASH name S` or `RANGE name S`.
    pub(super) fn of_part(part: &'static str) -> Option<Self> {
        match part.split(' ').collect::<Vec<_>>()[..] {
            ["HASH", name, "S"] => Some(Self::Hash(name)),
            ["RANGE", name, "S"] => Some(Self::Range(name)),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hash(name) | Self::Range(name) => name,
        }
    }

    fn kind(self) -> KeyType {
        match self {
            Self::Hash(_) => KeyType::Hash,
            Self::Range(_) => KeyType::Range,
        }
    }

    fn schema(self) -> Result<KeySchemaElement, BuildError> {
        KeySchemaElement::builder()
            .attribute_name(self.name())
            .key_type(self.kind())
            .build()
    }

    fn definition(self) -> Result<AttributeDefinition, BuildError> {
        AttributeDefinition::builder()
            .attribute_name(self.name())
            .attribute_type(ScalarAttributeType::S)
            .build()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} S", self.kind().as_str(), self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scope::Scope;
    use super::*;

    #[test]
    fn a_table_of_standalone_hosts_says_how_to_name_one() {
        let keys = Scope::of("prices@pod-1").keys().iter();
        let key: Vec<String> = keys.map(ToString::to_string).collect();
        assert_eq!(
            wrong_key(&key, &["HASH leaseKey S".to_owned()]),
            OF_STANDALONE
        );
        let shared = wrong_key(&["HASH leaseKey S".to_owned()], &key);
        assert!(shared.contains("name another application"), "{shared}");
    }

    #[test]
    fn a_table_of_another_library_is_recognised_and_nobody_is_told_to_delete_any() {
        let expected = ["HASH leaseKey S".to_owned()];
        for (key, library) in [
            (vec!["HASH ShardID S"], Some("vmware-go-kcl")),
            (vec!["HASH Shard S"], Some("kinsumer")),
            (
                vec!["HASH consumerGroup S", "RANGE streamName S"],
                Some("lifion-kinesis"),
            ),
            (vec!["HASH shard_id S"], Some("kcl-rb")),
            (vec!["HASH lease_key S"], Some("ruststream-kinesis")),
            (
                vec!["HASH StreamID S", "RANGE ShardID S"],
                Some("redpanda-connect"),
            ),
            (vec!["HASH id N"], None),
        ] {
            let key: Vec<String> = key.into_iter().map(str::to_owned).collect();
            let told = wrong_key(&key, &expected);
            assert!(
                !told.contains("delete") && told.contains("name another application"),
                "{told}"
            );
            assert_eq!(
                library.is_some_and(|library| told.contains(library)),
                library.is_some(),
                "{told}"
            );
        }
    }
}
