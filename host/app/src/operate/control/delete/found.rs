//! What is known of an application that is to be deleted, and who may be alive.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use shardmill_aws::{AwsClients, TableInspector, applications_of_streams, existing_tables};
use shardmill_core::doctor::{
    Companions, DeletionFacts, DeletionRefusal, TableFacts, refuse_deletion,
};
use shardmill_core::lease::{Pulse, WorkerId};

use crate::cli::DeleteArgs;
use crate::operate::living::watch;
use crate::operate::reading::{Look, Tables};

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
        let (last, living) = watch_unless_foreign(args, clients, &facts).await?;
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

/// The rows of a table with another key would not be understood.
async fn watch_unless_foreign(
    args: &DeleteArgs,
    clients: &AwsClients,
    facts: &TableFacts,
) -> anyhow::Result<(Look, BTreeMap<WorkerId, Pulse>)> {
    match facts {
        TableFacts::OtherKey { .. } => Ok((Look::default(), BTreeMap::new())),
        TableFacts::Missing | TableFacts::Leases(_) => {
            let tables = Tables::of(&args.application, clients);
            watch(&tables, &args.connection, args.watch).await
        }
    }
}
