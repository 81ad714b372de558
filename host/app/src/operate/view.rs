//! The tables of one application as commands show them: read as often as asked, never written.

use std::time::Duration;

use anyhow::bail;
use shardmill_aws::{AwsClients, CoordinatorTable, LeaseTable, applications_of_streams};
use shardmill_core::fleet::FleetRows;
use shardmill_core::lease::LeaseObserver;
use shardmill_core::ports::{Clock, Coordinator, LeaseListing, LeaseStore, StoreError};
use shardmill_serve::{BootClock, Signals};

use super::parts::{no_lease_table, refuse_several_parts};
use crate::cli::ConnectionArgs;

/// See the module's description.
pub(crate) struct View {
    application: String,
    clients: AwsClients,
    leases: LeaseTable,
    coordinator: CoordinatorTable,
    /// Compares looks to find out which workers are alive.
    observer: LeaseObserver,
}

/// Why nothing is known of an application's hosts, not even that there are none.
#[derive(Debug, thiserror::Error)]
#[error("the coordinator table cannot be read: {0}")]
pub(super) struct FleetUnread(pub(super) StoreError);

impl View {
    pub(super) async fn of(application: &str, connection: &ConnectionArgs) -> anyhow::Result<Self> {
        let clients = crate::aws::connect_to(connection).await?;
        Ok(Self::with(application, clients))
    }

    /// The same, with clients that are there already.
    pub(crate) fn with(application: &str, clients: AwsClients) -> Self {
        Self {
            application: application.to_owned(),
            leases: LeaseTable::new(clients.dynamodb.clone(), application),
            coordinator: CoordinatorTable::new(clients.dynamodb.clone(), application),
            observer: LeaseObserver::default(),
            clients,
        }
    }

    /// Looks at the workers and waits, so that the next look shows which of them are alive; does
    /// nothing if the time is zero. Returns whether a signal came first.
    pub(super) async fn is_stopped_while_watching(
        &mut self,
        time: Duration,
        signals: &Signals,
    ) -> bool {
        if time.is_zero() {
            return false;
        }
        // Should it fail, the look that is shown says so if it fails as well.
        let _ = self.look_at_workers().await;
        is_stopped_within(time, signals).await
    }

    /// What all looks together show of who is alive.
    pub(super) fn observer(&self) -> &LeaseObserver {
        &self.observer
    }

    /// If there is no lease table, an error that names the applications of its streams that have
    /// one.
    pub(super) async fn listing(&self) -> anyhow::Result<LeaseListing> {
        let error = match self.leases.list().await {
            Ok(listing) => {
                let mut keys = listing.leases.iter().map(|lease| &lease.key);
                if keys.any(|key| key.stream_prefix().is_some()) {
                    self.refuse_several_streams().await?;
                }
                return Ok(listing);
            }
            Err(error) => error,
        };
        if !matches!(error, StoreError::Refused { .. }) || self.leases.exists().await? {
            return Err(error.into());
        }
        bail!(no_lease_table(&self.application, &self.clients).await)
    }

    /// A KCL's own table of several streams is shown as it is.
    async fn refuse_several_streams(&self) -> anyhow::Result<()> {
        match self.coordinator.board().await {
            Ok(fleet) => refuse_several_parts(&self.application, &fleet),
            Err(_) => Ok(()),
        }
    }

    /// Those of its further streams.
    pub(super) async fn other_applications(&self) -> Vec<String> {
        applications_of_streams(&self.clients.dynamodb, &self.application).await
    }

    /// `None` if there is no coordinator table: a KCL's application has none.
    pub(super) async fn look_at_workers(&mut self) -> Result<Option<FleetRows>, FleetUnread> {
        let fleet = match self.coordinator.fleet().await {
            Ok(fleet) => fleet,
            Err(error) => return self.without_fleet(error).await,
        };
        self.observer
            .observe_workers(&fleet.workers, BootClock.now());
        Ok(Some(fleet))
    }

    async fn without_fleet(&self, error: StoreError) -> Result<Option<FleetRows>, FleetUnread> {
        let may_be_missing = matches!(error, StoreError::Refused { .. });
        if may_be_missing && matches!(self.coordinator.exists().await, Ok(false)) {
            return Ok(None);
        }
        Err(FleetUnread(error))
    }
}

/// Waits; returns whether a signal came first.
pub(super) async fn is_stopped_within(time: Duration, signals: &Signals) -> bool {
    let sleep = tokio::time::sleep(time);
    signals.stop().run_until_cancelled(sleep).await.is_none()
}
