//! `shardmill dev`: the embedded stack, the plugins folder, and an optional feed, in one process.

mod stuck;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use shardmill_aws::{AwsClients, LeaseTable, PutTarget, StreamAdmin, StreamWriter};
use shardmill_config::files;
use shardmill_config::{CachePlace, Config, Manifest};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::{PluginName, plugin_of_label};
use shardmill_core::ports::LeaseStore;
use shardmill_core::stream::StreamName;
use shardmill_local::{LocalOptions, LocalStack};
use shardmill_serve::Host;
use shardmill_serve::Measurements;
use shardmill_serve::Signals;
use shardmill_serve::{HostSnapshot, HostStatus, PluginSnapshot};
use shardmill_sinks::SinkOptions;
use shardmill_worker::{BlockedStatus, ReadLimits, ShardState, Why};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::stuck::stuck;
use crate::author::feed::KeySource;
use crate::author::pump::{PumpSummary, pump};
use crate::author::summary::{Summary, is_fed_checkpointed};
use crate::cli::{DevArgs, PLUGINS};
use crate::output::{Interrupted, print, print_json};

/// Failures in a row after which nobody waits for a mend that somebody must make: some seconds.
const MISCONFIGURED_MAX: u32 = 4;
/// The same of what may pass by itself: about two minutes, as a replay waits.
const FAILURES_MAX: u32 = 12;
/// How often `--until-idle` looks.
const IDLE_LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn execute(args: DevArgs) -> anyhow::Result<()> {
    shardmill_serve::hardening::tell_wall();
    let signals = Signals::listen()?;
    let stream = StreamName::new(&args.stream)?;
    let mut config = configure(&args, stream.clone())?;
    if let Some(feed) = args.feed.as_deref().filter(|feed| *feed != Path::new("-")) {
        // Before anything is made or started for it.
        let found =
            std::fs::metadata(feed).with_context(|| format!("cannot read {}", feed.display()))?;
        if found.is_dir() {
            bail!(
                "cannot read {}: it is a directory, not a file",
                feed.display()
            );
        }
    }
    find_plugins(&args.plugins)?;
    let stack = LocalStack::start(LocalOptions {
        data_dir: Some(args.data.clone()),
        kinesis_port: args.kinesis_port,
        dynamodb_port: args.dynamodb_port,
    })
    .await
    .context("cannot start the embedded stack")?;
    config.aws = crate::aws::at_endpoints(
        stack.kinesis_endpoint().to_owned(),
        stack.dynamodb_endpoint().to_owned(),
    );
    let clients = crate::aws::connect(&config.aws).await?;
    let admin = StreamAdmin::new(clients.kinesis.clone());
    admin.ensure_stream(&stream, args.shards).await?;
    for own in config.streams_of_plugins() {
        admin.ensure_stream(own.name(), args.shards).await?;
    }
    for sink in config.sinks.values() {
        // Elsewhere a stream has an owner who makes it; here there is nobody else.
        if let SinkOptions::Kinesis {
            target: PutTarget::Name(stream),
            region: None,
            endpoint: None,
            ..
        } = sink
        {
            admin.ensure_stream(stream, args.shards).await?;
        }
    }
    let result = Box::pin(serve(&args, config, clients, stream, signals.stop())).await;
    stack.stop().await;
    result
}

/// Makes the folder that is taken where none is named; one that is named has to be there, as for
/// `run`.
fn find_plugins(folder: &Path) -> anyhow::Result<()> {
    if folder == Path::new(PLUGINS) {
        return std::fs::create_dir_all(folder).context("cannot make the plugins folder");
    }
    if !folder.is_dir() {
        let meant = files::folder_beside(folder)
            .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        bail!(
            "there is no plugins folder {}: create it, or name another with --plugins{meant}",
            folder.display()
        );
    }
    Ok(())
}

/// Settings that suit one machine: the embedded stack has none of AWS' read limits, and nobody pays
/// for a request.
fn configure(args: &DevArgs, stream: StreamName) -> anyhow::Result<Config> {
    let mut config = if let Some(path) = &args.config {
        Config::load(path)?
    } else {
        let mut config = Config::for_stream(&stream).map_err(anyhow::Error::msg)?;
        config.reads = ReadLimits {
            calls_per_second: 20.0,
            bytes_per_second: f64::from(1 << 30),
            idle_every: Duration::from_millis(200),
            idle_max: Duration::from_millis(200),
            ..ReadLimits::default()
        };
        config.checkpoints.age = Duration::from_secs(1);
        config
    };
    config.stream = Some(stream.into());
    config.plugins.clone_from(&args.plugins);
    config.host.admin = Some(args.admin);
    // A restart with the same plugins need not compile them again.
    if config.host.cache == CachePlace::Unset {
        config.host.cache = CachePlace::At(args.data.join("compiled"));
    }
    // The data directory is held by one process, so a fixed id never meets a twin, and a restart
    // resumes at once.
    if let Some(worker_id) = WorkerId::new("dev") {
        config.worker_id = worker_id;
    }
    Ok(config)
}

async fn serve(
    args: &DevArgs,
    config: Config,
    clients: AwsClients,
    stream: StreamName,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let endpoints = config.aws.clone();
    let host = Host::build(config.clone(), clients.clone(), Measurements::start()).await?;
    let status = host.status();
    let admin = host
        .admin_address()
        .map(|address| format!("http://{address}/status"));
    tracing::info!(
        %stream,
        plugins = %args.plugins.display(),
        kinesis = endpoints.kinesis_endpoint,
        dynamodb = endpoints.dynamodb_endpoint,
        admin,
        "embedded stack and host started; drop a component in the plugins folder"
    );
    let started = Instant::now();
    let host_stop = CancellationToken::new();
    let work = async {
        let fed = feed(args, &clients, &stream, stop).await;
        let fed = match fed {
            Ok(fed) => fed,
            Err(error) => {
                host_stop.cancel();
                return Err(error);
            }
        };
        if args.until_idle {
            let idle = wait_until_idle(&status, &clients, fed.as_ref(), &stream, &config);
            let waited = stop.run_until_cancelled(idle).await;
            let summary = Summary::new(
                &status.snapshot(),
                fed.as_ref(),
                started.elapsed(),
                waited.is_some(),
            );
            host_stop.cancel();
            waited.transpose()?;
            return Ok(Some(summary));
        }
        stop.cancelled().await;
        host_stop.cancel();
        Ok(None)
    };
    let serving = async {
        let served = Box::pin(host.run(host_stop.clone())).await;
        if served.is_err() {
            stop.cancel();
        }
        served
    };
    let (served, summary) = tokio::join!(serving, work);
    served?;
    let Some(summary) = summary? else {
        return Ok(());
    };
    if args.json {
        print_json(&summary)?;
    } else {
        print(&summary.to_string());
    }
    if summary.was_interrupted {
        return Err(
            Interrupted(": not everything that was fed has been processed".to_owned()).into(),
        );
    }
    Ok(summary.all_handled()?)
}

async fn feed(
    args: &DevArgs,
    clients: &AwsClients,
    stream: &StreamName,
    stop: &CancellationToken,
) -> anyhow::Result<Option<PumpSummary>> {
    let Some(path) = &args.feed else {
        return Ok(None);
    };
    let key = args
        .key_field
        .clone()
        .map_or(KeySource::LineNumber, KeySource::Field);
    let writer =
        StreamWriter::new(clients.kinesis.clone(), stream.clone()).speaking(clients.wire.clone());
    let summary = pump(&writer, path, key.into(), stop)
        .await
        .context("cannot feed the stream")?;
    tracing::info!(
        records = summary.records,
        seconds = summary.seconds,
        "feed done"
    );
    Ok(Some(summary))
}

/// Why a shard of the plugin delivers nothing any more, if one does: it would never be idle.
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

/// What holds a shard and will not pass by itself, or did not for long: it would never be idle.
fn held(host: &HostSnapshot) -> Option<String> {
    let mut shards = host
        .plugins
        .iter()
        .flat_map(|(plugin, of)| of.worker.shards.iter().map(move |of| (plugin, of)));
    shards.find_map(|(plugin, (id, shard))| {
        let BlockedStatus {
            why,
            attempts,
            reason,
        } = shard.blocked.as_ref()?;
        let attempts_max = match why {
            Why::Misconfigured => MISCONFIGURED_MAX,
            // How often the plugin is tried is the failure policy's, by default for ever.
            Why::Plugin | Why::Halted => return None,
            Why::Sink
            | Why::Row
            | Why::Reading
            | Why::State
            | Why::Memory
            | Why::Children
            | Why::Buffer => FAILURES_MAX,
        };
        let is_for_good = *attempts >= attempts_max;
        is_for_good.then(|| {
            format!("plugin {plugin}: shard {id} is held after {attempts} attempts: {reason}")
        })
    })
}

/// Whether no failure policy ever gives up a record of the plugin.
fn tries_for_ever(config: &Config, label: &str) -> bool {
    let settings = PluginName::new(plugin_of_label(label))
        .ok()
        .and_then(|name| {
            let manifest = Manifest::read(&Manifest::path_in(&config.plugins, &name)).ok()?;
            config.of_plugin(&name, manifest.as_ref()).ok()
        });
    settings.is_some_and(|settings| settings.failure.then.is_none())
}

/// Why a file was refused, if nothing of its name ever ran: it will never be idle.
fn never_ran(plugin: &PluginSnapshot) -> Option<&str> {
    plugin
        .refused_file
        .as_deref()
        .filter(|_| plugin.worker.plugin_digest.is_none())
}

/// An error if a file was refused and nothing of its name ever ran.
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

/// Idle: what was fed is checkpointed by every plugin that runs, and every shard held here is at
/// its tip.
async fn wait_until_idle(
    status: &HostStatus,
    clients: &AwsClients,
    fed: Option<&PumpSummary>,
    stream: &StreamName,
    config: &Config,
) -> anyhow::Result<()> {
    loop {
        let snapshot = status.snapshot();
        let has_plugin = snapshot
            .plugins
            .values()
            .any(|plugin| plugin.worker.plugin_digest.is_some());
        if !snapshot.is_folder_read {
            // Still compiling what lies there.
        } else if !has_plugin {
            bail!(
                "there is no working plugin in {}; drop a component there",
                config.plugins.display()
            );
        } else if let Some(problem) = snapshot
            .plugins
            .values()
            .find_map(halted)
            .or_else(|| held(&snapshot))
        {
            bail!("{problem}");
        } else if let Some(problem) = stuck(&snapshot, |plugin| tries_for_ever(config, plugin)) {
            bail!("{problem}");
        } else if snapshot
            .plugins
            .values()
            .all(|plugin| never_ran(plugin).is_some() || plugin.worker.is_idle())
        {
            let mut is_done = true;
            let of_fed = snapshot
                .plugins
                .values()
                .filter(|plugin| plugin.stream.as_deref() == Some(stream.as_str()));
            for application in of_fed.filter_map(|plugin| plugin.application.as_deref()) {
                let table = LeaseTable::new(clients.dynamodb.clone(), application);
                is_done &= is_fed_checkpointed(&table.list().await?.leases, fed);
            }
            if is_done {
                return all_ran(&snapshot);
            }
        }
        tokio::time::sleep(IDLE_LOOK_EVERY).await;
    }
}
