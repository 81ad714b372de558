//! Fetched records waiting for delivery, cut into batches.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use shardmill_core::stream::{Position, Record, Shard};
use tokio::time::Instant;

use super::fetch::Chunk;
use crate::budget::Reservation;
use crate::options::BatchLimits;

/// Records fetched and not yet settled, but for those that are parked, and the budget that all of
/// them hold.
#[derive(Default)]
pub(super) struct Buffer {
    records: VecDeque<Record>,
    /// Records that were handed out before and came back: they are older than all of `records` and
    /// go first.
    again: VecDeque<Record>,
    /// Of `records`.
    bytes: usize,
    held_bytes: usize,
    reservation: Option<Reservation>,
    waiting_since: Option<Instant>,
    /// How far the tip was ahead of the last reply that came in here; `None` before the first.
    pub(super) millis_behind_latest: Option<u64>,
    /// Set once Kinesis said that the shard has ended.
    pub(super) ended: Option<Vec<Shard>>,
}

impl Buffer {
    pub(super) fn push(&mut self, chunk: Chunk) {
        let bytes: usize = chunk.records.iter().map(Record::cost_bytes).sum();
        self.bytes += bytes;
        self.held_bytes += bytes;
        self.records.extend(chunk.records);
        match &mut self.reservation {
            Some(reservation) => reservation.absorb(chunk.reservation),
            None => self.reservation = Some(chunk.reservation),
        }
        if !self.records.is_empty() {
            self.waiting_since.get_or_insert_with(Instant::now);
        }
        self.millis_behind_latest = chunk.millis_behind_latest.or(self.millis_behind_latest);
        self.ended = self.ended.take().or(chunk.ended);
    }

    /// Puts records back that were handed out.
    pub(super) fn put_back(&mut self, records: impl IntoIterator<Item = Record>) {
        self.again.extend(records);
        // Nearly always two runs in order, which sorts as fast as it merges.
        self.again
            .make_contiguous()
            .sort_by(|a, b| a.position.cmp(&b.position));
    }

    /// When the first record in here arrived, in milliseconds since the Unix epoch, if Kinesis
    /// told.
    pub(super) fn first_arrival_ms(&self) -> Option<u64> {
        let first = self.again.front().or_else(|| self.records.front())?;
        (first.arrival_ms > 0).then_some(first.arrival_ms)
    }

    pub(super) fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    pub(super) fn has_new(&self) -> bool {
        !self.records.is_empty()
    }

    /// Whether a batch of new records should go now: full, old enough, or the last one.
    pub(super) fn is_batch_due(&self, limits: &BatchLimits) -> bool {
        !self.records.is_empty()
            && (self.ended.is_some()
                || self.records.len() >= limits.records
                || self.bytes >= limits.bytes
                || self.due_in(limits).is_some_and(|wait| wait.is_zero()))
    }

    /// How long until the window alone makes a batch due; `None` without records.
    pub(super) fn due_in(&self, limits: &BatchLimits) -> Option<Duration> {
        Some(limits.window.saturating_sub(self.waiting_since?.elapsed()))
    }

    /// The next batch of new records: as many as the limits allow, at least one.
    pub(super) fn take_batch(&mut self, limits: &BatchLimits) -> Vec<Record> {
        let mut bytes = 0;
        let mut count = 0;
        for record in self.records.iter().take(limits.records) {
            bytes += record.cost_bytes();
            if count > 0 && bytes > limits.bytes {
                bytes -= record.cost_bytes();
                break;
            }
            count += 1;
        }
        self.bytes -= bytes;
        self.waiting_since = (count < self.records.len()).then(Instant::now);
        self.records.drain(..count).collect()
    }

    /// The next batch, of what came back if there is any and else of new records: those that
    /// `admit` hands back, up to the limits, or to one of `ends`. May be empty, if nothing was
    /// admitted.
    pub(super) fn take_one_by_one(
        &mut self,
        limits: &BatchLimits,
        ends: &BTreeSet<Position>,
        mut admit: impl FnMut(Record, bool) -> Option<Record>,
    ) -> Vec<Record> {
        let is_new = self.again.is_empty();
        let source = if is_new {
            &mut self.records
        } else {
            &mut self.again
        };
        let (mut batch, mut admitted_bytes, mut bytes) = (Vec::new(), 0, 0);
        while batch.len() < limits.records
            && let Some(record) = source.pop_front()
        {
            let cost = record.cost_bytes();
            if !batch.is_empty() && admitted_bytes + cost > limits.bytes {
                source.push_front(record);
                break;
            }
            bytes += cost;
            let is_end = ends.contains(&record.position);
            if let Some(record) = admit(record, is_new) {
                admitted_bytes += cost;
                batch.push(record);
            }
            if is_end {
                break;
            }
        }
        if is_new {
            self.bytes -= bytes;
            self.waiting_since = (!self.records.is_empty()).then(Instant::now);
        }
        batch
    }

    /// Lets go of all new records: they will be read again, and so will the shard's end behind
    /// them.
    pub(super) fn forget_new(&mut self) {
        if self.records.is_empty() {
            return;
        }
        self.records = VecDeque::new();
        self.settled(self.bytes);
        self.bytes = 0;
        self.waiting_since = None;
        self.ended = None;
    }

    /// Gives back the budget that settled records held.
    pub(super) fn settled(&mut self, bytes: usize) {
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        if let Some(reservation) = &mut self.reservation {
            reservation.shrink_to(self.held_bytes);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.again.is_empty()
    }
}
