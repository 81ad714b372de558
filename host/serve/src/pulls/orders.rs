//! What operators want of a plugin's versions, as the coordinator tables of its streams say.

use std::collections::HashMap;
use std::time::Duration;

use shardmill_aws::{AwsClients, CoordinatorTable};
use shardmill_config::{Config, Manifest, PluginConfig};
use shardmill_core::artifact::{Came, FoundOut, InEffect, Orders, found_out};
use shardmill_core::control::{Control, DeployAsked, Finding};
use shardmill_core::fleet::{FleetRows, WorkerRow};
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::{Clock, Coordinator, Raced, StoreError};
use shardmill_core::rollout::{Quarantined, Turn, versions_found_bad};
use shardmill_core::time::Moment;

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
    /// Those that name the tables.
    settings: Option<Box<PluginConfig>>,
    /// Whether they stay: the manifest in the folder is on trial, and what becomes of it is in the
    /// tables that were read before it.
    pub(super) keeps_tables: bool,
}

#[derive(Debug, Default)]
struct Read {
    deploy: Option<DeployAsked>,
    /// Why what was deployed cannot be read.
    unread: Option<String>,
    bad: Vec<PluginDigest>,
    /// The same with who found them bad.
    entries: Vec<Quarantined>,
    /// The rows with orders, each with its table.
    rows: Vec<(CoordinatorTable, Control)>,
    /// All hosts, dead or alive.
    workers: Vec<WorkerRow>,
    /// How long a host waits for others to prove a version.
    patience: Duration,
    /// How long a version is watched.
    probation: Duration,
}

impl OrderBook {
    /// What they say, to decide by.
    pub(super) fn orders(&self) -> Orders<'_> {
        match &self.read {
            None => Orders::Unknown,
            Some(Read {
                unread: Some(why), ..
            }) => Orders::Unreadable(why),
            Some(Read { deploy, bad, .. }) => Orders::Known {
                deploy: deploy.as_ref(),
                bad,
            },
        }
    }

    /// The deploy that nobody has proven yet, and that nobody found bad.
    pub(super) fn unproven(&self) -> Option<&DeployAsked> {
        match self.orders() {
            Orders::Known {
                deploy: Some(deploy),
                bad,
            } => (deploy.proven.is_none() && !deploy.is_bad(bad)).then_some(deploy),
            Orders::Known { .. } | Orders::Unknown | Orders::Unreadable(_) => None,
        }
    }

    /// Whether somebody has proven what is deployed.
    pub(super) fn is_proven(&self) -> bool {
        let read = self.read.as_ref();
        let deploy = read.and_then(|read| read.deploy.as_ref());
        deploy.is_some_and(|deploy| deploy.proven.is_some() && deploy.failed.is_none())
    }

    /// How long a host waits for others to prove a version.
    pub(super) fn patience(&self) -> Duration {
        let read = self.read.as_ref().map(|read| read.patience);
        read.unwrap_or_default()
    }

    /// How long a version is watched.
    pub(super) fn probation(&self) -> Duration {
        let read = self.read.as_ref().map(|read| read.probation);
        read.unwrap_or_default()
    }

    /// Looks whose turn it is to take up the settings of the version that is deployed.
    pub(super) fn look_at_turn(&self, turn: &mut Turn, now: Moment) {
        let read = self.read.as_ref();
        if let Some((read, deploy)) = read.and_then(|read| Some((read, read.deploy.as_ref()?))) {
            let artifact = deploy.reference.to_string();
            turn.look(&artifact, &deploy.version, &read.workers, now);
        }
    }

    /// Somebody deployed a version, as the row of this version says.
    pub(super) fn deployed(&mut self, application: &str, control: u64, deploy: DeployAsked) {
        self.seen.insert(application.to_owned(), control);
        let read = self.read.get_or_insert_default();
        read.bad.retain(|bad| *bad != deploy.version);
        read.entries.retain(|entry| entry.digest != deploy.version);
        (read.unread, read.deploy) = (None, Some(deploy));
        // What is found out is written once they are read again.
        read.rows.clear();
    }

    /// What this host found out about the version that is deployed.
    pub(super) fn found_out(
        &self,
        here: Option<&InEffect>,
        came: Came<'_>,
        me: &str,
    ) -> Option<FoundOut> {
        let read = self.read.as_ref().filter(|read| read.unread.is_none())?;
        let deploy = read.deploy.as_ref()?;
        let is_bad = |entry: &&Quarantined| {
            entry.digest == deploy.version && read.bad.contains(&entry.digest)
        };
        let entry = read.entries.iter().find(is_bad);
        found_out(deploy, entry, here, came, me)
    }

    /// Writes it down for the fleet. If somebody else writes at the same time, the next look does.
    pub(super) async fn write(&mut self, me: &str, found: &FoundOut) -> Result<(), StoreError> {
        let Some(read) = &mut self.read else {
            return Ok(());
        };
        let Some(deploy) = &mut read.deploy else {
            return Ok(());
        };
        let finding = |by: &str, why: &str| Finding {
            by: by.to_owned(),
            why: why.to_owned(),
            at_ms: BootClock.wall_ms(),
        };
        let note = |deploy: &mut DeployAsked| match found {
            FoundOut::Proven => {
                deploy.proven = Some(finding(me, "it passed its trial and its probation"));
            }
            FoundOut::Failed { by, why } => deploy.failed = Some(finding(by, why)),
        };
        for (table, control) in &read.rows {
            let mut next = control.changed(|_| {});
            let Some(wished) = next.deploy.as_mut().filter(|it| it.is_same_wish(deploy)) else {
                continue;
            };
            note(wished);
            if table.write_control(control, &next).await? == Raced::Applied {
                note(deploy);
            }
        }
        Ok(())
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
        if !self.keeps_tables || self.settings.is_none() {
            let manifest = Manifest::read(&Manifest::path_in(&config.plugins, plugin));
            let manifest = manifest.ok().flatten();
            let settings = config.of_plugin(plugin, manifest.as_ref());
            // A manifest that cannot be used must not hide what was deployed instead.
            let settings = settings.or_else(|_| config.of_plugin(plugin, None));
            self.settings = settings.ok().map(Box::new).or(self.settings.take());
        }
        // A plugin without settings has no tables, and nobody can have deployed anything.
        let Some(settings) = self.settings.clone() else {
            return Ok(Read::default());
        };
        let lifetime = settings.rollout.quarantine_for;
        let mut read = Read {
            patience: settings.rollout.share_wait,
            probation: settings.rollout.probation,
            ..Read::default()
        };
        for stream in &settings.streams {
            let table = CoordinatorTable::new(clients.dynamodb.clone(), &stream.application)
                .of_stream(clients.kinesis.clone(), &stream.stream);
            let Some(fleet) = fleet_of(&table).await? else {
                continue;
            };
            self.refuse_stale(&stream.application, &fleet)?;
            read.bad
                .extend(versions_found_bad(&fleet, BootClock.wall_ms(), lifetime));
            read.take(table, fleet);
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
    fn take(&mut self, table: CoordinatorTable, fleet: FleetRows) {
        let at = |deploy: &Option<DeployAsked>| deploy.as_ref().map(|deploy| deploy.asked.at_ms);
        let control = fleet.control;
        if at(&control.deploy) > at(&self.deploy) {
            self.deploy.clone_from(&control.deploy);
        }
        self.unread = self.unread.take().or_else(|| control.unread_deploy.clone());
        self.entries.extend(fleet.quarantined);
        self.workers.extend(fleet.workers);
        self.rows.push((table, control));
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
