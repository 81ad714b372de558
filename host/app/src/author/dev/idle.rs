//! When a run with `--until-idle` ends.

use std::time::Duration;

use anyhow::bail;
use shardmill_aws::{AwsClients, LeaseTable};
use shardmill_config::{Config, Manifest, PluginConfig};
use shardmill_core::plugin::{PluginName, plugin_of_label};
use shardmill_core::ports::LeaseStore;
use shardmill_core::stream::StreamName;
use shardmill_serve::{HostSnapshot, HostStatus, PluginSnapshot};
use shardmill_worker::{BlockedStatus, ShardState, Why};

use super::stuck::stuck;
use crate::author::pump::PumpSummary;
use crate::author::summary::is_fed_checkpointed;

/// Failures in a row after which a mistake in the settings counts as permanent: some seconds.
const MISCONFIGURED_MAX: u32 = 4;
/// The same for a failure that may pass by itself: about two minutes, as long as a replay waits.
const FAILURES_MAX: u32 = 12;
/// How often `--until-idle` looks.
const IDLE_LOOK_EVERY: Duration = Duration::from_millis(100);

/// What must be processed before the run ends.
pub(super) struct Idling<'a> {
    pub(super) config: &'a Config,
    pub(super) clients: &'a AwsClients,
    pub(super) stream: &'a StreamName,
    pub(super) fed: Option<&'a PumpSummary>,
}

impl Idling<'_> {
    /// Waits until what was fed is checkpointed by every plugin that runs, and every shard held
    /// here is at its tip. An error if that will never happen.
    pub(super) async fn wait(&self, status: &HostStatus) -> anyhow::Result<()> {
        loop {
            let host = status.snapshot();
            // Before that, plugins in the folder are still being compiled.
            if host.is_folder_read && self.is_idle(&host).await? {
                return all_ran(&host);
            }
            tokio::time::sleep(IDLE_LOOK_EVERY).await;
        }
    }

    async fn is_idle(&self, host: &HostSnapshot) -> anyhow::Result<bool> {
        let mut plugins = host.plugins.values();
        if plugins.all(cannot_run) {
            bail!(
                "there is no working plugin in {}; drop a component there",
                self.config.plugins.display()
            );
        }
        if let Some(problem) = self.problem(host) {
            bail!("{problem}");
        }
        // Its worker was started a moment ago, and has not yet said what it runs.
        let is_starting =
            |plugin: &PluginSnapshot| plugin.worker.plugin_digest.is_none() && !cannot_run(plugin);
        if host.plugins.values().any(is_starting) {
            return Ok(false);
        }
        let mut plugins = host.plugins.values();
        if !plugins.all(|plugin| never_ran(plugin).is_some() || plugin.worker.is_idle()) {
            return Ok(false);
        }
        self.is_fed_checkpointed(host).await
    }

    /// Why the host will never be idle; `None` if it may still be.
    fn problem(&self, host: &HostSnapshot) -> Option<String> {
        host.plugins
            .values()
            .find_map(halted)
            .or_else(|| held(host))
            .or_else(|| stuck(host, |plugin| tries_for_ever(self.config, plugin)))
    }

    async fn is_fed_checkpointed(&self, host: &HostSnapshot) -> anyhow::Result<bool> {
        for plugin in host.plugins.values() {
            if plugin.stream.as_deref() != Some(self.stream.as_str()) {
                continue;
            }
            let Some(application) = plugin.application.as_deref() else {
                continue;
            };
            let table = LeaseTable::new(self.clients.dynamodb.clone(), application);
            if !is_fed_checkpointed(&table.list().await?.leases, self.fed) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Why a shard of the plugin delivers nothing any more, if one is halted: it would never be idle.
fn halted(plugin: &PluginSnapshot) -> Option<String> {
    let (id, shard) = plugin
        .worker
        .shards
        .iter()
        .find(|(_, shard)| shard.state == ShardState::Halted)?;
    let why = shard
        .blocked
        .as_ref()
        .map_or("", |blocked| blocked.reason.as_str());
    Some(format!("the failure policy halts shard {id}: {why}"))
}

/// What holds a shard for good, or has held it for long: it would never be idle.
fn held(host: &HostSnapshot) -> Option<String> {
    for (plugin, of) in &host.plugins {
        for (id, shard) in &of.worker.shards {
            if let Some(blocked) = shard
                .blocked
                .as_ref()
                .filter(|blocked| is_for_good(blocked))
            {
                let (attempts, reason) = (blocked.attempts, &blocked.reason);
                return Some(format!(
                    "plugin {plugin}: shard {id} is held after {attempts} attempts: {reason}"
                ));
            }
        }
    }
    None
}

fn is_for_good(blocked: &BlockedStatus) -> bool {
    let attempts_max = match blocked.why {
        Why::Misconfigured => MISCONFIGURED_MAX,
        // How often the plugin is tried is up to the failure policy, by default for ever.
        // So is a pause, to whoever asked for it. Ticks that fail hold up no record.
        Why::Plugin | Why::Halted | Why::Paused | Why::Tick => return false,
        Why::Sink
        | Why::Row
        | Why::Reading
        | Why::State
        | Why::Memory
        | Why::Children
        | Why::Buffer => FAILURES_MAX,
    };
    blocked.attempts >= attempts_max
}

/// Whether no failure policy ever gives up a record of the plugin.
fn tries_for_ever(config: &Config, label: &str) -> bool {
    let settings = settings_of(config, label);
    settings.is_some_and(|settings| settings.failure.then.is_none())
}

fn settings_of(config: &Config, label: &str) -> Option<PluginConfig> {
    let name = PluginName::new(plugin_of_label(label)).ok()?;
    let manifest = Manifest::read(&Manifest::path_in(&config.plugins, &name)).ok()?;
    config.of_plugin(&name, manifest.as_ref()).ok()
}

/// Whether it has not run, and will not by itself.
fn cannot_run(plugin: &PluginSnapshot) -> bool {
    let refusals = [
        &plugin.refused_file,
        &plugin.refused_settings,
        &plugin.not_served,
    ];
    plugin.worker.plugin_digest.is_none() && refusals.into_iter().any(Option::is_some)
}

/// Why the plugin's file was refused, if no version of it ever ran: it will never be idle.
fn never_ran(plugin: &PluginSnapshot) -> Option<&str> {
    if plugin.worker.plugin_digest.is_some() {
        return None;
    }
    plugin.refused_file.as_deref()
}

/// An error if a plugin was refused and no version of it ever ran.
fn all_ran(host: &HostSnapshot) -> anyhow::Result<()> {
    let refused = host
        .plugins
        .iter()
        .find_map(|(plugin, of)| Some((plugin, never_ran(of)?)));
    match refused {
        Some((plugin, why)) => {
            bail!("plugin {plugin} was refused: {why}; the other plugins are idle")
        }
        None => Ok(()),
    }
}
