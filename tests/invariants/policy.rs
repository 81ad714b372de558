//! The failure policy that a fleet runs under, and the count that says when a record may be given
//! up.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Checkpoint, Delivery, Micros, Outcome, Place};

/// Kinesis tells when a record arrived approximately.
const ARRIVAL_ERROR: Micros = 1_000_000;

/// What was decided about records that fail. The default tries for ever, and later records wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a decision of its own"
)]
pub struct Policy {
    /// Own attempts of a record after which it is given up.
    pub attempts: Option<u32>,
    /// Age after which a record that fails is given up.
    pub max_age: Option<Micros>,
    /// Whether a batch that failed as a whole is cut, so that only what fails alone, or by name,
    /// counts.
    pub bisect: bool,
    /// What is done with a record that is given up; `None` gives up nothing.
    pub then: Option<GiveUp>,
    /// Whether only records of the same partition key wait for one that is tried again.
    pub by_key: bool,
    /// How many deliveries of a shard may run at a time: each key is then in one of them at most.
    /// Zero is as one.
    pub parallelism: usize,
    /// Whether versions are tried before all shards run them: a shard then goes back and forth
    /// between two, and a failure counts only once the version before has failed as well.
    pub tries_versions: bool,
    /// Versions that fail on whatever they get: nothing may be given up that no other has failed
    /// on.
    pub hopeless: BTreeSet<String>,
    /// Whether hosts may be wrong about the age of a record, because their wall clocks are.
    pub is_age_unsure: bool,
}

/// What is done with a record that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// It is stored, then the shard goes on.
    DeadLetter,
    /// It is dropped, and said so.
    Skip,
    /// The shard stops there until another version of the plugin is offered.
    Halt,
}

/// Why a host says that it gave a record up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The plugin said that it will never work.
    Rejected,
    /// It failed as often as it may.
    Attempts,
    /// It is older than it may be.
    Age,
    /// An operator said so.
    Skipped,
}

/// What failed in one tenure, counted from the outcomes alone: by the rules of the policy, not by
/// the host's word.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Of each record that has failed since it was last handled.
    tried: BTreeMap<Place, Tried>,
    /// What was given up, and when.
    given_up: BTreeMap<Place, Micros>,
    digest: Option<String>,
    /// Whether what has used up its attempts may be tried again.
    may_try_again: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tried {
    deliveries: u32,
    /// Own attempts at the version that is at work.
    attempts: u32,
    is_rejected: bool,
    /// Whether a version failed on it that does not fail on everything.
    is_its_own: bool,
}

impl Failures {
    /// Which delivery of these records this must be, counted from 1.
    pub(crate) fn attempt(&self, places: &[Place]) -> u32 {
        let deliveries = places
            .iter()
            .filter_map(|place| self.tried.get(place))
            .map(|tried| tried.deliveries);
        deliveries.max().unwrap_or_default() + 1
    }

    pub(crate) fn is_given_up(&self, place: &Place) -> bool {
        self.given_up.contains_key(place)
    }

    pub(crate) fn given_up_above(&self, from: &Checkpoint) -> BTreeSet<Place> {
        let above = |place: &&Place| !from.covers(place);
        self.given_up.keys().filter(above).cloned().collect()
    }

    pub(crate) fn last_given_up_before(&self, place: &Place) -> Option<&Place> {
        self.given_up
            .range::<Place, _>(..place)
            .next_back()
            .map(|(place, _)| place)
    }

    pub(crate) fn was_given_up_by(&self, place: &Place, at: Micros) -> bool {
        self.given_up
            .get(place)
            .is_some_and(|given_up| *given_up <= at)
    }

    /// The first record of `delivery` that must not be delivered any more: it has used up its
    /// attempts at this version.
    pub(crate) fn exhausted<'a>(
        &self,
        delivery: &'a Delivery,
        policy: &Policy,
    ) -> Option<&'a Place> {
        let is_same_version =
            self.digest.as_ref() == Some(&delivery.digest) && !policy.tries_versions;
        let most = policy
            .attempts
            .filter(|_| policy.then.is_some() && is_same_version && !self.may_try_again)?;
        delivery.places.iter().find(|place| {
            self.tried
                .get(place)
                .is_some_and(|tried| tried.attempts >= most)
        })
    }

    /// Why `place`, which was produced `age` ago, may not be given up for `cause`.
    pub(crate) fn unjustified(
        &self,
        place: &Place,
        age: Micros,
        cause: Cause,
        policy: &Policy,
    ) -> Option<String> {
        let tried = self.tried.get(place).copied().unwrap_or_default();
        if tried.deliveries == 0 {
            return Some("it did not fail".to_owned());
        }
        if policy.tries_versions && !tried.is_its_own {
            return Some("only a version that fails on everything failed on it".to_owned());
        }
        let is_right = match cause {
            Cause::Rejected => tried.is_rejected,
            Cause::Attempts => policy.attempts.is_some_and(|most| tried.attempts >= most),
            // By no policy.
            Cause::Skipped => false,
            Cause::Age => policy
                .max_age
                .is_some_and(|most| policy.is_age_unsure || age + ARRIVAL_ERROR >= most),
        };
        (!is_right).then(|| format!("{cause:?} after {tried:?} at the age of {age} us"))
    }

    pub(crate) fn started(&mut self, delivery: &Delivery, policy: &Policy) {
        let before = self.digest.replace(delivery.digest.clone());
        if !policy.tries_versions && before.is_some_and(|before| before != delivery.digest) {
            self.tried.values_mut().for_each(|tried| tried.attempts = 0);
        }
    }

    pub(crate) fn ended(
        &mut self,
        delivery: &Delivery,
        outcome: Outcome,
        (failed, rejected): (&BTreeSet<Place>, &BTreeSet<Place>),
        policy: &Policy,
        key: impl Fn(&Place) -> Option<String>,
    ) {
        let is_cut = policy.bisect && delivery.places.len() > 1;
        let mut keys = BTreeSet::new();
        for place in &delivery.places {
            let is_own = match outcome {
                Outcome::Ok if !failed.contains(place) => {
                    self.tried.remove(place);
                    continue;
                }
                // A plugin that keeps the order of a key reports what follows a failed record,
                // though it did not try it.
                Outcome::Ok => {
                    !policy.by_key || keys.insert(key(place)) || rejected.contains(place)
                }
                Outcome::Error | Outcome::Trap => !is_cut,
                Outcome::Cancelled => false,
            };
            let tried = self.tried.entry(place.clone()).or_default();
            tried.deliveries += 1;
            tried.attempts += u32::from(is_own);
            tried.is_rejected = rejected.contains(place);
            tried.is_its_own |= !policy.hopeless.contains(&delivery.digest);
        }
    }

    /// From here on, what has used up its attempts may be tried again.
    pub(crate) fn may_try_again(&mut self) {
        self.may_try_again = true;
    }

    /// The shard goes on elsewhere: no record has failed, and none was given up.
    pub(crate) fn forget(&mut self) {
        self.tried.clear();
        self.given_up.clear();
    }

    pub(crate) fn given_up(&mut self, place: &Place, at: Micros) {
        self.tried.remove(place);
        self.given_up.insert(place.clone(), at);
    }
}
