//! Expiry without clocks in the table: a lease has expired when *this* host saw neither its counter
//! nor its owner's heartbeat move for the lease duration, on its own monotonic clock (KCL
//! `DynamoDBLeaseTaker`, with the heartbeat added).

mod strangers;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use self::strangers::{SeenByRow, Strangers};
use super::{Lease, LeaseCounter, Pulse, Watched, WorkerId};
use crate::fleet::{Incarnation, WorkerRow};
use crate::seeded_bug::SeededBug;
use crate::stream::LeaseKey;
use crate::time::Moment;

/// What an observer may assume of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// It has no owner.
    Free,
    /// Its owner was seen alive within the lease duration, or has not been watched long enough.
    Held,
    /// Its owner was not seen to write for longer than the lease duration.
    Expired,
}

/// One host's memory of when it last saw each lease and each worker move.
#[derive(Debug, Default)]
pub struct LeaseObserver {
    leases: HashMap<LeaseKey, Sighting>,
    workers: BTreeMap<WorkerId, WorkerSighting>,
    /// Registered workers whose rows are gone, with the moment until which that is remembered: for
    /// their lease duration.
    left: BTreeMap<WorkerId, Moment>,
    strangers: Strangers,
    watching: Option<Watching>,
}

/// Since when this host has read the registered workers at least once a lease duration, and when it
/// read them last.
#[derive(Debug, Clone, Copy)]
struct Watching {
    since: Moment,
    read_at: Moment,
}

#[derive(Debug)]
struct Sighting {
    owner: Option<WorkerId>,
    counter: LeaseCounter,
    /// When the row was first seen.
    since: Moment,
    moved_at: Moment,
    /// Whether it ever moved under the same owner.
    has_moved: bool,
    claimant: Option<WorkerId>,
    claimed_at: Moment,
    /// When it was first seen to be finished.
    finished_at: Option<Moment>,
}

#[derive(Debug)]
struct WorkerSighting {
    row: WorkerRow,
    /// When it was first seen.
    since: Moment,
    moved_at: Moment,
    /// When the row was last found.
    seen_at: Moment,
    /// Since when this host has looked at it at least once a lease duration.
    watched_since: Moment,
    /// When the row was first missed, if it is gone.
    gone_at: Option<Moment>,
}

impl Sighting {
    fn first(lease: &Lease, read_at: Moment) -> Self {
        let moved_at = if SeededBug::ExpiredAtFirstSight.is_on() {
            Moment::default()
        } else {
            read_at
        };
        Self {
            owner: lease.owner.clone(),
            counter: lease.counter,
            since: moved_at,
            moved_at,
            has_moved: false,
            claimant: lease.claimant.clone(),
            claimed_at: read_at,
            finished_at: lease.is_finished().then_some(read_at),
        }
    }

    fn seen_again(self, lease: &Lease, read_at: Moment) -> Self {
        let has_same_owner = self.owner == lease.owner;
        let has_same_counter = self.counter == lease.counter;
        let has_same_claimant = self.claimant == lease.claimant;
        Self {
            owner: lease.owner.clone(),
            counter: lease.counter,
            since: self.since,
            moved_at: if has_same_owner && has_same_counter {
                self.moved_at
            } else {
                read_at
            },
            has_moved: has_same_owner && (self.has_moved || !has_same_counter),
            claimant: lease.claimant.clone(),
            claimed_at: if has_same_claimant {
                self.claimed_at
            } else {
                read_at
            },
            finished_at: lease
                .is_finished()
                .then(|| self.finished_at.unwrap_or(read_at)),
        }
    }
}

impl WorkerSighting {
    fn first(row: &WorkerRow, read_at: Moment) -> Self {
        Self {
            row: row.clone(),
            since: read_at,
            moved_at: read_at,
            seen_at: read_at,
            watched_since: read_at,
            gone_at: None,
        }
    }

    fn seen_again(self, row: &WorkerRow, read_at: Moment) -> Self {
        let has_beaten = self.row.beat != row.beat || self.row.incarnation != row.incarnation;
        Self {
            row: row.clone(),
            since: self.since,
            moved_at: if has_beaten { read_at } else { self.moved_at },
            seen_at: read_at,
            watched_since: self.watched_since_at(read_at),
            gone_at: None,
        }
    }

    /// Whether a row that is gone now belonged to a worker that was shutting down, or to one that
    /// had been silent for too long while this host, which saw the row until `watched_until`, was
    /// watching.
    fn had_ended(&self, watched_until: Moment) -> bool {
        // A host that was suspended in the middle of a look did not see the heartbeats meanwhile.
        let watched_since = self.moved_at.max(self.watched_since);
        self.row.is_draining || watched_until.since(watched_since) > self.row.lease_duration
    }

    fn has_beaten(&self) -> bool {
        self.moved_at > self.since
    }

    /// Since when it has been watched, if the next look is at `read_at`: a late look starts over.
    fn watched_since_at(&self, read_at: Moment) -> Moment {
        let is_late = read_at.since(self.seen_at) > self.row.lease_duration;
        if is_late { read_at } else { self.watched_since }
    }
}

impl LeaseObserver {
    /// Takes in one listing of the table, read at `read_at`, and forgets rows that are gone.
    ///
    /// A row seen for the first time counts as moved now: a new host waits a full lease duration
    /// before it judges any owner dead.
    pub fn observe(&mut self, leases: &[Lease], read_at: Moment) {
        let mut seen = HashMap::with_capacity(leases.len());
        for lease in leases {
            let sighting = match self.leases.remove(&lease.key) {
                Some(earlier) => earlier.seen_again(lease, read_at),
                None => Sighting::first(lease, read_at),
            };
            seen.insert(lease.key.clone(), sighting);
        }
        self.leases = seen;
        self.observe_strangers(read_at);
    }

    fn observe_strangers(&mut self, read_at: Moment) {
        let mut rows = Vec::new();
        for sighting in self.leases.values() {
            if let Some(owner) = &sighting.owner
                && !self.is_registered(owner)
            {
                rows.push(SeenByRow {
                    owner,
                    wrote_at: sighting.has_moved.then_some(sighting.moved_at),
                });
            }
        }
        self.strangers.observe(rows, read_at);
    }

    /// Takes in the registered workers, read at `read_at`.
    ///
    /// For the leases of a worker whose row is gone, the row counts as if it had moved when it was
    /// first missed, and not since. It may have been removed by hand, or lost with a restored
    /// table, after a last heartbeat that this host did not see, and its worker may still rely on
    /// that heartbeat. Only a worker that had been silent for too long while its row existed was
    /// dead before. A worker that shuts down removes its row itself, once nothing of it runs any
    /// more.
    pub fn observe_workers(&mut self, workers: &[WorkerRow], read_at: Moment) {
        self.note_reading(read_at);
        let mut seen = BTreeMap::new();
        for row in workers {
            let sighting = match self.workers.remove(&row.worker) {
                Some(earlier) => earlier.seen_again(row, read_at),
                None => WorkerSighting::first(row, read_at),
            };
            seen.insert(row.worker.clone(), sighting);
            self.strangers.forget(&row.worker);
        }
        self.left.retain(|_, until| *until >= read_at);
        for (id, missed) in std::mem::replace(&mut self.workers, seen) {
            self.miss(id, missed, read_at);
        }
    }

    fn note_reading(&mut self, read_at: Moment) {
        let workers = self.workers.values();
        let longest = workers
            .map(|seen| seen.row.lease_duration)
            .max()
            .unwrap_or_default();
        let since = match self.watching {
            Some(watching) if read_at.since(watching.read_at) <= longest => watching.since,
            Some(_) | None => read_at,
        };
        self.watching = Some(Watching { since, read_at });
    }

    /// The worker's row was not found at this look.
    fn miss(&mut self, id: WorkerId, last: WorkerSighting, read_at: Moment) {
        // This host may not have looked for a while: a heartbeat in that time disappeared with the
        // row.
        let watched_until = if last.gone_at.is_some() {
            read_at
        } else {
            last.seen_at
        };
        let gone_at = last.gone_at.unwrap_or(read_at);
        if last.had_ended(watched_until) || SeededBug::VanishedWorkerIsDead.is_on() {
            self.left.insert(id, gone_at + last.row.lease_duration);
        } else {
            let sighting = WorkerSighting {
                gone_at: Some(gone_at),
                moved_at: last.moved_at.max(gone_at),
                ..last
            };
            self.workers.insert(id, sighting);
        }
    }

    /// Whether the registered workers have been read for at least `duration`, without a pause of a
    /// lease duration, and the last reading is recent: a host that was suspended in the middle of a
    /// look would rely on what it read before.
    pub(crate) fn has_watched_for(&self, duration: Duration, now: Moment) -> bool {
        let is_recent = |watching: &Watching| now.since(watching.read_at) <= duration;
        self.watching
            .filter(is_recent)
            .is_some_and(|watching| now.since(watching.since) >= duration)
    }

    /// Whether `worker` was registered at the last look.
    pub fn is_registered(&self, worker: &WorkerId) -> bool {
        self.workers
            .get(worker)
            .is_some_and(|seen| seen.gone_at.is_none())
    }

    /// Whether `worker` was registered until a short while ago: a lease that still names it is one
    /// that it could not give back, and not one of a worker that never registers.
    pub fn has_left(&self, worker: &WorkerId, now: Moment) -> bool {
        let kept = self.workers.get(worker);
        let kept_until = kept.and_then(|kept| Some(kept.gone_at? + kept.row.lease_duration));
        self.left
            .get(worker)
            .copied()
            .or(kept_until)
            .is_some_and(|until| until >= now)
    }

    /// Judges `lease` at `now`. A lease that was never observed counts as held, if it has an owner.
    ///
    /// `lease_duration` is for owners that have not registered; others are judged by their own.
    pub fn availability(
        &self,
        lease: &Lease,
        now: Moment,
        lease_duration: Duration,
    ) -> Availability {
        match self.pulse(lease, now, lease_duration) {
            None => Availability::Free,
            Some(pulse) if pulse.may_live() => Availability::Held,
            Some(_) => Availability::Expired,
        }
    }

    /// Whether the owner of `lease` is alive, as far as this lease and the owner's heart show it;
    /// `None` if it has no owner.
    ///
    /// `lease_duration` is for owners that have not registered, as in
    /// [`LeaseObserver::availability`].
    pub fn pulse(&self, lease: &Lease, now: Moment, lease_duration: Duration) -> Option<Pulse> {
        let worker = self.workers.get(lease.owner.as_ref()?);
        let lease_duration = worker.map_or(lease_duration, |worker| worker.row.lease_duration);
        let Some(sighting) = self.leases.get(&lease.key) else {
            return Some(Pulse::Unwatched {
                expires_in: lease_duration,
            });
        };
        let last = worker.map_or(sighting.moved_at, |worker| {
            sighting.moved_at.max(worker.moved_at)
        });
        // The owner of a row that changed hands has written to it.
        let has_written =
            sighting.moved_at > sighting.since || worker.is_some_and(WorkerSighting::has_beaten);
        Some(Pulse::of(&Watched {
            lease_duration,
            silent: now.since(last),
            has_written,
        }))
    }

    /// Whether a registered worker is alive, as far as its heart shows it; `None` if it is not
    /// registered.
    pub fn worker_pulse(&self, worker: &WorkerId, now: Moment) -> Option<Pulse> {
        let worker = self.workers.get(worker)?;
        Some(Pulse::of(&Watched {
            lease_duration: worker.row.lease_duration,
            silent: now.since(worker.moved_at),
            has_written: worker.has_beaten(),
        }))
    }

    /// How long neither `lease` nor its owner has been seen to move.
    pub fn idle_for(&self, lease: &Lease, now: Moment) -> Duration {
        let by_row = self
            .leases
            .get(&lease.key)
            .map_or(Duration::ZERO, |sighting| now.since(sighting.moved_at));
        let owner = lease
            .owner
            .as_ref()
            .and_then(|owner| self.workers.get(owner));
        owner.map_or(by_row, |worker| by_row.min(now.since(worker.moved_at)))
    }

    /// Whether the lease's own counter was seen to move within `duration`; seeing it for the first
    /// time does not count.
    pub fn has_counter_moved(&self, lease: &Lease, now: Moment, duration: Duration) -> bool {
        let sighting = self.leases.get(&lease.key);
        sighting
            .is_some_and(|sighting| sighting.has_moved && now.since(sighting.moved_at) <= duration)
    }

    /// Whether the counter of a lease of `worker` was seen to move within `duration`: the worker
    /// writes to its rows, whatever its heart does.
    pub fn moves_rows(&self, worker: &WorkerId, now: Moment, duration: Duration) -> bool {
        self.leases.values().any(|sighting| {
            sighting.owner.as_ref() == Some(worker)
                && sighting.has_moved
                && now.since(sighting.moved_at) <= duration
        })
    }

    /// Whether `owner` is a KCL's worker: it wrote to its rows though it had not been registered
    /// for `lease_duration`.
    pub(crate) fn writes_unregistered(&self, owner: &WorkerId, lease_duration: Duration) -> bool {
        self.strangers.writes_unregistered(owner, lease_duration)
    }

    /// How long `lease` has been finished, as far as this host saw; zero if it is not finished.
    pub(crate) fn finished_for(&self, lease: &Lease, now: Moment) -> Duration {
        self.leases
            .get(&lease.key)
            .and_then(|sighting| sighting.finished_at)
            .map_or(Duration::ZERO, |at| now.since(at))
    }

    /// How long `lease` has been claimed by the same worker, as far as this host saw.
    pub(crate) fn claimed_for(&self, lease: &Lease, now: Moment) -> Duration {
        self.leases
            .get(&lease.key)
            .map_or(Duration::ZERO, |sighting| now.since(sighting.claimed_at))
    }

    /// Registered workers in order of id, each with how long its heart has been silent.
    pub fn workers(&self, now: Moment) -> impl Iterator<Item = (&WorkerRow, Duration)> {
        let there = self
            .workers
            .values()
            .filter(|worker| worker.gone_at.is_none());
        there.map(move |worker| (&worker.row, now.since(worker.moved_at)))
    }

    /// How long `worker`'s heart has not moved while this host was watching; `None` if it is not
    /// registered.
    ///
    /// A host that did not look, because its machine was suspended or a call hung, cannot
    /// distinguish a heart that stopped long ago from one that is about to beat again.
    pub fn watched_silence(&self, worker: &WorkerId, now: Moment) -> Option<Duration> {
        let worker = self.workers.get(worker)?;
        Some(now.since(worker.moved_at.max(worker.watched_since)))
    }

    /// Whether `row`, read just now, shows that the worker's heart moved since it was observed.
    ///
    /// Checked with a consistent read before an expired lease is taken: a heartbeat does not move
    /// the lease's counter, so the take's condition would not notice it. A row that was missing at
    /// the last look and exists now is such a sign: that look was stale. So is a row that existed
    /// at the last look and is gone, unless its worker was shutting down or silent by then: it may
    /// have been removed by hand, and counts as unmoved only from now on.
    pub fn has_moved(&self, worker: &WorkerId, row: Option<(&Incarnation, u64)>) -> bool {
        match (
            self.workers
                .get(worker)
                .filter(|seen| seen.gone_at.is_none()),
            row,
        ) {
            (Some(seen), Some((incarnation, beat))) => {
                seen.row.beat != beat || seen.row.incarnation != *incarnation
            }
            (None, Some(_)) => true,
            (Some(seen), None) => !seen.had_ended(seen.seen_at),
            (None, None) => false,
        }
    }
}

#[cfg(test)]
mod tests;
