//! `shardmill backup`: an application's place and state in a file.

mod arrivals;
mod plugins;
mod report;
mod take;

use anyhow::bail;
use shardmill_aws::{AwsClients, KinesisReader, StreamAdmin};
use shardmill_config::Config;
use shardmill_core::fleet::FleetRows;
use shardmill_core::stream::StreamRef;

use self::report::Report;
use self::take::{Opened, Taken};
use super::backup_file::{Content, encode};
use super::whole_file::WholeFile;
use crate::cli::BackupArgs;

pub(crate) async fn execute(args: &BackupArgs) -> anyhow::Result<()> {
    // Before anything is read: a name that is taken is no reason to wait first.
    let mut out = WholeFile::to(&args.to)?;
    let clients = crate::aws::connect_to(&args.connection).await?;
    let tables = take::open(&args.application, &clients).await?;
    let stream = stream_of(args, &tables.fleet)?;
    let Taken { backup, notes } = take_of(&stream, &tables, clients).await?;
    let files = match &args.plugins {
        Some(folder) => plugins::collect(folder, &backup)?,
        None => Vec::new(),
    };
    let content = Content { backup, files };
    let bytes = encode(&content)?;
    out.write(&bytes)?;
    out.finish()?;
    Report::of(&args.to, &content, bytes.len(), notes).show(args.output)
}

async fn take_of(
    stream: &StreamRef,
    tables: &Opened,
    clients: AwsClients,
) -> anyhow::Result<Taken> {
    let admin = StreamAdmin::new(clients.kinesis.clone());
    let found = admin.describe(stream.clone()).await;
    let reader = KinesisReader::new(clients.kinesis, stream).speaking(clients.wire);
    take::take(tables, found, &reader).await
}

/// The stream that the configuration names, which may be another account's, or that the fleet wrote
/// down.
fn stream_of(args: &BackupArgs, fleet: &FleetRows) -> anyhow::Result<StreamRef> {
    let config = args.connection.config.as_deref().map(Config::load);
    let config = config.transpose()?;
    let configured = config.and_then(|config| config.stream_of_application(&args.application));
    let Some(written_down) = &fleet.stream else {
        bail!(
            "no host has written down which stream {} reads: start one first",
            args.application
        );
    };
    let configured = configured.map(|own| own.stream);
    let configured = configured.filter(|stream| *stream.name() == written_down.name);
    Ok(configured.unwrap_or_else(|| written_down.name.clone().into()))
}
