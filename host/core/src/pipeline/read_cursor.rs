//! Where a reader is in its shard, and what of a reply is new to it.

use crate::kpl::may_be_aggregate;
use crate::ports::{Fetched, ShardIterator};
use crate::seeded_bug::SeededBug;
use crate::stream::{
    Anchor, Gap, Position, ReadFrom, Record, SequenceNumber, look_for, may_be_trimmed,
};
use crate::time::Moment;

/// Where the reader of one shard is.
///
/// An iterator made at a record that was read before repeats that record, if it is still there.
/// Each side checks the iterators that it requested: this cursor those of its reader, including the
/// continuations of subscriptions, and a chain of a shared read its own. Neither can check for the
/// other: plugins that share a chain are at different places, and records that a subscription
/// pushes pass through no chain.
#[derive(Debug)]
pub struct ReadCursor {
    from: ReadFrom,
    iterator: Option<ShardIterator>,
    continuation: Option<SequenceNumber>,
    /// The last record taken from a reply.
    last: Option<SequenceNumber>,
    heard: Option<Heard>,
    /// The record that the next reply must begin with, or what follows it may be lost to retention.
    anchor: Option<SequenceNumber>,
    /// Records up to and including this one are settled.
    settled: Option<Position>,
}

/// The last reply.
#[derive(Debug, Clone, Copy)]
struct Heard {
    at: Moment,
    was_at_tip: bool,
}

/// Where reading goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Where the next iterator or subscription is to start.
    pub from: ReadFrom,
    /// The record that the first reply must begin with.
    anchor: Option<SequenceNumber>,
}

/// What became of a reply when it was taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Records dropped, since they came before.
    pub repeats: u64,
    /// Set if records may be lost in front of it.
    pub gap: Option<Gap>,
}

impl ReadCursor {
    /// Before the first reply: reading starts at `from`, and records up to and including `settled`
    /// are dropped.
    pub fn new(from: ReadFrom, settled: Option<Position>) -> Self {
        Self {
            from,
            iterator: None,
            continuation: None,
            last: None,
            heard: None,
            anchor: None,
            settled,
        }
    }

    /// The iterator to poll on with, if there is one.
    pub fn iterator(&self) -> Option<&ShardIterator> {
        self.iterator.as_ref()
    }

    /// Polls on with this iterator, or makes one.
    pub fn set_iterator(&mut self, iterator: Option<ShardIterator>) {
        self.iterator = iterator;
    }

    /// Subscribes on where the last event said, or after the last record.
    pub fn set_continuation(&mut self, continuation: Option<SequenceNumber>) {
        self.continuation = continuation;
    }

    /// The iterator is too old, because nobody read for five minutes or the clock of the service
    /// says so.
    pub fn expired(&mut self) {
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

    /// Where to make an iterator. Where what follows the last record may have been trimmed, it is
    /// made at that record, which then shows whether it was.
    pub fn poll_from(&self, now: Moment) -> Resume {
        // While there is an anchor, nothing has come since it was asked for: the doubt remains.
        let anchor = match (&self.anchor, &self.last) {
            (Some(anchor), _) => Some(anchor),
            (None, Some(last)) if self.may_be_trimmed(now) => Some(last),
            (None, _) => None,
        };
        let from = match (anchor, &self.last) {
            (Some(anchor), _) => ReadFrom::AtSequenceNumber(anchor.clone()),
            (None, Some(last)) => ReadFrom::AfterSequenceNumber(last.clone()),
            (None, None) => self.from.clone(),
        };
        Resume {
            anchor: at_record(&from),
            from,
        }
    }

    /// Where to subscribe: at the continuation and not after it, since AWS allows both and says of
    /// neither that it is not a record's number. What repeats is dropped.
    pub fn subscribe_from(&self, now: Moment) -> Resume {
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
    /// call without a sign.
    pub fn records_wanted(&self, most: u32) -> u32 {
        if self.anchor.is_some() {
            most.max(2)
        } else {
            most
        }
    }

    /// Kinesis agreed to go on there.
    pub fn resumed(&mut self, resume: Resume) {
        self.anchor = resume.anchor;
    }

    fn may_be_trimmed(&self, now: Moment) -> bool {
        self.heard
            .is_none_or(|heard| may_be_trimmed(heard.was_at_tip, now.since(heard.at)))
    }

    /// Takes in a reply: drops what was fetched or settled before, and looks for a gap in front of
    /// it.
    pub fn accept<N>(&mut self, reply: &mut Fetched<N>, now: Moment) -> Accepted {
        debug_assert!(
            reply.is_in_order(),
            "an adapter refuses records out of order: of these, some would count as fetched unseen"
        );
        let gap = self.find_gap(reply);
        self.heard = Some(Heard {
            at: now,
            was_at_tip: reply.millis_behind_latest.unwrap_or(0) == 0,
        });
        let received = reply.records.len();
        self.drop_repeats(&mut reply.records);
        if let Some(record) = reply.records.last() {
            self.last = Some(record.position.sequence.clone());
        }
        let repeats = (received - reply.records.len()) as u64;
        Accepted { repeats, gap }
    }

    fn drop_repeats(&self, records: &mut Vec<Record>) {
        records.dedup_by(|later, earlier| later.position == earlier.position);
        // A continuation may name a record of before the start, as long as none was read after it.
        // A record without an arrival time (0) is delivered. Otherwise nothing would be delivered
        // from a service that gives no times.
        if let (ReadFrom::AtTimestamp(since_ms), None) = (&self.from, &self.last) {
            records.retain(|record| record.arrival_ms == 0 || record.arrival_ms >= *since_ms);
        }
        if SeededBug::DeliversSettledAgain.is_on() {
            return;
        }
        records.retain(|record| self.is_new(record));
        let is_first = self.last.is_none() && self.settled.is_some();
        if SeededBug::SkipsFirstRecord.is_on() && is_first && !records.is_empty() {
            records.remove(0);
        }
    }

    /// Whether some of `record` was neither fetched nor settled before. Of what may be an aggregate
    /// that is settled in part, the part is dropped once it is opened.
    fn is_new(&self, record: &Record) -> bool {
        let was_fetched = self
            .last
            .as_ref()
            .is_some_and(|last| record.position.sequence <= *last);
        let is_settled = self.settled.as_ref().is_some_and(|settled| {
            record.position <= *settled && !may_reach_beyond(settled, record)
        });
        !was_fetched && !is_settled
    }

    fn find_gap<N>(&mut self, reply: &Fetched<N>) -> Option<Gap> {
        match look_for(self.anchor.as_ref()?, &reply.records) {
            Anchor::Unknown if reply.next.is_none() => self.anchor.take().map(Gap::at_end),
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

/// The record that a reply must begin with which is asked for at `from`.
fn at_record(from: &ReadFrom) -> Option<SequenceNumber> {
    match from {
        ReadFrom::AtSequenceNumber(sequence) => Some(sequence.clone()),
        ReadFrom::AfterSequenceNumber(_)
        | ReadFrom::TrimHorizon
        | ReadFrom::Latest
        | ReadFrom::AtTimestamp(_) => None,
    }
}

/// Whether user records inside the aggregate `closed` may come after the settled position, although
/// the aggregate's own position does not.
fn may_reach_beyond(settled: &Position, closed: &Record) -> bool {
    closed.position.sequence == settled.sequence && may_be_aggregate(closed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(hours: u64) -> Moment {
        Moment::from_origin(Duration::from_hours(hours))
    }

    fn number(number: u64) -> SequenceNumber {
        SequenceNumber::parse(&number.to_string()).unwrap()
    }

    fn reply(numbers: &[u64]) -> Fetched {
        let record = |of: &u64| Record {
            data: "x".into(),
            partition_key: String::new(),
            explicit_hash_key: None,
            position: Position::plain(number(*of)),
            arrival_ms: 1_000 * of,
        };
        Fetched {
            records: numbers.iter().map(record).collect(),
            next: Some(ShardIterator("next".to_owned())),
            millis_behind_latest: Some(0),
            children: Vec::new(),
        }
    }

    fn accepted(cursor: &mut ReadCursor, numbers: &[u64], now: Moment) -> Vec<u64> {
        let mut reply = reply(numbers);
        cursor.accept(&mut reply, now);
        let records = reply.records.iter();
        records.map(|record| record.arrival_ms / 1_000).collect()
    }

    #[test]
    fn what_was_fetched_or_settled_before_is_dropped_and_counted() {
        let settled = Position::plain(number(2));
        let mut cursor = ReadCursor::new(ReadFrom::TrimHorizon, Some(settled));
        assert_eq!(accepted(&mut cursor, &[1, 2, 3, 3], at(0)), [3]);
        let mut again = reply(&[3, 4]);
        let repeats = cursor.accept(&mut again, at(0)).repeats;
        assert_eq!((again.records.len(), repeats), (1, 1));
    }

    #[test]
    fn a_reply_out_of_order_is_refused_and_read_again_from_the_last_good_record() {
        let mut cursor = ReadCursor::new(ReadFrom::TrimHorizon, None);
        accepted(&mut cursor, &[1], at(0));
        assert!(reply(&[3, 2]).in_order().is_err());
        let resume = cursor.poll_from(at(0));
        assert_eq!(resume.from, ReadFrom::AfterSequenceNumber(number(1)));
        let again = reply(&[2, 3, 3]);
        assert_eq!(again.clone().in_order(), Ok(again), "a repeat is in order");
        assert_eq!(accepted(&mut cursor, &[2, 3, 3], at(0)), [2, 3]);
    }

    #[test]
    fn after_a_day_reading_goes_on_at_the_last_record_which_shows_whether_some_are_lost() {
        let mut cursor = ReadCursor::new(ReadFrom::TrimHorizon, None);
        accepted(&mut cursor, &[1], at(0));
        let resume = cursor.poll_from(at(25));
        assert_eq!(resume.from, ReadFrom::AtSequenceNumber(number(1)));
        cursor.resumed(resume);
        assert_eq!(cursor.records_wanted(1), 2);
        let empty = cursor.accept(&mut reply(&[]), at(25));
        assert_eq!(empty.gap, None, "the doubt remains");
        let late = cursor.accept(&mut reply(&[5]), at(25));
        assert_eq!(late.gap.map(|gap| gap.after), Some(number(1)));
    }

    #[test]
    fn the_end_in_place_of_the_last_record_is_a_gap() {
        let mut cursor = ReadCursor::new(ReadFrom::TrimHorizon, None);
        accepted(&mut cursor, &[1], at(0));
        let resume = cursor.poll_from(at(30));
        cursor.resumed(resume);
        let mut end = Fetched {
            next: None,
            ..reply(&[])
        };
        assert!(cursor.accept(&mut end, at(30)).gap.is_some());
    }

    #[test]
    fn a_start_by_time_drops_what_arrived_before_until_a_record_was_read() {
        let mut cursor = ReadCursor::new(ReadFrom::AtTimestamp(3_000), None);
        assert_eq!(accepted(&mut cursor, &[0, 2, 3], at(0)), [0, 3]);
    }

    #[test]
    fn a_subscription_goes_on_at_its_continuation_unless_records_may_be_trimmed() {
        let mut cursor = ReadCursor::new(ReadFrom::Latest, None);
        cursor.set_continuation(Some(number(9)));
        let at_continuation = ReadFrom::AtSequenceNumber(number(9));
        assert_eq!(cursor.subscribe_from(at(0)).from, at_continuation);
        accepted(&mut cursor, &[10], at(0));
        assert_eq!(cursor.subscribe_from(at(1)).from, at_continuation);
        let later = cursor.subscribe_from(at(25));
        assert_eq!(later.from, ReadFrom::AtSequenceNumber(number(10)));
    }
}
