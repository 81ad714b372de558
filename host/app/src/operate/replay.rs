//! `shardmill replay`: dead letters through a plugin, or into a stream.

mod list;
mod remainder;
mod summary;
mod through_plugin;
mod to_stream;

use std::path::{Path, PathBuf};

use anyhow::bail;
use shardmill_aws::PutTarget;
use shardmill_config::Config;
use shardmill_core::plugin::PluginName;
use shardmill_serve::Signals;
use shardmill_sinks::letters::LetterInput;
use tokio_util::sync::CancellationToken;

use self::remainder::Remainder;
use self::summary::ReplaySummary;
use self::through_plugin::ThroughPlugin;
use self::to_stream::ToStream;
use crate::cli::ReplayArgs;
use crate::output::{Interrupted, print, print_json};

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

/// Without a configuration, letters are replayed to standard output.
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
