//! `shardmill dev`: the embedded stack, the plugins folder, and an optional feed, in one process.

mod idle;
mod session;
mod stuck;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use shardmill_aws::{AwsClients, PutTarget, StreamAdmin};
use shardmill_config::{CacheSetting, Config, ConsoleRight, files};
use shardmill_core::lease::WorkerId;
use shardmill_core::stream::StreamName;
use shardmill_local::{LocalOptions, LocalStack};
use shardmill_serve::Signals;
use shardmill_sinks::SinkOptions;
use shardmill_worker::ReadLimits;

use self::session::serve;
use super::arguments::DEV_CACHE;
use crate::cli::{DevArgs, PLUGINS};

pub(crate) async fn execute(args: DevArgs) -> anyhow::Result<()> {
    shardmill_serve::open_files::provide();
    shardmill_serve::hardening::report_wall();
    let signals = Signals::listen()?;
    let stream = StreamName::new(&args.stream)?;
    let mut config = configure(&args, stream.clone())?;
    // Checked before anything is created or started for it.
    if let Some(feed) = &args.feed {
        find_feed(feed)?;
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
    make_streams(&args, &config, &stream, &clients).await?;
    let result = Box::pin(serve(&args, config, clients, stream, signals.stop())).await;
    stack.stop().await;
    result
}

fn find_feed(feed: &Path) -> anyhow::Result<()> {
    if feed == Path::new("-") {
        return Ok(());
    }
    let found =
        std::fs::metadata(feed).with_context(|| format!("cannot read {}", feed.display()))?;
    if found.is_dir() {
        bail!(
            "cannot read {}: it is a directory, not a file",
            feed.display()
        );
    }
    Ok(())
}

/// Creates the default folder; one that is named must exist, as for `run`.
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

/// The settings for a host on the embedded stack.
fn configure(args: &DevArgs, stream: StreamName) -> anyhow::Result<Config> {
    let mut config = match &args.config {
        Some(path) => Config::load(path)?,
        None => for_one_machine(&stream)?,
    };
    config.stream = Some(stream.into());
    config.plugins.clone_from(&args.plugins);
    // Nothing is pulled into an author's folder.
    config.sources.clear();
    config.host.admin = Some(args.admin);
    open_console(&mut config);
    // A restart with the same plugins need not compile them again.
    if config.host.cache == CacheSetting::Unset {
        config.host.cache = CacheSetting::At(args.data.join(DEV_CACHE));
    }
    // The data directory is held by one process, so a fixed id never meets a twin, and a restart
    // resumes at once.
    if let Some(worker_id) = WorkerId::new("dev") {
        config.worker_id = worker_id;
    }
    Ok(config)
}

/// Who runs `dev` may do everything, in the console too, which nobody else can reach. A file that
/// says more about the console is right.
fn open_console(config: &mut Config) {
    let is_own = config.host.admin.is_some_and(|at| at.ip().is_loopback());
    if !config.console.is_enabled && is_own && config.host.admin_token.is_none() {
        config.console.is_enabled = true;
        config.console.anonymous = ConsoleRight::ALL.into();
    }
}

/// Settings without a file: the embedded stack has none of AWS' read limits, and requests cost
/// nothing.
fn for_one_machine(stream: &StreamName) -> anyhow::Result<Config> {
    let mut config = Config::for_stream(stream).map_err(anyhow::Error::msg)?;
    config.reads = ReadLimits {
        calls_per_second: 20.0,
        bytes_per_second: f64::from(1 << 30),
        idle_every: Duration::from_millis(200),
        idle_max: Duration::from_millis(200),
        ..ReadLimits::default()
    };
    config.checkpoints.age = Duration::from_secs(1);
    Ok(config)
}

/// Creates every stream that is read or written. Elsewhere a stream's owner creates it; the
/// embedded stack has no other owner.
async fn make_streams(
    args: &DevArgs,
    config: &Config,
    stream: &StreamName,
    clients: &AwsClients,
) -> anyhow::Result<()> {
    let admin = StreamAdmin::new(clients.kinesis.clone());
    admin.ensure_stream(stream, args.shards).await?;
    for own in config.streams_of_plugins() {
        admin.ensure_stream(own.name(), args.shards).await?;
    }
    for sink in config.sinks.values() {
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
    Ok(())
}
