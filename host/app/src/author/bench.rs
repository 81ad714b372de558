//! `shardmill bench`: what a plugin costs. Batches go through one instance of the production
//! engine, and through others that do nothing, for comparison.
//!
//! Nothing is leased, fetched, stored or checkpointed here; docs/benchmarks.md has the cost of a
//! whole host.

mod batches;
mod measure;
mod native;
mod report;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use indicatif::HumanBytes;
use serde::Serialize;
use shardmill_config::{Config, ConfigError, Manifest, PluginConfig};
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{InstanceContext, ProcessorFactory, StartPosition};
use shardmill_core::stream::{ShardId, StreamName};
use shardmill_serve::Signals;
use shardmill_serve::component;
use shardmill_serve::engine::command_options;
use shardmill_sinks::STDOUT;
use shardmill_wasm::{EMPTY_COMPONENT, Plugin, Runtime};

use self::batches::{BenchInput, batches};
use self::measure::{Bench, BenchError};
use self::report::BenchReport;
use crate::author::arguments::{config_or_default, plugin_name};
use crate::author::feed::{FeedLine, KeySource};
use crate::author::interrupted::unless_interrupted;
use crate::cli::BenchArgs;
use crate::output::{Interrupted, print, print_json};

/// The stream that an instance sees.
const STREAM: &str = "bench";

/// What is printed.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report<'a> {
    plugin_name: &'a str,
    digest: &'a str,
    size: usize,
    compile_ms: f64,
    #[serde(flatten)]
    measured: &'a BenchReport,
}

pub(crate) async fn execute(args: &BenchArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let name = plugin_name(&args.plugin)?;
    let config = config_of(args, &name)?;
    let settings = settings_of(args, &name, &config)?;
    let input = read_input(args, &settings).await?;
    let runtime = runtime(&config)?;
    let plugin = component::load(&runtime, &config, &name, &args.plugin).await?;
    let empty = load_empty(&runtime).await?;
    let bench = Bench {
        batches: batches(input, &settings.batches),
        records: args.records,
        rounds: args.rounds,
        context: Arc::new(context(args, &config, &name, &settings)?),
    };
    let running = Box::pin(bench.run(&plugin, &empty, signals.stop()));
    let measured = match unless_interrupted(running, signals.stop()).await? {
        Err(BenchError::Interrupted) => return Err(Interrupted(String::new()).into()),
        measured => measured?,
    };
    show(args, &plugin, &measured)?;
    conclude(&measured)
}

fn runtime(config: &Config) -> anyhow::Result<Runtime> {
    let options = command_options(config).context("cannot find the compiler")?;
    Runtime::new(options).context("cannot start the Wasm engine")
}

/// The component that does nothing.
async fn load_empty(runtime: &Runtime) -> anyhow::Result<Plugin> {
    let empty = Bytes::from_static(EMPTY_COMPONENT);
    Ok(runtime.load(PluginName::new("empty")?, empty).await?)
}

/// A plugin that names no stream gets one.
fn config_of(args: &BenchArgs, name: &PluginName) -> anyhow::Result<Config> {
    let mut config = config_or_default(args.settings.config.as_deref(), STREAM)?;
    config.read_by_default(name, &StreamName::new(STREAM)?);
    Ok(config)
}

/// The settings under which a host would run the plugin.
fn settings_of(
    args: &BenchArgs,
    name: &PluginName,
    config: &Config,
) -> anyhow::Result<PluginConfig> {
    let manifest = Manifest::read(&args.plugin.with_extension("toml"))?;
    let settings = config.of_plugin(name, manifest.as_ref());
    let mut settings = settings.map_err(|message| ConfigError::Plugin { message })?;
    if let Some(records) = args.settings.batch_records {
        settings.batches.records = records as usize;
    }
    Ok(settings)
}

/// What the plugin would get of the input. Made-up records match no filter and are not filtered.
async fn read_input(args: &BenchArgs, settings: &PluginConfig) -> anyhow::Result<BenchInput> {
    let Some(path) = args.input.clone() else {
        return Ok(BenchInput::made_up());
    };
    let key = KeySource::field_or_number(args.key_field.as_deref());
    let read = tokio::task::spawn_blocking(move || BenchInput::read(&path, key));
    let mut input = read.await.context("the reader of the input panicked")??;
    if let Some(filter) = &settings.filter {
        let passes = |line: &FeedLine| filter.passes(&line.partition_key, &line.data);
        input.lines.retain(passes);
        if input.lines.is_empty() {
            bail!("no line of the input passes the plugin's filter: {filter}");
        }
    }
    Ok(input)
}

fn context(
    args: &BenchArgs,
    config: &Config,
    name: &PluginName,
    settings: &PluginConfig,
) -> anyhow::Result<InstanceContext> {
    let destinations: BTreeSet<String> = config
        .sinks
        .keys()
        .chain(&args.settings.sinks)
        .cloned()
        .chain([STDOUT.to_owned()])
        .collect();
    Ok(InstanceContext {
        start: StartPosition::default(),
        plugin: name.clone(),
        application: name.to_string(),
        stream: StreamName::new(STREAM)?,
        shard: ShardId::new("shardId-000000000000")?,
        worker: WorkerId::new("bench").context("a name of a worker")?,
        epoch: LeaseCounter(1),
        destinations: destinations.into_iter().collect(),
        limits: Some(settings.limits),
        config: settings.config.clone().into_iter().collect(),
        permissions: Arc::new(settings.permissions.clone()),
    })
}

fn conclude(measured: &BenchReport) -> anyhow::Result<()> {
    match &measured.failed {
        Some(failed) => bail!(
            "{} records failed, the first one: {}",
            failed.records,
            failed.first
        ),
        None => Ok(()),
    }
}

fn show(args: &BenchArgs, plugin: &Plugin, measured: &BenchReport) -> anyhow::Result<()> {
    let (digest, size, compile) = (plugin.digest(), plugin.size(), plugin.compile_time());
    let compile_ms = compile.as_secs_f64() * 1e3;
    if args.output.json {
        return print_json(&Report {
            plugin_name: plugin.name().as_str(),
            digest: digest.as_str(),
            size,
            compile_ms,
            measured,
        });
    }
    let size = HumanBytes(size as u64);
    print(&format!(
        "{} {digest}, {size}, compiled in {compile_ms:.1} ms\n{measured}",
        plugin.name()
    ));
    Ok(())
}
