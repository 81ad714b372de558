//! A run of replies, each following the one before: what of them is kept, and who may be served
//! from them. Pure: time is an argument, calls are someone else's.
//!
//! ```text
//!   floor          segments                       last
//!     |──[ reply ]──[ reply ]──[ reply ]────────────|──> source: the iterator to read on with
//!     `-- After(x) is served for any x from here ---'
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use shardmill_core::ports::{Fetched, ReadError, ShardIterator};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{
    Anchor, ReadFrom, Record, SequenceNumber, Shard, ShardId, is_near_trimming, look_for,
};
use tokio::time::Instant;

use super::place::{Place, encode};
use super::ring::{Kept, RingBudget};
use crate::budget::REPLY_BYTES_MAX;
use crate::pace::Pace;

/// Replies older than this serve nobody who keeps up, and hold memory.
const KEPT_FOR: Duration = Duration::from_mins(1);

/// See the module's description.
pub(super) struct Chain {
    pub(super) id: u64,
    /// What its first iterator was asked for.
    origin: ReadFrom,
    /// All records after this one, up to `last`, are held. `None`: all from the origin on.
    floor: Option<SequenceNumber>,
    segments: VecDeque<Segment>,
    /// How far it was read; `None` while no record is known.
    last: Option<SequenceNumber>,
    /// When the last record arrived, in milliseconds since the Unix epoch; 0 if not known.
    last_arrival_ms: u64,
    pub(super) source: Source,
    /// Whether the next reply must begin with `last`, since its iterator was made at that record
    /// and not after it.
    pub(super) is_anchored: bool,
    /// Finished calls.
    pub(super) polls: u64,
    /// How often another chain's call stood for one of this.
    rides: u64,
    /// How the last one ended.
    pub(super) outcome: Result<(), ReadError>,
    /// When it was sent.
    pub(super) sent_at: Instant,
    /// When the next one is worth making.
    pub(super) due: Instant,
    behind: Option<u64>,
    /// Calls in a row that had nothing.
    pub(super) idle: u32,
    pub(super) used_at: Instant,
}

/// Where a chain reads on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// With this iterator.
    Iterator(ShardIterator),
    /// With a new one: the old one expired, or only so is it seen whether what follows was trimmed.
    Anew,
    /// Nowhere: Kinesis said that the shard has ended, and what follows it.
    Ended(Vec<Shard>),
}

/// One reply, without what was read before.
struct Segment {
    records: Vec<Record>,
    read_at: Instant,
    /// How often its last record was served.
    served: usize,
    /// Its room in the ring; without any it lives only until it was served to whoever made the
    /// call.
    kept: Option<Kept>,
}

/// A reply for one caller.
pub(super) struct Served {
    records: Vec<Record>,
    /// Where he goes on; `None` at the shard's end.
    next: Option<Place>,
    millis_behind_latest: Option<u64>,
    children: Vec<Shard>,
}

/// What a reply came to.
pub(super) enum Absorbed {
    /// It follows what was read before; this many bytes came.
    Good(usize),
    /// Its records are out of order: nothing of it can be kept.
    OutOfOrder(Fetched),
    /// What was to be at its start is trimmed: it follows nothing that was read before.
    Severed,
}

impl Segment {
    /// Bytes of data, as Kinesis counts them against a reply's limit.
    fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.data.len()).sum()
    }
}

impl Served {
    pub(super) fn into_fetched(self, shard: &ShardId) -> Fetched {
        Fetched {
            records: self.records,
            next: self.next.map(|place| encode(shard, &place)),
            millis_behind_latest: self.millis_behind_latest,
            children: self.children,
        }
    }
}

impl Chain {
    pub(super) fn new(id: u64, origin: ReadFrom, iterator: ShardIterator, now: Instant) -> Self {
        let known = match &origin {
            ReadFrom::AfterSequenceNumber(sequence) => Some(sequence.clone()),
            _ => None,
        };
        Self {
            id,
            origin,
            floor: known.clone(),
            segments: VecDeque::new(),
            last: known,
            last_arrival_ms: 0,
            source: Source::Iterator(iterator),
            is_anchored: false,
            polls: 0,
            rides: 0,
            outcome: Ok(()),
            sent_at: now,
            due: now,
            behind: None,
            idle: 0,
            used_at: now,
        }
    }

    /// Whether this chain's start is where somebody who asks for `from` would start too. Not for
    /// the tip, which has moved on since.
    pub(super) fn starts_at(&self, from: &ReadFrom) -> bool {
        self.floor.is_none() && self.origin == *from && !matches!(from, ReadFrom::Latest)
    }

    /// Whether everything from `place` to `last` is held.
    pub(super) fn covers(&self, place: &Place) -> bool {
        let last = self.last.as_ref();
        match place {
            Place::Start(id) => *id == self.id && self.floor.is_none(),
            Place::After(sequence) => {
                last.is_some_and(|last| sequence <= last) && self.holds_after(sequence)
            }
            Place::At(sequence) => {
                let is_above = self.floor.as_ref().is_none_or(|floor| sequence > floor);
                last.is_some_and(|last| sequence <= last) && is_above && self.holds_after(sequence)
            }
        }
    }

    fn holds_after(&self, sequence: &SequenceNumber) -> bool {
        match &self.floor {
            Some(floor) => sequence >= floor,
            // What lies before the first record is not known: asked for what is at a record that is
            // trimmed, Kinesis begins with a later one, and whoever has that record must find out
            // that it lost something.
            None => self.first().is_some_and(|first| {
                *sequence >= first.position.sequence || SeededBug::KeptRepliesHideGaps.is_on()
            }),
        }
    }

    pub(super) fn last(&self) -> Option<&SequenceNumber> {
        self.last.as_ref()
    }

    /// Whether nobody knows where in the shard this is.
    pub(super) fn is_unplaced(&self) -> bool {
        self.last.is_none()
    }

    /// Whether the last call found nothing at the tip.
    pub(super) fn is_idle(&self) -> bool {
        self.idle > 0 && self.outcome.is_ok()
    }

    /// Another chain's call, which found nothing, stands for one of this, until `due`.
    pub(super) fn rides(&mut self, due: Instant) {
        self.rides += 1;
        self.due = due;
    }

    /// How often a caller could hear something of this chain.
    pub(super) fn answers(&self) -> u64 {
        self.polls + self.rides
    }

    /// Whether the last call was good, and the next one is not due.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.polls > 0 && self.outcome.is_ok() && now < self.due
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.source, Source::Ended(_))
    }

    /// Where a new iterator must start that goes on here. `None` if that is lost: "latest" was
    /// another moment.
    pub(super) fn resume_from(&self) -> Option<ReadFrom> {
        match (&self.last, &self.origin) {
            (Some(last), _) => Some(ReadFrom::AtSequenceNumber(last.clone())),
            (None, ReadFrom::Latest) => None,
            (None, origin) => Some(origin.clone()),
        }
    }

    fn first(&self) -> Option<&Record> {
        self.segments
            .front()
            .and_then(|segment| segment.records.first())
    }

    fn wanted(place: &Place, record: &Record) -> bool {
        match place {
            Place::Start(_) => true,
            Place::At(sequence) => record.position.sequence >= *sequence,
            Place::After(sequence) => record.position.sequence > *sequence,
        }
    }

    /// Whether a caller at `place`, which is covered, need not wait for a call.
    pub(super) fn has_news_for(&self, place: &Place) -> bool {
        let newest = self
            .segments
            .back()
            .and_then(|segment| segment.records.last());
        self.is_ended() || newest.is_some_and(|record| Self::wanted(place, record))
    }

    /// A reply for a caller at `place`, which is covered: records that are held, or none, and the
    /// end if that is reached.
    pub(super) fn take(
        &mut self,
        place: &Place,
        limit: u32,
        readers: usize,
        now: Instant,
    ) -> Served {
        self.used_at = now;
        let limit = limit as usize;
        let (mut records, mut bytes) = self.take_out(place, limit, readers);
        let mut is_whole = true;
        'segments: for segment in &mut self.segments {
            for record in segment
                .records
                .iter()
                .filter(|record| Self::wanted(place, record))
            {
                // Records of one sequence number are one Kinesis record: never cut in between.
                let is_new = records
                    .last()
                    .is_none_or(|last| last.position.sequence != record.position.sequence);
                let is_full = records.len() >= limit || bytes + record.data.len() > REPLY_BYTES_MAX;
                if is_new && is_full && !records.is_empty() {
                    is_whole = false;
                    break 'segments;
                }
                bytes += record.data.len();
                records.push(record.clone());
            }
            if segment
                .records
                .last()
                .is_some_and(|record| Self::wanted(place, record))
            {
                segment.served += 1;
            }
        }
        let next = match records.last() {
            Some(last) => Place::After(last.position.sequence.clone()),
            // Once the position is known, it is told: it outlives this chain.
            None => self
                .last
                .clone()
                .map_or_else(|| place.clone(), Place::After),
        };
        let millis_behind_latest = self.behind_after(records.last(), is_whole);
        match &self.source {
            Source::Ended(children) if is_whole => Served {
                records,
                next: None,
                millis_behind_latest,
                children: children.clone(),
            },
            _ => Served {
                records,
                next: Some(next),
                millis_behind_latest,
                children: Vec::new(),
            },
        }
    }

    /// Whole replies that nobody else waits for, or that are not kept, are handed over without a
    /// copy. With one plugin, and for the last one of several, that is all of them.
    fn take_out(&mut self, place: &Place, limit: usize, readers: usize) -> (Vec<Record>, usize) {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some(first) = self.segments.front()
            && (first.kept.is_none() || first.served + 1 >= readers)
            && first
                .records
                .first()
                .is_some_and(|record| Self::wanted(place, record))
            && records.len() + first.records.len() <= limit
            && bytes + first.bytes() <= REPLY_BYTES_MAX
        {
            bytes += first.bytes();
            let Some(mut segment) = self.drop_first() else {
                break;
            };
            records.append(&mut segment.records);
        }
        (records, bytes)
    }

    /// How far the tip is ahead of `record`: what Kinesis said of the last reply, and what is held
    /// in between.
    fn behind_after(&self, record: Option<&Record>, is_whole: bool) -> Option<u64> {
        let held_ms = match record {
            Some(record) if !is_whole && record.arrival_ms > 0 => {
                self.last_arrival_ms.saturating_sub(record.arrival_ms)
            }
            _ => 0,
        };
        self.behind.map(|behind| behind.saturating_add(held_ms))
    }

    /// Takes in a good reply.
    pub(super) fn absorb(&mut self, reply: Fetched, now: Instant, ring: &RingBudget) -> Absorbed {
        if !reply.records.is_sorted_by(|a, b| a.position <= b.position) {
            return Absorbed::OutOfOrder(reply);
        }
        if let Some(last) = self.last.as_ref().filter(|_| self.is_anchored) {
            match look_for(last, &reply.records) {
                Anchor::Holds => self.is_anchored = false,
                // The end comes instead of it: whoever has that record must find out that what
                // follows it may be lost.
                Anchor::Unknown if reply.next.is_none() => return Absorbed::Severed,
                Anchor::Unknown => {}
                Anchor::Lost(_) => return Absorbed::Severed,
            }
        }
        let is_idle = Pace::is_idle(&reply.records, reply.millis_behind_latest);
        let Fetched {
            mut records,
            next,
            millis_behind_latest,
            children,
        } = reply;
        let bytes = records.iter().map(Record::cost_bytes).sum();
        // What came again is dropped here once, as each caller would do for itself.
        records.retain(|record| {
            self.last
                .as_ref()
                .is_none_or(|last| record.position.sequence > *last)
        });
        self.behind = millis_behind_latest;
        self.idle = if is_idle {
            self.idle.saturating_add(1)
        } else {
            0
        };
        self.source = next.map_or(Source::Ended(children), Source::Iterator);
        if let Some(record) = records.last() {
            self.last = Some(record.position.sequence.clone());
            self.last_arrival_ms = record.arrival_ms;
            if millis_behind_latest.is_some_and(is_near_trimming) && !self.is_ended() {
                self.source = Source::Anew;
            }
            let kept = self.make_room(records.iter().map(Record::cost_bytes).sum(), ring);
            self.segments.push_back(Segment {
                records,
                read_at: now,
                served: 0,
                kept,
            });
        }
        Absorbed::Good(bytes)
    }

    /// Room for the newest reply, at the cost of the oldest ones if need be.
    fn make_room(&mut self, bytes: usize, ring: &RingBudget) -> Option<Kept> {
        loop {
            let kept = ring.keep(bytes);
            if kept.is_some() || self.drop_first().is_none() {
                return kept;
            }
        }
    }

    /// Forgets what is too old, what all `readers` had, and what the ring has no room for.
    pub(super) fn trim(&mut self, now: Instant, readers: usize) {
        while let Some(first) = self.segments.front()
            && (first.served >= readers || first.read_at + KEPT_FOR <= now || first.kept.is_none())
        {
            drop(self.drop_first());
        }
    }

    /// Lets go of the oldest reply.
    fn drop_first(&mut self) -> Option<Segment> {
        let first = self.segments.pop_front()?;
        if let Some(record) = first.records.last() {
            self.floor = Some(record.position.sequence.clone());
        }
        Some(first)
    }
}
