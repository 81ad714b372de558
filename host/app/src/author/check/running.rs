//! What a component would replace: the version that hosts run now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use serde::Deserialize;
use shardmill_aws::LeaseTable;
use shardmill_config::{Config, files};
use shardmill_core::plugin::{PluginName, is_label_of};
use shardmill_core::ports::LeaseStore;
use shardmill_wasm::{Inspection, Runtime};

use super::report::{Changes, RunningReport};
use super::settings::Settings;
use crate::cli::CheckArgs;
use crate::output::Page;

/// A host that answers does so at once.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The versions that run, and how the new one differs.
pub(super) struct Running {
    at_work: AtWork,
    /// Whether the version that runs is this one.
    is_same: bool,
    /// Against the file in the plugins folder, if that is the version that runs.
    changes: Option<Changes>,
}

/// The versions that run.
struct AtWork {
    /// The host or the table that was asked.
    source: String,
    /// Empty if the plugin does not run, or has not checkpointed yet.
    digests: BTreeSet<String>,
}

/// What a host answers on `/status`, as far as it is used here.
#[derive(Deserialize)]
struct HostAnswer {
    plugins: Option<BTreeMap<String, PluginAnswer>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PluginAnswer {
    plugin_digest: Option<String>,
}

impl Running {
    /// Asks the host at `--host`, or its configuration's `host.admin`, or else the lease table.
    pub(super) async fn ask(
        args: &CheckArgs,
        config: Option<&Config>,
        settings: &Settings,
        new: &Inspection,
        runtime: &Runtime,
    ) -> anyhow::Result<Self> {
        let configured = config.and_then(|config| config.host.admin);
        let at_work = match args.host.or(configured) {
            Some(address) if !args.is_aws_named() => {
                AtWork::of_host(&address.to_string(), &settings.name).await?
            }
            _ => AtWork::of_table(args, config, settings).await?,
        };
        let old = match config {
            Some(config) => inspect_file(config, &settings.name, runtime).await,
            None => None,
        };
        let old = old.filter(|old| at_work.digests.contains(old.digest.as_str()));
        Ok(Self {
            is_same: at_work.digests.iter().eq([new.digest.as_str()]),
            changes: old.map(|old| Changes::between(&old, new)),
            at_work,
        })
    }

    pub(super) fn report(&self) -> RunningReport<'_> {
        RunningReport {
            source: &self.at_work.source,
            digests: &self.at_work.digests,
            same: self.is_same,
            changes: self.changes.as_ref(),
        }
    }

    pub(super) fn write(&self, page: &mut Page) {
        let AtWork { source, digests } = &self.at_work;
        let versions = match digests.len() {
            0 => "nothing of this name".to_owned(),
            _ if self.is_same => "this very version".to_owned(),
            1 => "another version".to_owned(),
            several => format!("{several} versions at a time"),
        };
        page.line("running", format_args!("{versions}, says {source}"));
        if !self.is_same {
            for digest in digests {
                page.line("running", digest);
            }
        }
        if let Some(changes) = &self.changes {
            write_changes(page, changes);
        }
    }
}

impl AtWork {
    /// What a host says that it runs under this name, on any of its streams.
    async fn of_host(address: &str, name: &PluginName) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(ANSWER_MAX)
            .build()
            .context("cannot make an HTTP client")?;
        let reply = client.get(format!("http://{address}/status")).send().await;
        let reply = reply.with_context(|| format!("no host answers at {address}"))?;
        let other = || format!("{address} does not answer like a shardmill host");
        let answer: HostAnswer =
            serde_json::from_slice(&reply.bytes().await?).with_context(other)?;
        let Some(plugins) = answer.plugins else {
            bail!(other());
        };
        let own = plugins
            .into_iter()
            .filter(|(label, _)| is_label_of(label, name.as_str()));
        Ok(Self {
            source: format!("the host at {address}"),
            digests: own.filter_map(|(_, plugin)| plugin.plugin_digest).collect(),
        })
    }

    /// The versions that wrote the checkpoints.
    async fn of_table(
        args: &CheckArgs,
        config: Option<&Config>,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let clients = crate::aws::connect_as(config, &args.connection.aws).await?;
        let application = settings.application();
        let listing = LeaseTable::new(clients.dynamodb, application.as_str())
            .list()
            .await
            .with_context(|| format!("cannot read the lease table {application}"))?;
        let digests = listing
            .leases
            .into_iter()
            .filter_map(|lease| Some(lease.plugin_digest?.as_str().to_owned()));
        Ok(Self {
            source: format!("the lease table {application}"),
            digests: digests.collect(),
        })
    }
}

/// The plugin's file in the host's folder, if it can be read.
async fn inspect_file(config: &Config, name: &PluginName, runtime: &Runtime) -> Option<Inspection> {
    let path = config.plugins.join(format!("{name}.wasm"));
    let bytes = files::read(&path, config.host.plugin_bytes_max).ok()?;
    runtime.inspect(Bytes::from(bytes)).await.ok()
}

fn write_changes(page: &mut Page, changes: &Changes) {
    for (sign, what, names) in [
        ('+', "imports", &changes.imports_added),
        ('-', "imports", &changes.imports_removed),
        ('+', "exports", &changes.exports_added),
        ('-', "exports", &changes.exports_removed),
    ] {
        for name in names {
            page.line("change", format_args!("{sign} {what} {name}"));
        }
    }
}
