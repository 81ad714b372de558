//! `shardmill restore`: facts from a backup, the stream and the tables, the decision from core,
//! conditional writes into the tables of an application without hosts.

mod facts;
mod plugins;
mod report;
mod write;

use anyhow::bail;
use shardmill_aws::KinesisReader;
use shardmill_core::backup::{
    Backup, RestorePlan, RestorePolicy, RestoreReason, RestoreRequest, StreamRelation, plan_restore,
};
use shardmill_core::plugin::{Part, check_ending, split_part};
use shardmill_core::stream::StreamRef;

use self::facts::{Destination, Stream, Target};
use self::report::Report;
use self::write::Writer;
use super::backup_file::{self, Content};
use super::control::place_is_unknown;
use crate::cli::RestoreArgs;

pub(crate) async fn execute(args: &RestoreArgs) -> anyhow::Result<()> {
    let content = backup_file::read(&args.file)?;
    let backup = &content.backup;
    let application = args.application.as_ref().unwrap_or(&backup.application);
    refuse_part(application)?;
    refuse_without_files(args, &content)?;
    let clients = crate::aws::connect_to(&args.connection).await?;
    let policy = args.policy();
    let stream = Stream::read(&stream_of(args, backup)?, backup, policy, &clients).await?;
    let target = Target::read(application, args, &clients).await?;
    let plan = plan_restore(&RestoreRequest {
        backup,
        stream: &stream.now(),
        tables: &target.now(),
        policy,
    });
    refuse_useless(args, &plan)?;
    refuse_foreign_checkpoints(&stream.reader, &plan).await?;
    let obstacles = target.obstacles(&plan);
    let destination = Destination {
        application,
        stream: &stream,
        target: &target,
    };
    let mut report = Report::of(args, backup, &destination, &plan, &obstacles);
    if args.apply && obstacles.is_empty() {
        let writer = Writer {
            application,
            backup,
            plan: &plan,
            stream: &stream,
            target: &target,
        };
        let written = writer.write(args, &clients).await?;
        if let Some(folder) = &args.plugins {
            plugins::write(folder, &content.files)?;
        }
        report.written = Some(written);
    }
    report.show(args.output)?;
    conclude(&report, &obstacles)
}

/// The files are there only if the backup was made with them.
fn refuse_without_files(args: &RestoreArgs, content: &Content) -> anyhow::Result<()> {
    if args.plugins.is_some() && content.files.is_empty() {
        bail!("the backup has no files of plugins: it was made without --plugins");
    }
    Ok(())
}

/// A part's rows are made by the host that signs for it, or are the KCL's own.
fn refuse_part(application: &str) -> anyhow::Result<()> {
    match split_part(application) {
        (_, Part::Whole) => Ok(check_ending(application)?),
        (base, Part::Host(host)) => bail!(
            "nothing is restored for a single host: {host} makes its rows itself. Name an application \
                with tables of its own with --application, such as {base}-restored"
        ),
        (base, Part::Stream(stream)) => bail!(
            "nothing is restored into a part of a table of several streams: name an application with \
                a table of its own with --application, which for a plugin with several `streams` is \
                {base}.{stream}"
        ),
    }
}

/// The stream that is named, or the one that the backup is of: by its ARN only if that was given,
/// since another region's cannot be reached from here.
fn stream_of(args: &RestoreArgs, backup: &Backup) -> anyhow::Result<StreamRef> {
    Ok(match &args.stream {
        Some(named) => StreamRef::parse(named)?,
        None => backup.stream.row.name.clone().into(),
    })
}

/// An option that would do nothing here means that something else was expected.
fn refuse_useless(args: &RestoreArgs, plan: &RestorePlan) -> anyhow::Result<()> {
    if plan.relation == StreamRelation::Same && args.from_time.is_some() {
        bail!(
            "--from-time is for another stream: on the backup's own, each shard goes on after its \
                checkpoint; `shardmill seek` moves it afterwards"
        );
    }
    Ok(())
}

/// All streams have shards of the same ids, so only Kinesis knows that a checkpoint is another
/// stream's.
async fn refuse_foreign_checkpoints(
    reader: &KinesisReader,
    plan: &RestorePlan,
) -> anyhow::Result<()> {
    let listed = plan
        .shards
        .iter()
        .filter(|shard| shard.why == RestoreReason::Continues);
    for shard in listed {
        let Some(row) = shard.step.row() else {
            continue;
        };
        let place = &row.lease.checkpoint;
        if let Some(why) = place_is_unknown(place, &shard.shard, reader).await? {
            bail!(
                "nothing is restored: Kinesis refuses the checkpoint {place} of {}, which may be \
                    another stream's: {why}",
                shard.shard
            );
        }
    }
    Ok(())
}

fn conclude(report: &Report<'_>, obstacles: &[String]) -> anyhow::Result<()> {
    if !obstacles.is_empty() {
        bail!("nothing was restored: {}", obstacles.join("; "));
    }
    match &report.written {
        Some(written) if written.lost > 0 => bail!(
            "{} row(s) changed meanwhile and were left alone: stop whoever writes them, and run it \
                again",
            written.lost
        ),
        _ => Ok(()),
    }
}

impl RestoreArgs {
    fn policy(&self) -> RestorePolicy {
        RestorePolicy {
            overwrites: self.overwrite,
            skips: self.forward,
            states: self.states.into(),
            from_ms: self.from_time,
            margin: self.margin,
        }
    }
}
