//! `shardmill replay`: dead letters through a plugin, or into a stream; or the records of a stream
//! through a plugin.

mod list;
mod remainder;
mod summary;
mod through_plugin;
mod to_stream;
mod window;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;
use shardmill_aws::{KinesisReader, PutTarget};
use shardmill_config::Config;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Clock, StreamReader};
use shardmill_core::stream::{StreamRef, Utc};
use shardmill_serve::BootClock;
use shardmill_serve::Signals;
use shardmill_sinks::letters::LetterInput;
use tokio_util::sync::CancellationToken;

use self::remainder::Remainder;
use self::summary::ReplaySummary;
use self::through_plugin::ThroughPlugin;
use self::to_stream::ToStream;
use self::window::WindowOrder;
use crate::cli::ReplayArgs;
use crate::output::{Interrupted, millis, print, print_json};

/// The ending that is added to the input's name to name the file for letters that are left.
const LEFT: &str = ".left";

pub(crate) async fn execute(args: ReplayArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let only = args.of.as_deref().map(PluginName::new).transpose()?;
    if args.list {
        return list::list(&args, only.as_ref(), signals.stop()).await;
    }
    let summary = Box::pin(replay(&args, only, signals.stop())).await?;
    if args.output.json {
        print_json(&summary)?;
    } else if args.stream.is_some() {
        print(&summary.of("records"));
    } else {
        print(&summary.to_string());
    }
    conclude(&summary, signals.stop())
}

async fn replay(
    args: &ReplayArgs,
    only: Option<PluginName>,
    stop: &CancellationToken,
) -> anyhow::Result<ReplaySummary> {
    let config = configure(args)?;
    if let Some(stream) = &args.stream {
        return Box::pin(replay_window(args, stream, config, stop)).await;
    }
    let remainder = Remainder::at(&left_path(args)?)?;
    let input = LetterInput::open(args.files.clone())?;
    if let Some(stream) = &args.to_stream {
        let clients = crate::aws::connect(&config.aws).await?;
        let target = PutTarget::parse(stream)?;
        let replay = ToStream::new(&clients, target, only, remainder);
        return replay.run(input, stop).await;
    }
    let replay = ThroughPlugin {
        args,
        config,
        only,
        remainder,
    };
    Box::pin(replay.run(input, stop)).await
}

/// The records of a stream between two times.
async fn replay_window(
    args: &ReplayArgs,
    stream: &str,
    config: Config,
    stop: &CancellationToken,
) -> anyhow::Result<ReplaySummary> {
    let stream = StreamRef::parse(stream)?;
    let clients = crate::aws::connect(&config.aws).await?;
    let reader = KinesisReader::new(clients.kinesis, &stream).speaking(clients.wire);
    let order = order(args, &stream, &config)?;
    let now_ms = reader.now_ms().await?;
    let now_ms = now_ms.unwrap_or_else(|| BootClock.wall_ms());
    if order.to_ms > now_ms {
        bail!(
            "--to is in the future: the stream's time is {}",
            Utc(now_ms)
        );
    }
    let left = args.failed.clone();
    let left = left.unwrap_or_else(|| with_left(&order.progress));
    let remainder = Remainder::beside(&left, &order.progress)?;
    let replay = ThroughPlugin {
        args,
        config,
        only: None,
        remainder,
    };
    Box::pin(replay.run_window(Box::new(reader), order, stop)).await
}

fn order(args: &ReplayArgs, stream: &StreamRef, config: &Config) -> anyhow::Result<WindowOrder> {
    let plugin = match (&args.of, &args.plugin) {
        (Some(name), _) => PluginName::new(name)?,
        (None, Some(file)) => {
            let name = file.file_stem().unwrap_or_default();
            PluginName::new(&name.to_string_lossy())?
        }
        (None, None) => bail!("name the component with --plugin"),
    };
    let (from_ms, to_ms) = (time("--from", args.from)?, time("--to", args.to)?);
    if from_ms >= to_ms {
        bail!("--from is not before --to: nothing lies between");
    }
    let by_default = || PathBuf::from(format!("{}.replay.json", stream.name()));
    Ok(WindowOrder {
        stream: stream.name().clone(),
        from_ms,
        to_ms,
        application: application(config, &plugin, stream)?,
        plugin,
        progress: args.progress.clone().unwrap_or_else(by_default),
    })
}

/// The name under which the plugin reads the stream; its own if it does not.
fn application(config: &Config, plugin: &PluginName, stream: &StreamRef) -> anyhow::Result<String> {
    let settings = config.settings_of_plugins().map_err(anyhow::Error::msg)?;
    let own = settings.get(plugin.as_str());
    let mut streams = own.iter().flat_map(|own| &own.streams);
    let found = streams.find(|own| own.stream.name() == stream.name());
    Ok(found.map_or_else(|| plugin.to_string(), |own| own.application.clone()))
}

fn time(option: &str, time: Option<SystemTime>) -> anyhow::Result<u64> {
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    match since {
        Some(since) => Ok(millis(since)),
        None => bail!("{option} is before 1970"),
    }
}

fn with_left(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(LEFT);
    name.into()
}

/// Without a configuration, letters are replayed to standard output.
fn configure(args: &ReplayArgs) -> anyhow::Result<Config> {
    let mut config = match &args.connection.config {
        Some(path) => Config::load(path)?,
        None => Config::parse("stream = \"replay\"", Path::new(".")).map_err(anyhow::Error::msg)?,
    };
    config.aws = crate::aws::merge(&config.aws, &args.connection.aws)?;
    Ok(config)
}

fn left_path(args: &ReplayArgs) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.failed {
        return Ok(path.clone());
    }
    match args.files.first().filter(|first| first.as_os_str() != "-") {
        Some(first) => Ok(with_left(first)),
        None => bail!(
            "name a file for the remaining letters with --failed: standard input has no file name \
                to derive it from"
        ),
    }
}

fn conclude(summary: &ReplaySummary, stop: &CancellationToken) -> anyhow::Result<()> {
    match (&summary.stopped, &summary.remainder) {
        (Some(reason), _) if stop.is_cancelled() => {
            Err(Interrupted(format!(": the replay stopped {reason}")).into())
        }
        (Some(reason), _) => bail!("the replay stopped: {reason}"),
        (None, Some(left)) => bail!("some letters are left, in {}", left.display()),
        (None, None) => Ok(()),
    }
}
