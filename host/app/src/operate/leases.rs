//! `shardmill leases`: who holds which shard, how far each shard is, and which workers there are.

mod shards;
mod workers;

use std::time::Duration;

use anyhow::bail;
use shardmill_aws::{AwsClients, CoordinatorTable, LeaseTable, applications_of_streams};
use shardmill_core::fleet::FleetRows;
use shardmill_core::lease::LeaseObserver;
use shardmill_core::ports::{Clock, Coordinator, LeaseListing, LeaseStore, StoreError};
use shardmill_serve::{BootClock, Signals};

use self::shards::ShardRow;
use self::workers::worker_table;
use crate::cli::LeasesArgs;
use crate::output::{Interrupted, print, print_json, terminal_width};

/// The tables of the application, and the workers that were seen alive.
struct View<'a> {
    args: &'a LeasesArgs,
    clients: AwsClients,
    leases: LeaseTable,
    coordinator: CoordinatorTable,
    /// Compares looks to find out which workers are alive.
    observer: LeaseObserver,
}

pub(crate) async fn execute(args: &LeasesArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let mut view = View::of(args).await?;
    let watch_for = args.watching.watch_for.unwrap_or_default();
    if !watch_for.is_zero() {
        view.look_at_workers().await;
        if is_stopped_within(watch_for, &signals).await {
            return Err(Interrupted(": the leases were not shown".to_owned()).into());
        }
    }
    loop {
        view.show().await?;
        match args.watch {
            Some(interval) if !is_stopped_within(interval, &signals).await => {}
            _ => return Ok(()),
        }
    }
}

async fn is_stopped_within(time: Duration, signals: &Signals) -> bool {
    let sleep = tokio::time::sleep(time);
    signals.stop().run_until_cancelled(sleep).await.is_none()
}

impl<'a> View<'a> {
    async fn of(args: &'a LeasesArgs) -> anyhow::Result<Self> {
        let clients = crate::aws::connect_to(&args.place).await?;
        let application = args.application.as_str();
        Ok(Self {
            args,
            leases: LeaseTable::new(clients.dynamodb.clone(), application),
            coordinator: CoordinatorTable::new(clients.dynamodb.clone(), application),
            observer: LeaseObserver::default(),
            clients,
        })
    }

    async fn show(&mut self) -> anyhow::Result<()> {
        let listing = self.listing().await?;
        let fleet = self.look_at_workers().await;
        let rows = self.rows(&listing);
        if self.args.output.json {
            return print_json(&rows);
        }
        let width = if self.args.wide {
            None
        } else {
            terminal_width()
        };
        print(&shards::as_text(&rows, BootClock.wall_ms(), width));
        for bad in &listing.bad_rows {
            print(&format!("row {} cannot be read: {}", bad.key, bad.problem));
        }
        if let Some(fleet) = fleet {
            self.show_workers(&fleet);
        }
        let others = self.other_applications().await;
        if !others.is_empty() {
            print(&format!(
                "\nfurther streams have their own leases: {}",
                others.join(", ")
            ));
        }
        Ok(())
    }

    /// If there is no lease table, an error that names the applications of its streams that have
    /// one.
    async fn listing(&self) -> anyhow::Result<LeaseListing> {
        let error = match self.leases.list().await {
            Ok(listing) => return Ok(listing),
            Err(error) => error,
        };
        if !matches!(error, StoreError::Refused { .. }) || self.leases.exists().await? {
            return Err(error.into());
        }
        let application = &self.args.application;
        let others = self.other_applications().await;
        if others.is_empty() {
            bail!(
                "there is no lease table {application}: no host has served this application here; \
                    `shardmill plugins` lists those that have been served"
            );
        }
        bail!(
            "there is no lease table {application}, but its streams have their own leases: {}",
            others.join(", ")
        )
    }

    async fn other_applications(&self) -> Vec<String> {
        applications_of_streams(&self.clients.dynamodb, &self.args.application).await
    }

    /// `None` if the coordinator table cannot be read: a KCL's application has none, and the right
    /// to read the lease table does not include it.
    async fn look_at_workers(&mut self) -> Option<FleetRows> {
        match self.coordinator.fleet().await {
            Ok(fleet) => {
                self.observer
                    .observe_workers(&fleet.workers, BootClock.now());
                Some(fleet)
            }
            Err(error) => {
                tracing::debug!(%error, "the coordinator table cannot be read, workers are not shown");
                None
            }
        }
    }

    fn rows(&self, listing: &LeaseListing) -> Vec<ShardRow> {
        let now = BootClock.now();
        let leases = listing.leases.iter();
        let mut rows: Vec<ShardRow> = leases
            .map(|lease| ShardRow::of(lease, &self.observer, now))
            .collect();
        rows.sort_by(|a, b| a.shard.cmp(&b.shard));
        rows
    }

    fn show_workers(&self, fleet: &FleetRows) {
        if let Some(start) = &fleet.start {
            print(&format!("\nthe application starts at {start}"));
        }
        if fleet.workers.is_empty() {
            print("\nno worker is registered");
        } else {
            let table = worker_table(fleet, &self.observer, BootClock.now());
            print(&format!("\n{table}"));
        }
    }
}
