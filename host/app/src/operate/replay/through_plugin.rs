//! `shardmill replay` without `--to-stream`: a plugin's host without a stream, for the engine that
//! feeds it the letters.

mod component_files;
mod engine;
mod options;
mod session;
mod source;

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use indicatif::{HumanCount, ProgressBar};
use shardmill_aws::AwsClients;
use shardmill_config::Config;
use shardmill_core::lease::LeaseCounter;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{StartPosition, StreamReader};
use shardmill_serve::BootClock;
use shardmill_serve::engine::command_options;
use shardmill_sinks::letters::LetterInput;
use shardmill_sinks::{SinkOptions, open_sinks};
use shardmill_wasm::Runtime;
use tokio_util::sync::CancellationToken;

use self::component_files::ComponentFiles;
use self::engine::Replay;
use self::options::{PluginOptions, ReplayOptions, ReplayPorts};
use super::remainder::Remainder;
use super::summary::ReplaySummary;
use super::window::{Passes, Window, WindowOrder};
use crate::cli::ReplayArgs;
use crate::output::spinner;

/// A replay through a plugin.
pub(super) struct ThroughPlugin<'a> {
    pub(super) args: &'a ReplayArgs,
    pub(super) config: Config,
    /// Only letters of this plugin.
    pub(super) only: Option<PluginName>,
    pub(super) remainder: Remainder,
}

impl ThroughPlugin<'_> {
    pub(super) async fn run(
        self,
        input: LetterInput,
        stop: &CancellationToken,
    ) -> anyhow::Result<ReplaySummary> {
        let (options, ports) = self.prepare().await?;
        let bar = spinner();
        let summary = Replay::new(options, ports)
            .run(input, stop, |summary| show_progress(bar.as_ref(), summary))
            .await;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        summary
    }

    /// Replays the records of a window instead of letters.
    pub(super) async fn run_window(
        self,
        reader: Box<dyn StreamReader>,
        order: WindowOrder,
        stop: &CancellationToken,
    ) -> anyhow::Result<ReplaySummary> {
        let passes = self.filter_of(&order.plugin)?;
        let (mut options, mut ports) = self.prepare().await?;
        options.start = StartPosition::Time(order.from_ms);
        let version = ports.versions.version(&order.plugin).await?;
        let window = Window::open(reader, order, version.digest().clone(), passes).await?;
        let bar = spinner();
        let summary = Replay::new(options, ports)
            .run_window(window, stop, |summary, window| {
                show_window(bar.as_ref(), summary, window);
            })
            .await;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        summary
    }

    /// Letters passed their plugin's filter before they failed; records of a stream did not.
    fn filter_of(&self, plugin: &PluginName) -> anyhow::Result<Passes> {
        let settings = self.config.settings_of_plugins();
        let settings = settings.map_err(anyhow::Error::msg)?;
        let own = settings.get(plugin.as_str());
        let Some(filter) = own.and_then(|own| own.filter.clone()) else {
            return Ok(Box::new(|_| true));
        };
        Ok(Box::new(move |record| {
            filter.passes(&record.partition_key, &record.data)
        }))
    }

    async fn prepare(self) -> anyhow::Result<(ReplayOptions, ReplayPorts)> {
        let clients = self.clients().await?;
        let config = &self.config;
        let sinks = open_sinks(&config.sinks, &config.aws.options(), clients.as_ref()).await?;
        let runtime_options = command_options(config).context("cannot find the compiler")?;
        let runtime = Runtime::new(runtime_options).context("cannot start the Wasm engine")?;
        let options = self.options(sinks.names())?;
        let given = self.args.plugin.clone();
        let ports = ReplayPorts {
            versions: Box::new(ComponentFiles::new(runtime, self.config, given)),
            sink: Arc::new(sinks),
            clock: Arc::new(BootClock),
            remainder: self.remainder,
        };
        Ok((options, ports))
    }

    /// Only if a sink needs them: letters are replayed to files and endpoints without an AWS
    /// account.
    async fn clients(&self) -> anyhow::Result<Option<AwsClients>> {
        let mut sinks = self.config.sinks.values();
        if !sinks.any(|sink| matches!(sink, SinkOptions::Kinesis { .. })) {
            return Ok(None);
        }
        Ok(Some(crate::aws::connect(&self.config.aws).await?))
    }

    fn options(&self, sinks: Vec<String>) -> anyhow::Result<ReplayOptions> {
        let settings = self
            .config
            .settings_of_plugins()
            .map_err(anyhow::Error::msg)?;
        let mut plugins = HashMap::new();
        for (name, own) in settings {
            let options = PluginOptions {
                destinations: own.destinations(&sinks),
                limits: Some(own.limits),
                permissions: Arc::new(own.permissions),
                config: own.config.into_iter().collect(),
            };
            plugins.insert(name, options);
        }
        Ok(ReplayOptions {
            only: self.only.clone(),
            attempts: self.args.attempts,
            start: StartPosition::default(),
            leaves_rest: true,
            batches: self.config.batches,
            backoff: self.config.retry,
            worker: self.config.worker_id.clone(),
            epoch: LeaseCounter(self.args.epoch),
            destinations: sinks,
            plugins,
        })
    }
}

fn show_window(bar: Option<&ProgressBar>, summary: &ReplaySummary, window: &Window) {
    let (processed, failed) = (HumanCount(summary.processed), HumanCount(summary.failed));
    let (left, stream) = (window.shards_left(), window.stream());
    let Some(bar) = bar else {
        tracing::debug!(%processed, %failed, left, %stream, "replaying");
        return;
    };
    bar.tick();
    bar.set_message(format!(
        "{processed} records of {stream} processed, {failed} failed, {left} shard(s) left"
    ));
}

fn show_progress(bar: Option<&ProgressBar>, summary: &ReplaySummary) {
    let Some(bar) = bar else { return };
    bar.tick();
    let (processed, failed) = (HumanCount(summary.processed), HumanCount(summary.failed));
    bar.set_message(format!("{processed} letters processed, {failed} failed"));
}
