//! Reading all that a lease table and the tables beside it tell, for `doctor`: `DescribeTable`,
//! `Scan` and `Query`, no write.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use shardmill_core::doctor::{Companions, LeaseFacts, LeaseTableFacts, SecondLook, TableFacts};
use shardmill_core::fleet::FleetRows;
use shardmill_core::ports::{Coordinator, LeaseStore, StoreError};
use shardmill_core::text::one_line;

use super::lease_item::{self, ENTITY_TYPE, Item, LEASE_KEY, Row};
use super::table::{self, Key};
use super::{CoordinatorTable, LeaseTable, scan};

/// The index that KCL 3.x adds.
const OWNER_INDEX: &str = "LeaseOwnerToLeaseKeyIndex";
/// The KCL's row with its client version, and the attribute that holds it.
const MIGRATION: (&str, &str) = ("Migration3.0", "cv");
/// The KCL's row on the way to a single table, and the attribute that holds its state.
const TABLE_MIGRATION: (&str, &str) = ("TableMigration3.5", "tm");
/// The key of a row in the KCL's coordinator state table.
const STATE_KEY: &str = "key";
/// Tables beside `APPLICATION`.
const WORKER_METRICS: &str = "WorkerMetricStats";
const COORDINATOR_STATE: &str = "CoordinatorState";
const OWN_COORDINATOR: &str = "coordinator";

/// Reads; never writes.
#[derive(Debug, Clone)]
pub struct TableInspector {
    client: Client,
    application: String,
}

impl TableInspector {
    /// Of the tables of `application`, through `client`.
    pub fn new(client: Client, application: impl Into<String>) -> Self {
        Self {
            client,
            application: application.into(),
        }
    }

    /// What lies under the application's name, now and, if `watch_for` is not zero, that much
    /// later.
    pub async fn table(
        &self,
        companions: Companions,
        watch_for: Duration,
    ) -> Result<TableFacts, StoreError> {
        let Some(found) = table::describe(&self.client, &self.application).await? else {
            return Ok(TableFacts::Missing);
        };
        match table::check_key(&self.application, &found, &[Key::Hash(LEASE_KEY)]) {
            Ok(()) => {}
            Err(StoreError::WrongTable { problem, .. }) => {
                return Ok(TableFacts::OtherKey { problem });
            }
            Err(error) => return Err(error),
        }
        let status = found
            .table_status()
            .map_or("of unknown status", |status| status.as_str());
        let has_owner_index = found
            .global_secondary_indexes()
            .iter()
            .any(|index| index.index_name() == Some(OWNER_INDEX));
        let mut facts = LeaseTableFacts {
            status: status.to_owned(),
            has_owner_index,
            ..LeaseTableFacts::default()
        };
        // A table that is being made or deleted cannot be scanned.
        if matches!(status, "ACTIVE" | "UPDATING") {
            scan::each_item(&self.client, &self.application, (None, false), |item| {
                note(&item, &mut facts);
            })
            .await?;
            if companions.coordinator_state {
                self.read_state_table(&mut facts).await?;
            }
            facts.fleet = self.fleet(companions).await?;
            if !watch_for.is_zero() && !facts.leases.is_empty() {
                tokio::time::sleep(watch_for).await;
                let leases = LeaseTable::new(self.client.clone(), self.application.as_str())
                    .list()
                    .await?
                    .leases;
                let fleet = self.fleet(companions).await?;
                facts.second_look = Some(SecondLook {
                    after: watch_for,
                    leases,
                    fleet,
                });
            }
        }
        Ok(TableFacts::Leases(Box::new(facts)))
    }

    async fn fleet(&self, companions: Companions) -> Result<FleetRows, StoreError> {
        if !companions.own_coordinator {
            return Ok(FleetRows::default());
        }
        CoordinatorTable::new(self.client.clone(), &self.application)
            .fleet()
            .await
    }

    /// Which tables lie beside it.
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
        format!("{}-{name}", self.application)
    }

    /// KCL 3.0 to 3.4 keep their states in a table of their own. What the lease table says wins: it
    /// is the newer place.
    async fn read_state_table(&self, facts: &mut LeaseTableFacts) -> Result<(), StoreError> {
        let (mut version, mut migration) = (None, None);
        scan::each_item(
            &self.client,
            &self.companion(COORDINATOR_STATE),
            (None, false),
            |item| {
                version = state(&item, STATE_KEY, MIGRATION).or(version.take());
                migration = state(&item, STATE_KEY, TABLE_MIGRATION).or(migration.take());
            },
        )
        .await?;
        facts.client_version = facts.client_version.take().or(version);
        facts.table_migration = facts.table_migration.take().or(migration);
        Ok(())
    }
}

/// Adds what one row of the lease table tells.
fn note(item: &Item, facts: &mut LeaseTableFacts) {
    match lease_item::classify(item) {
        Row::Lease(lease) => facts.leases.push(LeaseFacts {
            lease: *lease,
            has_pending_checkpoint: item.contains_key("pendingCheckpoint"),
            has_entity_type: item.contains_key(ENTITY_TYPE),
        }),
        Row::Bad(row) => facts.bad_rows.push(row),
        Row::Foreign => {
            let kind = text(item, ENTITY_TYPE).unwrap_or_default();
            *facts.other_rows.entry(kind).or_default() += 1;
            facts.client_version =
                state(item, LEASE_KEY, MIGRATION).or(facts.client_version.take());
            facts.table_migration =
                state(item, LEASE_KEY, TABLE_MIGRATION).or(facts.table_migration.take());
        }
    }
}

/// The value of a state row, if `item` is that row.
fn state(item: &Item, key: &str, (row, attribute): (&str, &str)) -> Option<String> {
    (text(item, key)? == row)
        .then(|| text(item, attribute))
        .flatten()
}

fn text(item: &Item, name: &str) -> Option<String> {
    item.get(name)
        .and_then(|value| value.as_s().ok())
        .map(|text| one_line(text).into_owned())
}
