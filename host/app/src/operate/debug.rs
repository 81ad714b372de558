//! `shardmill debug`: runs a batch again that failed.

mod fixture;
mod list;
mod report;
mod rerun;
mod source;
mod storage;
mod text;

use anyhow::{Context, bail};
use shardmill_config::Config;
use shardmill_core::recording::Recording;
use shardmill_core::stream::StreamName;

use self::report::Report;
use self::rerun::{Ran, Rerun, Version};
use self::source::Source;
use self::storage::Storage;
use crate::cli::DebugArgs;
use crate::output::{print, print_json};

pub(crate) async fn execute(args: &DebugArgs) -> anyhow::Result<()> {
    let config = config(args)?;
    let storage = Storage::of(args, &config);
    let recording = match source::find(args, &storage, &config)? {
        Source::List(found) => return list::show(&found, args.output.json),
        Source::Recording(recording) => recording,
    };
    if let Some(file) = &args.save {
        fixture::save(&recording, file)?;
    }
    let (again, other) = run(args, &config, &storage, &recording).await?;
    let report = Report::of(&recording, &again, other.as_ref());
    if args.output.json {
        print_json(&report)?;
    } else {
        print(text::as_text(&recording, &again, other.as_ref(), args).trim_end());
    }
    judge(&report)
}

fn config(args: &DebugArgs) -> anyhow::Result<Config> {
    match &args.config {
        Some(path) => Ok(Config::load(path)?),
        None => Config::for_stream(&StreamName::new("debug")?).map_err(anyhow::Error::msg),
    }
}

/// The batch again, and with another version if one is to be compared.
async fn run(
    args: &DebugArgs,
    config: &Config,
    storage: &Storage,
    recording: &Recording,
) -> anyhow::Result<(Ran, Option<Ran>)> {
    let rerun = Rerun::new(args, config, recording)?;
    let failed = Version::that_failed(args, storage, recording)?;
    let again = Box::pin(rerun.run(&failed))
        .await
        .context("the version that failed cannot be run again")?;
    let Some(path) = &args.compare else {
        return Ok((again, None));
    };
    let other = Version::named(path);
    let other = Box::pin(rerun.run(&other))
        .await
        .with_context(|| format!("{} cannot be run", path.display()))?;
    Ok((again, Some(other)))
}

fn judge(report: &Report<'_>) -> anyhow::Result<()> {
    if !report.is_reproduced() {
        bail!("the batch does not fail as it did");
    }
    if report.is_other_failing() {
        bail!("the other version fails as well");
    }
    Ok(())
}
