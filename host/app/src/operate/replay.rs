//! `shardmill replay`.

mod list;
mod remainder;
mod summary;
mod through_plugin;
mod to_stream;

use std::collections::HashMap;
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use shardmill_aws::{AwsClients, PutTarget};
use shardmill_config::Config;
use shardmill_core::lease::LeaseCounter;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{PortFuture, ProcessorFactory};
use shardmill_serve::BootClock;
use shardmill_serve::Signals;
use shardmill_serve::component;
use shardmill_serve::engine::runtime_options;
use shardmill_sinks::letters::LetterInput;
use shardmill_sinks::{SinkOptions, open_sinks};
use shardmill_wasm::{Metering, Plugin, Runtime};
use tokio_util::sync::CancellationToken;

use self::remainder::Remainder;
use self::summary::ReplaySummary;
use self::through_plugin::{Replay, ReplayOptions, ReplayPorts, Versions};
use crate::cli::ReplayArgs;
use crate::output::{Interrupted, print, print_json};

/// What the file of what is left is called, behind the input's name.
const LEFT: &str = ".left";

pub(crate) async fn execute(args: ReplayArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let only = args.of.as_deref().map(PluginName::new).transpose()?;
    if args.list {
        return list::list(&args, only.as_ref(), signals.stop()).await;
    }
    let config = configure(&args)?;
    let remainder = Remainder::at(&left_path(&args)?)?;
    let input = LetterInput::open(args.files.clone())?;
    let summary = match &args.to_stream {
        Some(stream) => {
            let clients = crate::aws::connect(&config.aws).await?;
            let target = PutTarget::parse(stream)?;
            to_stream::put(
                input,
                only.as_ref(),
                &clients,
                target,
                remainder,
                signals.stop(),
            )
            .await?
        }
        None => Box::pin(run(&args, config, only, input, remainder, signals.stop())).await?,
    };
    tell(&args, &summary)?;
    match (&summary.stopped, &summary.remainder) {
        (Some(reason), _) if signals.stop().is_cancelled() => {
            Err(Interrupted(format!(": the replay stopped {reason}")).into())
        }
        (Some(reason), _) => bail!("the replay stopped: {reason}"),
        (None, Some(left)) => bail!("some letters are left, in {}", left.display()),
        (None, None) => Ok(()),
    }
}

/// No file is needed to replay to standard output.
fn configure(args: &ReplayArgs) -> anyhow::Result<Config> {
    let mut config = match &args.place.config {
        Some(path) => Config::load(path)?,
        None => Config::parse("stream = \"replay\"", Path::new(".")).map_err(anyhow::Error::msg)?,
    };
    config.aws = crate::aws::merge(&config.aws, &args.place.aws)?;
    Ok(config)
}

fn left_path(args: &ReplayArgs) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.failed {
        return Ok(path.clone());
    }
    match args.files.first().filter(|first| first.as_os_str() != "-") {
        Some(first) => {
            let mut name = first.clone().into_os_string();
            name.push(LEFT);
            Ok(name.into())
        }
        None => bail!(
            "name a file for the remaining letters with --failed: standard input has no file name \
                to derive it from"
        ),
    }
}

async fn run(
    args: &ReplayArgs,
    config: Config,
    only: Option<PluginName>,
    input: LetterInput,
    remainder: Remainder,
    stop: &CancellationToken,
) -> anyhow::Result<ReplaySummary> {
    let clients = clients(&config).await?;
    let sinks = open_sinks(&config.sinks, &config.aws.options(), clients.as_ref()).await?;
    let runtime_options =
        runtime_options(&config, Metering::Deadline).context("cannot find the compiler")?;
    let runtime = Runtime::new(runtime_options).context("cannot start the Wasm engine")?;
    let settings = config.settings_of_plugins().map_err(anyhow::Error::msg)?;
    let names = sinks.names();
    let options = ReplayOptions {
        only,
        attempts: args.attempts,
        batches: config.batches,
        backoff: config.retry,
        worker: config.worker_id.clone(),
        epoch: LeaseCounter(args.epoch),
        destinations: names.clone(),
        own_destinations: settings
            .iter()
            .map(|(name, own)| (name.clone(), own.destinations(&names)))
            .collect(),
        permissions: settings
            .iter()
            .map(|(name, own)| (name.clone(), Arc::new(own.permissions.clone())))
            .collect(),
        limits: settings
            .iter()
            .map(|(name, own)| (name.clone(), own.limits))
            .collect(),
        config: settings
            .into_iter()
            .map(|(name, own)| (name, own.config.into_iter().collect()))
            .collect(),
    };
    let versions = Files {
        runtime,
        config,
        given: args.plugin.clone(),
        loaded: HashMap::new(),
    };
    let ports = ReplayPorts {
        versions: Box::new(versions),
        sink: Arc::new(sinks),
        clock: Arc::new(BootClock),
        remainder,
    };
    let bar = progress_bar();
    let summary = Replay::new(options, ports)
        .run(input, stop, |summary| show_progress(bar.as_ref(), summary))
        .await;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    summary
}

/// Only where a sink needs them: letters are replayed to files and endpoints without an AWS
/// account.
async fn clients(config: &Config) -> anyhow::Result<Option<AwsClients>> {
    if !config
        .sinks
        .values()
        .any(|sink| matches!(sink, SinkOptions::Kinesis { .. }))
    {
        return Ok(None);
    }
    Ok(Some(crate::aws::connect(&config.aws).await?))
}

fn tell(args: &ReplayArgs, summary: &ReplaySummary) -> anyhow::Result<()> {
    if args.output.json {
        return print_json(summary);
    }
    let mut text = format!("{} letters processed", HumanCount(summary.processed));
    for (count, what) in [
        (summary.failed, "failed again"),
        (summary.held_back, "held back by the plugin"),
        (summary.not_tried, "not tried"),
        (summary.damaged, "damaged"),
        (summary.left_out, "of other plugins skipped"),
        (summary.repeats, "repeats dropped"),
        (summary.other_lines, "other lines skipped"),
    ] {
        if count > 0 {
            // Writing to a string cannot fail.
            let _ = write!(text, ", {} {what}", HumanCount(count));
        }
    }
    print(&text);
    Ok(())
}

fn progress_bar() -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    Some(bar)
}

fn show_progress(bar: Option<&ProgressBar>, summary: &ReplaySummary) {
    let Some(bar) = bar else { return };
    bar.tick();
    let (processed, failed) = (HumanCount(summary.processed), HumanCount(summary.failed));
    bar.set_message(format!("{processed} letters processed, {failed} failed"));
}

/// Components out of files, each compiled once.
struct Files {
    runtime: Runtime,
    config: Config,
    /// Runs all letters, whichever plugin they are of; then they must be of one.
    given: Option<PathBuf>,
    loaded: HashMap<PluginName, Arc<Plugin>>,
}

impl Files {
    async fn load(&mut self, name: &PluginName) -> anyhow::Result<Arc<dyn ProcessorFactory>> {
        if let Some(plugin) = self.loaded.get(name) {
            return Ok(Arc::<Plugin>::clone(plugin));
        }
        if self.given.is_some()
            && let Some(other) = self.loaded.keys().next()
        {
            bail!(
                "there are letters of {other} and of {name}: say with --of whose letters the \
                    --plugin should process"
            );
        }
        let path = self
            .given
            .clone()
            .unwrap_or_else(|| self.config.plugins.join(format!("{name}.wasm")));
        let plugin = Arc::new(component::load(&self.runtime, &self.config, name, &path).await?);
        if plugin.saves_state() {
            bail!(
                "{name} keeps state, which belongs to its shards: outside its shard a record \
                    would not be counted; replay the letters into the stream with --to-stream"
            );
        }
        tracing::info!(plugin = %name, digest = %plugin.digest(), file = %path.display(), "plugin loaded");
        self.loaded.insert(name.clone(), Arc::clone(&plugin));
        Ok(plugin)
    }
}

impl Versions for Files {
    fn version<'a>(
        &'a mut self,
        plugin: &'a PluginName,
    ) -> PortFuture<'a, anyhow::Result<Arc<dyn ProcessorFactory>>> {
        Box::pin(self.load(plugin))
    }
}
