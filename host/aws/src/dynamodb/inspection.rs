//! Reads everything in a lease table and the tables that belong to it, for `doctor`:
//! `DescribeTable`, `Scan` and `Query`, no write.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::TableDescription;
use shardmill_core::doctor::{Companions, LeaseFacts, LeaseTableFacts, SecondLook, TableFacts};
use shardmill_core::fleet::FleetRows;
use shardmill_core::plugin::lease_table;
use shardmill_core::ports::{Coordinator, LeaseStore, StoreError};
use shardmill_core::text::one_line;

use super::attributes::Item;
use super::lease_item::{ENTITY_TYPE, LEASE_KEY, Row};
use super::scan::{self, Pages};
use super::scope::Scope;
use super::table;
use super::{CoordinatorTable, LeaseTable};

/// The index that KCL 3.x adds.
const OWNER_INDEX: &str = "LeaseOwnerToLeaseKeyIndex";
/// The KCL's client version.
const MIGRATION: StateRow = StateRow {
    key: "Migration3.0",
    attribute: "cv",
};
/// How far the KCL is on the way to a single table.
const TABLE_MIGRATION: StateRow = StateRow {
    key: "TableMigration3.5",
    attribute: "tm",
};
/// The key of a row in the KCL's coordinator state table.
const STATE_KEY: &str = "key";
/// Other tables of `APPLICATION`.
const WORKER_METRICS: &str = "WorkerMetricStats";
const COORDINATOR_STATE: &str = "CoordinatorState";
const OWN_COORDINATOR: &str = "coordinator";

/// A row in which the KCL keeps one state of the whole fleet, as text.
struct StateRow {
    key: &'static str,
    attribute: &'static str,
}

/// Reads the tables of one application; never writes.
#[derive(Debug, Clone)]
pub struct TableInspector {
    client: Client,
    application: String,
}

impl TableInspector {
    /// Reads the tables of `application` through `client`.
    pub fn new(client: Client, application: impl Into<String>) -> Self {
        Self {
            client,
            application: application.into(),
        }
    }

    /// The tables under the application's name, now and, if `watch_for` is not zero, again that
    /// much later.
    pub async fn table(
        &self,
        companions: Companions,
        watch_for: Duration,
    ) -> Result<TableFacts, StoreError> {
        let Some(found) = table::describe(&self.client, self.lease_table()).await? else {
            return Ok(TableFacts::Missing);
        };
        match table::check_key(self.lease_table(), &found, self.scope().keys()) {
            Ok(()) => {}
            // The tables of standalone hosts that are all gone are nobody's.
            Err(StoreError::WrongTable { problem, .. })
                if problem == table::OF_STANDALONE && self.is_empty().await? =>
            {
                return Ok(TableFacts::Leases(Box::new(described(&found))));
            }
            Err(StoreError::WrongTable { problem, .. }) => {
                return Ok(TableFacts::OtherKey { problem });
            }
            Err(error) => return Err(error),
        }
        let mut facts = described(&found);
        // A table that is being made or deleted cannot be scanned.
        if matches!(facts.status.as_str(), "ACTIVE" | "UPDATING") {
            self.read_rows(companions, &mut facts).await?;
            if !watch_for.is_zero() && !facts.leases.is_empty() {
                tokio::time::sleep(watch_for).await;
                facts.second_look = Some(self.look_again(companions, watch_for).await?);
            }
        }
        Ok(TableFacts::Leases(Box::new(facts)))
    }

    async fn read_rows(
        &self,
        companions: Companions,
        facts: &mut LeaseTableFacts,
    ) -> Result<(), StoreError> {
        let pages = Pages::default();
        let leases = LeaseTable::new(self.client.clone(), self.application.as_str());
        leases.learn_stream().await?;
        let (table, scope) = (self.lease_table(), leases.scope());
        scan::each_in_scope(&self.client, table, scope, pages, |item| {
            note(scope, &item, facts);
        })
        .await?;
        if companions.coordinator_state {
            self.read_state_table(facts).await?;
        }
        facts.fleet = self.fleet(companions).await?;
        Ok(())
    }

    async fn look_again(
        &self,
        companions: Companions,
        after: Duration,
    ) -> Result<SecondLook, StoreError> {
        let table = LeaseTable::new(self.client.clone(), self.application.as_str());
        Ok(SecondLook {
            after,
            leases: table.list().await?.leases,
            fleet: self.fleet(companions).await?,
        })
    }

    async fn fleet(&self, companions: Companions) -> Result<FleetRows, StoreError> {
        if !companions.own_coordinator {
            return Ok(FleetRows::default());
        }
        CoordinatorTable::new(self.client.clone(), &self.application)
            .fleet()
            .await
    }

    /// Which other tables of the application exist.
    pub async fn companions(&self) -> Result<Companions, StoreError> {
        Ok(Companions {
            worker_metrics: self.has_companion(WORKER_METRICS).await?,
            coordinator_state: self.has_companion(COORDINATOR_STATE).await?,
            own_coordinator: self.has_companion(OWN_COORDINATOR).await?,
        })
    }

    async fn has_companion(&self, name: &str) -> Result<bool, StoreError> {
        Ok(table::describe(&self.client, &self.companion(name))
            .await?
            .is_some())
    }

    fn companion(&self, name: &str) -> String {
        format!("{}-{name}", self.lease_table())
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        let mut is_empty = true;
        let pages = Pages::default();
        scan::each_item(&self.client, self.lease_table(), pages, |_| {
            is_empty = false;
        })
        .await?;
        Ok(is_empty)
    }

    fn lease_table(&self) -> &str {
        lease_table(&self.application)
    }

    fn scope(&self) -> Scope {
        Scope::of(&self.application)
    }

    /// KCL 3.0 to 3.4 keep their states in a separate table. What the lease table says wins: it is
    /// the newer place.
    async fn read_state_table(&self, facts: &mut LeaseTableFacts) -> Result<(), StoreError> {
        let mut version = None;
        let mut migration = None;
        let table = self.companion(COORDINATOR_STATE);
        scan::each_item(&self.client, &table, Pages::default(), |item| {
            version = MIGRATION.read(&item, STATE_KEY).or(version.take());
            migration = TABLE_MIGRATION.read(&item, STATE_KEY).or(migration.take());
        })
        .await?;
        facts.client_version = facts.client_version.take().or(version);
        facts.table_migration = facts.table_migration.take().or(migration);
        Ok(())
    }
}

/// What `DescribeTable` says of a lease table.
fn described(found: &TableDescription) -> LeaseTableFacts {
    let status = found
        .table_status()
        .map_or("of unknown status", |status| status.as_str());
    let has_owner_index = found
        .global_secondary_indexes()
        .iter()
        .any(|index| index.index_name() == Some(OWNER_INDEX));
    LeaseTableFacts {
        status: status.to_owned(),
        has_owner_index,
        ..LeaseTableFacts::default()
    }
}

/// Adds what one row of the lease table says.
fn note(scope: &Scope, item: &Item, facts: &mut LeaseTableFacts) {
    match scope.classify(item) {
        Some(Row::Lease(lease)) => facts.leases.push(LeaseFacts {
            lease: *lease,
            has_pending_checkpoint: item.contains_key("pendingCheckpoint"),
            has_entity_type: item.contains_key(ENTITY_TYPE),
        }),
        Some(Row::Bad(row)) => facts.bad_rows.push(row),
        None => {}
        Some(Row::Foreign) => {
            let kind = text(item, ENTITY_TYPE).unwrap_or_default();
            *facts.other_rows.entry(kind).or_default() += 1;
            let version = MIGRATION.read(item, LEASE_KEY);
            let migration = TABLE_MIGRATION.read(item, LEASE_KEY);
            facts.client_version = version.or(facts.client_version.take());
            facts.table_migration = migration.or(facts.table_migration.take());
        }
    }
}

/// The value of a state row, if `item` is that row.
impl StateRow {
    /// The state in `item`, if it is this row; `key` is the table's key attribute.
    fn read(&self, item: &Item, key: &str) -> Option<String> {
        if text(item, key)? == self.key {
            text(item, self.attribute)
        } else {
            None
        }
    }
}

fn text(item: &Item, name: &str) -> Option<String> {
    item.get(name)
        .and_then(|value| value.as_s().ok())
        .map(|text| one_line(text).into_owned())
}
