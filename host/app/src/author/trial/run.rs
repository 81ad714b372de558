//! The run: a stack in memory, a folder with the plugin, the host, and a wait for each portion of
//! the input.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use shardmill_aws::{AwsClients, LeaseTable, PutEntry, StreamAdmin, StreamWriter};
use shardmill_config::{Config, Manifest};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{LeaseStore, StreamReader};
use shardmill_core::stream::{SequenceNumber, ShardId, StreamName};
use shardmill_local::{LocalOptions, LocalStack};
use shardmill_serve::component::Found;
use shardmill_serve::{Host, Substitutes};
use shardmill_serve::{HostStatus, PluginSnapshot};
use shardmill_serve::{Outputs, Sinks};
use shardmill_sinks::{LineFormat, STDOUT, SinkOptions};
use shardmill_wasm::{Integrity, Metering};
use shardmill_worker::{ReadLimits, ShardState, ShardStatus, Why};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::captured::CapturedStream;
use super::collector::{Collector, Kept};
use super::settings::{Limits, settings_for};
use crate::author::summary::is_checkpointed;
use crate::output::Interrupted;

const STREAM: &str = "test";
/// How often a trial looks whether it is done.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A component of 20 MB, which holds an interpreter, takes seconds to compile, on a busy machine a
/// minute.
const START_MAX: Duration = Duration::from_mins(5);

/// What is tried, and how.
#[derive(Debug)]
pub(crate) struct Trial {
    /// The component.
    pub(crate) plugin: PathBuf,
    /// Settings; streams, endpoints and sinks in them are not used.
    pub(crate) config: Config,
    /// Destinations besides those of the configuration.
    pub(crate) sinks: Vec<String>,
    /// Shards of the stream.
    pub(crate) shards: u32,
    /// Most records of a batch, whatever the settings say.
    pub(crate) batch_records: Option<u32>,
    /// Deliveries of a record that fails, where the policy would try for ever.
    pub(crate) attempts: u32,
    /// A swap in the middle.
    pub(crate) reload: Option<Reload>,
    /// Nothing settled for this long is a failure of the trial.
    pub(crate) timeout: Duration,
    /// What bounds a call.
    pub(crate) metering: Metering,
}

/// What is delivered.
#[derive(Debug)]
pub(crate) enum Trying {
    /// Records that are put into the embedded stream.
    Put(Vec<PutEntry>),
    /// Records that lie where they were captured.
    Captured(Arc<CapturedStream>),
}

/// A swap in the middle.
#[derive(Debug)]
pub(crate) struct Reload {
    /// Records that are settled before it.
    pub(crate) after: usize,
    /// The version to swap to; the same code under another digest if `None`.
    pub(crate) to: Option<PathBuf>,
}

/// A trial that ran to its end.
#[derive(Debug)]
pub(crate) struct Tried {
    /// What came out.
    pub(crate) kept: Kept,
    /// Batches that were settled.
    pub(crate) batches: u64,
    /// From the host's start to the last checkpoint.
    pub(crate) took: Duration,
    /// Digests of the versions that ran, in order.
    pub(crate) digests: Vec<String>,
    /// Fuel that calls of `process` took; 0 unless it was counted.
    pub(crate) fuel: u64,
}

/// Which components are run.
struct Trust {
    integrity: Integrity,
    bytes_max: u64,
}

/// The stack, the folder and the plugin in it.
struct Scene {
    trust: Trust,
    folder: tempfile::TempDir,
    name: PluginName,
    application: String,
    clients: AwsClients,
    input: Trying,
    timeout: Duration,
}

impl Trial {
    /// Runs until everything is settled.
    pub(crate) async fn run(
        mut self,
        input: Trying,
        stop: &CancellationToken,
    ) -> anyhow::Result<Tried> {
        let stack = LocalStack::start(LocalOptions::in_memory())
            .await
            .context("cannot start the embedded stack")?;
        self.config.aws = crate::aws::at_endpoints(
            stack.kinesis_endpoint().to_owned(),
            stack.dynamodb_endpoint().to_owned(),
        );
        let captured = match &input {
            Trying::Put(_) => None,
            Trying::Captured(stream) => Some(Arc::clone(stream) as Arc<dyn StreamReader>),
        };
        let mut scene = self.scene(input).await?;
        let after = self.reload.as_ref().map(|reload| reload.after);
        let last = scene.offer(after.unwrap_or(usize::MAX)).await?;
        let collector = Arc::new(Collector::default());
        let substitutes = Substitutes {
            outputs: self.outputs(&collector),
            reader: captured,
            metering: self.metering,
        };
        let host = Host::on_trial(self.config.clone(), &scene.clients, substitutes)?;
        let (status, runtime) = (host.status(), host.runtime());
        let (host_stop, started) = (CancellationToken::new(), Instant::now());
        let work = async {
            let settled = self.settle(&mut scene, &status, last);
            let settled = stop.run_until_cancelled(settled).await;
            let took = started.elapsed();
            host_stop.cancel();
            (settled, took)
        };
        let (served, (settled, took)) = tokio::join!(host.run(host_stop.clone()), work);
        served?;
        let digests = settled.ok_or_else(|| Interrupted(String::new()))??;
        let snapshot = status.snapshot();
        let shards = snapshot
            .plugins
            .values()
            .flat_map(|plugin| plugin.worker.shards.values());
        let batches = shards.map(|shard| shard.batches).sum();
        let tried = Tried {
            kept: collector.take(),
            batches,
            took,
            digests,
            fuel: runtime.fuel_used(),
        };
        stack.stop().await;
        Ok(tried)
    }

    /// Everything that is emitted goes to the collector, whatever the destination.
    fn outputs(&self, collector: &Arc<Collector>) -> Outputs {
        let configured = self.config.sinks.keys().cloned();
        let mut names: BTreeSet<String> = configured.chain(self.sinks.clone()).collect();
        names.insert(STDOUT.to_owned());
        Outputs {
            sinks: Sinks::One(collector.clone()),
            dead_letters: collector.clone(),
            names: names.into_iter().collect(),
        }
    }

    /// Waits until everything up to `last` is settled; swaps the version then, if that is asked for,
    /// and lets the rest of the input arrive. Gives the digests of the versions.
    async fn settle(
        &self,
        scene: &mut Scene,
        status: &HostStatus,
        mut last: BTreeMap<ShardId, SequenceNumber>,
    ) -> anyhow::Result<Vec<String>> {
        let mut digests = vec![scene.until_settled(status, &last).await?];
        if let Some(reload) = &self.reload {
            digests.push(scene.swap(status, &self.plugin, reload).await?);
            last.extend(scene.offer(usize::MAX).await?);
            scene.until_settled(status, &last).await?;
        }
        Ok(digests)
    }

    /// Puts the plugin and its manifest into a folder of their own, and settles what it runs with.
    async fn scene(&mut self, input: Trying) -> anyhow::Result<Scene> {
        let stem = self
            .plugin
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let name = PluginName::new(stem)
            .with_context(|| format!("{} cannot name a plugin", self.plugin.display()))?;
        let folder = tempfile::tempdir().context("cannot make a folder for the test")?;
        let manifest_path = self.plugin.with_extension("toml");
        let manifest = Manifest::read(&manifest_path)?;
        let trust = Trust {
            integrity: self.config.integrity(),
            bytes_max: self.config.host.plugin_bytes_max,
        };
        let component = folder.path().join(format!("{name}.wasm"));
        std::fs::write(component, trust.read(&name, &self.plugin)?)
            .context("cannot copy the component")?;
        if manifest.is_some() {
            copy(&manifest_path, &folder.path().join(format!("{name}.toml")))?;
        }
        let stream = match &input {
            Trying::Put(_) => StreamName::new(STREAM)?,
            Trying::Captured(captured) => captured.name().clone(),
        };
        self.configure(&name, &stream, folder.path());
        let limits = self.limits();
        let settings = settings_for(&mut self.config, &name, manifest.as_ref(), limits)?;
        let application = settings
            .streams
            .first()
            .map_or_else(String::new, |one| one.application.clone());
        let clients = crate::aws::connect(&self.config.aws).await?;
        if matches!(input, Trying::Put(_)) {
            StreamAdmin::new(clients.kinesis.clone())
                .ensure_stream(&stream, self.shards)
                .await?;
        }
        Ok(Scene {
            trust,
            folder,
            name,
            application,
            clients,
            input,
            timeout: self.timeout,
        })
    }
}

impl Trial {
    /// Replaces what the settings say about places outside, and about pace.
    fn configure(&mut self, name: &PluginName, stream: &StreamName, folder: &Path) {
        let config = &mut self.config;
        // What is in the folder was judged when it was read, by the bytes that it had then.
        config.trust_every_component();
        config.stream = Some(stream.clone().into());
        folder.clone_into(&mut config.plugins);
        config.host.admin = None;
        if let Some(worker) = WorkerId::new("test") {
            config.worker_id = worker;
        }
        config.reads = ReadLimits {
            calls_per_second: 1e4,
            bytes_per_second: 1e12,
            idle_every: LOOK_EVERY,
            idle_max: LOOK_EVERY,
            ..ReadLimits::default()
        };
        config.read_only(name, stream);
        // Nothing is sent there, but the manifest may name it.
        for sink in &self.sinks {
            let sink = config.sinks.entry(sink.clone());
            sink.or_insert(SinkOptions::Stdout {
                format: LineFormat::Data,
            });
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            attempts: self.attempts,
            batch_records: self.batch_records,
        }
    }
}

impl Trust {
    fn read(&self, name: &PluginName, path: &Path) -> anyhow::Result<Vec<u8>> {
        Ok(
            Found::read_trusted(path, self.bytes_max, &self.integrity, name)?
                .bytes
                .into(),
        )
    }
}

impl Scene {
    /// Lets the next `count` records arrive; gives the last sequence number of each shard that got
    /// some.
    async fn offer(&mut self, count: usize) -> anyhow::Result<BTreeMap<ShardId, SequenceNumber>> {
        let entries = match &mut self.input {
            Trying::Put(entries) => entries
                .drain(..count.min(entries.len()))
                .collect::<Vec<_>>(),
            Trying::Captured(stream) => return Ok(stream.release(count)),
        };
        let writer = StreamWriter::new(self.clients.kinesis.clone(), StreamName::new(STREAM)?);
        Ok(writer
            .put_all(entries, |_, _| {})
            .await
            .context("cannot put the input")?
            .last_sequence)
    }

    /// Waits until everything up to `last` is checkpointed; gives the digest of the version at
    /// work.
    async fn until_settled(
        &self,
        status: &HostStatus,
        last: &BTreeMap<ShardId, SequenceNumber>,
    ) -> anyhow::Result<String> {
        let table = LeaseTable::new(self.clients.dynamodb.clone(), self.application.as_str());
        let asked_at = Instant::now();
        let (mut settled, mut moved_at) = (0, asked_at);
        loop {
            let plugin = self.plugin(status)?;
            let is_started = plugin
                .as_ref()
                .is_some_and(|plugin| plugin.worker.plugin_digest.is_some());
            if let Some(plugin) = plugin.filter(|_| is_started) {
                if plugin.worker.lease_rows > 0
                    && is_checkpointed(&table.list().await?.leases, last)
                {
                    return Ok(plugin.worker.plugin_digest.unwrap_or_default());
                }
                let records = records_of(&plugin);
                if records != settled {
                    (settled, moved_at) = (records, Instant::now());
                }
                refuse_standstill(&plugin)?;
                if moved_at.elapsed() > self.timeout {
                    bail!(
                        "nothing was settled for {:?}: {}",
                        self.timeout,
                        why_blocked(&plugin, None)
                    );
                }
            } else if asked_at.elapsed() > START_MAX {
                bail!("the plugin was not compiled within {START_MAX:?}");
            } else {
                moved_at = Instant::now();
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Replaces the file, and waits until the host has the new version.
    async fn swap(
        &self,
        status: &HostStatus,
        plugin: &Path,
        reload: &Reload,
    ) -> anyhow::Result<String> {
        let before = self
            .plugin(status)?
            .and_then(|plugin| plugin.worker.plugin_digest);
        let path = reload.to.as_deref().unwrap_or(plugin);
        let mut bytes = self.trust.read(&self.name, path)?;
        if reload.to.is_none() {
            bytes.extend(custom_section());
        }
        let fresh = self.folder.path().join(".fresh");
        std::fs::write(&fresh, bytes).context("cannot write the new version")?;
        std::fs::rename(
            fresh,
            self.folder.path().join(format!("{}.wasm", self.name)),
        )?;
        let asked_at = Instant::now();
        loop {
            let now = self.plugin(status)?;
            if let Some(refused) = now
                .as_ref()
                .and_then(|plugin| plugin.worker.refused.as_ref())
            {
                bail!("the new version was refused: {}", refused.reason);
            }
            let shards = now.iter().flat_map(|plugin| plugin.worker.shards.values());
            let digests: BTreeSet<_> = shards
                .filter_map(|shard| shard.plugin_digest.clone())
                .collect();
            if let Some(digest) = digests
                .first()
                .filter(|new| digests.len() == 1 && Some(*new) != before.as_ref())
            {
                return Ok(digest.clone());
            }
            if asked_at.elapsed() > START_MAX {
                bail!(
                    "the new version did not replace the old one within {START_MAX:?}; is it the same file?"
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The plugin's status, if there is any yet; a refusal is an error.
    fn plugin(&self, status: &HostStatus) -> anyhow::Result<Option<PluginSnapshot>> {
        let plugin = status.snapshot().plugins.remove(self.name.as_str());
        match plugin.as_ref().and_then(refusal) {
            Some(reason) => Err(anyhow!("the host refuses {}: {reason}", self.name)),
            None => Ok(plugin),
        }
    }
}

fn records_of(plugin: &PluginSnapshot) -> u64 {
    let shards = plugin.worker.shards.values();
    shards.map(|shard| shard.records).sum()
}

/// Fails for a plugin that will settle nothing more, however long one waits.
fn refuse_standstill(plugin: &PluginSnapshot) -> anyhow::Result<()> {
    let mut shards = plugin.worker.shards.values();
    if let Some(halted) = shards.find(|shard| shard.state == ShardState::Halted) {
        bail!(
            "the plugin's failure policy stopped it: {}",
            why_blocked(plugin, halted.given_up.last.as_deref())
        );
    }
    if plugin.worker.shards.values().any(will_never_begin) {
        bail!("no record can be settled: {}", why_blocked(plugin, None));
    }
    Ok(())
}

/// Whether there is no instance, or what it keeps as its state cannot be had, and will not be: the
/// stack is in this process, and nobody changes the settings.
fn will_never_begin(shard: &ShardStatus) -> bool {
    /// In case a version is being swapped, or what it asks elsewhere is away for a moment.
    const ATTEMPTS: u32 = 3;
    shard.blocked.as_ref().is_some_and(|blocked| {
        let is_needed = blocked.why == Why::State || shard.state == ShardState::Starting;
        is_needed && blocked.attempts >= ATTEMPTS
    })
}

/// Why the host does not run it, if it does not.
fn refusal(plugin: &PluginSnapshot) -> Option<&String> {
    plugin
        .refused_file
        .as_ref()
        .or(plugin.refused_settings.as_ref())
        .or(plugin.not_served.as_ref())
}

/// A section that engines ignore: the same code under another digest.
fn custom_section() -> [u8; 6] {
    const CUSTOM: u8 = 0;
    [CUSTOM, 4, 3, b's', b'm', b't']
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::copy(from, to).with_context(|| format!("cannot read {}", from.display()))?;
    Ok(())
}

fn why_blocked(plugin: &PluginSnapshot, otherwise: Option<&str>) -> String {
    let reasons: BTreeSet<&str> = plugin
        .worker
        .shards
        .values()
        .filter_map(|shard| Some(shard.blocked.as_ref()?.reason.as_str()))
        .collect();
    let told = reasons.into_iter().collect::<Vec<_>>().join("; ");
    if told.is_empty() {
        otherwise.unwrap_or("no reason is known").to_owned()
    } else {
        told
    }
}
