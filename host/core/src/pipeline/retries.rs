//! What is remembered of records that failed, until they are settled: how often each was tried,
//! where batches end because of them, and what waits for which moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::parked::Parked;
use super::{BatchLimits, LaneKey, Others, Tried, Turn, Turns};
use crate::seeded_bug::SeededBug;
use crate::stream::{Position, Record};
use crate::time::Moment;

/// Cuts that are remembered at most: a poison record needs two for each halving of its batch.
/// Should the first of very many be forgotten, a batch is cut there again.
const ENDS_MAX: usize = 1_000;

/// Records of one holding that failed. Nothing of it is written down: another holding counts from
/// zero.
#[derive(Debug, Default)]
pub struct Retries {
    /// Kept through a rewind, so that a record whose failing makes records repeat is given up in
    /// the end.
    tried: BTreeMap<Position, Tried>,
    /// Positions where a batch ends, since what follows is tried apart; kept through a rewind for
    /// the same reason.
    ends: BTreeSet<Position>,
    /// Until then, only parked records are delivered.
    not_before: Option<Moment>,
    parked: Parked,
    /// Whether a parked key goes next, or something else.
    turns: Turns,
    halted: Option<Halt>,
}

/// A shard that stops at a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halt {
    /// How often the record was delivered.
    pub deliveries: u32,
    /// Why the shard stopped, for people.
    pub why: String,
}

impl Retries {
    /// How often the record at `position` was tried.
    pub fn tried(&self, position: &Position) -> Tried {
        self.tried.get(position).copied().unwrap_or_default()
    }

    /// Whether the record at `position` failed, and was not handled since.
    pub fn has_failed(&self, position: &Position) -> bool {
        self.tried.contains_key(position)
    }

    /// The number of a delivery of `batch`, counted from 1.
    pub fn attempt(&self, batch: &[Record]) -> u32 {
        if self.tried.is_empty() {
            return 1;
        }
        let deliveries = batch
            .iter()
            .map(|record| self.tried(&record.position).deliveries);
        deliveries.max().unwrap_or_default().saturating_add(1)
    }

    /// Whether no record that was handed out waits to be tried again.
    pub fn is_clear(&self) -> bool {
        self.tried.is_empty()
    }

    /// Whether records can be handed out without looking at each.
    pub fn is_idle(&self) -> bool {
        self.ends.is_empty() && self.parked.is_empty()
    }

    /// The keys that wait while others flow.
    pub fn parked(&self) -> &Parked {
        &self.parked
    }

    /// Why nothing is delivered any more, if the policy says so.
    pub fn halted(&self) -> Option<&Halt> {
        self.halted.as_ref()
    }

    /// Whose turn it is at `now`; `None` if nothing is due.
    pub fn next_turn(&mut self, others: Others, now: Moment) -> Option<Turn> {
        let is_lane_due = self.parked.next_due().is_some_and(|at| at <= now);
        self.turns.next(is_lane_due, others, now)
    }

    /// What had its turn last took so long, until `now`.
    pub fn took(&mut self, took: Duration, now: Moment) {
        self.turns.took(took, now);
    }

    /// The failed records of the parked key that has been due for longest, if one is due. Nothing
    /// else of the key is handed out before [`Retries::leave`].
    pub fn take_parked(&mut self, limits: &BatchLimits, now: Moment) -> Option<Vec<Record>> {
        let Self {
            tried,
            ends,
            parked,
            ..
        } = self;
        parked.take_due(
            limits,
            now,
            |position| tried.contains_key(position),
            |position| ends.contains(position),
        )
    }

    /// Lets a record of a parked key wait behind the others of it; gives it back if its key is not
    /// parked, so that it can be delivered.
    pub fn join(&mut self, record: Record) -> Option<Record> {
        if SeededBug::ParkedKeyFlows.is_on() {
            return Some(record);
        }
        self.parked.join(record)
    }

    /// The lane that a batch was taken from, if it was.
    pub fn lane_of(&self, batch: &[Record]) -> Option<LaneKey> {
        let lane = LaneKey::of(batch.first()?);
        self.parked.has_lane(&lane).then_some(lane)
    }

    /// Parks the keys of `failed` until `at`.
    pub fn park(&mut self, failed: Vec<Record>, at: Moment) {
        self.parked.park(failed, at);
    }

    /// The turn of a parked key is over. If nothing of it waits to be tried again, gives back what
    /// waited behind.
    pub fn leave(&mut self, lane: &LaneKey) -> VecDeque<Record> {
        let tried = &self.tried;
        self.parked
            .leave(lane, |position| tried.contains_key(position))
    }

    /// Counts a failed delivery of the record at `position`.
    pub fn note(&mut self, position: &Position, tried: Tried) {
        self.tried.insert(position.clone(), tried);
    }

    /// The record is settled, or held back by the plugin: it counts as failed no more.
    pub fn forget(&mut self, position: &Position) {
        self.tried.remove(position);
    }

    /// Everything up to and including `through` is settled.
    pub fn settled(&mut self, through: &Position) {
        while let Some(first) = self.tried.first_entry()
            && first.key() <= through
        {
            first.remove();
        }
        while self.ends.first().is_some_and(|first| first <= through) {
            self.ends.pop_first();
        }
    }

    /// A batch must not hold both this record and later ones.
    pub fn end_at(&mut self, record: &Record) {
        self.ends.insert(record.position.clone());
        if self.ends.len() > ENDS_MAX {
            self.ends.pop_first();
        }
    }

    /// Whether a batch ends with the record at `position`.
    pub fn is_end(&self, position: &Position) -> bool {
        self.ends.contains(position)
    }

    /// The batch that ended with this record was handled.
    pub fn end_reached(&mut self, record: &Record) {
        self.ends.remove(&record.position);
    }

    /// Delivers only parked records until `at`.
    pub fn wait_until(&mut self, at: Moment) {
        self.not_before = Some(at);
    }

    /// Whether the shard waits for its next attempt, as of the last [`Retries::end_wait`].
    pub fn is_waiting(&self) -> bool {
        self.not_before.is_some()
    }

    /// Ends the wait for the next attempt if it is over at `now`.
    pub fn end_wait(&mut self, now: Moment) {
        self.not_before = self.not_before.filter(|at| *at > now);
    }

    /// When something that failed is to be tried next; may be past.
    pub fn next_retry(&self, others: Others) -> Option<Moment> {
        let due = self
            .not_before
            .into_iter()
            .chain(self.parked.next_due())
            .min()?;
        match others {
            Others::None => Some(due),
            Others::Due | Others::Coming => Some(due.max(self.turns.lanes_rest_until())),
        }
    }

    /// Reading starts again: what was handed out and waits is forgotten.
    pub fn rewind(&mut self) {
        self.parked = Parked::default();
    }

    /// Nothing is delivered until another version is at work.
    pub fn halt(&mut self, halt: Halt) {
        self.halted = Some(halt);
    }

    /// Another version of the plugin is at work for good: what failed gets all its attempts.
    pub fn start_over(&mut self, now: Moment) {
        for tried in self.tried.values_mut() {
            *tried = tried.forgiven();
        }
        self.try_at_once(now);
    }

    /// Another version of the plugin is at work: what failed goes to it at once.
    pub fn try_at_once(&mut self, now: Moment) {
        self.not_before = None;
        self.parked.retry_at_once(now);
        self.halted = None;
    }
}

#[cfg(test)]
mod tests;
