//! A run of replies, each following the one before: what of them is kept, and which callers may be
//! served from them. Calls are made elsewhere.
//!
//! ```text
//!   floor          segments                       last
//!     |──[ reply ]──[ reply ]──[ reply ]────────────|──> source: the iterator to read on with
//!     `-- After(x) is served for any x from here ---'
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use super::calls::Calls;
use super::chain_place::ChainPlace;
use crate::pipeline::{ReadPace, ReadRate};
use crate::ports::{Fetched, REPLY_BYTES_MAX, ShardIterator};
use crate::seeded_bug::SeededBug;
use crate::stream::{Anchor, ReadFrom, Record, SequenceNumber, Shard, is_near_trimming, look_for};
use crate::time::Moment;

/// Replies older than this help no reader that keeps up, and take memory.
const KEPT_FOR: Duration = Duration::from_mins(1);

/// See the module's description. `K` is the room that a kept reply takes.
#[derive(Debug)]
pub struct Chain<K> {
    id: u64,
    /// What its first iterator was asked for.
    origin: ReadFrom,
    /// All records after this one, up to `last`, are held. `None`: all from the origin on.
    floor: Option<SequenceNumber>,
    segments: VecDeque<Segment<K>>,
    /// How far it was read; `None` while no record is known.
    last: Option<SequenceNumber>,
    /// When the last record arrived, in milliseconds since the Unix epoch; 0 if not known.
    last_arrival_ms: u64,
    source: Source,
    /// Whether the next reply must begin with `last`, since its iterator was made at that record
    /// and not after it.
    is_anchored: bool,
    calls: Calls,
    /// How far the tip was ahead of the last reply, in milliseconds.
    behind: Option<u64>,
    used_at: Moment,
}

/// Where a chain reads on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// With this iterator.
    Iterator(ShardIterator),
    /// With a new one: the old one expired, or only so is it seen whether what follows was trimmed.
    Anew,
    /// Nowhere: Kinesis said that the shard has ended, and what follows it.
    Ended(Vec<Shard>),
}

/// One reply, without what was read before.
#[derive(Debug)]
struct Segment<K> {
    records: Vec<Record>,
    read_at: Moment,
    /// How often its last record was served.
    served: usize,
    /// Its room; without any it lives only until it was served to the caller that it was read for.
    kept: Option<K>,
}

/// What a reply came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Absorbed {
    /// It follows what was read before; this many bytes came.
    Good(usize),
    /// What was to be at its start is trimmed: it follows nothing that was read before.
    Severed,
}

impl<K> Segment<K> {
    /// Bytes of data, as Kinesis counts them against a reply's limit.
    fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.data.len()).sum()
    }

    fn ends_beyond(&self, place: &ChainPlace) -> bool {
        let last = self.records.last();
        last.is_some_and(|record| place.wants(record))
    }
}

impl<K> Chain<K> {
    /// A chain that nothing was read of, whose `iterator` was asked for at `origin`.
    pub fn new(id: u64, origin: ReadFrom, iterator: ShardIterator, now: Moment) -> Self {
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
            calls: Calls::none(now),
            behind: None,
            used_at: now,
        }
    }

    /// The same chain, whose iterator was made at the record that it follows: the first reply must
    /// begin with it.
    #[must_use]
    pub fn anchored(self) -> Self {
        Self {
            is_anchored: true,
            ..self
        }
    }

    /// Its number among the shard's chains.
    pub fn id(&self) -> u64 {
        self.id
    }

    // Where it is.

    /// Whether this chain's start is where a caller that asks for `from` would start too. Not for
    /// the tip, which has moved on since.
    pub fn starts_at(&self, from: &ReadFrom) -> bool {
        self.floor.is_none() && self.origin == *from && !matches!(from, ReadFrom::Latest)
    }

    /// Whether everything from `place` to the chain's last record is held.
    pub fn covers(&self, place: &ChainPlace) -> bool {
        let last = self.last.as_ref();
        match place {
            ChainPlace::Start(id) => *id == self.id && self.floor.is_none(),
            ChainPlace::After(sequence) => {
                last.is_some_and(|last| sequence <= last) && self.holds_after(sequence)
            }
            ChainPlace::At(sequence) => {
                let is_above = self.floor.as_ref().is_none_or(|floor| sequence > floor);
                last.is_some_and(|last| sequence <= last) && is_above && self.holds_after(sequence)
            }
        }
    }

    fn holds_after(&self, sequence: &SequenceNumber) -> bool {
        match &self.floor {
            Some(floor) => sequence >= floor,
            // Without a floor it is unknown what comes before the first record. If the record that
            // was asked for is trimmed, Kinesis begins with a later one, and the caller that had
            // the earlier record must notice the loss.
            None => self.first().is_some_and(|first| {
                *sequence >= first.position.sequence || SeededBug::KeptRepliesHideGaps.is_on()
            }),
        }
    }

    fn first(&self) -> Option<&Record> {
        self.segments.front()?.records.first()
    }

    /// The last record that was read.
    pub fn last(&self) -> Option<&SequenceNumber> {
        self.last.as_ref()
    }

    /// Whether it is not known where in the shard this is.
    pub fn is_unplaced(&self) -> bool {
        self.last.is_none()
    }

    /// When a caller was served last.
    pub fn used_at(&self) -> Moment {
        self.used_at
    }

    // How it reads on.

    /// Where it reads on.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether the shard has ended with what was read.
    pub fn is_ended(&self) -> bool {
        matches!(self.source, Source::Ended(_))
    }

    /// Whether the next reply must begin with the last record that was read.
    pub fn is_anchored(&self) -> bool {
        self.is_anchored
    }

    /// Where a new iterator must start that goes on here. `None` if that is lost: "latest" was
    /// another moment.
    pub fn resume_from(&self) -> Option<ReadFrom> {
        match (&self.last, &self.origin) {
            (Some(last), _) => Some(ReadFrom::AtSequenceNumber(last.clone())),
            (None, ReadFrom::Latest) => None,
            (None, origin) => Some(origin.clone()),
        }
    }

    /// It goes on with `iterator`, which was made at [`Chain::resume_from`].
    pub fn resume(&mut self, iterator: ShardIterator) {
        self.source = Source::Iterator(iterator);
        self.is_anchored = !self.is_unplaced();
    }

    /// Its iterator has expired.
    pub fn expired(&mut self) {
        self.source = Source::Anew;
    }

    /// The calls that this chain made, and when the next is due.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The same calls, to take in what one of them found.
    pub fn calls_mut(&mut self) -> &mut Calls {
        &mut self.calls
    }

    // Serving callers.

    /// Whether a caller at `place`, which is covered, need not wait for a call.
    pub fn has_news_for(&self, place: &ChainPlace) -> bool {
        let newest = self.segments.back();
        self.is_ended() || newest.is_some_and(|segment| segment.ends_beyond(place))
    }

    /// A reply for a caller at `place`, which is covered: records that are held, or none, and the
    /// end if that is reached. `readers` share the shard.
    pub fn take(
        &mut self,
        place: &ChainPlace,
        limit: u32,
        readers: usize,
        now: Moment,
    ) -> Fetched<ChainPlace> {
        debug_assert!(
            self.covers(place),
            "a caller is served only by a chain that holds all from its place on"
        );
        self.used_at = now;
        let limit = limit as usize;
        let mut records = self.take_out(place, limit, readers);
        let is_whole = self.copy_rest(place, limit, &mut records);
        let millis_behind_latest = self.behind_after(records.last(), is_whole);
        if let Source::Ended(children) = &self.source
            && is_whole
        {
            return Fetched {
                records,
                next: None,
                millis_behind_latest,
                children: children.clone(),
            };
        }
        // Once the position is known, the caller learns it: it outlives this chain.
        let last = records.last().map(|last| &last.position.sequence);
        let next = last.or(self.last.as_ref()).cloned();
        Fetched {
            next: Some(next.map_or_else(|| place.clone(), ChainPlace::After)),
            records,
            millis_behind_latest,
            children: Vec::new(),
        }
    }

    /// Hands over, without a copy, whole replies that no other reader waits for, or that are not
    /// kept. With one plugin, or for the last of several, that is all of them.
    fn take_out(&mut self, place: &ChainPlace, limit: usize, readers: usize) -> Vec<Record> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some(first) = self.segments.front()
            && (first.kept.is_none() || first.served + 1 >= readers)
            && first
                .records
                .first()
                .is_some_and(|record| place.wants(record))
            && records.len() + first.records.len() <= limit
            && bytes + first.bytes() <= REPLY_BYTES_MAX
        {
            bytes += first.bytes();
            let Some(mut segment) = self.drop_first() else {
                break;
            };
            records.append(&mut segment.records);
        }
        records
    }

    /// Copies the wanted records of the other replies, up to the size of one reply. Returns whether
    /// those are all.
    fn copy_rest(&mut self, place: &ChainPlace, limit: usize, records: &mut Vec<Record>) -> bool {
        let mut bytes: usize = records.iter().map(|record| record.data.len()).sum();
        for segment in &mut self.segments {
            for record in segment.records.iter().filter(|record| place.wants(record)) {
                // Records of one sequence number are one Kinesis record: never cut in between.
                let is_new = records
                    .last()
                    .is_none_or(|last| last.position.sequence != record.position.sequence);
                let is_full = records.len() >= limit || bytes + record.data.len() > REPLY_BYTES_MAX;
                if is_new && is_full && !records.is_empty() {
                    return false;
                }
                bytes += record.data.len();
                records.push(record.clone());
            }
            if segment.ends_beyond(place) {
                segment.served += 1;
            }
        }
        true
    }

    /// How far the tip is ahead of `record`: as far as Kinesis reported with the last reply, plus
    /// the records held in between.
    fn behind_after(&self, record: Option<&Record>, is_whole: bool) -> Option<u64> {
        let held_ms = match record {
            Some(record) if !is_whole && record.arrival_ms > 0 => {
                self.last_arrival_ms.saturating_sub(record.arrival_ms)
            }
            _ => 0,
        };
        self.behind.map(|behind| behind.saturating_add(held_ms))
    }

    // Taking in replies.

    /// Takes in the good reply of a call that was sent at `sent_at`. `keep` gives room for so many
    /// bytes, if there is any.
    pub fn absorb(
        &mut self,
        reply: Fetched,
        sent_at: Moment,
        now: Moment,
        rate: &ReadRate,
        keep: impl Fn(usize) -> Option<K>,
    ) -> Absorbed {
        debug_assert!(
            reply.is_in_order(),
            "an adapter refuses records out of order: the last one says how far a chain reaches"
        );
        if self.is_severed_by(&reply) {
            return Absorbed::Severed;
        }
        let is_idle = ReadPace::is_idle(&reply.records, reply.millis_behind_latest);
        let bytes = cost_bytes(&reply.records);
        self.behind = reply.millis_behind_latest;
        self.source = match reply.next {
            Some(iterator) => Source::Iterator(iterator),
            None => Source::Ended(reply.children),
        };
        self.push(reply.records, now, keep);
        self.calls.absorbed(sent_at, is_idle, rate);
        Absorbed::Good(bytes)
    }

    /// Whether the reply was to begin with a record that it does not have.
    fn is_severed_by(&mut self, reply: &Fetched) -> bool {
        let Some(last) = &self.last else {
            return false;
        };
        if !self.is_anchored {
            return false;
        }
        match look_for(last, &reply.records) {
            Anchor::Holds => {
                self.is_anchored = false;
                false
            }
            // If the end comes instead of it, the caller that has that record must find out that
            // what follows it may be lost.
            Anchor::Unknown => reply.next.is_none(),
            Anchor::Lost(_) => true,
        }
    }

    fn push(&mut self, mut records: Vec<Record>, now: Moment, keep: impl Fn(usize) -> Option<K>) {
        // A chain whose iterator was made at its last record reads that one again. Callers may have
        // other records again, by where each of them is: see `ReadCursor`.
        if let Some(last) = &self.last {
            records.retain(|record| record.position.sequence > *last);
        }
        let Some(record) = records.last() else {
            return;
        };
        self.last = Some(record.position.sequence.clone());
        self.last_arrival_ms = record.arrival_ms;
        if self.behind.is_some_and(is_near_trimming) && !self.is_ended() {
            self.source = Source::Anew;
        }
        let kept = self.make_room(cost_bytes(&records), keep);
        self.segments.push_back(Segment {
            records,
            read_at: now,
            served: 0,
            kept,
        });
    }

    /// Room for the newest reply, at the cost of the oldest ones if need be.
    fn make_room(&mut self, bytes: usize, keep: impl Fn(usize) -> Option<K>) -> Option<K> {
        loop {
            let kept = keep(bytes);
            if kept.is_some() || self.drop_first().is_none() {
                return kept;
            }
        }
    }

    /// Drops replies that are too old, that all `readers` had, or that there is no room for.
    pub fn trim(&mut self, now: Moment, readers: usize) {
        while let Some(first) = self.segments.front()
            && (first.served >= readers || first.read_at + KEPT_FOR <= now || first.kept.is_none())
        {
            drop(self.drop_first());
        }
    }

    /// Drops the oldest reply.
    fn drop_first(&mut self) -> Option<Segment<K>> {
        let first = self.segments.pop_front()?;
        if let Some(record) = first.records.last() {
            self.floor = Some(record.position.sequence.clone());
        }
        Some(first)
    }
}

fn cost_bytes(records: &[Record]) -> usize {
    records.iter().map(Record::cost_bytes).sum()
}

#[cfg(test)]
mod tests;
