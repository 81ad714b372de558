//! From a place as it was written to a place in each shard.

use anyhow::bail;
use shardmill_aws::KinesisReader;
use shardmill_core::control::Place;
use shardmill_core::fleet::{ApplicationStart, FleetRows};
use shardmill_core::lease::{Checkpoint, Lease, Sought};
use shardmill_core::ports::{Clock, REPLY_RECORDS_MAX, ReadError, StreamReader};
use shardmill_core::stream::{InitialPosition, ReadFrom, Record, SequenceNumber, ShardId, Utc};
use shardmill_serve::BootClock;

use crate::cli::Target;
use crate::output::millis;

/// Replies that are read to count records: the tip may be far.
const REPLIES_MAX: u32 = 50;
/// How far back the search for records before a checkpoint begins; ten times as far each time.
const BACK_FIRST_MS: u64 = 60_000;
/// The longest retention of a stream (AWS limit): 365 days.
const RETENTION_MAX_MS: u64 = 365 * 24 * 3_600_000;

/// The place in the only shard that is concerned, or in all of them.
pub(super) async fn resolve(
    target: &Target,
    reader: &KinesisReader,
    fleet: &FleetRows,
    rows: &[Lease],
) -> anyhow::Result<Place> {
    match target {
        Target::Horizon => Ok(Place::Horizon),
        Target::Tip => Ok(Place::Time(now(reader).await?)),
        Target::Start => start(fleet.start.as_ref()),
        Target::Time(ms) => past(*ms, reader).await,
        Target::Ago(ago) => {
            let now = now(reader).await?;
            Ok(Place::Time(now.saturating_sub(millis(*ago))))
        }
        Target::Sequence(number) => known(number, reader, only(rows)?).await,
        Target::Forward(count) => forward(*count, reader, only(rows)?).await,
        Target::Back(count) => back(*count, reader, only(rows)?).await,
    }
}

/// The stream's time: what arrives later has a later one.
async fn now(reader: &KinesisReader) -> anyhow::Result<u64> {
    Ok(reader
        .now_ms()
        .await?
        .unwrap_or_else(|| BootClock.wall_ms()))
}

fn start(start: Option<&ApplicationStart>) -> anyhow::Result<Place> {
    let Some(start) = start else {
        bail!("no host has written down where the application began: name a place");
    };
    Ok(match start.position {
        InitialPosition::TrimHorizon => Place::Horizon,
        InitialPosition::Latest => Place::Time(start.looked_at_ms),
        InitialPosition::AtTimestamp(ms) => Place::Time(ms),
    })
}

/// Kinesis knows no record of the future.
async fn past(ms: u64, reader: &KinesisReader) -> anyhow::Result<Place> {
    let now = now(reader).await?;
    if ms > now {
        bail!(
            "{} is in the future: the stream's time is {}; `--to tip` continues with what comes next",
            Utc(ms),
            Utc(now)
        );
    }
    Ok(Place::Time(ms))
}

/// The only shard that is concerned: records are counted, and numbered, in each shard apart.
fn only(rows: &[Lease]) -> anyhow::Result<&Lease> {
    match rows {
        [row] => Ok(row),
        _ => bail!("such a place is one of a single shard: name the shard"),
    }
}

/// Numbers of other shards, and of other streams, look the same: only Kinesis knows.
async fn known(
    number: &SequenceNumber,
    reader: &KinesisReader,
    row: &Lease,
) -> anyhow::Result<Place> {
    let place = Place::Sequence(number.clone());
    match unknown(&place.checkpoint(), &row.key.shard_id(), reader).await? {
        None => Ok(place),
        Some(why) => bail!("Kinesis does not know {number} in {}: {why}", row.key),
    }
}

/// Why Kinesis knows no such place in the shard; `None` if it does, or it is one that every shard
/// has.
pub(crate) async fn unknown(
    place: &Checkpoint,
    shard: &ShardId,
    reader: &KinesisReader,
) -> anyhow::Result<Option<String>> {
    let number = match place {
        Checkpoint::At(position) => &position.sequence,
        Checkpoint::Sought(Sought::Sequence(number)) => number,
        _ => return Ok(None),
    };
    let from = ReadFrom::AtSequenceNumber(number.clone());
    match reader.iterator(shard, &from).await {
        Ok(_) => Ok(None),
        Err(ReadError::Refused { message }) => Ok(Some(message)),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a number that no record has reached: what comes up to it would be concerned, for ever.
pub(super) async fn reached(
    number: &SequenceNumber,
    reader: &KinesisReader,
    row: &Lease,
) -> anyhow::Result<()> {
    known(number, reader, row).await?;
    let from = ReadFrom::AtSequenceNumber(number.clone());
    let records = read(reader, row, &from, |records| !records.is_empty()).await?;
    if records.is_empty() {
        bail!(
            "{}: no record has the number {number} or a later one; name the last record to skip",
            row.key
        );
    }
    Ok(())
}

/// The record after the next `count` ones; what comes next if there are no more.
async fn forward(count: u32, reader: &KinesisReader, row: &Lease) -> anyhow::Result<Place> {
    let from = delivered_next(row)?;
    let wanted = usize::try_from(count)?;
    let mut records = read(reader, row, &from, |records| records.len() > wanted).await?;
    if records.len() > wanted {
        let first = records.swap_remove(wanted);
        return Ok(Place::Sequence(first.position.sequence));
    }
    Ok(Place::Time(now(reader).await?))
}

fn delivered_next(row: &Lease) -> anyhow::Result<ReadFrom> {
    Ok(match &row.checkpoint {
        Checkpoint::At(position) => ReadFrom::AfterSequenceNumber(position.sequence.clone()),
        Checkpoint::TrimHorizon | Checkpoint::Sought(Sought::Horizon) => ReadFrom::TrimHorizon,
        Checkpoint::Sought(Sought::Time(ms)) => ReadFrom::AtTimestamp(*ms),
        Checkpoint::Sought(Sought::Sequence(number)) => ReadFrom::AtSequenceNumber(number.clone()),
        other => bail!(
            "{}: its checkpoint is {other}, from which records cannot be counted",
            row.key
        ),
    })
}

/// The record `count` ones before what is delivered next.
async fn back(count: u32, reader: &KinesisReader, row: &Lease) -> anyhow::Result<Place> {
    let Some(begins_at_ms) = next_arrives_ms(row) else {
        bail!(
            "{} is at {}: nothing comes before it",
            row.key,
            row.checkpoint
        );
    };
    let wanted = usize::try_from(count)?;
    let mut back_ms = BACK_FIRST_MS;
    loop {
        let from = if back_ms >= RETENTION_MAX_MS {
            ReadFrom::TrimHorizon
        } else {
            ReadFrom::AtTimestamp(begins_at_ms.saturating_sub(back_ms))
        };
        let has_come_there = |records: &[Record]| {
            let last = records.last();
            last.is_some_and(|last| !is_before(last, &row.checkpoint))
        };
        let mut records = read(reader, row, &from, has_come_there).await?;
        records.retain(|record| is_before(record, &row.checkpoint));
        if records.len() >= wanted {
            let first = records.swap_remove(records.len() - wanted);
            return Ok(Place::Sequence(first.position.sequence));
        }
        if back_ms >= RETENTION_MAX_MS {
            return Ok(Place::Horizon);
        }
        back_ms = back_ms.saturating_mul(10);
    }
}

/// About when the record arrived that is delivered next; `None` if nothing comes before it, or if
/// it is not known which one it is.
fn next_arrives_ms(row: &Lease) -> Option<u64> {
    match &row.checkpoint {
        Checkpoint::At(_) | Checkpoint::Sought(Sought::Sequence(_)) => {
            let now_ms = || BootClock.wall_ms();
            Some(row.settled_arrival_ms.unwrap_or_else(now_ms))
        }
        Checkpoint::Sought(Sought::Time(ms)) => Some(*ms),
        _ => None,
    }
}

/// Whether the record comes before what is delivered next.
fn is_before(record: &Record, checkpoint: &Checkpoint) -> bool {
    let number = &record.position.sequence;
    match checkpoint {
        Checkpoint::At(position) => *number <= position.sequence,
        Checkpoint::Sought(Sought::Sequence(next)) => number < next,
        Checkpoint::Sought(Sought::Time(ms)) => record.arrival_ms < *ms,
        _ => false,
    }
}

/// The records from a place on, until `is_enough`, or the tip.
async fn read(
    reader: &KinesisReader,
    row: &Lease,
    from: &ReadFrom,
    is_enough: impl Fn(&[Record]) -> bool,
) -> anyhow::Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut next = Some(reader.iterator(&row.key.shard_id(), from).await?);
    for _ in 0..REPLIES_MAX {
        let Some(iterator) = next else { break };
        let fetched = reader.fetch(&iterator, REPLY_RECORDS_MAX).await?;
        let is_at_tip = fetched.records.is_empty() && fetched.millis_behind_latest == Some(0);
        records.extend(fetched.records);
        next = fetched.next;
        if is_at_tip || is_enough(&records) {
            return Ok(records);
        }
    }
    if next.is_some() {
        bail!(
            "{} has too many records there to count: name a time or a record",
            row.key
        );
    }
    Ok(records)
}
