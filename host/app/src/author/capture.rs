//! `shardmill capture`.

mod take;

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use indicatif::HumanCount;
use shardmill_aws::KinesisReader;
use shardmill_core::ports::{ReadError, StreamReader};
use shardmill_core::stream::{ReadFrom, ShardId, StreamRef};
use shardmill_core::text::printable;
use shardmill_serve::Signals;
use shardmill_sinks::Captured;
use tokio_util::sync::CancellationToken;

use self::take::{Part, take};
use crate::cli::CaptureArgs;
use crate::output::{Interrupted, PipeClosed, millis, no_stream};

/// Shards that the message about an unknown shard names.
const SHARDS_SHOWN: usize = 5;

pub(crate) async fn execute(args: &CaptureArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let clients = crate::aws::connect_to(&args.connection).await?;
    let stream = StreamRef::parse(&args.stream)?;
    let reader = KinesisReader::new(clients.kinesis, &stream).speaking(clients.wire);
    let shards = shards(&reader, args).await?;
    let part = Part {
        from: args.from.map_or(Ok(ReadFrom::TrimHorizon), since)?,
        count: args.count.unwrap_or(u64::MAX),
    };
    let mut total = 0;
    for shard in &shards {
        total += capture(&reader, &stream, shard, part.clone(), signals.stop()).await?;
    }
    std::io::stdout().lock().flush()?;
    report(total, shards.len());
    if signals.stop().is_cancelled() {
        return Err(Interrupted(": the capture is incomplete".to_owned()).into());
    }
    Ok(())
}

/// Prints the records of a shard. Returns their number.
async fn capture(
    reader: &KinesisReader,
    stream: &StreamRef,
    shard: &ShardId,
    part: Part,
    stop: &CancellationToken,
) -> anyhow::Result<u64> {
    let stream = stream.name();
    let print = |record| {
        let captured = Captured {
            stream: stream.clone(),
            shard: shard.clone(),
            record,
        };
        write_line(&captured.encode())
    };
    match take(reader, shard, part, stop, print).await {
        Err(error) if is_closed_pipe(&error) => Err(PipeClosed.into()),
        taken => taken.with_context(|| format!("cannot read {shard} of {stream}")),
    }
}

fn since(time: SystemTime) -> anyhow::Result<ReadFrom> {
    let since_epoch = time
        .duration_since(UNIX_EPOCH)
        .context("--from is before 1970")?;
    Ok(ReadFrom::AtTimestamp(millis(since_epoch)))
}

/// Among the errors of a capture, only those of standard output come from the system.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The shards that were asked for, which must exist; or all, parents before their children.
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
    let mut asked = Vec::new();
    for id in &args.shards {
        let id = ShardId::new(id)?;
        if !listed.contains(&id) {
            bail!(
                "{} has no shard {id}; it has {}",
                args.stream,
                first(&listed)
            );
        }
        asked.push(id);
    }
    Ok(asked)
}

/// The first ids, for a message.
fn first(ids: &BTreeSet<ShardId>) -> String {
    let first: Vec<_> = ids.iter().take(SHARDS_SHOWN).map(ShardId::as_str).collect();
    let more = if ids.len() > SHARDS_SHOWN {
        ", ..."
    } else {
        ""
    };
    format!("{}{more}", first.join(", "))
}

/// On standard error, since the records are on standard output.
fn report(records: u64, shards: usize) {
    shardmill_serve::telemetry::show(&format!(
        "{} records of {shards} shards captured",
        HumanCount(records)
    ));
}

/// Prints a line of JSON, with control characters escaped as JSON escapes them: the same to every
/// parser.
fn write_line(json: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(printable(&String::from_utf8_lossy(json)).as_bytes())?;
    out.write_all(b"\n")
}
