//! One host's hold on one lease, from its take on.

use std::collections::{BTreeMap, BTreeSet};

use super::Shard;
use crate::history::{Checkpoint, Delivery, Micros, Outcome, Place};
use crate::policy::{Failures, Policy};

/// What names a grant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GrantKey {
    pub(crate) host: String,
    pub(crate) shard: String,
    pub(crate) epoch: u64,
}

/// One host's hold on one lease.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) key: GrantKey,
    /// The checkpoint in the row when it was granted.
    pub(crate) start: Checkpoint,
    /// The stream whose records it delivers.
    pub(crate) generation: usize,
    /// The stream that the checkpoint it started from speaks of.
    pub(crate) start_generation: usize,
    /// Records that the plugin took without reporting them, and when they were committed; `None` while held back.
    pub(crate) handled: BTreeMap<Place, Option<Micros>>,
    /// Records that were delivered and must be delivered again before anything later is.
    pub(crate) pending: BTreeSet<Place>,
    /// Whether records wait only for those of their own key.
    is_by_key: bool,
    /// What failed, and what was given up.
    pub(crate) failures: Failures,
    /// By key: committed before an instance died that held others back. They may come again, since what waited among them
    /// must.
    repeatable: BTreeSet<Place>,
    /// Everything up to here is committed.
    pub(crate) settled_through: Option<Place>,
    /// Set if the plugin keeps state.
    pub(super) saved: Option<Saved>,
    /// The checkpoint as this grant left it in the row.
    pub(crate) written: Checkpoint,
    pub(crate) said_end_at: Option<Micros>,
    pub(crate) has_delivered: bool,
    /// An operator wrote to the row meanwhile: the holder may not know yet that its lease is gone.
    pub(crate) is_interfered: bool,
    /// The delivery that runs.
    pub(crate) open: Option<u64>,
    /// Of the last delivery.
    pub(crate) last: Option<Last>,
}

/// What a plugin that keeps state has saved in a grant.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    /// Everything up to here was committed when it was saved last.
    pub(super) through: Option<Place>,
}

/// What is remembered of the last delivery of a grant.
#[derive(Debug)]
pub(crate) struct Last {
    pub(crate) digest: String,
    pub(crate) outcome: Option<Outcome>,
}

impl GrantKey {
    pub(crate) fn of(delivery: &Delivery) -> Self {
        Self { host: delivery.host.clone(), shard: delivery.shard.clone(), epoch: delivery.epoch }
    }
}

impl Grant {
    pub(super) fn new(key: GrantKey, start: Checkpoint, generation: usize, start_generation: usize) -> Self {
        Self {
            key,
            written: start.clone(),
            start,
            generation,
            start_generation,
            handled: BTreeMap::new(),
            pending: BTreeSet::new(),
            failures: Failures::default(),
            is_by_key: false,
            repeatable: BTreeSet::new(),
            settled_through: None,
            saved: None,
            said_end_at: None,
            has_delivered: false,
            is_interfered: false,
            open: None,
            last: None,
        }
    }

    pub(super) fn by_key(self, is_by_key: bool) -> Self {
        Self { is_by_key, ..self }
    }

    /// Whether `delivery` may be one that starts over: the instance that held records back is gone, and with it what it
    /// held. Never below what was written down.
    ///
    /// By key nothing is inferred: see [`Grant::may_repeat`].
    pub(crate) fn is_rewind(&self, delivery: &Delivery) -> bool {
        let Some(first) = delivery.places.first().filter(|_| !self.is_by_key) else { return false };
        let is_above = Checkpoint::At(first.clone()) > self.written;
        // Another attempt at what is left of a batch starts nothing over; one that repeats what was handled does, and is
        // the first of an instance that replaces one that did not start. Asked of every delivery, so what is rare is
        // asked first.
        let is_retry =
            || !self.is_new_instance(delivery) || delivery.places.iter().all(|at| !self.handled.contains_key(at));
        if (delivery.attempt > 1 && is_retry()) || !is_above || self.handled.range::<Place, _>(first..).next().is_none()
        {
            return false;
        }
        let nothing_committed = self.handled.range::<Place, _>(first..).all(|(_, committed)| committed.is_none());
        nothing_committed || self.is_new_instance(delivery)
    }

    /// Whether `place` was settled by `at`.
    pub(crate) fn was_settled_by(&self, place: &Place, at: Micros) -> bool {
        self.handled.get(place).is_some_and(|committed| committed.is_some_and(|committed| committed <= at))
            || self.failures.was_given_up_by(place, at)
    }

    /// Whether `place` need not be delivered any more, as far as this instance of the plugin is concerned.
    pub(crate) fn is_done_with(&self, place: &Place) -> bool {
        self.handled.contains_key(place) || self.failures.is_given_up(place)
    }

    /// By key: whether `place` was handled by an instance that is gone, in a way that lets it come again.
    pub(crate) fn may_repeat(&self, delivery: &Delivery, place: &Place) -> bool {
        self.repeatable.contains(place)
            || (self.is_by_key
                && self.is_swapped_while_holding(delivery)
                && Checkpoint::At(place.clone()) > self.frontier())
    }

    /// By key: an instance is gone that held records back. They come again; what was committed among them and above may.
    fn starts_over(&mut self) {
        let frontier = self.frontier();
        self.handled.retain(|_, committed| committed.is_some());
        let above = self.handled.keys().filter(|place| Checkpoint::At((*place).clone()) > frontier);
        self.repeatable.extend(above.cloned());
    }

    fn holds_back(&self) -> bool {
        self.handled.values().any(Option::is_none)
    }

    /// From where records are not known to be settled without a gap.
    pub(crate) fn frontier(&self) -> Checkpoint {
        self.settled_through.clone().map_or_else(|| self.start.clone(), Checkpoint::At)
    }

    pub(super) fn started(&mut self, delivery: &Delivery, policy: &Policy) {
        if self.is_by_key && self.is_swapped_while_holding(delivery) {
            self.starts_over();
        }
        for place in delivery.places.iter().filter(|_| self.is_by_key) {
            if self.repeatable.remove(place) {
                self.handled.remove(place);
            }
        }
        if self.is_rewind(delivery)
            && let Some(first) = delivery.places.first()
        {
            self.handled.split_off(first);
            self.pending.clear();
            self.settled_through = self.settled_through.take().filter(|through| through < first);
        }
        self.failures.started(delivery, policy);
        self.has_delivered = true;
        self.open = Some(delivery.id);
        self.last = Some(Last { digest: delivery.digest.clone(), outcome: None });
    }

    pub(super) fn ended(
        &mut self,
        delivery: &Delivery,
        outcome: Outcome,
        failed: &BTreeSet<Place>,
        through: Option<&Place>,
        at: Micros,
    ) {
        self.open = self.open.filter(|open| *open != delivery.id);
        if let Some(last) = &mut self.last {
            last.outcome = Some(outcome);
        }
        if outcome != Outcome::Ok {
            if self.is_by_key && outcome == Outcome::Trap && self.holds_back() {
                self.starts_over();
            }
            self.pending.extend(delivery.places.iter().cloned());
            return;
        }
        for place in &delivery.places {
            if failed.contains(place) {
                self.pending.insert(place.clone());
            } else {
                self.pending.remove(place);
                self.handled.entry(place.clone()).or_insert(None);
            }
        }
        let Some(through) = through else { return };
        let held = self.handled.range_mut::<Place, _>(..=through).rev();
        held.filter(|(_, committed)| committed.is_none()).for_each(|(_, committed)| *committed = Some(at));
    }

    /// Through where nothing may come again once the lease is given back in good order: what is written down. Without its
    /// state nothing of a plugin that keeps any can be, not even what was given up.
    pub(crate) fn owed(&self) -> Option<&Place> {
        self.saved.as_ref().map_or(self.settled_through.as_ref(), |saved| saved.through.as_ref())
    }

    /// Another instance has started, though the last delivery may have ended well: one may die while it saves its state.
    pub(super) fn instance_replaced(&mut self) {
        if let Some(last) = &mut self.last {
            last.outcome = Some(Outcome::Trap);
        }
    }

    /// Commits everything handled so far.
    pub(super) fn saved(&mut self, at: Micros) {
        self.handled.values_mut().filter(|committed| committed.is_none()).for_each(|committed| *committed = Some(at));
    }

    pub(super) fn given_up(&mut self, place: &Place, at: Micros) {
        self.pending.remove(place);
        self.failures.given_up(place, at);
    }

    /// Moves the frontier over what is committed without a gap.
    pub(super) fn advance(&mut self, shard: &Shard) {
        let frontier = self.frontier();
        let is_committed =
            |place: &&Place| self.handled.get(*place).is_some_and(Option::is_some) || self.failures.is_given_up(place);
        let through = shard.due(&frontier, &Checkpoint::End).take_while(is_committed).last().cloned();
        self.settled_through = through.or(self.settled_through.take());
    }

    /// The stream was recreated and this grant reads the new one.
    pub(super) fn move_to(&mut self, generation: usize) {
        self.generation = generation;
        self.handled.clear();
        self.pending.clear();
        self.settled_through = None;
        self.start = Checkpoint::Initial;
    }

    fn is_swapped_while_holding(&self, delivery: &Delivery) -> bool {
        self.last.as_ref().is_some_and(|last| last.digest != delivery.digest) && self.holds_back()
    }

    fn is_new_instance(&self, delivery: &Delivery) -> bool {
        self.last.as_ref().is_some_and(|last| last.digest != delivery.digest || last.outcome == Some(Outcome::Trap))
    }
}
