//! Records that wait for a call, in order: new ones, and those that came back and go first.

use std::collections::VecDeque;
use std::time::Duration;

use super::BatchLimits;
use crate::stream::Record;
use crate::time::Moment;

/// See the module's description.
#[derive(Debug, Default)]
pub struct Queue {
    records: VecDeque<Record>,
    /// Records that were handed out before and came back: they are older than all of `records` and
    /// go first.
    again: VecDeque<Record>,
    /// Of `records`.
    bytes: usize,
    waiting_since: Option<Moment>,
}

impl Queue {
    /// Adds new records, which cost `bytes`, behind all others.
    pub fn push(&mut self, records: Vec<Record>, bytes: usize, now: Moment) {
        self.bytes += bytes;
        if self.records.is_empty() {
            // Takes the list as it is: nothing is moved.
            self.records = records.into();
        } else {
            self.records.extend(records);
        }
        if !self.records.is_empty() {
            self.waiting_since.get_or_insert(now);
        }
    }

    /// Adds a new record behind all others.
    pub(crate) fn push_one(&mut self, record: Record, now: Moment) {
        self.bytes += record.cost_bytes();
        self.records.push_back(record);
        self.waiting_since.get_or_insert(now);
    }

    /// Puts records back that were handed out.
    pub fn put_back(&mut self, records: impl IntoIterator<Item = Record>) {
        self.again.extend(records);
        // Nearly always two runs in order, which sorts as fast as it merges.
        self.again
            .make_contiguous()
            .sort_by(|a, b| a.position.cmp(&b.position));
    }

    /// The new records, in order.
    pub fn new_records(&self) -> &VecDeque<Record> {
        &self.records
    }

    /// How many records wait, those that came back included.
    pub fn len(&self) -> usize {
        self.records.len() + self.again.len()
    }

    /// Whether no record waits.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.again.is_empty()
    }

    /// What the new records cost the host's buffer, in bytes.
    pub(super) fn new_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether records came back to be delivered again.
    pub fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// When the first record in here arrived, in milliseconds since the Unix epoch, if that is
    /// known.
    pub fn first_arrival_ms(&self) -> Option<u64> {
        let first = self.again.front().or_else(|| self.records.front())?;
        (first.arrival_ms > 0).then_some(first.arrival_ms)
    }

    /// Whether a batch of new records should go now: full, old enough, or the last one, which is
    /// so if no record follows those in here.
    pub fn is_batch_due(&self, limits: &BatchLimits, is_last: bool, now: Moment) -> bool {
        if self.records.is_empty() {
            return false;
        }
        let is_full = self.records.len() >= limits.records || self.bytes >= limits.bytes;
        let due_in = self.due_in(limits, now);
        is_full || is_last || due_in.is_some_and(|wait| wait.is_zero())
    }

    /// How long until the window alone makes a batch due; `None` without new records.
    pub fn due_in(&self, limits: &BatchLimits, now: Moment) -> Option<Duration> {
        Some(limits.window.saturating_sub(now.since(self.waiting_since?)))
    }

    /// The next batch of new records: as many as the limits allow, at least one if there is one.
    pub fn take_batch(&mut self, limits: &BatchLimits, now: Moment) -> Vec<Record> {
        let mut bytes = 0;
        let mut count = 0;
        for record in &self.records {
            let cost = record.cost_bytes();
            if !limits.have_room_for(cost, count, bytes) {
                break;
            }
            bytes += cost;
            count += 1;
        }
        self.bytes -= bytes;
        self.waiting_since = (count < self.records.len()).then_some(now);
        if count == self.records.len() {
            // Gives the list as it is, where one chunk makes one batch.
            return std::mem::take(&mut self.records).into();
        }
        self.records.drain(..count).collect()
    }

    /// The next of the new records, or of those that came back, if it `fits`.
    pub fn take_record_if(
        &mut self,
        is_new: bool,
        now: Moment,
        fits: impl FnOnce(&Record) -> bool,
    ) -> Option<Record> {
        if !is_new {
            return self.again.pop_front_if(|record| fits(record));
        }
        let record = self.records.pop_front_if(|record| fits(record))?;
        self.bytes -= record.cost_bytes();
        self.waiting_since = (!self.records.is_empty()).then_some(now);
        Some(record)
    }

    /// Drops all new records. What they cost, in bytes.
    pub fn forget_new(&mut self) -> usize {
        self.records = VecDeque::new();
        self.waiting_since = None;
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::stream::{Position, SequenceNumber};

    fn chunk(from: u64, count: u64) -> Vec<Record> {
        let record = |n: u64| Record {
            data: Bytes::new(),
            partition_key: String::new(),
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse(&n.to_string()).unwrap()),
            arrival_ms: 0,
        };
        (from..from + count).map(record).collect()
    }

    fn bytes_of(records: &[Record]) -> usize {
        records.iter().map(Record::cost_bytes).sum()
    }

    #[test]
    fn a_chunk_that_makes_one_batch_is_handed_on_without_moving_a_record() {
        let (mut queue, limits) = (Queue::default(), BatchLimits::default());
        let records = chunk(1, 3);
        let place = records.as_ptr();
        let bytes = bytes_of(&records);
        queue.push(records, bytes, Moment::default());
        let batch = queue.take_batch(&limits, Moment::default());
        assert_eq!((batch.len(), batch.as_ptr()), (3, place));
        assert!(queue.is_empty());
    }

    #[test]
    fn chunks_are_put_together_and_cut_at_the_limit_in_order() {
        let limits = BatchLimits {
            records: 4,
            ..BatchLimits::default()
        };
        let mut queue = Queue::default();
        for from in [1, 4] {
            let records = chunk(from, 3);
            let bytes = bytes_of(&records);
            queue.push(records, bytes, Moment::default());
        }
        queue.push_one(chunk(7, 1).remove(0), Moment::default());
        let mut handed_out = Vec::new();
        while !queue.is_empty() {
            let batch = queue.take_batch(&limits, Moment::default());
            assert!(batch.len() <= 4);
            handed_out.extend(batch);
        }
        assert_eq!(handed_out, chunk(1, 7));
        assert_eq!(
            (queue.new_bytes(), queue.due_in(&limits, Moment::default())),
            (0, None)
        );
    }
}
