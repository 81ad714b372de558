//! `shardmill capture`.

mod take;

use std::collections::BTreeSet;
use std::io::Write;
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail};
use indicatif::HumanCount;
use shardmill_aws::KinesisReader;
use shardmill_core::ports::{ReadError, StreamReader};
use shardmill_core::stream::{ReadFrom, ShardId, StreamRef};
use shardmill_core::text::printable;
use shardmill_serve::Signals;

use self::take::{Take, take};
use crate::author::captured::Captured;
use crate::cli::CaptureArgs;
use crate::output::{Interrupted, PipeClosed, no_stream};

/// Shards that are named to whoever named another one.
const SHARDS_TOLD: usize = 5;

pub(crate) async fn execute(args: &CaptureArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let clients = crate::aws::connect(&crate::aws::of_place(&args.place)?).await?;
    let named = StreamRef::parse(&args.stream)?;
    let stream = named.name().clone();
    let reader = KinesisReader::new(clients.kinesis, &named).speaking(clients.wire);
    let shards = shards(&reader, args).await?;
    let from = match args.from {
        None => ReadFrom::TrimHorizon,
        Some(time) => {
            let since_epoch = time
                .duration_since(UNIX_EPOCH)
                .context("--from is before 1970")?;
            ReadFrom::AtTimestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
        }
    };
    let mut total = 0;
    for shard in &shards {
        let part = Take {
            from: from.clone(),
            count: args.count.unwrap_or(u64::MAX),
        };
        let write = |record| {
            let captured = Captured {
                stream: stream.clone(),
                shard: shard.clone(),
                record,
            };
            write_line(&captured.encode())
        };
        let taken = take(&reader, shard, part, signals.stop(), write).await;
        total += match taken {
            Err(error) if is_closed_pipe(&error) => return Err(PipeClosed.into()),
            taken => taken.with_context(|| format!("cannot read {shard} of {stream}"))?,
        };
    }
    std::io::stdout().lock().flush()?;
    tell(total, shards.len());
    if signals.stop().is_cancelled() {
        return Err(Interrupted(": the capture is incomplete".to_owned()).into());
    }
    Ok(())
}

/// Of the errors of a capture, only those of standard output are the system's.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Those asked for, which must be there; or all, parents before their children.
async fn shards(reader: &KinesisReader, args: &CaptureArgs) -> anyhow::Result<Vec<ShardId>> {
    let listed = match reader.list_shards().await {
        Err(ReadError::NotFound { .. }) => return Err(no_stream(&args.stream)),
        listed => listed.with_context(|| format!("cannot list the shards of {}", args.stream))?,
    };
    let listed: BTreeSet<ShardId> = listed.into_iter().map(|shard| shard.id).collect();
    if args.shards.is_empty() {
        // Their numbers rise.
        return Ok(listed.into_iter().collect());
    }
    let asked = args.shards.iter().map(|id| {
        let id = ShardId::new(id)?;
        if listed.contains(&id) {
            Ok(id)
        } else {
            let some: Vec<_> = listed
                .iter()
                .take(SHARDS_TOLD)
                .map(ShardId::as_str)
                .collect();
            let more = if listed.len() > SHARDS_TOLD {
                ", ..."
            } else {
                ""
            };
            bail!(
                "{} has no shard {id}; it has {}{more}",
                args.stream,
                some.join(", ")
            )
        }
    });
    asked.collect()
}

/// Standard output is the records.
fn tell(records: u64, shards: usize) {
    shardmill_serve::telemetry::tell(&format!(
        "{} records of {shards} shards captured",
        HumanCount(records)
    ));
}

/// A line of JSON, in which what would steer a terminal is escaped as JSON escapes it: the same to
/// every parser.
fn write_line(json: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(printable(&String::from_utf8_lossy(json)).as_bytes())?;
    out.write_all(b"\n")
}
