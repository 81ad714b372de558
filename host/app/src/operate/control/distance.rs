//! How many records lie between two places of a shard, as far as that is quickly read.

use std::fmt;
use std::time::Duration;

use indicatif::HumanCount;
use shardmill_aws::KinesisReader;
use shardmill_core::control::{Direction, Place};
use shardmill_core::lease::{Checkpoint, Lease, Sought};
use shardmill_core::ports::{REPLY_RECORDS_MAX, ReadError, StreamReader};
use shardmill_core::stream::{ReadFrom, Record, SequenceNumber, ShardId};

use crate::output::age;

/// Replies that are read of a shard.
const REPLIES_MAX: u32 = 5;

/// What lies between.
pub(super) struct Distance {
    way: Direction,
    records: u64,
    /// Whether there are more than were read.
    has_more: bool,
    /// When the first and the last of them arrived, in milliseconds since the Unix epoch.
    arrived_ms: Option<(u64, u64)>,
}

/// Where counting ends.
enum End {
    /// At the tip, or at the end of the shard.
    Tip,
    Before(SequenceNumber),
    Through(SequenceNumber),
    Time(u64),
}

impl Distance {
    /// From where the shard is to `to`; `None` if nothing is known of where it is.
    pub(super) async fn of(
        reader: &KinesisReader,
        row: &Lease,
        to: &Place,
    ) -> Result<Option<Self>, ReadError> {
        let Some((way, from, end)) = span(row, to) else {
            return Ok(None);
        };
        let mut distance = Self {
            way,
            records: 0,
            has_more: false,
            arrived_ms: None,
        };
        distance
            .count(reader, &row.key.shard_id(), &from, &end)
            .await?;
        Ok(Some(distance))
    }

    async fn count(
        &mut self,
        reader: &KinesisReader,
        shard: &ShardId,
        from: &ReadFrom,
        end: &End,
    ) -> Result<(), ReadError> {
        let mut next = Some(reader.iterator(shard, from).await?);
        for _ in 0..REPLIES_MAX {
            let Some(iterator) = next else { return Ok(()) };
            let fetched = reader.fetch(&iterator, REPLY_RECORDS_MAX).await?;
            let is_at_tip = fetched.records.is_empty() && fetched.millis_behind_latest == Some(0);
            for record in &fetched.records {
                if end.is_before(record) {
                    return Ok(());
                }
                self.add(record);
            }
            if is_at_tip {
                return Ok(());
            }
            next = fetched.next;
        }
        self.has_more = true;
        Ok(())
    }

    fn add(&mut self, record: &Record) {
        self.records += 1;
        let first = self
            .arrived_ms
            .map_or(record.arrival_ms, |(first, _)| first);
        self.arrived_ms = Some((first, record.arrival_ms));
    }
}

impl End {
    /// Whether the record is not counted any more.
    fn is_before(&self, record: &Record) -> bool {
        match self {
            Self::Tip => false,
            Self::Before(number) => record.position.sequence >= *number,
            Self::Through(number) => record.position.sequence > *number,
            Self::Time(ms) => record.arrival_ms >= *ms,
        }
    }
}

/// Which way it goes, and from where to where records are counted.
fn span(row: &Lease, to: &Place) -> Option<(Direction, ReadFrom, End)> {
    if row.is_finished() {
        return Some((Direction::Back, from(to), End::Tip));
    }
    let way = Direction::to(to, &row.checkpoint, row.settled_arrival_ms)?;
    let (next, end) = match way {
        Direction::Back => (from(to), end_of(&row.checkpoint)?),
        Direction::Forward => (next_after(&row.checkpoint)?, end_before(to)?),
    };
    Some((way, next, end))
}

/// The first record that is not settled.
fn next_after(checkpoint: &Checkpoint) -> Option<ReadFrom> {
    match checkpoint {
        Checkpoint::At(position) => Some(ReadFrom::AfterSequenceNumber(position.sequence.clone())),
        Checkpoint::TrimHorizon | Checkpoint::Sought(Sought::Horizon) => {
            Some(ReadFrom::TrimHorizon)
        }
        Checkpoint::Sought(Sought::Time(ms)) => Some(ReadFrom::AtTimestamp(*ms)),
        Checkpoint::Sought(Sought::Sequence(number)) => {
            Some(ReadFrom::AtSequenceNumber(number.clone()))
        }
        Checkpoint::AtTimestamp | Checkpoint::Latest | Checkpoint::ShardEnd => None,
    }
}

/// Where what is settled ends.
fn end_of(checkpoint: &Checkpoint) -> Option<End> {
    match checkpoint {
        Checkpoint::At(position) => Some(End::Through(position.sequence.clone())),
        Checkpoint::Sought(Sought::Time(ms)) => Some(End::Time(*ms)),
        Checkpoint::Sought(Sought::Sequence(number)) => Some(End::Before(number.clone())),
        Checkpoint::Sought(Sought::Horizon)
        | Checkpoint::TrimHorizon
        | Checkpoint::AtTimestamp
        | Checkpoint::Latest
        | Checkpoint::ShardEnd => None,
    }
}

fn from(place: &Place) -> ReadFrom {
    match place {
        Place::Horizon => ReadFrom::TrimHorizon,
        Place::Time(ms) => ReadFrom::AtTimestamp(*ms),
        Place::Sequence(number) => ReadFrom::AtSequenceNumber(number.clone()),
    }
}

/// Where what is left out ends; `None` if nothing is.
fn end_before(place: &Place) -> Option<End> {
    match place {
        Place::Horizon => None,
        Place::Time(ms) => Some(End::Time(*ms)),
        Place::Sequence(number) => Some(End::Before(number.clone())),
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.way {
            Direction::Back => "delivered again",
            Direction::Forward => "left out",
        };
        let more = if self.has_more { "more than " } else { "" };
        write!(f, "{more}{} record(s) {what}", HumanCount(self.records))?;
        if let Some((first, last)) = self.arrived_ms {
            let span = Duration::from_millis(last.saturating_sub(first));
            write!(f, ", of {}", age(span))?;
        }
        Ok(())
    }
}
