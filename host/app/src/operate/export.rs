//! `shardmill export`: an application's checkpoints as another library's rows.

mod inside;
mod outcome;
mod report;

use std::collections::BTreeSet;

use anyhow::bail;
use shardmill_aws::{AwsClients, KinesisReader, LibraryTables, RowWritten};
use shardmill_core::migration::{ExportRequest, RowChange, ShardExport, Target, plan_export};
use shardmill_core::ports::{Clock, StreamReader};
use shardmill_core::stream::StreamRef;
use shardmill_serve::BootClock;

use self::outcome::Export;
use self::report::Report;
use super::old_fleet::OldFleet;
use super::reading::Reading;
use crate::cli::{ExportArgs, ReadingArgs};
use crate::output::no_stream;

pub(crate) async fn execute(args: &ExportArgs) -> anyhow::Result<()> {
    let stream = StreamRef::parse(&args.stream)?;
    let clients = crate::aws::connect_to(&args.connection).await?;
    let reading = Reading::take(&args.application, &reading_args(args)).await?;
    let tables = LibraryTables::new(clients.dynamodb.clone(), args.library, args.to.as_str());
    let hosts = reading.may_live().into_iter();
    let mut alive: Vec<String> = hosts.map(|host| format!("host {host}")).collect();
    alive.extend(old_workers(&clients, args, &stream).await?);
    let (changes, shards) = plan(args, &clients, &stream, &reading).await?;
    let mut export = Export {
        table: tables.checkpoints_table(),
        alive,
        shards,
        written: 0,
        lost: 0,
    };
    if args.apply && export.may_be_written() {
        write(&tables, &changes, &mut export).await?;
    }
    Report::of(args, &export).show(args.output)?;
    conclude(args, &export)
}

fn reading_args(args: &ExportArgs) -> ReadingArgs {
    ReadingArgs {
        stream: Some(args.stream.clone()),
        watch: args.watch,
        output: args.output,
        connection: args.connection.clone(),
    }
}

/// Workers of the library that may be alive on what is about to be written.
async fn old_workers(
    clients: &AwsClients,
    args: &ExportArgs,
    stream: &StreamRef,
) -> anyhow::Result<Vec<String>> {
    let Some(tables) = LibraryTables::find(&clients.dynamodb, &args.to).await? else {
        return Ok(Vec::new());
    };
    if tables.library() != args.library {
        bail!(
            "{} is a table of {}, not of {}: name another one with --to",
            args.to,
            tables.library(),
            args.library
        );
    }
    // A table without this place is one without workers on it.
    let group = args.group.as_deref();
    let Ok(mut fleet) = OldFleet::look(&tables, stream.name(), group, None).await else {
        return Ok(Vec::new());
    };
    fleet.judge().await?;
    let alive = fleet.alive().into_iter();
    Ok(alive
        .map(|life| format!("{} worker {}", args.library, life.worker))
        .collect())
}

async fn plan(
    args: &ExportArgs,
    clients: &AwsClients,
    stream: &StreamRef,
    reading: &Reading,
) -> anyhow::Result<(Vec<RowChange>, Vec<ShardExport>)> {
    let reader = KinesisReader::new(clients.kinesis.clone(), stream);
    let Some(identity) = reader.identity().await? else {
        return Err(no_stream(stream.name().as_str()));
    };
    let leases = &reading.listing.leases;
    let inside = if args.library.opens_aggregates() {
        BTreeSet::new()
    } else {
        inside::of(&reader, leases).await?
    };
    let target = Target {
        group: args.group.as_deref().unwrap_or_default(),
        stream: stream.name(),
        stream_created_ms: identity.created_at_ms,
        account: &account(clients, stream).await?,
        wall_ms: BootClock.wall_ms(),
    };
    Ok(plan_export(&ExportRequest {
        library: args.library,
        target,
        leases,
        shards: &reader.list_shards().await?,
        inside_aggregate: &inside,
    }))
}

/// The account that the stream is in: the KCL's keys begin with it.
async fn account(clients: &AwsClients, stream: &StreamRef) -> anyhow::Result<String> {
    if let Some(account) = stream.account() {
        return Ok(account.to_owned());
    }
    let admin = shardmill_aws::StreamAdmin::new(clients.kinesis.clone());
    let described = admin.describe(stream).await?;
    let arn = described.and_then(|found| StreamRef::parse(&found.arn).ok());
    let account = arn.as_ref().and_then(StreamRef::account).map(str::to_owned);
    Ok(account.unwrap_or_default())
}

async fn write(
    tables: &LibraryTables,
    changes: &[RowChange],
    export: &mut Export,
) -> anyhow::Result<()> {
    tables.ensure().await?;
    for change in changes {
        match tables.write(change).await? {
            RowWritten::Written => export.written += 1,
            RowWritten::Same => {}
            RowWritten::Changed => export.lost += 1,
        }
    }
    Ok(())
}

fn conclude(args: &ExportArgs, export: &Export) -> anyhow::Result<()> {
    if !export.can_hold_all() {
        bail!(
            "nothing was written: {} cannot hold every checkpoint, and would read the shards \
                marked above elsewhere",
            args.library
        );
    }
    if args.apply && !export.alive.is_empty() {
        bail!(
            "nothing was written: {} may be alive; stop it first",
            export.alive.join(", ")
        );
    }
    if export.lost > 0 {
        bail!(
            "{} row(s) changed meanwhile and were left alone: run it again",
            export.lost
        );
    }
    Ok(())
}
