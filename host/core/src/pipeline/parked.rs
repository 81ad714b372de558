//! Partition keys of which a record is tried again, while records of other keys flow.

use std::collections::{HashMap, VecDeque};

use super::{BatchLimits, LaneKey, OpenBatch};
use crate::stream::{Position, Record};
use crate::time::Moment;

/// Parked records at most, and so keys: as many as one reply of `GetRecords` has. At the bound the
/// shard waits.
pub(super) const RECORDS_MAX: usize = 10_000;
/// What they may cost the host's buffer: as much as one reply, so that a shard that parks holds at
/// most about twice what one that does not.
pub(super) const BYTES_MAX: usize = 10 << 20;

/// The keys, each with its records in order. A batch whose records fail may go beyond the bounds by
/// its own size.
#[derive(Debug, Default)]
pub struct Parked {
    lanes: HashMap<LaneKey, Lane>,
    records: usize,
    bytes: usize,
}

/// The records of one key, or one without a key: first those that were delivered and failed, then
/// those that wait behind them.
#[derive(Debug)]
struct Lane {
    records: VecDeque<Record>,
    retry_at: Moment,
}

impl Parked {
    /// Partition keys that wait. A record without a key counts as one.
    pub fn keys(&self) -> usize {
        self.lanes.len()
    }

    /// Records that wait, those that failed and those behind them.
    pub fn records(&self) -> usize {
        self.records
    }

    /// What the records cost the host's buffer.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn has_lane(&self, key: &LaneKey) -> bool {
        self.lanes.contains_key(key)
    }

    /// Whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Whether the shard must wait, too, until some of it is settled.
    pub fn is_full(&self) -> bool {
        self.records >= RECORDS_MAX || self.bytes >= BYTES_MAX
    }

    /// Adds a record behind the others of its key; gives it back if its key is not parked.
    pub(super) fn join(&mut self, mut record: Record) -> Option<Record> {
        if self.lanes.is_empty() {
            return Some(record);
        }
        let Some(lane) = self.lanes.get_mut(&LaneKey::of(&record)) else {
            return Some(record);
        };
        record.detach();
        self.records += 1;
        self.bytes += record.cost_bytes();
        // What comes back after a split may be older than what waits already.
        let at = lane
            .records
            .partition_point(|waiting| waiting.position < record.position);
        lane.records.insert(at, record);
        None
    }

    /// Parks the keys of records that failed, or puts the records back into their lanes; they are
    /// due at `retry_at`.
    pub(super) fn park(&mut self, failed: Vec<Record>, retry_at: Moment) {
        for record in failed {
            self.lanes
                .entry(LaneKey::of(&record))
                .or_insert_with(|| Lane::new(retry_at))
                .retry_at = retry_at;
            let _ = self.join(record);
        }
    }

    /// When the next key is due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.lanes.values().map(|lane| lane.retry_at).min()
    }

    /// The records that failed of the key that has been due for longest, up to the limits or to a
    /// record at which `is_end` says that the batch ends. The lane stays, so that nothing of the
    /// key overtakes them: [`Parked::leave`] clears it.
    pub(super) fn take_due(
        &mut self,
        limits: &BatchLimits,
        now: Moment,
        has_failed: impl Fn(&Position) -> bool,
        is_end: impl Fn(&Position) -> bool,
    ) -> Option<Vec<Record>> {
        let lane = self
            .lanes
            .values_mut()
            .filter(|lane| lane.retry_at <= now)
            .min_by_key(|lane| lane.retry_at)?;
        let mut batch = OpenBatch::default();
        while let Some(record) = lane.records.pop_front_if(|record| {
            batch.is_empty() || (batch.has_room_for(record, limits) && has_failed(&record.position))
        }) {
            let is_last = is_end(&record.position);
            batch.push(record);
            if is_last {
                break;
            }
        }
        self.bytes -= batch.bytes();
        let batch = batch.into_records();
        self.records -= batch.len();
        Some(batch)
    }

    /// If nothing of `key` that failed is left, ends its lane and gives back what waited in it.
    pub(super) fn leave(
        &mut self,
        key: &LaneKey,
        has_failed: impl Fn(&Position) -> bool,
    ) -> VecDeque<Record> {
        let first = self.lanes.get(key).and_then(|lane| lane.records.front());
        if first.is_some_and(|first| has_failed(&first.position)) {
            return VecDeque::new();
        }
        let Some(lane) = self.lanes.remove(key) else {
            return VecDeque::new();
        };
        self.records -= lane.records.len();
        self.bytes -= lane.records.iter().map(Record::cost_bytes).sum::<usize>();
        lane.records
    }

    /// Makes every key due.
    pub(super) fn retry_at_once(&mut self, now: Moment) {
        for lane in self.lanes.values_mut() {
            lane.retry_at = now;
        }
    }
}

impl Lane {
    fn new(retry_at: Moment) -> Self {
        Self {
            records: VecDeque::new(),
            retry_at,
        }
    }
}
