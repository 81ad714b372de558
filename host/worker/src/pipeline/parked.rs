//! Partition keys of which a record is tried again, while records of other keys flow.

use std::collections::{BTreeSet, HashMap, VecDeque};

use shardmill_core::pipeline::LaneKey;
use shardmill_core::stream::{Position, Record};
use tokio::time::Instant;

use crate::options::BatchLimits;
use crate::status::Parking;

/// Parked records at most, and so keys: as many as one reply of `GetRecords` has. At the bound the
/// shard waits.
const RECORDS_MAX: usize = 10_000;
/// What they may cost the host's buffer: as much as one reply, so that a shard that parks holds at
/// most about twice what one that does not.
const BYTES_MAX: usize = 10 << 20;

/// The keys, each with its records in order. A batch whose records fail may go beyond the bounds by
/// its own size.
#[derive(Default)]
pub(super) struct Parked {
    lanes: HashMap<LaneKey, Lane>,
    records: usize,
    bytes: usize,
}

/// The records of one key, or one without a key: first those that were delivered and failed, then
/// those that wait behind them.
struct Lane {
    records: VecDeque<Record>,
    retry_at: Instant,
}

impl Parked {
    pub(super) fn is_parked(&self, key: &LaneKey) -> bool {
        self.lanes.contains_key(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.records >= RECORDS_MAX || self.bytes >= BYTES_MAX
    }

    pub(super) fn usage(&self) -> Parking {
        Parking {
            keys: self.lanes.len(),
            records: self.records,
            bytes: self.bytes,
        }
    }

    /// Lets a record of a parked key wait behind the others of it; gives it back if its key is not
    /// parked.
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

    /// Parks the keys of records that failed, or puts the records back into their lanes; they go
    /// again at `retry_at`.
    pub(super) fn park(&mut self, failed: Vec<Record>, retry_at: Instant) {
        for record in failed {
            let lane = self.lanes.entry(LaneKey::of(&record));
            lane.or_insert_with(|| Lane {
                records: VecDeque::new(),
                retry_at,
            })
            .retry_at = retry_at;
            let _ = self.join(record);
        }
    }

    /// When the next key is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lanes.values().map(|lane| lane.retry_at).min()
    }

    /// Whether a key is due.
    pub(super) fn is_due(&self) -> bool {
        self.next_due().is_some_and(|at| at <= Instant::now())
    }

    /// The records that failed of the key that is due for longest, up to the limits or to one of
    /// `ends`. Its lane stays, so that nothing of the key passes them: [`Parked::leave`] clears it.
    pub(super) fn take_due(
        &mut self,
        limits: &BatchLimits,
        ends: &BTreeSet<Position>,
        has_failed: impl Fn(&Position) -> bool,
    ) -> Option<Vec<Record>> {
        let now = Instant::now();
        let lane = self
            .lanes
            .values_mut()
            .filter(|lane| lane.retry_at <= now)
            .min_by_key(|lane| lane.retry_at)?;
        let (mut batch, mut bytes): (Vec<Record>, usize) = (Vec::new(), 0);
        while batch.len() < limits.records
            && let Some(record) = lane.records.pop_front_if(|record| {
                let fits = batch.is_empty() || bytes + record.cost_bytes() <= limits.bytes;
                fits && (batch.is_empty() || has_failed(&record.position))
            })
        {
            bytes += record.cost_bytes();
            let is_end = ends.contains(&record.position);
            batch.push(record);
            if is_end {
                break;
            }
        }
        self.records -= batch.len();
        self.bytes -= bytes;
        Some(batch)
    }

    /// If nothing of `key` that failed is left, its lane is over: gives back what waited.
    pub(super) fn leave(
        &mut self,
        key: &LaneKey,
        has_failed: impl Fn(&Position) -> bool,
    ) -> VecDeque<Record> {
        let is_over = |lane: &Lane| {
            lane.records
                .front()
                .is_none_or(|first| !has_failed(&first.position))
        };
        if !self.lanes.get(key).is_some_and(is_over) {
            return VecDeque::new();
        }
        let waited = self
            .lanes
            .remove(key)
            .map(|lane| lane.records)
            .unwrap_or_default();
        self.records -= waited.len();
        self.bytes -= waited.iter().map(Record::cost_bytes).sum::<usize>();
        waited
    }

    /// Every key is due: there is something new to try.
    pub(super) fn retry_now(&mut self) {
        let now = Instant::now();
        self.lanes.values_mut().for_each(|lane| lane.retry_at = now);
    }
}
