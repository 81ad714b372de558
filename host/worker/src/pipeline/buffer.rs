//! Fetched records waiting for delivery, cut into batches.

use std::collections::VecDeque;
use std::time::Duration;

use shardmill_core::pipeline::{BatchLimits, Queue};
use shardmill_core::stream::{Record, Shard};
use shardmill_core::time::Moment;

use super::fetch::Chunk;
use super::filtered::Filtered;
use crate::budget::Reservation;

/// Records fetched and not yet settled, but for those that are parked, and the budget that all of
/// them hold.
#[derive(Default)]
pub(super) struct Buffer {
    queue: Queue,
    /// What was read between and after new records and is not for the plugin, in order. Two that
    /// have no record between them are one, so there are no more of them than chunks with records.
    filtered: VecDeque<Filtered>,
    held_bytes: usize,
    reservation: Option<Reservation>,
    /// How far the tip was ahead of the last reply that came in here; `None` before the first.
    millis_behind_latest: Option<u64>,
    /// Set once Kinesis said that the shard has ended, with the children if it named them.
    ended: Option<Vec<Shard>>,
}

impl Buffer {
    pub(super) fn push(&mut self, chunk: Chunk, now: Moment) {
        self.held_bytes += chunk.bytes;
        self.queue.push(chunk.records, chunk.bytes, now);
        if let Some(filtered) = chunk.filtered {
            self.push_filtered(filtered);
        }
        match &mut self.reservation {
            Some(reservation) => reservation.absorb(chunk.reservation),
            None => self.reservation = Some(chunk.reservation),
        }
        self.millis_behind_latest = chunk.millis_behind_latest.or(self.millis_behind_latest);
        self.ended = self.ended.take().or(chunk.ended);
    }

    fn push_filtered(&mut self, filtered: Filtered) {
        let last = self.queue.new_records().back();
        let last = last.map(|record| &record.position);
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
        let first = self.queue.new_records().front();
        let first = first.map(|record| &record.position);
        self.filtered
            .pop_front_if(|filtered| first.is_none_or(|first| *first > filtered.through))
    }

    /// Puts records back that were handed out.
    pub(super) fn put_back(&mut self, records: impl IntoIterator<Item = Record>) {
        self.queue.put_back(records);
    }

    /// When the first record in here arrived, in milliseconds since the Unix epoch, if that is
    /// known.
    pub(super) fn first_arrival_ms(&self) -> Option<u64> {
        self.queue.first_arrival_ms()
    }

    pub(super) fn has_again(&self) -> bool {
        self.queue.has_again()
    }

    /// Whether all of the shard was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.ended.is_some()
    }

    /// The children that Kinesis named at the shard's end.
    pub(super) fn children(&self) -> Vec<Shard> {
        self.ended.clone().unwrap_or_default()
    }

    /// How far the tip was ahead of the last reply that came in here; `None` before the first.
    pub(super) fn millis_behind_latest(&self) -> Option<u64> {
        self.millis_behind_latest
    }

    /// Whether a batch of new records should go now: full, old enough, or the last one.
    pub(super) fn is_batch_due(&self, limits: &BatchLimits, now: Moment) -> bool {
        self.queue.is_batch_due(limits, self.is_at_end(), now)
    }

    /// How long until the window alone makes a batch due; `None` without records.
    pub(super) fn due_in(&self, limits: &BatchLimits, now: Moment) -> Option<Duration> {
        self.queue.due_in(limits, now)
    }

    /// The next batch of new records: as many as the limits allow, at least one.
    pub(super) fn take_batch(&mut self, limits: &BatchLimits, now: Moment) -> Vec<Record> {
        self.queue.take_batch(limits, now)
    }

    /// The next of the new records, or of those that came back, if it `fits`.
    pub(super) fn take_record_if(
        &mut self,
        is_new: bool,
        now: Moment,
        fits: impl FnOnce(&Record) -> bool,
    ) -> Option<Record> {
        self.queue.take_record_if(is_new, now, fits)
    }

    /// Drops all new records: they will be read again, and so will the shard's end behind
    /// them.
    pub(super) fn forget_new(&mut self) {
        if self.queue.new_records().is_empty() {
            return;
        }
        let bytes = self.queue.forget_new();
        self.filtered = VecDeque::new();
        self.settled(bytes);
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
        self.queue.is_empty()
    }
}
