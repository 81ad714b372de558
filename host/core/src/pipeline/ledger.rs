//! Which records of a shard are settled, while some are tried again and some are held back by the
//! plugin.
//!
//! | a record is | event | then it is |
//! |---|---|---|
//! | not handed out | handed out | open; settled, if it was given up before |
//! | open | handled, below the commit | settled |
//! | open | handled, at the commit or above | held back |
//! | open | failed | open |
//! | open | given up | settled |
//! | held back | a later commit passes it, or a tick commits all | settled |
//! | open or held back | rewind | not handed out |
//! | not handed out | filtered | settled |
//!
//! With state, what is settled here counts as settled only once the state is saved.

use std::collections::{BTreeMap, BTreeSet};

use super::committed;
use crate::ports::Commit;
use crate::seeded_bug::SeededBug;
use crate::stream::{Position, Record};

/// Most runs of held-back records that are kept apart. A plugin makes one run, or one for each gap
/// that failing records leave; beyond this, two of them count as one, which only commits later.
const RUNS_MAX: usize = 1_000;
/// Records given up above the checkpoint that are remembered, so that they are not given up again
/// when an instance that held records back dies: as many as one reply of `GetRecords` has. Of more,
/// the first are forgotten, and come twice.
const GIVEN_UP_MAX: usize = 10_000;

/// The state of the records handed out since the holding of the lease began.
///
/// A checkpoint covers everything before it, so it stays below the lowest record that is open
/// (failed, or waiting behind one that did) or held back. All else up to the last record handed out
/// is settled and takes no space here.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    settled: Option<Position>,
    handed_out: Option<Position>,
    /// Each with the record handed out just before it.
    open: BTreeMap<Position, Option<Position>>,
    /// In order, apart from each other.
    held: Vec<Run>,
    given_up: BTreeSet<Position>,
    saving: Saving,
}

/// Whether what was handled is settled at once, or only with the plugin's state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Saving {
    /// The plugin keeps no state.
    #[default]
    Never,
    /// Nothing was handled since its state was saved.
    Saved,
    /// Its state holds more than what was saved.
    Unsaved,
}

/// Records held back, without a gap.
#[derive(Debug, Clone)]
struct Run {
    /// The record handed out just before the first of them.
    before: Option<Position>,
    last: Position,
}

impl Ledger {
    /// A ledger for a plugin that keeps state. What it handled counts as held back until its state
    /// is saved: a new instance starts from what was saved, and must get again what came after.
    pub fn with_state() -> Self {
        Self {
            saving: Saving::Saved,
            ..Self::default()
        }
    }

    /// Whether the plugin's state covers everything handed out so far (nothing is open or held
    /// back), and saving it would settle something, or keep what a tick has changed.
    pub fn may_save(&self) -> bool {
        let is_whole = self.open.is_empty() && self.held.is_empty();
        let is_news = self.handed_out > self.settled || self.saving == Saving::Unsaved;
        self.saving != Saving::Never && is_whole && is_news
    }

    /// The plugin's state was saved, after [`Ledger::may_save`]: everything handed out is settled.
    pub fn saved(&mut self) {
        debug_assert!(
            self.open.is_empty() && self.held.is_empty(),
            "state is saved only while nothing is open or held back"
        );
        self.saving = Saving::Saved;
        self.settle_through(self.handed_out.clone());
    }

    /// The position up to and including which everything may be checkpointed, once outputs are
    /// flushed; `None` if nothing was settled yet.
    pub fn settled(&self) -> Option<&Position> {
        self.settled.as_ref()
    }

    /// The position of the last record handed out.
    pub fn handed_out(&self) -> Option<&Position> {
        self.handed_out.as_ref()
    }

    /// Whether the plugin holds back records, or has state of them that is not saved, so that a new
    /// instance must get them again.
    pub fn holds_back(&self) -> bool {
        !self.held.is_empty() || self.saving == Saving::Unsaved
    }

    /// Whether records must be handed out one by one: some are open, or were given up before a
    /// rewind.
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty() || !self.given_up.is_empty()
    }

    /// Hands out the record at `position`, which comes after all that were handed out so far.
    /// Returns false if it was given up before the last rewind: then it is settled, and must not be
    /// delivered.
    pub fn hand_out(&mut self, position: &Position) -> bool {
        debug_assert!(
            self.handed_out.as_ref() < Some(position),
            "records are handed out in order"
        );
        let before = self.handed_out.replace(position.clone());
        if self.given_up.contains(position) {
            self.advance();
            return false;
        }
        self.open.insert(position.clone(), before);
        true
    }

    /// Records the result of a delivery: records at the indexes `failed`, which rise, are open now;
    /// the others were handled, and are settled as far as `commit` goes. A commit also releases
    /// what was held back before its place.
    ///
    /// Records that were not handed out yet are handed out by this.
    pub fn report(&mut self, batch: &[Record], failed: &[usize], commit: Option<Commit>) {
        let is_forgotten = SeededBug::UnsavedStateIsForgotten.is_on();
        if self.saving == Saving::Saved && !is_forgotten && failed.len() < batch.len() {
            self.saving = Saving::Unsaved;
        }
        let committed = committed(commit, batch.len());
        if let Some(last) = committed.checked_sub(1).and_then(|last| batch.get(last)) {
            self.release(&last.position);
        }
        let is_all_settled = failed.is_empty() && committed >= batch.len();
        if let Some(last) = batch.last()
            && is_all_settled
            && self.open.is_empty()
        {
            // Nearly every batch.
            self.handed_out = Some(last.position.clone());
        } else {
            self.report_each(batch, failed, committed);
        }
        self.advance();
    }

    fn report_each(&mut self, batch: &[Record], failed: &[usize], committed: usize) {
        debug_assert!(
            failed.is_sorted_by(|a, b| a < b),
            "an outcome is checked where it comes in: the indexes of failed records rise"
        );
        let mut failed = failed.iter().peekable();
        for (index, Record { position, .. }) in batch.iter().enumerate() {
            let before = self.close(position);
            if failed.next_if_eq(&&index).is_some() {
                self.open.insert(position.clone(), before);
            } else if index >= committed {
                self.hold_back(position, before);
            }
        }
    }

    /// The plugin was called because time has passed: its state may be another now.
    pub fn ticked(&mut self) {
        if self.saving == Saving::Saved {
            self.saving = Saving::Unsaved;
        }
    }

    /// The plugin commits all that it holds back.
    pub fn commit_held_back(&mut self) {
        self.held.clear();
        self.advance();
    }

    /// Passes records up to `position` that need no delivery, such as those that a filter keeps
    /// from the plugin. All other records before it were handed out already.
    pub fn pass(&mut self, position: &Position) {
        if self.handed_out.as_ref() < Some(position) {
            self.handed_out = Some(position.clone());
        }
        self.advance();
    }

    /// Settles a record that is given up.
    pub fn give_up(&mut self, position: &Position) {
        let _ = self.close(position);
        self.given_up.insert(position.clone());
        self.advance();
        if self.given_up.len() > GIVEN_UP_MAX {
            self.given_up.pop_first();
        }
    }

    /// Reading starts again after the settled records: open and held-back ones are handed out
    /// again.
    pub fn rewind(&mut self) {
        self.open.clear();
        self.held.clear();
        if self.saving == Saving::Unsaved {
            self.saving = Saving::Saved;
        }
        self.handed_out.clone_from(&self.settled);
    }

    /// Ends the open state of the record at `position`, and returns the one handed out before it.
    fn close(&mut self, position: &Position) -> Option<Position> {
        match self.open.remove(position) {
            Some(before) => before,
            None => self.handed_out.replace(position.clone()),
        }
    }

    fn hold_back(&mut self, position: &Position, before: Option<Position>) {
        let at = self.held.partition_point(|run| run.last < *position);
        let follows = at
            .checked_sub(1)
            .filter(|earlier| Some(&self.held[*earlier].last) == before.as_ref());
        let is_followed = self
            .held
            .get(at)
            .is_some_and(|next| next.before.as_ref() == Some(position));
        match (follows, is_followed) {
            (Some(earlier), true) => self.join(earlier),
            (Some(earlier), false) => self.held[earlier].last = position.clone(),
            (None, true) => self.held[at].before = before,
            (None, false) => self.held.insert(
                at,
                Run {
                    before,
                    last: position.clone(),
                },
            ),
        }
        if self.held.len() > RUNS_MAX {
            self.join(0);
        }
    }

    /// Joins a run with the next one.
    fn join(&mut self, earlier: usize) {
        let later = self.held.remove(earlier + 1);
        self.held[earlier].last = later.last;
    }

    /// Releases what is held back up to and including `through`.
    fn release(&mut self, through: &Position) {
        let gone = self.held.partition_point(|run| run.last <= *through);
        self.held.drain(..gone);
        if let Some(run) = self
            .held
            .first_mut()
            .filter(|run| run.before.as_ref() < Some(through))
        {
            run.before = Some(through.clone());
        }
    }

    fn advance(&mut self) {
        if self.saving != Saving::Never {
            return;
        }
        let open = self.open.first_key_value().map(|(_, before)| before);
        let held = self.held.iter().map(|run| &run.before);
        let through = open
            .into_iter()
            .chain(held)
            .min()
            .unwrap_or(&self.handed_out)
            .clone();
        self.settle_through(through);
    }

    fn settle_through(&mut self, through: Option<Position>) {
        if through > self.settled {
            self.settled = through;
            let settled = self.settled.as_ref();
            self.given_up.retain(|position| Some(position) > settled);
        }
    }
}

#[cfg(test)]
mod tests;
