//! The list of standalone hosts, which is in the coordinator table, and the removal of what one of
//! them left.

use aws_sdk_dynamodb::Client;
use shardmill_core::fleet::{FleetRows, StandaloneHost, WorkerRow};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::{lease_table, of_standalone_host, state_table};
use shardmill_core::ports::{
    Coordinator, LeaseStore, PortFuture, Raced, StandaloneHosts, StoreError,
};

use super::attributes::Item;
use super::coordinator_item::{self, standalone_id};
use super::coordinator_table::CoordinatorTable;
use super::errors::store_error;
use super::history_item::HISTORY;
use super::lease_item::LEASE_KEY;
use super::lease_table::LeaseTable;
use super::mail_item;
use super::row::{FLEET, ID, KIND, key};
use super::scan::{self, Pages};
use super::scope::{HOST, Scope};
use super::shard_cache::SHARDS;
use super::table;

/// The standalone hosts of one application, in its tables.
#[derive(Debug, Clone)]
pub struct StandaloneTables {
    client: Client,
    application: String,
    list: CoordinatorTable,
    has_state: bool,
}

impl StandaloneTables {
    /// Accesses the tables of an application, for a plugin that keeps no state; a host behind the
    /// application's name does not count.
    pub fn new(client: Client, application: &str) -> Self {
        let application = lease_table(application).to_owned();
        Self {
            list: CoordinatorTable::new(client.clone(), &application),
            client,
            application,
            has_state: false,
        }
    }

    /// The same; with state, what hosts saved is removed too.
    #[must_use]
    pub fn with_state(self, has_state: bool) -> Self {
        Self { has_state, ..self }
    }

    fn own_name(&self, host: &WorkerId) -> String {
        of_standalone_host(&self.application, host.as_str())
    }

    async fn clear_rows(&self, host: &WorkerId) -> Result<(), StoreError> {
        let own = self.own_name(host);
        self.clear_leases(&own).await?;
        // Who keeps no state may lack the right to look.
        if self.has_state && table::exists(&self.client, &state_table(&own)).await? {
            self.clear_table(&own, &state_table(&own)).await?;
        }
        let coordinator = CoordinatorTable::new(self.client.clone(), &own);
        let mail = mail_item::partition_of(host);
        for kind in [SHARDS, HISTORY, mail.as_str(), FLEET] {
            coordinator.clear_partition(kind).await?;
        }
        Ok(())
    }

    /// Leases go one by one, each only as it was listed: the host may have come back.
    async fn clear_leases(&self, own: &str) -> Result<(), StoreError> {
        let leases = LeaseTable::new(self.client.clone(), own);
        let listing = leases.list_consistently().await?;
        for lease in &listing.leases {
            leases.delete(lease).await?;
        }
        if listing.bad_rows.is_empty() && listing.foreign_rows == 0 {
            return Ok(());
        }
        let kept = leases.list_consistently().await?;
        if kept.leases.is_empty() {
            self.clear_table(own, lease_table(own)).await?;
        }
        Ok(())
    }

    /// Removes all rows that are in the host's partition of a table of leases or state.
    async fn clear_table(&self, own: &str, table: &str) -> Result<(), StoreError> {
        let (mut keys, pages) = (Vec::new(), Pages::default());
        let scope = Scope::of(own);
        scan::each_in_scope(&self.client, table, &scope, pages, |item| {
            keys.push(only(item, [HOST, LEASE_KEY]));
        })
        .await?;
        for row_key in keys {
            remove(&self.client, table, row_key).await?;
        }
        Ok(())
    }
}

impl CoordinatorTable {
    async fn clear_partition(&self, kind: &str) -> Result<(), StoreError> {
        for item in self.query(kind, None).await? {
            remove(self.client(), self.name(), only(item, [KIND, ID])).await?;
        }
        Ok(())
    }
}

/// The attributes that make the key of an item.
fn only(mut item: Item, key: [&str; 2]) -> Item {
    item.retain(|name, _| key.contains(&name.as_str()));
    item
}

async fn remove(client: &Client, table: &str, row_key: Item) -> Result<(), StoreError> {
    let request = client
        .delete_item()
        .table_name(table)
        .set_key(Some(row_key));
    let reply = request.send().await;
    reply.map(drop).map_err(|error| store_error(table, &error))
}

impl StandaloneHosts for StandaloneTables {
    fn list(&self) -> PortFuture<'_, Result<Vec<StandaloneHost>, StoreError>> {
        Box::pin(async move {
            let FleetRows { standalone, .. } = self.list.board().await?;
            Ok(standalone)
        })
    }

    fn entry<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<StandaloneHost>, StoreError>> {
        Box::pin(async move {
            let found = self.list.row(key(FLEET, &standalone_id(id))).await?;
            let entry = found.map(|item| coordinator_item::decode_standalone(&item));
            entry.transpose().map_err(|problem| StoreError::Refused {
                message: format!(
                    "table {}: the entry of standalone host {id} cannot be read, delete it: \
                        {problem}",
                    self.list.name()
                ),
            })
        })
    }

    fn write<'a>(
        &'a self,
        seen: Option<&'a StandaloneHost>,
        next: &'a StandaloneHost,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let item = coordinator_item::encode_standalone(next);
        Box::pin(self.list.put_if_beat(seen.map(|seen| seen.beat), item))
    }

    fn remove<'a>(&'a self, seen: &'a StandaloneHost) -> PortFuture<'a, Result<Raced, StoreError>> {
        let row_key = key(FLEET, &standalone_id(&seen.id));
        Box::pin(self.list.remove_if_beat(seen.beat, row_key))
    }

    fn worker<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<WorkerRow>, StoreError>> {
        Box::pin(async move {
            let own = CoordinatorTable::new(self.client.clone(), &self.own_name(id));
            own.worker(id).await
        })
    }

    fn clear<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.clear_rows(id))
    }
}
