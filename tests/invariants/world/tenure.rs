//! One host's hold on one lease, from its take on.

use std::collections::{BTreeMap, BTreeSet};

use super::Shard;
use crate::history::{Checkpoint, Delivery, Micros, Outcome, Output, Place};
use crate::policy::{Failures, Policy};

/// What names a tenure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TenureKey {
    pub(crate) host: String,
    pub(crate) shard: String,
    pub(crate) epoch: u64,
}

/// One host's hold on one lease.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) key: TenureKey,
    /// The checkpoint in the row when the lease was taken.
    pub(crate) start: Checkpoint,
    /// The stream whose records it delivers.
    pub(crate) generation: usize,
    /// The stream that the checkpoint it started from speaks of.
    pub(crate) start_generation: usize,
    /// Records that the plugin took without reporting them, and when they were committed; `None`
    /// while held back.
    pub(crate) handled: BTreeMap<Place, Option<Micros>>,
    /// Those of them that are held back.
    held_back: BTreeSet<Place>,
    /// Records that were delivered and must be delivered again before anything later is.
    pub(crate) pending: BTreeSet<Place>,
    /// Whether records wait only for those of their own key.
    is_by_key: bool,
    /// What failed, and what was given up.
    pub(crate) failures: Failures,
    /// Committed before an instance was replaced that held others back. They may come again, since
    /// what it held back must.
    repeatable: BTreeSet<Place>,
    /// Given up before that, and not come to again: their host remembers them, but not what lies
    /// between.
    unpassed: BTreeSet<Place>,
    /// What was emitted and is not stored.
    unstored: BTreeMap<u64, Unstored>,
    /// Everything up to here is committed.
    pub(crate) settled_through: Option<Place>,
    /// Set if the plugin keeps state.
    pub(super) saved: Option<Saved>,
    /// The checkpoint as this tenure left it in the row.
    pub(crate) written: Checkpoint,
    pub(crate) has_delivered: bool,
    /// An operator wrote to the row meanwhile: the holder may not know yet that its lease is gone.
    pub(crate) is_interfered: bool,
    /// The deliveries that run, and when each began: one, unless keys are parallel.
    open: BTreeMap<u64, Micros>,
    /// When the first call began that was cut off, by its first record, until that is settled.
    cut_off: BTreeMap<Place, Micros>,
    /// Of the last delivery.
    pub(crate) last: Option<Last>,
}

/// What a plugin that keeps state has saved in a tenure.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    /// Everything up to here was committed when it was saved last, and known to be.
    through: Option<Place>,
}

/// An output on its way.
#[derive(Debug)]
struct Unstored {
    /// The record that it came of.
    of: Place,
    /// The first record of its batch: without its outputs nothing of a batch is settled.
    batch: Place,
}

/// What is remembered of the last delivery of a tenure.
#[derive(Debug)]
pub(crate) struct Last {
    instance: u64,
}

impl TenureKey {
    pub(crate) fn of(delivery: &Delivery) -> Self {
        Self {
            host: delivery.host.clone(),
            shard: delivery.shard.clone(),
            epoch: delivery.epoch,
        }
    }
}

impl Tenure {
    pub(super) fn new(
        key: TenureKey,
        start: Checkpoint,
        generation: usize,
        start_generation: usize,
    ) -> Self {
        Self {
            key,
            written: start.clone(),
            start,
            generation,
            start_generation,
            handled: BTreeMap::new(),
            held_back: BTreeSet::new(),
            pending: BTreeSet::new(),
            failures: Failures::default(),
            is_by_key: false,
            repeatable: BTreeSet::new(),
            unpassed: BTreeSet::new(),
            unstored: BTreeMap::new(),
            settled_through: None,
            saved: None,
            has_delivered: false,
            is_interfered: false,
            open: BTreeMap::new(),
            cut_off: BTreeMap::new(),
            last: None,
        }
    }

    pub(super) fn by_key(self, is_by_key: bool) -> Self {
        Self { is_by_key, ..self }
    }

    /// Whether `place` was settled by `at`.
    pub(crate) fn was_settled_by(&self, place: &Place, at: Micros) -> bool {
        self.handled
            .get(place)
            .is_some_and(|committed| committed.is_some_and(|committed| committed <= at))
            || self.failures.was_given_up_by(place, at)
    }

    /// Whether `place` need not be delivered any more, as far as this instance of the plugin is
    /// concerned.
    pub(crate) fn is_done_with(&self, place: &Place) -> bool {
        self.handled.contains_key(place) || self.failures.is_given_up(place)
    }

    /// The deliveries that run.
    pub(crate) fn open(&self) -> impl ExactSizeIterator<Item = u64> {
        self.open.keys().copied()
    }

    /// Since when a call has not returned, cut off or not.
    pub(crate) fn waits_for_call_since(&self) -> Option<Micros> {
        let calls = self.open.values().chain(self.cut_off.values());
        calls.copied().min()
    }

    /// Whether `place` was handled by an instance that is gone, in a way that lets it come again.
    pub(crate) fn may_repeat(&self, place: &Place) -> bool {
        self.repeatable.contains(place)
    }

    /// `delivery` goes to another instance than the one before. What the one before held back comes
    /// again, and reading starts after what is settled: what was committed above that comes again
    /// too. Of what a plugin that keeps state has saved, its host may not know: the instance may
    /// have died on the way.
    pub(super) fn meets(&mut self, delivery: &Delivery, shard: Option<&Shard>) {
        let is_same = self
            .last
            .as_ref()
            .is_none_or(|last| last.instance == delivery.instance);
        if !is_same && (self.holds_back() || self.saved.is_some()) {
            self.is_replaced(shard);
        }
    }

    fn is_replaced(&mut self, shard: Option<&Shard>) {
        let from = if self.saved.is_some() {
            self.written.clone()
        } else {
            self.known_frontier(shard)
        };
        for place in std::mem::take(&mut self.held_back) {
            self.handled.remove(&place);
        }
        let above = self.handled.keys().filter(|place| !from.covers(place));
        self.repeatable.extend(above.cloned());
        self.unpassed = self.failures.given_up_above(&from);
        if !self.is_by_key {
            self.pending.clear();
        }
    }

    /// Whether its plugin keeps state, which holds all that was handled and so waits for all that
    /// is held back.
    pub(crate) fn waits_to_save(&self) -> bool {
        self.saved.is_some() && self.holds_back()
    }

    fn holds_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// From where records are not known to be settled without a gap.
    pub(crate) fn frontier(&self) -> Checkpoint {
        self.settled_through
            .clone()
            .map_or_else(|| self.start.clone(), Checkpoint::At)
    }

    /// The frontier as the host knows it: what it has in memory of a shard that is trimmed
    /// meanwhile is not settled.
    fn known_frontier(&self, shard: Option<&Shard>) -> Checkpoint {
        let frontier = self.frontier();
        let Some(parked) = shard.and_then(|shard| self.parked_beyond_retention(shard)) else {
            return frontier;
        };
        let before = self.done_before(parked);
        before.map_or_else(
            || self.start.clone(),
            |place| frontier.min(Checkpoint::At(place.clone())),
        )
    }

    pub(super) fn started(&mut self, delivery: &Delivery, policy: &Policy, at: Micros) {
        for place in &delivery.places {
            if self.repeatable.remove(place) {
                self.handled.remove(place);
                self.held_back.remove(place);
            }
        }
        if let Some(last) = delivery.places.last() {
            self.unpassed = self.unpassed.split_off(last);
        }
        self.failures.started(delivery, policy);
        self.has_delivered = true;
        self.open.insert(delivery.id, at);
        self.last = Some(Last {
            instance: delivery.instance,
        });
    }

    pub(super) fn ended(
        &mut self,
        delivery: &Delivery,
        outcome: Outcome,
        failed: &BTreeSet<Place>,
        through: Option<&Place>,
        at: Micros,
    ) {
        let started_at = self.open.remove(&delivery.id);
        if outcome == Outcome::Cancelled
            && let (Some(first), Some(started_at)) = (delivery.places.first(), started_at)
        {
            self.cut_off.entry(first.clone()).or_insert(started_at);
        }
        if outcome != Outcome::Ok {
            self.pending.extend(delivery.places.iter().cloned());
            return;
        }
        for place in &delivery.places {
            if failed.contains(place) {
                self.pending.insert(place.clone());
            } else {
                self.pending.remove(place);
                self.cut_off.remove(place);
                if !self.handled.contains_key(place) {
                    self.handled.insert(place.clone(), None);
                    self.held_back.insert(place.clone());
                }
            }
        }
        let Some(through) = through else { return };
        while self.held_back.first().is_some_and(|first| first <= through) {
            self.handled
                .extend(self.held_back.pop_first().map(|place| (place, Some(at))));
        }
    }

    /// Through where nothing may come again once the lease is given back in good order: what is
    /// written down. Without its state nothing of a plugin that keeps any can be, not even what was
    /// given up; nor is what came of it stored by then.
    pub(crate) fn owed<'a>(&'a self, shard: &'a Shard) -> Option<&'a Place> {
        let through = match &self.saved {
            Some(saved) => saved.through.as_ref()?,
            None => self.settled_through.as_ref()?,
        };
        let through = self.before(self.parked_beyond_retention(shard), through)?;
        self.before(
            self.unstored.values().map(|output| &output.batch).min(),
            self.known(through)?,
        )
    }

    /// The first record that is gone from the stream, and that its host may have in memory behind a
    /// failed one of its key: it holds the checkpoint.
    fn parked_beyond_retention<'a>(&self, shard: &'a Shard) -> Option<&'a Place> {
        let trimmed = shard.trimmed_through.as_ref().filter(|_| self.is_by_key)?;
        shard
            .records
            .range::<Place, _>(..=trimmed)
            .map(|(place, _)| place)
            .find(|place| !self.start.covers(place) && !self.is_done_with(place))
    }

    /// Through where the host knows of everything up to `through` that it is settled: after an
    /// instance was replaced, not beyond what was given up before and not come to again.
    fn known<'a>(&'a self, through: &'a Place) -> Option<&'a Place> {
        self.before(self.unpassed.first(), through)
    }

    /// `through`, or the last settled record before `limit`, if that comes first.
    fn before<'a>(&'a self, limit: Option<&Place>, through: &'a Place) -> Option<&'a Place> {
        limit
            .filter(|limit| *limit <= through)
            .map_or(Some(through), |limit| self.done_before(limit))
    }

    /// The last record before `limit` that was handled or given up.
    fn done_before(&self, limit: &Place) -> Option<&Place> {
        let handled = self.handled.range::<Place, _>(..limit).next_back();
        let handled = handled.map(|(place, _)| place);
        handled.max(self.failures.last_given_up_before(limit))
    }

    /// A record that is delivered again emits again: what came of it before is not waited for any
    /// more.
    pub(super) fn emitted(&mut self, outputs: &[Output], batch: Option<&Place>) {
        self.unstored
            .retain(|_, before| outputs.iter().all(|output| output.of != before.of));
        for Output { id, of } in outputs {
            let batch = batch.unwrap_or(of).clone();
            self.unstored.insert(
                *id,
                Unstored {
                    of: of.clone(),
                    batch,
                },
            );
        }
    }

    /// A sink has stored an output, perhaps not of this tenure.
    pub(super) fn stored(&mut self, output: u64) {
        self.unstored.remove(&output);
    }

    /// A state was saved: it commits everything handled so far.
    pub(super) fn saved(&mut self, shard: &Shard, instance: u64, at: Micros) {
        let is_of_last = self
            .last
            .as_ref()
            .is_none_or(|last| last.instance == instance);
        if !is_of_last && self.holds_back() {
            // What the one before it held back is not in it.
            self.is_replaced(Some(shard));
        }
        self.handled.extend(
            std::mem::take(&mut self.held_back)
                .into_iter()
                .map(|place| (place, Some(at))),
        );
        self.advance(shard);
        // What an instance did that another one replaced is in it only as far as its checkpoint
        // went.
        let is_in_it = |place: &&Place| {
            self.handled.contains_key(*place) && !self.may_repeat(place)
                || self.failures.is_given_up(place)
        };
        let written = if let Checkpoint::At(place) = &self.written {
            Some(place)
        } else {
            None
        };
        let through = shard
            .due(&self.written, &Checkpoint::End)
            .take_while(is_in_it)
            .last()
            .or(written);
        let through = through.and_then(|through| self.known(through)).cloned();
        self.saved = Some(Saved { through });
    }

    pub(super) fn given_up(&mut self, place: &Place, at: Micros) {
        self.cut_off.remove(place);
        self.pending.remove(place);
        self.failures.given_up(place, at);
    }

    /// Moves the frontier over what is committed without a gap.
    pub(super) fn advance(&mut self, shard: &Shard) {
        let frontier = self.frontier();
        // What comes again is not known to be settled before it was handled again.
        let is_committed = |place: &&Place| {
            self.handled.get(*place).is_some_and(Option::is_some) && !self.may_repeat(place)
                || self.failures.is_given_up(place)
        };
        // What failed waits, also if nobody had to deliver it: an operator may go back to before
        // the start.
        let waits = self.pending.first();
        let is_settled =
            |place: &&Place| is_committed(place) && waits.is_none_or(|first| *place < first);
        let through = shard
            .due(&frontier, &Checkpoint::End)
            .take_while(is_settled)
            .last()
            .cloned();
        self.settled_through = through.or(self.settled_through.take());
    }

    /// An operator sent the shard to `to`: nothing counts any more that was handled, failed or was
    /// given up before.
    pub(super) fn sought(&mut self, to: &Checkpoint) {
        self.start.clone_from(to);
        self.written.clone_from(to);
        self.handled.clear();
        self.held_back.clear();
        self.pending.clear();
        self.failures.forget();
        self.repeatable.clear();
        self.unpassed.clear();
        self.unstored.clear();
        self.settled_through = None;
        self.saved = self.saved.take().map(|_| Saved::default());
        self.has_delivered = false;
        self.cut_off.clear();
    }

    /// The stream was recreated and this tenure reads the new one.
    pub(super) fn move_to(&mut self, generation: usize) {
        self.generation = generation;
        self.handled.clear();
        self.held_back.clear();
        self.pending.clear();
        self.settled_through = None;
        self.start = Checkpoint::Initial;
    }
}
