//! Deletes the tables of an application. No host does this.

use aws_sdk_dynamodb::Client;
use shardmill_core::plugin::{coordinator_table, lease_table, state_table};
use shardmill_core::ports::StoreError;

use super::table;

/// The tables of `application` that exist, in the order in which to delete them: the coordinator
/// table shows that the others are shardmill's, so it is the last one.
pub async fn existing_tables(
    client: &Client,
    application: &str,
) -> Result<Vec<String>, StoreError> {
    let tables = [
        state_table(application),
        lease_table(application).to_owned(),
        coordinator_table(application),
    ];
    let mut existing = Vec::new();
    for name in tables {
        if table::exists(client, &name).await? {
            existing.push(name);
        }
    }
    Ok(existing)
}

/// Deletes a table, and returns once it is gone; one that does not exist is gone.
pub async fn delete_table(client: &Client, name: &str) -> Result<(), StoreError> {
    table::remove(client, name).await
}
