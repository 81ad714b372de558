//! The tables of an application.

use shardmill_aws::{AwsClients, CoordinatorTable, LeaseTable};
use shardmill_core::fleet::FleetRows;
use shardmill_core::ports::{Coordinator, LeaseListing, LeaseStore, StoreError};

/// The lease table and the coordinator table.
pub(crate) struct Tables {
    application: String,
    leases: LeaseTable,
    pub(crate) coordinator: CoordinatorTable,
}

/// What one look at the tables shows. A table that does not exist is empty.
#[derive(Default)]
pub(crate) struct Look {
    pub(crate) listing: LeaseListing,
    pub(crate) fleet: FleetRows,
    pub(crate) existing: Existing,
}

/// Which tables exist.
#[derive(Clone, Copy, Default)]
pub(crate) struct Existing {
    pub(crate) leases: bool,
    pub(crate) coordinator: bool,
}

impl Tables {
    pub(crate) fn of(application: &str, clients: &AwsClients) -> Self {
        Self {
            application: application.to_owned(),
            leases: LeaseTable::new(clients.dynamodb.clone(), application),
            coordinator: CoordinatorTable::new(clients.dynamodb.clone(), application),
        }
    }

    pub(crate) fn application(&self) -> &str {
        &self.application
    }

    pub(crate) async fn look(&self) -> anyhow::Result<Look> {
        let fleet = self.fleet().await?;
        let listing = self.listing().await?;
        Ok(Look {
            existing: Existing {
                leases: listing.is_some(),
                coordinator: fleet.is_some(),
            },
            listing: listing.unwrap_or_default(),
            fleet: fleet.unwrap_or_default(),
        })
    }

    async fn fleet(&self) -> anyhow::Result<Option<FleetRows>> {
        match self.coordinator.fleet().await {
            Err(StoreError::Refused { .. }) if !self.coordinator.exists().await? => Ok(None),
            fleet => Ok(Some(fleet?)),
        }
    }

    async fn listing(&self) -> anyhow::Result<Option<LeaseListing>> {
        match self.leases.list().await {
            Err(StoreError::Refused { .. }) if !self.leases.exists().await? => Ok(None),
            listing => Ok(Some(listing?)),
        }
    }
}
