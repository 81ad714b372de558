//! The list of standalone hosts, which is in the coordinator table, and the removal of what one of
//! them left.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, CancellationReason, Delete, Put, TransactWriteItem};
use shardmill_core::fleet::{FleetRows, StandaloneHost, WorkerRow};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::{lease_table, of_standalone_host, state_table};
use shardmill_core::ports::{Coordinator, Extent, PortFuture, Raced, StandaloneHosts, StoreError};

use super::attributes::{Item, number};
use super::coordinator_condition::BEAT_AS_SEEN;
use super::coordinator_item::{self, GOING, standalone_id};
use super::coordinator_table::CoordinatorTable;
use super::directive_item::CONTROL;
use super::errors::store_error;
use super::history_item::HISTORY;
use super::lease_item::LEASE_KEY;
use super::mail_item;
use super::row::{self, FLEET, ID, KIND, key};
use super::scan::{self, Pages};
use super::scope::{HOST, Scope};
use super::shard_cache::SHARDS;
use super::table;
use super::version_item::QUARANTINE_PREFIX;

/// Rows that are removed at once; a transaction has at most 100 items (DynamoDB limit).
const REMOVED_AT_ONCE: usize = 50;

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

    async fn clear_rows(&self, mark: &StandaloneHost, extent: Extent) -> Result<Raced, StoreError> {
        let keys = self.keys_of(&mark.id, extent).await?;
        for some in keys.chunks(REMOVED_AT_ONCE) {
            if self.remove_under(mark, some).await? == Raced::Lost {
                return Ok(Raced::Lost);
            }
        }
        Ok(Raced::Applied)
    }

    /// The rows that a host has.
    async fn keys_of(&self, host: &WorkerId, extent: Extent) -> Result<Vec<RowKey>, StoreError> {
        let own = self.own_name(host);
        let mut keys = self.keys_in(&own, lease_table(&own)).await?;
        // Who keeps no state may lack the right to look.
        if self.has_state && table::exists(&self.client, &state_table(&own)).await? {
            keys.extend(self.keys_in(&own, &state_table(&own)).await?);
        }
        let coordinator = CoordinatorTable::new(self.client.clone(), &own);
        let mail = mail_item::partition_of(host);
        for kind in [SHARDS, HISTORY, mail.as_str(), FLEET] {
            let rows = coordinator.query(kind, None).await?.into_iter();
            let removed = rows.filter(|row| extent == Extent::All || !is_a_wish(kind, row));
            keys.extend(removed.map(|row| RowKey {
                table: coordinator.name().to_owned(),
                key: only(row, [KIND, ID]),
            }));
        }
        Ok(keys)
    }

    /// The rows in the host's partition of a table of leases or state.
    async fn keys_in(&self, own: &str, table: &str) -> Result<Vec<RowKey>, StoreError> {
        let (mut keys, pages) = (Vec::new(), Pages::default());
        let scope = Scope::of(own);
        scan::each_in_scope(&self.client, table, &scope, pages, |item| {
            keys.push(RowKey {
                table: table.to_owned(),
                key: only(item, [HOST, LEASE_KEY]),
            });
        })
        .await?;
        Ok(keys)
    }

    /// Writes the mark once more, if it is as it was seen.
    fn still_going(&self, mark: &StandaloneHost) -> Result<Put, BuildError> {
        let condition = format!("{BEAT_AS_SEEN} AND {GOING} = :going");
        Put::builder()
            .table_name(self.list.name())
            .set_item(Some(coordinator_item::encode_standalone(mark)))
            .condition_expression(condition)
            .expression_attribute_values(":seen", number(mark.beat))
            .expression_attribute_values(":going", AttributeValue::Bool(true))
            .build()
    }

    /// Removes rows in one transaction with the mark, so that a host that came back loses nothing
    /// to a removal that was delayed: it has replaced the mark.
    async fn remove_under(
        &self,
        mark: &StandaloneHost,
        keys: &[RowKey],
    ) -> Result<Raced, StoreError> {
        let still = self.still_going(mark).map_err(|error| refused(&error))?;
        let mut parts = vec![TransactWriteItem::builder().put(still).build()];
        for row in keys {
            let delete = Delete::builder().table_name(&row.table);
            let delete = delete.set_key(Some(row.key.clone())).build();
            let delete = delete.map_err(|error| refused(&error))?;
            parts.push(TransactWriteItem::builder().delete(delete).build());
        }
        let request = self.client.transact_write_items();
        let Err(error) = request.set_transact_items(Some(parts)).send().await else {
            return Ok(Raced::Applied);
        };
        match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                of_cancelled(cancelled.cancellation_reasons())
            }
            Some(_) | None => Err(store_error(self.list.name(), &error)),
        }
    }
}

/// A row, and the table that it is in.
struct RowKey {
    table: String,
    key: Item,
}

/// A cancelled transaction was not applied, for any reason.
fn of_cancelled(reasons: &[CancellationReason]) -> Result<Raced, StoreError> {
    let codes = reasons.iter().filter_map(CancellationReason::code);
    let mut others = codes.filter(|code| *code != "None").peekable();
    match others.peek().copied() {
        Some("ConditionalCheckFailed") => Ok(Raced::Lost),
        code => Err(StoreError::Throttled {
            message: format!("cancelled: {}", code.unwrap_or("for no reason given")),
        }),
    }
}

/// Whether a row says what operators want, or what is known of versions.
fn is_a_wish(kind: &str, row: &Item) -> bool {
    let id = row::string(row, ID).unwrap_or_default();
    kind == HISTORY || id == CONTROL || id.starts_with(QUARANTINE_PREFIX)
}

/// The attributes that make the key of an item.
fn only(mut item: Item, key: [&str; 2]) -> Item {
    item.retain(|name, _| key.contains(&name.as_str()));
    item
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

    fn clear<'a>(
        &'a self,
        mark: &'a StandaloneHost,
        extent: Extent,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.clear_rows(mark, extent))
    }
}

fn refused(error: &BuildError) -> StoreError {
    StoreError::Refused {
        message: error.to_string(),
    }
}
