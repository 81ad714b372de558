//! Parallel keys: a shard's records are divided into strands by their partition key, and each
//! strand has an instance to itself.
//!
//! ```text
//!   read ──▶ handed out ──▶ Spread ──▶ Strand 0: waits ▶ called ▶ settled, or tried again
//!                                 ├──▶ Strand 1: ...
//!                                 └──▶ ...
//! ```
//!
//! All records of a key are in one strand, and a strand has one call at a time: so a key keeps its
//! order. Records count as handed out when they get into a strand, in the order of the shard: so
//! the [`Ledger`](super::Ledger) keeps the checkpoint below the first of them that is not settled,
//! whichever strand it is in.

use std::fmt;
use std::num::NonZeroU8;
use std::time::Duration;

use super::parked::{BYTES_MAX, RECORDS_MAX};
use super::{BatchLimits, OpenBatch, Others, Queue, Retries, Turn};
use crate::hash;
use crate::seeded_bug::SeededBug;
use crate::stream::Record;
use crate::time::Moment;

/// How many instances of a plugin work on one shard at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parallelism(NonZeroU8);

/// Says which strand a record belongs to.
#[derive(Debug, Clone)]
pub struct Spread {
    strands: usize,
    /// Where the next record without a key goes.
    turn: usize,
}

/// The records that one instance gets, and what is remembered of those that failed.
#[derive(Debug, Default)]
pub struct Strand {
    queue: Queue,
    retries: Retries,
}

/// What of the shard comes after the records of a strand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// More records: reading is behind the tip.
    More,
    /// Nothing that is known of: reading is at the tip.
    Nothing,
    /// The shard's end.
    End,
}

impl Parallelism {
    /// One instance: the records of a shard are delivered one after another.
    pub const ONE: Self = Self(NonZeroU8::MIN);
    /// The most: an eighth of the 512 threads that calls of plugins run on, so that one shard
    /// leaves threads to others.
    pub const MAX: u8 = 64;

    /// So many instances; `None` if that is not between 1 and [`Parallelism::MAX`].
    pub fn new(instances: u32) -> Option<Self> {
        let instances = NonZeroU8::new(u8::try_from(instances).ok()?)?;
        (instances.get() <= Self::MAX).then_some(Self(instances))
    }

    /// How many instances work on one shard, at least one.
    pub fn get(self) -> usize {
        usize::from(self.0.get())
    }

    /// Whether there is more than one.
    pub fn is_parallel(self) -> bool {
        self > Self::ONE
    }
}

impl Default for Parallelism {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Parallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Spread {
    /// Spreads over as many strands as there are instances.
    pub fn new(parallelism: Parallelism) -> Self {
        Self {
            strands: parallelism.get(),
            turn: 0,
        }
    }

    /// The strand of `record`: always the same for a partition key, on every host and in every
    /// release. Records without a key go to the strands by turns.
    pub fn strand_of(&mut self, record: &Record) -> usize {
        if record.partition_key.is_empty() || SeededBug::SpreadsKeysByTurns.is_on() {
            self.turn = (self.turn + 1) % self.strands;
            return self.turn;
        }
        let hash = hash::stable(record.partition_key.bytes());
        let strands = self.strands as u64;
        usize::try_from(hash % strands).unwrap_or_default()
    }

    /// Whether more records may be handed out to `strands`, given those that wait in them: as many
    /// as one reply of `GetRecords` has, in number and in bytes. So a slow strand lets others run
    /// ahead of it, but not without a bound.
    pub fn has_room<'a>(strands: impl IntoIterator<Item = &'a Strand>) -> bool {
        let (mut records, mut bytes) = (0, 0);
        for strand in strands {
            records += strand.queue.len() + strand.retries.parked().records();
            bytes += strand.queue.new_bytes() + strand.retries.parked().bytes();
        }
        records < RECORDS_MAX && bytes < BYTES_MAX
    }
}

impl Strand {
    /// What is remembered of records that failed.
    pub fn retries(&self) -> &Retries {
        &self.retries
    }

    /// What is remembered of records that failed.
    pub fn retries_mut(&mut self) -> &mut Retries {
        &mut self.retries
    }

    /// Adds a record that was handed out, behind all others.
    pub fn add(&mut self, mut record: Record, now: Moment) {
        // Others of its reply may be settled long before it.
        record.detach();
        self.queue.push_one(record, now);
    }

    /// Puts records back that were delivered, or that waited behind such.
    pub fn put_back(&mut self, records: impl IntoIterator<Item = Record>) {
        self.queue.put_back(records);
    }

    /// Whether nothing waits: neither for its first delivery, nor for another.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.retries.parked().is_empty()
    }

    /// Whether no record waits that is not parked.
    pub fn has_nothing_new(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a call is due, if none is under way: see [`Strand::next_batch`].
    pub fn has_turn(&mut self, beyond: Beyond, limits: &BatchLimits, now: Moment) -> bool {
        self.next_turn(beyond, limits, now).is_some()
    }

    /// The records of the next call, if one is due. To be asked for only while no call is under
    /// way: nothing may overtake the records of a call.
    pub fn next_batch(
        &mut self,
        beyond: Beyond,
        limits: &BatchLimits,
        now: Moment,
    ) -> Option<Vec<Record>> {
        loop {
            match self.next_turn(beyond, limits, now)? {
                Turn::Lane => return self.retries.take_parked(limits, now),
                Turn::Others => {
                    let batch = self.take_others(limits, now);
                    if !batch.is_empty() {
                        return Some(batch);
                    }
                }
            }
        }
    }

    /// When something that failed is to be tried next; may be past.
    pub fn next_retry(&self, beyond: Beyond, limits: &BatchLimits, now: Moment) -> Option<Moment> {
        self.retries.next_retry(self.others(beyond, limits, now))
    }

    /// How long until the window alone makes a batch due; `None` if none waits for that.
    pub fn batch_due_in(&self, limits: &BatchLimits, now: Moment) -> Option<Duration> {
        if !self.may_go_on() {
            return None;
        }
        self.queue.due_in(limits, now)
    }

    fn next_turn(&mut self, beyond: Beyond, limits: &BatchLimits, now: Moment) -> Option<Turn> {
        self.retries.end_wait(now);
        let others = self.others(beyond, limits, now);
        self.retries.next_turn(others, now)
    }

    /// What there is to deliver that is not parked.
    fn others(&self, beyond: Beyond, limits: &BatchLimits, now: Moment) -> Others {
        if !self.may_go_on() {
            return Others::None;
        }
        let is_last = beyond == Beyond::End;
        if self.queue.has_again() || self.queue.is_batch_due(limits, is_last, now) {
            Others::Due
        } else if beyond == Beyond::More || !self.queue.is_empty() {
            Others::Coming
        } else {
            Others::None
        }
    }

    /// Whether records may go out that are not parked.
    fn may_go_on(&self) -> bool {
        let is_full = self.retries.parked().is_full();
        !self.retries.is_waiting() && (self.queue.has_again() || !is_full)
    }

    /// The next batch, of what came back if there is any and else of new records, without those
    /// that wait behind others of their key. May be empty.
    fn take_others(&mut self, limits: &BatchLimits, now: Moment) -> Vec<Record> {
        let is_new = !self.queue.has_again();
        let mut batch = OpenBatch::default();
        while let Some(record) = self
            .queue
            .take_record_if(is_new, now, |record| batch.has_room_for(record, limits))
        {
            let is_end = self.retries.is_end(&record.position);
            if let Some(record) = self.retries.join(record) {
                batch.push(record);
            }
            if is_end {
                break;
            }
        }
        batch.into_records()
    }
}

#[cfg(test)]
mod tests;
