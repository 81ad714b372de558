//! Where a dry run takes place: the folder with the plugin, the stream, and the input.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use shardmill_aws::{AwsClients, LeaseTable, StreamWriter};
use shardmill_core::ports::LeaseStore;
use shardmill_core::stream::{SequenceNumber, ShardId, StreamName};
use shardmill_serve::{HostStatus, PluginSnapshot, SteppedClock};
use tokio::time::Instant;

use super::folder::PluginFolder;
use super::headway::{Headway, START_MAX};
use super::input::DryRunInput;
use crate::author::settled::is_checkpointed;

/// How often a dry run looks whether it is done.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The folder, the stream and what is delivered.
pub(super) struct Scene {
    pub(super) folder: PluginFolder,
    pub(super) application: String,
    pub(super) stream: StreamName,
    pub(super) clients: AwsClients,
    pub(super) input: DryRunInput,
    /// The last sequence number so far of each shard that got records.
    pub(super) last: BTreeMap<ShardId, SequenceNumber>,
    /// The time that the plugin is told.
    pub(super) clock: Arc<SteppedClock>,
    /// How often the plugin wants to be called because time has passed.
    pub(super) tick_every: Duration,
    /// Nothing settled for this long is an error.
    pub(super) timeout: Duration,
}

impl Scene {
    /// Lets the next `count` records arrive.
    pub(super) async fn offer(&mut self, count: usize) -> anyhow::Result<()> {
        let entries = match &mut self.input {
            DryRunInput::Put(entries) => {
                let count = count.min(entries.len());
                entries.drain(..count).collect::<Vec<_>>()
            }
            DryRunInput::Captured(stream) => {
                self.last.extend(stream.release(count));
                return Ok(());
            }
        };
        let writer = StreamWriter::new(self.clients.kinesis.clone(), self.stream.clone());
        let report = writer
            .put_all(entries, |_, _| {})
            .await
            .context("cannot put the input")?;
        self.last.extend(report.last_sequence);
        Ok(())
    }

    /// Waits until everything that has arrived is checkpointed. Returns the digest of the version
    /// that runs.
    pub(super) async fn until_settled(&self, status: &HostStatus) -> anyhow::Result<String> {
        let table = LeaseTable::new(self.clients.dynamodb.clone(), self.application.as_str());
        let mut headway = Headway::new(self.timeout);
        loop {
            match self.plugin(status)?.and_then(Started::of) {
                Some(started) => {
                    let has_rows = started.plugin.worker.lease_rows > 0;
                    if has_rows && is_checkpointed(&table.list().await?.leases, &self.last) {
                        return Ok(started.digest);
                    }
                    headway.observe(&started.plugin)?;
                }
                None => headway.not_started()?,
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Replaces `component` by `other`, or by itself under another digest, and waits until all
    /// shards run the new version. Returns its digest.
    pub(super) async fn swap(
        &self,
        status: &HostStatus,
        component: &Path,
        other: Option<&Path>,
    ) -> anyhow::Result<String> {
        let before = self.plugin(status)?.and_then(Started::of);
        let before = before.map(|started| started.digest);
        match other {
            Some(other) => self.folder.replace(other)?,
            None => self.folder.replace_by_same_code(component)?,
        }
        let asked_at = Instant::now();
        loop {
            if let Some(plugin) = self.plugin(status)? {
                refuse_new_version(&plugin)?;
                let digest = only_digest(&plugin);
                if let Some(digest) = digest.filter(|new| before.as_ref() != Some(new)) {
                    return Ok(digest);
                }
            }
            if asked_at.elapsed() > START_MAX {
                bail!(
                    "the new version did not replace the old one within {START_MAX:?}; is it the same file?"
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The plugin's status, if it has one yet; an error if the host refuses the plugin.
    pub(super) fn plugin(&self, status: &HostStatus) -> anyhow::Result<Option<PluginSnapshot>> {
        let name = self.folder.name();
        let plugin = status.snapshot().plugins.remove(name.as_str());
        match plugin.as_ref().and_then(refusal) {
            Some(reason) => Err(anyhow!("the host refuses {name}: {reason}")),
            None => Ok(plugin),
        }
    }
}

/// A plugin that was compiled.
struct Started {
    digest: String,
    plugin: PluginSnapshot,
}

impl Started {
    fn of(plugin: PluginSnapshot) -> Option<Self> {
        let digest = plugin.worker.plugin_digest.clone()?;
        Some(Self { digest, plugin })
    }
}

/// Why the host does not run it, if it does not.
fn refusal(plugin: &PluginSnapshot) -> Option<&String> {
    plugin
        .refused_file
        .as_ref()
        .or(plugin.refused_settings.as_ref())
        .or(plugin.not_served.as_ref())
}

fn refuse_new_version(plugin: &PluginSnapshot) -> anyhow::Result<()> {
    match &plugin.worker.refused {
        Some(refused) => bail!("the new version was refused: {}", refused.reason),
        None => Ok(()),
    }
}

/// The version of all shards that have one; `None` if they have different ones, or none has.
fn only_digest(plugin: &PluginSnapshot) -> Option<String> {
    let shards = plugin.worker.shards.values();
    let digests: BTreeSet<&String> = shards
        .filter_map(|shard| shard.plugin_digest.as_ref())
        .collect();
    match digests.len() {
        1 => digests.first().map(|digest| (*digest).clone()),
        _ => None,
    }
}
