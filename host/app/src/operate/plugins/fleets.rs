//! The coordinator tables of several applications.

use std::collections::BTreeMap;

use shardmill_aws::{AwsClients, CoordinatorTable};
use shardmill_core::fleet::FleetRows;
use shardmill_core::plugin::{of_standalone_host, of_stream};
use shardmill_core::ports::Coordinator;

/// The rows of the tables, by application.
pub(super) type Fleets = BTreeMap<String, FleetRows>;

/// Reads each table once. A standalone host, and a stream whose leases are in one table with
/// others, count as applications of their own.
pub(super) async fn look(applications: &[String], clients: &AwsClients) -> anyhow::Result<Fleets> {
    let mut fleets = Fleets::new();
    for name in applications {
        let fleet = read(name, clients).await?;
        for host in &fleet.standalone {
            let own = of_standalone_host(name, host.id.as_str());
            fleets.insert(own.clone(), read(&own, clients).await?);
        }
        for stream in &fleet.streams {
            let own = of_stream(name, stream);
            fleets.insert(own.clone(), read(&own, clients).await?);
        }
        if fleet.standalone.is_empty() && fleet.streams.is_empty() {
            fleets.insert(name.clone(), fleet);
        }
    }
    Ok(fleets)
}

async fn read(application: &str, clients: &AwsClients) -> anyhow::Result<FleetRows> {
    let table = CoordinatorTable::new(clients.dynamodb.clone(), application);
    Ok(table.fleet().await?)
}
