//! Fetched records waiting for delivery, cut into batches.

use std::collections::VecDeque;
use std::time::Duration;

use shardmill_core::stream::{Record, Shard};
use tokio::time::Instant;

use super::fetch::Chunk;
use crate::budget::Reservation;
use crate::options::BatchLimits;

/// Records fetched and not yet delivered, and the budget that they and the batch in delivery hold.
#[derive(Default)]
pub(super) struct Buffer {
    records: VecDeque<Record>,
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

    /// Whether a batch should go now: full, old enough, or the last one.
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

    /// The next batch: as many records as the limits allow, at least one.
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

    /// Gives back the budget that a settled batch held.
    pub(super) fn settled(&mut self, batch: &[Record]) {
        let bytes: usize = batch.iter().map(Record::cost_bytes).sum();
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        if let Some(reservation) = &mut self.reservation {
            reservation.shrink_to(self.held_bytes);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}
