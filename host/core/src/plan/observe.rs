//! From rows to what a host may assume of them: one code path for workers, and for the commands
//! that ask what a worker would do.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{ObservedLease, ObservedWorker};
use crate::fleet::WorkerRow;
use crate::lease::{Availability, Lease, LeaseObserver, Pulse, WorkerId};
use crate::seeded_bug::SeededBug;
use crate::time::Moment;

/// A claim waits this many lease durations for its owner before it is void: an owner finishes a
/// batch in that time, or is stuck in it and will be for longer.
pub const CLAIM_PATIENCE_LEASES: u32 = 2;
/// A released lease is kept for its claimant for this part of a lease duration. A claimant looks
/// several times a second while it waits: one that has not taken it by then does not need it.
const KEPT_FOR_CLAIMANT: u32 = 4;
/// A free or expired lease that no host takes for this many lease durations is taken above the fair
/// share (KCL rule).
pub const OVERDUE_LEASES: u32 = 3;
/// A finished row stays for this many lease durations. No request is that old: none is sent for a
/// plan that is older than one, and a call has given up, its retries included, within another. A
/// worker counts only the time that it was awake: what was on its way before a suspension of all
/// machines arrives after it.
pub const FINISHED_ROWS_STAY_LEASES: u32 = 2;

/// What one host knows when it looks at the rows.
#[derive(Debug, Clone, Copy)]
pub struct Outlook<'a> {
    /// The worker that looks.
    pub me: &'a WorkerId,
    /// What was seen to move, and when.
    pub observer: &'a LeaseObserver,
    /// Workers that were alive and not shutting down at the last look; see [`alive_workers`].
    pub alive: &'a BTreeSet<WorkerId>,
    /// The lease duration of owners that have not registered; others are judged by their own.
    pub lease_duration: Duration,
    /// The moment to judge by.
    pub now: Moment,
}

impl Outlook<'_> {
    /// What may be assumed of `row`. Whether a pipeline runs on it, and whether it was given up
    /// lately, only the process itself knows.
    pub fn lease(&self, row: &Lease, is_mine: bool, is_avoided: bool) -> ObservedLease {
        let availability = self
            .observer
            .availability(row, self.now, self.lease_duration);
        ObservedLease {
            lease: row.clone(),
            availability,
            idle_for: if availability == Availability::Held {
                Duration::ZERO
            } else {
                self.observer.idle_for(row, self.now)
            },
            is_mine,
            is_claim_fresh: self.is_claim_fresh(row),
            has_owner_left: row
                .owner
                .as_ref()
                .is_some_and(|owner| self.observer.has_left(owner, self.now)),
            is_owner_new: row
                .owner
                .as_ref()
                .is_some_and(|owner| self.is_owner_new(owner)),
            finished_for: self.observer.finished_for(row, self.now),
            is_avoided,
        }
    }

    /// Every row, as [`Outlook::lease`] has it, for a command that asks what `me` would do: leases
    /// that it owns and has not let expire run on it.
    pub fn leases_if_running<'r>(
        &self,
        rows: impl Iterator<Item = &'r Lease>,
    ) -> Vec<ObservedLease> {
        rows.map(|row| self.lease_if_running(row)).collect()
    }

    fn lease_if_running(&self, row: &Lease) -> ObservedLease {
        let observed = self.lease(row, false, false);
        let is_mine =
            observed.availability == Availability::Held && row.owner.as_ref() == Some(self.me);
        ObservedLease {
            is_mine,
            ..observed
        }
    }

    fn is_owner_new(&self, owner: &WorkerId) -> bool {
        let observer = self.observer;
        let is_known = observer.has_watched_for(self.lease_duration, self.now)
            && observer.writes_unregistered(owner, self.lease_duration);
        !observer.is_registered(owner) && !is_known
    }

    fn is_claim_fresh(&self, row: &Lease) -> bool {
        let is_alive = |worker: &WorkerId| worker == self.me || self.alive.contains(worker);
        let is_kept = row.owner.is_some()
            || self.observer.idle_for(row, self.now) < self.lease_duration / KEPT_FOR_CLAIMANT;
        row.claimant.as_ref().is_some_and(is_alive)
            && is_kept
            && self.observer.claimed_for(row, self.now)
                < self.lease_duration * CLAIM_PATIENCE_LEASES
            || row.claimant.is_some() && SeededBug::ClaimsNeverExpire.is_on()
    }

    /// A lease of an owner that is neither registered nor this host, and whose counter moves: a
    /// KCL's, which judges others by their rows. A row left by a host long gone moves no more.
    pub fn foreign<'a>(&self, rows: &'a [Lease], workers: &[WorkerRow]) -> Option<&'a Lease> {
        let registered: BTreeSet<&WorkerId> = workers.iter().map(|row| &row.worker).collect();
        rows.iter().find(|lease| {
            let is_unknown = |owner: &WorkerId| {
                owner != self.me
                    && !registered.contains(owner)
                    && !self.observer.has_left(owner, self.now)
            };
            lease.owner.as_ref().is_some_and(is_unknown)
                && !lease.is_finished()
                && self
                    .observer
                    .has_counter_moved(lease, self.now, self.lease_duration)
        })
    }
}

/// Workers that may live and are not shutting down: those whose claims count.
pub fn alive_workers(observer: &LeaseObserver, now: Moment) -> BTreeSet<WorkerId> {
    let observed = observed_workers(observer, now).into_iter();
    observed
        .filter(|worker| worker.is_alive && !worker.is_draining)
        .map(|worker| worker.id)
        .collect()
}

/// Every registered worker, with what this host may assume of it, in order of id.
pub fn observed_workers(observer: &LeaseObserver, now: Moment) -> Vec<ObservedWorker> {
    let mut observed = Vec::new();
    for (row, _) in observer.workers(now) {
        let pulse = observer.worker_pulse(&row.worker, now);
        observed.push(ObservedWorker {
            id: row.worker.clone(),
            is_alive: pulse.is_some_and(Pulse::may_live),
            is_draining: row.is_draining,
            max_leases: row.max_leases,
        });
    }
    observed
}
