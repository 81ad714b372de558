//! Fetched records waiting for delivery, cut into batches.

use std::collections::VecDeque;
use std::time::Duration;

use shardmill_core::pipeline::BatchLimits;
use shardmill_core::stream::{Record, Shard};
use shardmill_core::time::Moment;

use super::fetch::Chunk;
use super::filtered::Filtered;
use crate::budget::Reservation;

/// Records fetched and not yet settled, but for those that are parked, and the budget that all of
/// them hold.
#[derive(Default)]
pub(super) struct Buffer {
    records: VecDeque<Record>,
    /// Records that were handed out before and came back: they are older than all of `records` and
    /// go first.
    again: VecDeque<Record>,
    /// What was read between and after `records` and is not for the plugin, in order. Two that have
    /// no record between them are one, so there are no more of them than chunks with records.
    filtered: VecDeque<Filtered>,
    /// Of `records`.
    bytes: usize,
    held_bytes: usize,
    reservation: Option<Reservation>,
    waiting_since: Option<Moment>,
    /// How far the tip was ahead of the last reply that came in here; `None` before the first.
    millis_behind_latest: Option<u64>,
    /// Set once Kinesis said that the shard has ended, with the children if it named them.
    ended: Option<Vec<Shard>>,
}

impl Buffer {
    pub(super) fn push(&mut self, chunk: Chunk, now: Moment) {
        self.bytes += chunk.bytes;
        self.held_bytes += chunk.bytes;
        self.records.extend(chunk.records);
        if let Some(filtered) = chunk.filtered {
            self.push_filtered(filtered);
        }
        match &mut self.reservation {
            Some(reservation) => reservation.absorb(chunk.reservation),
            None => self.reservation = Some(chunk.reservation),
        }
        if !self.records.is_empty() {
            self.waiting_since.get_or_insert(now);
        }
        self.millis_behind_latest = chunk.millis_behind_latest.or(self.millis_behind_latest);
        self.ended = self.ended.take().or(chunk.ended);
    }

    fn push_filtered(&mut self, filtered: Filtered) {
        let last = self.records.back().map(|record| &record.position);
        let earlier = self
            .filtered
            .pop_back_if(|earlier| last < Some(&earlier.through));
        self.filtered.push_back(match earlier {
            Some(earlier) => earlier.followed_by(filtered),
            None => filtered,
        });
    }

    /// What is not for the plugin and comes before all new records in here.
    pub(super) fn take_filtered(&mut self) -> Option<Filtered> {
        let first = self.records.front().map(|record| &record.position);
        self.filtered
            .pop_front_if(|filtered| first.is_none_or(|first| *first > filtered.through))
    }

    /// Puts records back that were handed out.
    pub(super) fn put_back(&mut self, records: impl IntoIterator<Item = Record>) {
        self.again.extend(records);
        // Nearly always two runs in order, which sorts as fast as it merges.
        self.again
            .make_contiguous()
            .sort_by(|a, b| a.position.cmp(&b.position));
    }

    /// When the first record in here arrived, in milliseconds since the Unix epoch, if that is
    /// known.
    pub(super) fn first_arrival_ms(&self) -> Option<u64> {
        let first = self.again.front().or_else(|| self.records.front())?;
        (first.arrival_ms > 0).then_some(first.arrival_ms)
    }

    pub(super) fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// Whether all of the shard was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.ended.is_some()
    }

    /// The children that Kinesis named at the shard's end.
    pub(super) fn take_children(&mut self) -> Vec<Shard> {
        self.ended.take().unwrap_or_default()
    }

    /// How far the tip was ahead of the last reply that came in here; `None` before the first.
    pub(super) fn millis_behind_latest(&self) -> Option<u64> {
        self.millis_behind_latest
    }

    /// Whether a batch of new records should go now: full, old enough, or the last one.
    pub(super) fn is_batch_due(&self, limits: &BatchLimits, now: Moment) -> bool {
        if self.records.is_empty() {
            return false;
        }
        let is_full = self.records.len() >= limits.records || self.bytes >= limits.bytes;
        let due_in = self.due_in(limits, now);
        is_full || self.is_at_end() || due_in.is_some_and(|wait| wait.is_zero())
    }

    /// How long until the window alone makes a batch due; `None` without records.
    pub(super) fn due_in(&self, limits: &BatchLimits, now: Moment) -> Option<Duration> {
        Some(limits.window.saturating_sub(now.since(self.waiting_since?)))
    }

    /// The next batch of new records: as many as the limits allow, at least one.
    pub(super) fn take_batch(&mut self, limits: &BatchLimits, now: Moment) -> Vec<Record> {
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
        self.records.drain(..count).collect()
    }

    /// The next of the new records, or of those that came back, if it `fits`.
    pub(super) fn take_record_if(
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

    /// Drops all new records: they will be read again, and so will the shard's end behind
    /// them.
    pub(super) fn forget_new(&mut self) {
        if self.records.is_empty() {
            return;
        }
        self.records = VecDeque::new();
        self.filtered = VecDeque::new();
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
