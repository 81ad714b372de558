//! Where a reader is in its shard, and what of a reply is new.

use shardmill_core::ports::{ReadError, ShardIterator};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{
    Anchor, Gap, Position, ReadFrom, SequenceNumber, look_for, may_be_trimmed,
};
use shardmill_core::time::Moment;

use super::{Arrival, Start};
use crate::pipeline::opening::Opener;

/// Where the reader is in its shard.
pub(super) struct Place {
    from: ReadFrom,
    /// Where to poll on.
    pub(super) iterator: Option<ShardIterator>,
    /// Where to subscribe on.
    pub(super) continuation: Option<SequenceNumber>,
    /// Bytes of a pushed event that the host had no room for.
    pub(super) refused_bytes: usize,
    /// The last record taken from a reply.
    last: Option<SequenceNumber>,
    /// When the last reply came, and whether it reached the tip.
    heard: Option<(Moment, bool)>,
    /// The record that the next reply must begin with, or what follows it may be lost to retention.
    anchor: Option<SequenceNumber>,
    settled: Option<Position>,
    /// Opens what is taken in.
    pub(super) opener: Opener,
    /// The last call failed in a way that a stream created anew would explain.
    pub(super) is_stream_in_doubt: bool,
}

/// Where reading goes on.
pub(super) struct Resume {
    pub(super) from: ReadFrom,
    /// The record that the first reply must begin with.
    anchor: Option<SequenceNumber>,
}

/// A reply that leads on.
pub(super) struct Accepted {
    /// What of it is new.
    pub(super) arrival: Arrival,
    /// Records dropped, since they came before.
    pub(super) repeats: u64,
    /// Set if records may be lost in front of it.
    pub(super) gap: Option<Gap>,
}

impl Place {
    pub(super) fn new(start: Start, opener: Opener) -> Self {
        let Start { from, settled } = start;
        Self {
            from,
            iterator: None,
            continuation: None,
            refused_bytes: 0,
            last: None,
            heard: None,
            anchor: None,
            settled,
            opener,
            is_stream_in_doubt: false,
        }
    }

    /// The iterator is too old, because nobody read for five minutes or the clock of the service
    /// says so.
    pub(super) fn expired(&mut self) {
        self.iterator = None;
        if SeededBug::ExpiredIteratorGoesToLatest.is_on() {
            self.from = ReadFrom::Latest;
            self.last = None;
        }
        if SeededBug::ExpiredIteratorGoesToTrimHorizon.is_on() {
            self.from = ReadFrom::TrimHorizon;
            self.last = None;
        }
    }

    /// A record's own number shows whether what follows it is still there, where that may be in
    /// doubt.
    pub(super) fn poll_from(&self, now: Moment) -> Resume {
        let from = match (&self.anchor, &self.last) {
            // Nothing has come since it was asked for, so that the doubt stands.
            (Some(anchor), _) => ReadFrom::AtSequenceNumber(anchor.clone()),
            (None, Some(last)) if self.may_be_trimmed(now) => {
                ReadFrom::AtSequenceNumber(last.clone())
            }
            (None, Some(last)) => ReadFrom::AfterSequenceNumber(last.clone()),
            (None, None) => self.from.clone(),
        };
        let anchor = match &from {
            ReadFrom::AtSequenceNumber(sequence) => Some(sequence.clone()),
            ReadFrom::AfterSequenceNumber(_)
            | ReadFrom::TrimHorizon
            | ReadFrom::Latest
            | ReadFrom::AtTimestamp(_) => None,
        };
        Resume { from, anchor }
    }

    /// At the continuation and not after it: AWS allows both and says of neither that it is not a
    /// record's number. What repeats is dropped.
    pub(super) fn subscribe_from(&self, now: Moment) -> Resume {
        if SeededBug::RenewsAtLatest.is_on() && self.continuation.is_some() {
            return Resume {
                from: ReadFrom::Latest,
                anchor: None,
            };
        }
        match &self.continuation {
            Some(continuation) if self.last.is_none() || !self.may_be_trimmed(now) => Resume {
                from: ReadFrom::AtSequenceNumber(continuation.clone()),
                anchor: self.anchor.clone(),
            },
            Some(_) | None => self.poll_from(now),
        }
    }

    /// How many records to ask for, if `most` are wanted: a reply that begins with a record that
    /// was read before has room for one more, or what follows might be trimmed before the next
    /// call, and nobody would tell.
    pub(super) fn records_wanted(&self, most: u32) -> u32 {
        if self.anchor.is_some() {
            most.max(2)
        } else {
            most
        }
    }

    /// Kinesis agreed to go on there.
    pub(super) fn resumed(&mut self, resume: Resume) {
        self.anchor = resume.anchor;
    }

    fn may_be_trimmed(&self, now: Moment) -> bool {
        self.heard
            .is_none_or(|(at, was_at_tip)| may_be_trimmed(was_at_tip, now.since(at)))
    }

    /// Drops what was fetched or settled before; refuses a reply whose records are out of order,
    /// which is then read again from the last good record. Also tells what was dropped, and what is
    /// missing.
    pub(super) fn accept(
        &mut self,
        mut arrival: Arrival,
        now: Moment,
    ) -> Result<Accepted, ReadError> {
        if !arrival
            .records
            .is_sorted_by(|a, b| a.position <= b.position)
        {
            let message = "a reply's records are out of order".to_owned();
            return Err(ReadError::Unavailable { message });
        }
        let gap = self.find_gap(&arrival);
        self.heard = Some((now, arrival.millis_behind_latest.unwrap_or(0) == 0));
        let received = arrival.records.len();
        arrival
            .records
            .dedup_by(|later, earlier| later.position == earlier.position);
        // A continuation may name a record of before the start, as long as none was read after it.
        // A record whose arrival nobody knows (0) is delivered: a service that tells no times would
        // have nothing delivered at all.
        if let (ReadFrom::AtTimestamp(since_ms), None) = (&self.from, &self.last) {
            arrival
                .records
                .retain(|record| record.arrival_ms == 0 || record.arrival_ms >= *since_ms);
        }
        let (last, settled) = (self.last.take(), &self.settled);
        if SeededBug::DeliversSettledAgain.is_on() {
            self.last = arrival
                .records
                .last()
                .map(|record| record.position.sequence.clone())
                .or(last);
            return Ok(Accepted {
                arrival,
                repeats: 0,
                gap,
            });
        }
        arrival.records.retain(|record| {
            last.as_ref()
                .is_none_or(|last| record.position.sequence > *last)
                && settled.as_ref().is_none_or(|settled| {
                    record.position > *settled || Opener::may_reach_beyond(settled, record)
                })
        });
        if SeededBug::SkipsFirstRecord.is_on()
            && last.is_none()
            && self.settled.is_some()
            && !arrival.records.is_empty()
        {
            arrival.records.remove(0);
        }
        self.last = arrival
            .records
            .last()
            .map(|record| record.position.sequence.clone())
            .or(last);
        let repeats = (received - arrival.records.len()) as u64;
        Ok(Accepted {
            arrival,
            repeats,
            gap,
        })
    }

    fn find_gap(&mut self, arrival: &Arrival) -> Option<Gap> {
        match look_for(self.anchor.as_ref()?, &arrival.records) {
            Anchor::Unknown if arrival.ended.is_some() => self.anchor.take().map(Gap::at_end),
            Anchor::Unknown => None,
            Anchor::Holds => {
                self.anchor = None;
                None
            }
            Anchor::Lost(gap) => {
                self.anchor = None;
                Some(gap)
            }
        }
    }
}
