//! What is known of an application that is to be deleted, and who may be alive.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use shardmill_aws::{AwsClients, TableInspector, applications_of_streams, existing_tables};
use shardmill_config::Config;
use shardmill_core::doctor::{
    Companions, DeletionFacts, DeletionRefusal, TableFacts, living, refuse_deletion,
};
use shardmill_core::lease::{LeaseObserver, Pulse, WorkerId};
use shardmill_core::ports::Clock;
use shardmill_serve::BootClock;
use shardmill_worker::LeaseOptions;

use crate::cli::DeleteArgs;
use crate::operate::reading::{Look, Tables, WATCH_MAX, watch_past};

/// What was found.
pub(super) struct Found {
    /// In the order in which they are deleted.
    pub(super) tables: Vec<String>,
    pub(super) facts: TableFacts,
    pub(super) companions: Companions,
    pub(super) last: Look,
    pub(super) living: BTreeMap<WorkerId, Pulse>,
    pub(super) further_streams: Vec<String>,
}

impl Found {
    pub(super) async fn read(args: &DeleteArgs, clients: &AwsClients) -> anyhow::Result<Self> {
        let name = &args.application;
        let tables = existing_tables(&clients.dynamodb, name).await?;
        if tables.is_empty() {
            bail!(
                "there are no tables of {name}: no host has served this application here; `shardmill \
                plugins` lists those that have been served"
            );
        }
        let inspector = TableInspector::new(clients.dynamodb.clone(), name.as_str());
        let companions = inspector.companions().await?;
        let facts = inspector.table(companions, Duration::ZERO).await?;
        let (last, living) = match facts {
            // Its rows would not be understood.
            TableFacts::OtherKey { .. } => (Look::default(), BTreeMap::new()),
            TableFacts::Missing | TableFacts::Leases(_) => watch(args, clients).await?,
        };
        Ok(Self {
            tables,
            facts,
            companions,
            last,
            living,
            further_streams: applications_of_streams(&clients.dynamodb, name).await,
        })
    }

    /// Why the tables are to be kept, if they are.
    pub(super) fn refusals(&self, args: &DeleteArgs) -> Vec<DeletionRefusal> {
        refuse_deletion(&DeletionFacts {
            table: &self.facts,
            companions: self.companions,
            start: self.last.fleet.start.as_ref(),
            takes_older: args.older_leases,
            living: &self.living,
        })
    }
}

/// Looks twice, for long enough to know who is dead, and says who may be alive.
async fn watch(
    args: &DeleteArgs,
    clients: &AwsClients,
) -> anyhow::Result<(Look, BTreeMap<WorkerId, Pulse>)> {
    let tables = Tables::of(&args.application, clients);
    let config = args
        .connection
        .config
        .as_deref()
        .map(Config::load)
        .transpose()?;
    let configured = config.map_or_else(LeaseOptions::default, |config| config.leases);
    let mut observer = LeaseObserver::default();
    let mut look = tables.look().await?;
    observe(&mut observer, &look);
    let of_hosts = look.fleet.workers.iter().map(|row| row.lease_duration);
    let lease_duration = of_hosts.max().unwrap_or_default().max(configured.duration);
    let by_default = watch_past(lease_duration).min(WATCH_MAX);
    let watch_for = args.watch.watch_for.unwrap_or(by_default);
    if has_somebody(&look) && !watch_for.is_zero() {
        tracing::info!(watch_for = ?watch_for, "watching who is alive");
        tokio::time::sleep(watch_for).await;
        look = tables.look().await?;
        observe(&mut observer, &look);
    }
    let living = living(
        &observer,
        &look.listing.leases,
        BootClock.now(),
        lease_duration,
    );
    Ok((look, living))
}

fn observe(observer: &mut LeaseObserver, look: &Look) {
    let now = BootClock.now();
    observer.observe_workers(&look.fleet.workers, now);
    observer.observe(&look.listing.leases, now);
}

fn has_somebody(look: &Look) -> bool {
    let mut leases = look.listing.leases.iter();
    !look.fleet.workers.is_empty() || leases.any(|lease| lease.owner.is_some())
}
