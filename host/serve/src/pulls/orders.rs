//! What operators want of a plugin's versions, as the coordinator tables of its streams say.

use std::collections::HashMap;
use std::time::Duration;

use shardmill_aws::{AwsClients, CoordinatorTable};
use shardmill_config::{Config, Manifest};
use shardmill_core::artifact::Orders;
use shardmill_core::control::DeployAsked;
use shardmill_core::fleet::FleetRows;
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::{Clock, Coordinator, StoreError};
use shardmill_core::rollout::versions_found_bad;

use crate::clock::BootClock;

/// How long all tables may take together; each call ends before that.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// What the tables said last.
#[derive(Debug, Default)]
pub(super) struct OrderBook {
    /// The version of the row with orders that was seen last, by application. A read may be stale.
    seen: HashMap<String, u64>,
    /// `None` if the tables could not be read.
    read: Option<Read>,
}

#[derive(Debug, Default)]
struct Read {
    deploy: Option<DeployAsked>,
    bad: Vec<PluginDigest>,
}

impl OrderBook {
    /// What they say, to decide by.
    pub(super) fn orders(&self) -> Orders<'_> {
        match &self.read {
            None => Orders::Unknown,
            Some(Read { deploy, bad }) => Orders::Known {
                deploy: deploy.as_ref(),
                bad,
            },
        }
    }

    /// Somebody deployed a version, as the row of this version says.
    pub(super) fn deployed(&mut self, application: &str, control: u64, deploy: DeployAsked) {
        self.seen.insert(application.to_owned(), control);
        let read = self.read.get_or_insert_default();
        read.bad.retain(|bad| *bad != deploy.version);
        read.deploy = Some(deploy);
    }

    /// Reads the tables of a plugin. The error says why they are unknown.
    pub(super) async fn read(
        &mut self,
        plugin: &PluginName,
        config: &Config,
        clients: &AwsClients,
    ) -> Result<(), String> {
        let reading = self.read_all(plugin, config, clients);
        let read = match tokio::time::timeout(READ_WITHIN, reading).await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(_) => Err(format!("they did not answer within {READ_WITHIN:?}")),
        };
        let (read, why) = match read {
            Ok(read) => (Some(read), None),
            Err(why) => (None, Some(why)),
        };
        self.read = read;
        why.map_or(Ok(()), Err)
    }

    async fn read_all(
        &mut self,
        plugin: &PluginName,
        config: &Config,
        clients: &AwsClients,
    ) -> Result<Read, StoreError> {
        let manifest = Manifest::read(&Manifest::path_in(&config.plugins, plugin));
        // A plugin without settings has no tables, and nobody can have deployed anything.
        let Some(settings) = manifest
            .ok()
            .and_then(|manifest| config.of_plugin(plugin, manifest.as_ref()).ok())
        else {
            return Ok(Read::default());
        };
        let lifetime = settings.rollout.quarantine_for;
        let mut read = Read::default();
        for stream in &settings.streams {
            let table = CoordinatorTable::new(clients.dynamodb.clone(), &stream.application)
                .of_stream(clients.kinesis.clone(), &stream.stream);
            let Some(fleet) = fleet_of(&table).await? else {
                continue;
            };
            self.refuse_stale(&stream.application, &fleet)?;
            read.bad
                .extend(versions_found_bad(&fleet, BootClock.wall_ms(), lifetime));
            read.take(fleet.control.deploy);
        }
        Ok(read)
    }

    /// A read that shows less than an earlier one decides nothing.
    fn refuse_stale(&mut self, application: &str, fleet: &FleetRows) -> Result<(), StoreError> {
        let seen = self.seen.entry(application.to_owned()).or_default();
        if fleet.control.version < *seen {
            let message = "the table showed an earlier state".to_owned();
            return Err(StoreError::Unknown { message });
        }
        *seen = fleet.control.version;
        Ok(())
    }
}

impl Read {
    /// Of several streams' deploys the last one counts.
    fn take(&mut self, deploy: Option<DeployAsked>) {
        let at = |deploy: &Option<DeployAsked>| deploy.as_ref().map(|deploy| deploy.asked.at_ms);
        if at(&deploy) > at(&self.deploy) {
            self.deploy = deploy;
        }
    }
}

/// The rows; `None` if there is no table yet.
async fn fleet_of(table: &CoordinatorTable) -> Result<Option<FleetRows>, StoreError> {
    match table.fleet().await {
        Ok(fleet) => Ok(Some(fleet)),
        Err(error) => match table.exists().await {
            Ok(false) => Ok(None),
            Ok(true) | Err(_) => Err(error),
        },
    }
}
