//! What an explanation is based on, and what that shows about owners and claims.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Claim, Holder};
use crate::fleet::{LeaderRow, WorkerRow};
use crate::lease::{Lease, LeaseObserver, WorkerId};
use crate::plan::{ObservedLease, Outlook, PlanLimits, ShardList, alive_workers};
use crate::ports::BadRow;
use crate::stream::{LeaseKey, ShardId};
use crate::time::Moment;

/// Everything that was read from an application's tables, as values.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The id that asks, which no worker has. It owns nothing and claims nothing.
    pub asker: &'a WorkerId,
    /// What was seen to move, and when.
    pub observer: &'a LeaseObserver,
    /// The moment to judge by.
    pub now: Moment,
    /// The same moment in milliseconds since the Unix epoch, to compare with times in rows.
    pub wall_ms: u64,
    /// From the first look to `now`; zero if there was only one look.
    pub watched_for: Duration,
    /// The lease rows at the first look.
    pub earlier: &'a [Lease],
    /// The lease rows at the last look.
    pub leases: &'a [Lease],
    /// Lease rows that cannot be read.
    pub bad_rows: &'a [BadRow],
    /// The row that names the leader, if there is one.
    pub leader: Option<&'a LeaderRow>,
    /// The stream's shards, if the stream is known.
    pub shards: Option<ShardList<'a>>,
    /// Whether the first sync was complete.
    pub is_bootstrapped: bool,
    /// How workers are configured; `max_leases` is replaced by each worker's own.
    pub limits: PlanLimits,
    /// The lease duration of owners that have not registered.
    pub lease_duration: Duration,
}

impl<'a> Evidence<'a> {
    /// Workers that are alive and not shutting down.
    pub(super) fn alive(&self) -> BTreeSet<WorkerId> {
        alive_workers(self.observer, self.now)
    }

    pub(super) fn outlook<'b>(
        &'b self,
        me: &'b WorkerId,
        alive: &'b BTreeSet<WorkerId>,
    ) -> Outlook<'b> {
        Outlook {
            me,
            observer: self.observer,
            alive,
            lease_duration: self.lease_duration,
            now: self.now,
        }
    }

    /// The lease rows as `me` would see them.
    pub(super) fn view_of(&self, me: &WorkerId) -> Vec<ObservedLease> {
        self.outlook(me, &self.alive())
            .leases_if_running(self.leases.iter())
    }

    /// Whether any worker could take a lease: a registered one that is alive, or a KCL's, which
    /// shows by its rows.
    pub(super) fn is_anybody_alive(&self) -> bool {
        let alive = self.alive();
        let registered: Vec<WorkerRow> = self
            .observer
            .workers(self.now)
            .map(|(row, _)| row.clone())
            .collect();
        !alive.is_empty()
            || self
                .outlook(self.asker, &alive)
                .foreign(self.leases, &registered)
                .is_some()
    }

    /// The leader, if it was not seen dead.
    pub(super) fn live_leader(&self) -> Option<&'a WorkerId> {
        let alive = self.alive();
        let (leader, _) = self.leader?.holder.as_ref()?;
        alive.contains(leader).then_some(leader)
    }

    pub(super) fn unreadable(&self, shard: &ShardId) -> Option<&'a str> {
        let mut bad_rows = self.bad_rows.iter();
        let bad = bad_rows
            .find(|bad| LeaseKey::new(&bad.key).is_ok_and(|key| key.shard_id() == *shard))?;
        Some(&bad.problem)
    }

    /// Whether the checkpoint moved between the two looks.
    pub(super) fn has_advanced(&self, row: &Lease) -> Option<bool> {
        let earlier = self.earlier.iter().find(|earlier| earlier.key == row.key)?;
        (!self.watched_for.is_zero()).then(|| earlier.checkpoint != row.checkpoint)
    }

    pub(super) fn claim(&self, row: &Lease, is_fresh: bool) -> Option<Claim> {
        let waited = self.observer.claimed_for(row, self.now);
        row.claimant.clone().map(|by| Claim {
            by,
            waited,
            is_fresh,
        })
    }

    pub(super) fn holder(&self, row: &Lease) -> Option<Holder> {
        let worker = row.owner.clone()?;
        let registered = self
            .observer
            .workers(self.now)
            .find(|(row, _)| row.worker == worker)
            .map(|(row, _)| row);
        let pulse = self.observer.pulse(row, self.now, self.lease_duration)?;
        Some(Holder {
            worker,
            run: registered.map(|row| row.incarnation.clone()),
            silent: self.observer.idle_for(row, self.now),
            pulse,
            is_leaving: registered.is_some_and(|row| row.is_draining),
            cannot_write: registered.and_then(|row| row.cannot_write.clone()),
        })
    }
}
