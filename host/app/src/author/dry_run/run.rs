//! The run: a stack in memory, a folder with the plugin, the host, and a wait for each portion of
//! the input.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shardmill_aws::StreamAdmin;
use shardmill_config::Config;
use shardmill_core::lease::WorkerId;
use shardmill_local::{LocalOptions, LocalStack};
use shardmill_serve::{Host, HostStatus, Outputs, Sinks, Substitutes, cache_of_command};
use shardmill_sinks::STDOUT;
use shardmill_wasm::Metering;
use shardmill_worker::{Recordings, ShardStatus};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::collector::{Collector, Kept};
use super::folder::PluginFolder;
use super::input::DryRunInput;
use super::scene::Scene;
use super::settings::{Limits, configure, settings_for};
use super::steps::{Besides, Step, steps_of};
use crate::author::arguments::plugin_name;
use crate::output::Interrupted;

/// The plugin to run, and how to run it.
#[derive(Debug)]
pub(crate) struct DryRun {
    /// The component.
    pub(crate) plugin: PathBuf,
    /// Settings; streams, endpoints and sinks in them are not used.
    pub(crate) config: Config,
    /// Destinations besides those of the configuration.
    pub(crate) sinks: Vec<String>,
    /// Shards of the stream.
    pub(crate) shards: u32,
    /// Most records of a batch; overrides the settings.
    pub(crate) batch_records: Option<u32>,
    /// Deliveries of a record that fails, where the policy would try for ever.
    pub(crate) attempts: u32,
    /// A swap in the middle.
    pub(crate) reload: Option<Reload>,
    /// Records after which another host takes over.
    pub(crate) hand_over_after: Option<usize>,
    /// How much time passes for the plugin once all records are settled.
    pub(crate) passes: Option<Duration>,
    /// Whether all shards end at last.
    pub(crate) ends_shards: bool,
    /// Nothing settled for this long is a failure of the dry run.
    pub(crate) timeout: Duration,
    /// What bounds a call.
    pub(crate) metering: Metering,
}

/// A swap in the middle.
#[derive(Debug)]
pub(crate) struct Reload {
    /// Records that are settled before it.
    pub(crate) after: usize,
    /// The version to swap to; the same code under another digest if `None`.
    pub(crate) to: Option<PathBuf>,
}

/// The result of a dry run.
#[derive(Debug)]
pub(crate) struct DryRunOutcome {
    /// What came out.
    pub(crate) kept: Kept,
    /// Batches that were settled.
    pub(crate) batches: u64,
    /// Records that the plugin's filter kept from it.
    pub(crate) filtered: u64,
    /// From the host's start to the last checkpoint.
    pub(crate) took: Duration,
    /// Digests of the versions that ran, in order.
    pub(crate) digests: Vec<String>,
    /// Fuel that calls of `process` took; `None` if it was not counted.
    pub(crate) fuel: Option<u64>,
}

impl DryRun {
    /// Runs until everything is settled.
    pub(crate) async fn run(
        mut self,
        input: DryRunInput,
        stop: &CancellationToken,
    ) -> anyhow::Result<DryRunOutcome> {
        let stack = LocalStack::start(LocalOptions::in_memory())
            .await
            .context("cannot start the embedded stack")?;
        self.config.aws = crate::aws::at_endpoints(
            stack.kinesis_endpoint().to_owned(),
            stack.dynamodb_endpoint().to_owned(),
        );
        let scene = self.scene(input).await?;
        let outcome = Box::pin(self.run_in(scene, stop)).await?;
        stack.stop().await;
        Ok(outcome)
    }

    /// Puts the plugin into a separate folder, and decides its settings.
    async fn scene(&mut self, input: DryRunInput) -> anyhow::Result<Scene> {
        let folder = PluginFolder::new(plugin_name(&self.plugin)?, &self.config)?;
        let manifest = folder.fill(&self.plugin)?;
        let stream = input.stream()?;
        configure(&mut self.config, &folder, &stream, &self.sinks);
        let limits = Limits {
            attempts: self.attempts,
            batch_records: self.batch_records,
        };
        let settings = settings_for(&mut self.config, folder.name(), manifest.as_ref(), limits)?;
        let tick_every = settings.tick.get();
        let own = settings.streams.into_iter().next();
        let clients = crate::aws::connect(&self.config.aws).await?;
        if let DryRunInput::Put(_) = input {
            let admin = StreamAdmin::new(clients.kinesis.clone());
            admin.ensure_stream(&stream, self.shards).await?;
        }
        Ok(Scene {
            folder,
            application: own.map_or_else(String::new, |own| own.application),
            stream,
            clients,
            input,
            last: BTreeMap::new(),
            clock: Arc::default(),
            tick_every,
            timeout: self.timeout,
        })
    }

    /// Runs the hosts, one after the other.
    async fn run_in(
        &self,
        mut scene: Scene,
        stop: &CancellationToken,
    ) -> anyhow::Result<DryRunOutcome> {
        let started = Instant::now();
        let collector = Arc::new(Collector::default());
        let mut outcome = DryRunOutcome {
            kept: Kept::default(),
            batches: 0,
            filtered: 0,
            took: Duration::ZERO,
            digests: Vec::new(),
            fuel: matches!(self.metering, Metering::Fuel { .. }).then_some(0),
        };
        let besides = Besides {
            swap_after: self.reload.as_ref().map(|reload| reload.after),
            hand_over_after: self.hand_over_after,
            passes: self.passes,
            ends_shards: self.ends_shards,
        };
        for (steps, number) in steps_of(besides).iter().zip(1..) {
            let host = self.host(&scene, &collector, number)?;
            let (status, runtime) = (host.status(), host.runtime());
            let host_stop = CancellationToken::new();
            let acting = async {
                let acting = self.act(steps, &mut scene, &status, &mut outcome.digests);
                let acted = stop.run_until_cancelled(acting).await;
                host_stop.cancel();
                acted
            };
            let (served, acted) = tokio::join!(host.run(host_stop.clone()), acting);
            served?;
            acted.ok_or_else(|| Interrupted(String::new()))??;
            outcome.batches += sum(&status, |shard| shard.batches);
            outcome.filtered += sum(&status, |shard| shard.filtered_records);
            outcome.fuel = outcome.fuel.map(|fuel| fuel + runtime.fuel_used());
        }
        outcome.took = started.elapsed();
        outcome.kept = collector.take();
        Ok(outcome)
    }

    /// The `number`th host. Each has a name of its own, so that the one before hands over.
    fn host(
        &self,
        scene: &Scene,
        collector: &Arc<Collector>,
        number: usize,
    ) -> anyhow::Result<Host> {
        let substitutes = Substitutes {
            outputs: self.outputs(collector),
            reader: scene.input.reader(),
            tick_clock: Some(Arc::clone(&scene.clock)),
            metering: self.metering,
            recordings: Recordings::off(),
            code: cache_of_command(&self.config.host.cache),
        };
        let mut config = self.config.clone();
        if number > 1 {
            config.worker_id = WorkerId::new(&format!("{}-{number}", config.worker_id))
                .context("cannot name the next host")?;
        }
        Host::for_dry_run(config, &scene.clients, substitutes)
    }

    /// Does the steps of one host.
    async fn act(
        &self,
        steps: &[Step],
        scene: &mut Scene,
        status: &HostStatus,
        digests: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        for step in steps {
            match step {
                Step::Deliver(count) => {
                    scene.offer(*count).await?;
                    let digest = scene.until_settled(status).await?;
                    if digests.last() != Some(&digest) {
                        digests.push(digest);
                    }
                }
                Step::Swap => {
                    let other = self.reload.as_ref().and_then(|reload| reload.to.as_deref());
                    digests.push(scene.swap(status, &self.plugin, other).await?);
                }
                Step::LetPass(time) => scene.let_pass(status, *time).await?,
                Step::EndShards => scene.end_shards(status).await?,
            }
        }
        Ok(())
    }

    /// Everything that is emitted goes to the collector, for every destination.
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
}

/// The sum of what all shards count.
fn sum(status: &HostStatus, counted: impl Fn(&ShardStatus) -> u64) -> u64 {
    let plugins = status.snapshot().plugins.into_values();
    let shards = plugins.flat_map(|plugin| plugin.worker.shards.into_values());
    shards.map(|shard| counted(&shard)).sum()
}
