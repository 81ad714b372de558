//! The coordinator tables of several applications.

use std::collections::BTreeMap;

use shardmill_aws::{AwsClients, CoordinatorTable};
use shardmill_core::fleet::FleetRows;
use shardmill_core::ports::Coordinator;

/// The rows of the tables, by application.
pub(super) type Fleets = BTreeMap<String, FleetRows>;

/// Reads each table once.
pub(super) async fn look(applications: &[String], clients: &AwsClients) -> anyhow::Result<Fleets> {
    let mut fleets = Fleets::new();
    for name in applications {
        let table = CoordinatorTable::new(clients.dynamodb.clone(), name);
        fleets.insert(name.clone(), table.fleet().await?);
    }
    Ok(fleets)
}
