//! What is remembered of records that failed, until they are settled.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_core::pipeline::{Tried, Turns};
use shardmill_core::stream::{Position, Record};
use tokio::time::Instant;

use super::parked::Parked;

/// Cuts that are remembered at most: a poison record needs two for each halving of its batch.
/// Should the first of very many be forgotten, a batch is cut there again.
const ENDS_MAX: usize = 1_000;

/// Records of one holding that failed. Nothing of it is written down: another holding counts anew.
#[derive(Default)]
pub(super) struct Retries {
    /// Kept through a rewind, so that a record whose failing makes records repeat is given up in
    /// the end.
    tried: BTreeMap<Position, Tried>,
    /// Positions where a batch ends, since what follows is tried apart; kept through a rewind for
    /// the same reason.
    ends: BTreeSet<Position>,
    /// Nothing but what is parked is delivered before.
    not_before: Option<Instant>,
    pub(super) parked: Parked,
    /// Whether a parked key goes next, or something else.
    pub(super) turns: Turns,
    /// Why nothing is delivered any more, if the policy says so.
    pub(super) halted: Option<Halt>,
    /// Since when it does not get on.
    pub(super) failing_since: Option<Instant>,
    /// Whether the shard is shown as blocked.
    pub(super) is_blocked: bool,
}

/// A shard that stops at a record.
#[derive(Clone)]
pub(super) struct Halt {
    /// How often the record was delivered.
    pub(super) deliveries: u32,
    /// For people.
    pub(super) why: String,
}

impl Retries {
    pub(super) fn tried(&self, position: &Position) -> Tried {
        self.tried.get(position).copied().unwrap_or_default()
    }

    pub(super) fn has_failed(&self, position: &Position) -> bool {
        self.tried.contains_key(position)
    }

    /// The number of a delivery of `batch`, counted from 1.
    pub(super) fn attempt(&self, batch: &[Record]) -> u32 {
        if self.tried.is_empty() {
            return 1;
        }
        let deliveries = batch
            .iter()
            .map(|record| self.tried(&record.position).deliveries);
        deliveries.max().unwrap_or_default().saturating_add(1)
    }

    /// Whether no record in hand failed before.
    pub(super) fn is_clear(&self) -> bool {
        self.tried.is_empty()
    }

    /// Whether records can be handed out without looking at each.
    pub(super) fn is_idle(&self) -> bool {
        self.ends.is_empty() && self.parked.is_empty()
    }

    pub(super) fn ends(&self) -> &BTreeSet<Position> {
        &self.ends
    }

    pub(super) fn note(&mut self, position: &Position, tried: Tried) {
        self.tried.insert(position.clone(), tried);
    }

    /// The record is settled, or held back by the plugin: it has not failed any more.
    pub(super) fn forget(&mut self, position: &Position) {
        self.tried.remove(position);
    }

    /// Forgets what lies below the checkpoint.
    pub(super) fn settled(&mut self, through: &Position) {
        if self
            .tried
            .first_key_value()
            .is_some_and(|(first, _)| first <= through)
        {
            self.tried.retain(|position, _| position > through);
        }
        if self.ends.first().is_some_and(|first| first <= through) {
            self.ends.retain(|position| position > through);
        }
    }

    /// A batch must not hold both this record and later ones.
    pub(super) fn end_at(&mut self, record: &Record) {
        self.ends.insert(record.position.clone());
        if self.ends.len() > ENDS_MAX {
            self.ends.pop_first();
        }
    }

    /// The batch that ended here was handled.
    pub(super) fn end_reached(&mut self, record: &Record) {
        self.ends.remove(&record.position);
    }

    pub(super) fn wait_until(&mut self, at: Instant) {
        self.not_before = Some(at);
    }

    /// As of the last [`Retries::end_wait`].
    pub(super) fn is_waiting(&self) -> bool {
        self.not_before.is_some()
    }

    /// The wait is over, if it is.
    pub(super) fn end_wait(&mut self) {
        self.not_before = self.not_before.filter(|at| *at > Instant::now());
    }

    /// When something that failed is due next; may be past, since time goes on between two looks.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.not_before
            .into_iter()
            .chain(self.parked.next_due())
            .min()
    }

    /// Reading starts again: what was in hand is gone.
    pub(super) fn rewind(&mut self) {
        self.parked = Parked::default();
    }

    /// Another version of the plugin is at work for good: what failed gets all its attempts.
    pub(super) fn start_over(&mut self) {
        self.tried
            .values_mut()
            .for_each(|tried| *tried = tried.forgiven());
        self.try_at_once();
    }

    /// Another version of the plugin is at work: what failed goes to it at once.
    pub(super) fn try_at_once(&mut self) {
        self.not_before = None;
        self.parked.retry_now();
        self.halted = None;
    }
}
