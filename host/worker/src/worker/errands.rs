//! Errands: what the leader left for this host, and the leases that it claimed. Each is followed by
//! reading its own row, where a host that watches would list all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use shardmill_core::fleet::{Errand, Incarnation, Task};
use shardmill_core::lease::{Lease, LeaseCounter, WorkerId};
use shardmill_core::plan::{AtHand, CLAIM_PATIENCE_LEASES, Heeded, Plan, Step, heed, reclaim};
use shardmill_core::stream::LeaseKey;
use shardmill_core::time::Moment;

use super::holdings::Holdings;
use super::rows::RowRead;
use super::run::Run;

/// Writes tried for one errand: a table that does not take three in half a second has other
/// troubles, and the leader asks again.
const TRIES_MAX: u8 = 3;
/// A request that its sender has given up arrives within its connection's life; one more lease
/// duration is allowed for.
const ARRIVES_WITHIN_LEASES: u32 = 2;

/// The run and the beat of an owner as the leader saw them; `None` of one that is not registered.
type SeenBeat = Option<(Incarnation, u64)>;

/// The rows that this host follows.
pub(super) struct Errands {
    run: Arc<Run>,
    open: BTreeMap<LeaseKey, Open>,
    strays: BTreeMap<LeaseKey, Stray>,
    /// How the leader saw the owners of leases that are taken in this pass.
    owners: HashMap<WorkerId, SeenBeat>,
}

/// An errand that is not over.
struct Open {
    errand: Errand,
    /// Writes that may still be tried.
    tries: u8,
    /// Then it is dropped: the leader asks again if there is still reason to.
    until: Moment,
}

/// A lease that this host does not serve, though its row may name it. This host's heart would hold
/// it while nothing reads the shard, and in a large fleet its own look comes hours later.
struct Stray {
    /// The counter of the row that a take was sent for, which was not answered.
    taken_at: Option<LeaseCounter>,
    /// Until then such a take may still arrive.
    until: Moment,
    /// How often it was tried to serve it or to give it back, and when that may be tried again.
    attempts: u32,
    not_before: Moment,
}

/// What may be done for one row in this pass.
#[derive(Clone, Copy)]
struct Chance<'a> {
    key: &'a LeaseKey,
    row: Option<&'a Lease>,
    at_hand: AtHand<'a>,
}

impl Stray {
    fn new(taken_at: Option<LeaseCounter>, until: Moment, now: Moment) -> Self {
        Self {
            taken_at,
            until,
            attempts: 0,
            not_before: now,
        }
    }
}

impl Errands {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            open: BTreeMap::new(),
            strays: BTreeMap::new(),
            owners: HashMap::new(),
        }
    }

    /// Takes up what this host was asked to do, or asks for itself, as of `now`.
    pub(super) fn admit(&mut self, errands: Vec<Errand>, now: Moment) {
        let lease_duration = self.run.lease_duration();
        for errand in errands {
            let patience = match errand.task {
                Task::Claim { .. } => lease_duration * CLAIM_PATIENCE_LEASES,
                Task::Take { .. } | Task::Expect { .. } => lease_duration / 2,
            };
            let open = Open {
                tries: TRIES_MAX,
                until: now + patience,
                errand,
            };
            self.open.insert(open.errand.key.clone(), open);
        }
    }

    /// A take of `seen` was sent and not answered.
    pub(super) fn follow_take(&mut self, seen: &Lease) {
        let now = self.run.now();
        let until = now + self.run.lease_duration() * ARRIVES_WITHIN_LEASES;
        let stray = Stray::new(Some(seen.counter), until, now);
        self.strays.insert(seen.key.clone(), stray);
    }

    /// A take of `seen` was refused. If the row names this host, no other can have the lease.
    pub(super) fn follow_refused(&mut self, seen: &Lease) {
        if seen.owner.as_ref() == Some(self.run.me()) {
            let now = self.run.now();
            let stray = || Stray::new(None, now, now);
            self.strays.entry(seen.key.clone()).or_insert_with(stray);
        }
    }

    /// A lease ended here, and its row may still name this host.
    pub(super) fn follow_lost(&mut self, key: LeaseKey) {
        let now = self.run.now();
        self.strays.insert(key, Stray::new(None, now, now));
    }

    /// Leases that this host does not serve and whose rows may name it, each with the moment until
    /// which an unanswered take may still arrive.
    pub(super) fn strays(&self) -> BTreeMap<LeaseKey, Moment> {
        let strays = self.strays.iter();
        strays
            .map(|(key, stray)| (key.clone(), stray.until))
            .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.strays.is_empty()
    }

    /// The leases whose rows decide what is to be done.
    pub(super) fn keys(&self) -> Vec<LeaseKey> {
        let keys: BTreeSet<&LeaseKey> = self.open.keys().chain(self.strays.keys()).collect();
        keys.into_iter().cloned().collect()
    }

    /// Whether `row`, an owner's as it was read just now, shows what the leader saw of it; `None`
    /// if no leader said anything.
    pub(super) fn is_owner_as_seen(
        &self,
        owner: &WorkerId,
        row: Option<(&Incarnation, u64)>,
    ) -> Option<bool> {
        let seen = self.owners.get(owner)?.as_ref();
        Some(seen.map(|(incarnation, beat)| (incarnation, *beat)) == row)
    }

    /// What the leader saw of owners says nothing in a later pass.
    pub(super) fn forget_owners(&mut self) {
        self.owners.clear();
    }

    /// What is to be done now, by the rows as they were just read.
    pub(super) fn decide(&mut self, rows: Vec<RowRead>, holdings: &Holdings) -> Plan {
        self.forget_owners();
        let run = Arc::clone(&self.run);
        let mut room = holdings.room();
        let mut plan = Plan::default();
        for RowRead { key, row } in rows {
            let chance = Chance {
                key: &key,
                row: row.as_ref(),
                at_hand: AtHand {
                    me: run.me(),
                    is_mine: holdings.has(&key),
                    is_avoided: row.as_ref().is_some_and(|row| holdings.avoids(row)),
                    has_room: room > 0,
                },
            };
            let step = self.decide_stray(chance);
            let Some(step) = step.or_else(|| self.decide_errand(chance)) else {
                continue;
            };
            if matches!(step, Step::Take { .. } | Step::Claim { .. }) {
                room = room.saturating_sub(1);
            }
            plan.steps.push(step);
        }
        plan
    }

    /// A stray is followed until its row names another host: only this host can serve it or give it
    /// back.
    fn decide_stray(&mut self, chance: Chance<'_>) -> Option<Step> {
        let now = self.run.now();
        let stray = self.strays.get_mut(chance.key)?;
        match reclaim(chance.row, stray.taken_at, chance.at_hand) {
            Heeded::Do(step) if now >= stray.not_before => {
                stray.attempts += 1;
                let options = &self.run.options;
                let wait = options.backoff.delay(stray.attempts, fastrand::f64());
                stray.not_before = now + wait.min(options.leases.duration);
                return Some(step);
            }
            Heeded::Do(_) => {}
            Heeded::Wait if now < stray.until => {}
            Heeded::Wait | Heeded::Done => {
                self.strays.remove(chance.key);
            }
        }
        None
    }

    fn decide_errand(&mut self, chance: Chance<'_>) -> Option<Step> {
        let now = self.run.now();
        let open = self.open.get_mut(chance.key)?;
        let step = match heed(&open.errand, chance.row, chance.at_hand) {
            Heeded::Do(step) if now < open.until && open.may_try(&step) => step,
            Heeded::Wait if now < open.until => return None,
            Heeded::Do(_) | Heeded::Wait | Heeded::Done => {
                self.open.remove(chance.key);
                return None;
            }
        };
        if let Task::Take {
            owner: Some(owner), ..
        } = &open.errand.task
        {
            self.owners.insert(owner.id.clone(), owner.beat.clone());
        }
        Some(step)
    }
}

impl Open {
    /// Counts the step as a try, if it is a write. Returns false if there were tries enough.
    fn may_try(&mut self, step: &Step) -> bool {
        if matches!(step, Step::HandOver { .. }) {
            return true;
        }
        let may_try = self.tries > 0;
        self.tries = self.tries.saturating_sub(1);
        may_try
    }
}
