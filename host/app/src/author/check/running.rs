//! What a component would replace: the version that hosts run now.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use serde_json::Value;
use shardmill_aws::LeaseTable;
use shardmill_config::files;
use shardmill_config::{AwsConfig, Config};
use shardmill_core::plugin::{PluginName, is_label_of};
use shardmill_core::ports::LeaseStore;
use shardmill_wasm::{Inspection, Runtime};

use super::report::{Changes, RunningReport};
use super::settings::Settings;
use crate::cli::CheckArgs;

/// A host answers at once, or not at all.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The versions at work, and how the new one differs.
pub(super) struct Running {
    /// Who was asked.
    source: String,
    /// Digests; none if the plugin does not run, or has not checkpointed yet.
    digests: BTreeSet<String>,
    /// Whether the one at work is this one.
    is_same: bool,
    /// Against the file in the plugins folder, if that is the version at work.
    changes: Option<Changes>,
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
        let name = &settings.name;
        let admin = args
            .host
            .or_else(|| config.and_then(|config| config.host.admin))
            .filter(|_| !args.is_aws_named());
        let (source, digests) = if let Some(address) = admin {
            (
                format!("the host at {address}"),
                digests_of_host(&address.to_string(), name).await?,
            )
        } else {
            let file = config.map_or_else(AwsConfig::default, |config| config.aws.clone());
            let clients = crate::aws::connect(&crate::aws::merge(&file, &args.place.aws)?).await?;
            let own = settings
                .checked
                .as_ref()
                .ok()
                .and_then(|checked| checked.streams.first());
            let application =
                own.map_or_else(|| name.to_string(), |stream| stream.application.clone());
            let listing = LeaseTable::new(clients.dynamodb, application.as_str())
                .list()
                .await;
            let listing =
                listing.with_context(|| format!("cannot read the lease table {application}"))?;
            let digests = listing
                .leases
                .into_iter()
                .filter_map(|lease| Some(lease.plugin_digest?.as_str().to_owned()));
            (format!("the lease table {application}"), digests.collect())
        };
        let is_same = digests.iter().eq([new.digest.as_str()]);
        let changes = changes(config, name, new, &digests, runtime).await;
        Ok(Self {
            source,
            digests,
            is_same,
            changes,
        })
    }

    pub(super) fn report(&self) -> RunningReport<'_> {
        RunningReport {
            source: &self.source,
            digests: &self.digests,
            same: self.is_same,
            changes: self.changes.as_ref(),
        }
    }

    pub(super) fn as_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let told = match self.digests.len() {
            0 => "nothing of this name".to_owned(),
            _ if self.is_same => "this very version".to_owned(),
            1 => "another version".to_owned(),
            several => format!("{several} versions at a time"),
        };
        let _ = writeln!(text, "running   {told}, says {}", self.source);
        for digest in self.digests.iter().filter(|_| !self.is_same) {
            let _ = writeln!(text, "running   {digest}");
        }
        let Some(changes) = &self.changes else {
            return text;
        };
        for (sign, what, names) in [
            ('+', "imports", &changes.imports_added),
            ('-', "imports", &changes.imports_removed),
            ('+', "exports", &changes.exports_added),
            ('-', "exports", &changes.exports_removed),
        ] {
            for name in names {
                let _ = writeln!(text, "change    {sign} {what} {name}");
            }
        }
        text
    }
}

/// What a host says that it runs under this name, on any of its streams.
async fn digests_of_host(address: &str, name: &PluginName) -> anyhow::Result<BTreeSet<String>> {
    let client = reqwest::Client::builder()
        .timeout(ANSWER_MAX)
        .build()
        .context("cannot make an HTTP client")?;
    let reply = client.get(format!("http://{address}/status")).send().await;
    let reply = reply.with_context(|| format!("no host answers at {address}"))?;
    let status: Value = serde_json::from_slice(&reply.bytes().await?)
        .with_context(|| format!("{address} does not answer like a shardmill host"))?;
    let Some(plugins) = status["plugins"].as_object() else {
        bail!("{address} does not answer like a shardmill host")
    };
    let own = plugins
        .iter()
        .filter(|(label, _)| is_label_of(label, name.as_str()));
    Ok(own
        .filter_map(|(_, plugin)| plugin["plugin-digest"].as_str())
        .map(str::to_owned)
        .collect())
}

/// Only if the file in the plugins folder is what runs; what does not run there says nothing.
async fn changes(
    config: Option<&Config>,
    name: &PluginName,
    new: &Inspection,
    digests: &BTreeSet<String>,
    runtime: &Runtime,
) -> Option<Changes> {
    let config = config?;
    let path = config.plugins.join(format!("{name}.wasm"));
    let bytes = files::read(&path, config.host.plugin_bytes_max).ok()?;
    let old = runtime.inspect(Bytes::from(bytes)).await.ok()?;
    if !digests.contains(old.digest.as_str()) {
        return None;
    }
    let names = |inspection: &Inspection| -> BTreeSet<String> {
        inspection
            .imports
            .iter()
            .map(|import| import.name.clone())
            .collect()
    };
    let exports = |inspection: &Inspection| -> BTreeSet<String> {
        inspection.exports.iter().cloned().collect()
    };
    let less =
        |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).cloned().collect();
    let ((old_imports, new_imports), (old_exports, new_exports)) =
        ((names(&old), names(new)), (exports(&old), exports(new)));
    Some(Changes {
        imports_added: less(&new_imports, &old_imports),
        imports_removed: less(&old_imports, &new_imports),
        exports_added: less(&new_exports, &old_exports),
        exports_removed: less(&old_exports, &new_exports),
        size_before: old.size,
    })
}
