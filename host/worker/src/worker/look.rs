//! What a worker sees of the fleet, and when it looks at the leases again.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shardmill_core::fleet::{FleetRows, Leadership};
use shardmill_core::lease::{Checkpoint, Lease, LeaseObserver, Standing, WorkerId};
use shardmill_core::plan::{ObservedLease, ObservedWorker};
use shardmill_core::ports::LeaseListing;
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{LeaseKey, ShardId};
use shardmill_core::time::Moment;

use super::{PassError, Worker};

/// A claim waits this many lease durations for its owner before it is void: an owner finishes a batch in that time, or
/// is stuck in it and will be for longer.
const CLAIM_PATIENCE_LEASES: u32 = 2;

/// What a worker remembers from pass to pass.
#[derive(Default)]
pub(super) struct Observed {
    pub(super) observer: LeaseObserver,
    pub(super) leadership: Leadership,
    pub(super) fleet: FleetRows,
    /// The last listing of leases, and when it was asked for.
    pub(super) listing: Option<(LeaseListing, Moment)>,
    seen_bulletin: u64,
    alive: BTreeSet<WorkerId>,
    must_look: bool,
}

impl Observed {
    /// Makes the next pass look at the leases, whatever the bulletin says.
    pub(super) fn look_soon(&mut self) {
        self.must_look = true;
    }
}

impl Worker {
    /// Reads the small rows, and the leases if there is reason to.
    ///
    /// Reasons: the bulletin was raised, a worker came or went, something ended here, or nobody looked for a lease
    /// duration. While a KCL shares the table, which raises no bulletin, every pass looks.
    pub(super) async fn look(&mut self) -> Result<bool, PassError> {
        let fleet = self.ports.coordinator.fleet().await?;
        let now = self.ports.clock.now();
        let observed = &mut self.observed;
        observed.observer.observe_workers(&fleet.workers, now);
        observed.leadership.observe(fleet.leader.as_ref(), now);
        let alive: BTreeSet<WorkerId> = observed
            .observer
            .workers(now)
            .filter(|(row, silent)| *silent <= row.lease_duration && !row.is_draining)
            .map(|(row, _)| row.worker.clone())
            .collect();
        let listed_at = observed.listing.as_ref().map(|(_, at)| *at);
        let is_due = observed.must_look
            || fleet.bulletin != observed.seen_bulletin
            || alive != observed.alive
            || listed_at.is_none_or(|at| now.since(at) >= self.options.leases.duration);
        observed.seen_bulletin = fleet.bulletin;
        observed.alive = alive;
        observed.fleet = fleet;
        if !is_due && !self.renews_rows() {
            return Ok(false);
        }
        self.observed.must_look = true;
        self.list_leases(now).await?;
        self.observed.must_look = false;
        Ok(true)
    }

    async fn list_leases(&mut self, now: Moment) -> Result<(), PassError> {
        let listing = self.ports.store.list().await?;
        for bad in &listing.bad_rows {
            tracing::warn!(
                key = bad.key,
                problem = bad.problem,
                "a row of the lease table cannot be read, leaving it alone"
            );
        }
        self.observed.observer.observe(&listing.leases, self.ports.clock.now());
        self.verify_held(&listing);
        self.look_out_for_kcl(&listing);
        self.observed.listing = Some((listing, now));
        Ok(())
    }

    /// Reads all rows consistently, and after that each row that should be there if the listing was torn.
    ///
    /// A listing is not of one moment: it may show a shard as ended and miss the child whose row was made before that
    /// end. A child's other child would then look as if all its parents were done. Rows are made before the parent's
    /// end is written, so a row that is missing from this listing and from a read after it was removed for good.
    pub(super) async fn look_closely(&mut self) -> Result<(), PassError> {
        let now = self.ports.clock.now();
        let mut listing = self.ports.store.list_consistently().await?;
        let listed: BTreeSet<ShardId> = listing.leases.iter().map(|lease| lease.key.shard_id()).collect();
        let orphans = listing.leases.iter().filter(|lease| is_orphan(lease, &listed));
        let missing: BTreeSet<ShardId> =
            orphans.flat_map(|lease| lease.parents.iter()).filter(|parent| !listed.contains(parent)).cloned().collect();
        for parent in missing {
            listing.leases.extend(self.ports.store.get(&LeaseKey::of_shard(&parent)).await?);
        }
        self.observed.observer.observe(&listing.leases, self.ports.clock.now());
        self.observed.listing = Some((listing, now));
        Ok(())
    }

    /// Shards that have a row in the last listing.
    pub(super) fn listed_shards(&self) -> BTreeSet<ShardId> {
        let rows = self.observed.listing.as_ref().map(|(listing, _)| &listing.leases);
        rows.into_iter().flatten().map(|lease| lease.key.shard_id()).collect()
    }

    /// A held lease whose row shows another owner, or that has no row, is looked into by its keeper. The listing may be
    /// stale, so it decides nothing.
    fn verify_held(&self, listing: &LeaseListing) {
        let mine = |lease: &&Lease| lease.owner.as_ref() == Some(&self.options.worker);
        let still_mine: BTreeSet<_> = listing.leases.iter().filter(mine).map(|lease| &lease.key).collect();
        for (key, held) in &self.held {
            if !still_mine.contains(key) {
                held.keeper.verify();
            }
        }
    }

    /// An owner that is not registered is a KCL's worker, which judges us by our rows: from now on they are renewed.
    fn look_out_for_kcl(&self, listing: &LeaseListing) {
        if self.renews_rows() {
            return;
        }
        let registered: BTreeSet<&WorkerId> = self.observed.fleet.workers.iter().map(|row| &row.worker).collect();
        let now = self.ports.clock.now();
        let foreign = listing.leases.iter().find(|lease| {
            lease.owner.as_ref().is_some_and(|owner| *owner != self.options.worker && !registered.contains(owner))
                && !lease.is_finished()
                && self.has_moved_since_first_seen(lease, now)
        });
        if let Some(lease) = foreign {
            let owner = lease.owner.as_ref().map(WorkerId::as_str);
            tracing::warn!(
                owner,
                "a worker that is not shardmill's shares the lease table: renewing each lease from now on; set \
                 leases.shared-with-kcl to do so from the start"
            );
            self.renews_rows.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the lease's counter was seen to move lately: a row left by a host long gone moves no more.
    fn has_moved_since_first_seen(&self, lease: &Lease, now: Moment) -> bool {
        self.observed.observer.has_counter_moved(lease, now, self.options.leases.duration)
    }

    pub(super) fn observed_leases(&mut self) -> Vec<ObservedLease> {
        let now = self.ports.clock.now();
        self.avoided.retain(|_, until| *until > now);
        let observed = &self.observed;
        let patience = self.options.leases.duration * CLAIM_PATIENCE_LEASES;
        let is_alive = |worker: &WorkerId| *worker == self.options.worker || observed.alive.contains(worker);
        let observe = |lease: &Lease| {
            let standing = observed.observer.standing(lease, now, self.options.leases.duration);
            ObservedLease {
                lease: lease.clone(),
                standing,
                idle_for: if standing == Standing::Held {
                    Duration::ZERO
                } else {
                    observed.observer.idle_for(lease, now)
                },
                is_mine: self.held.contains_key(&lease.key),
                is_claim_fresh: lease.claimant.as_ref().is_some_and(is_alive)
                    && observed.observer.claimed_for(lease, now) < patience
                    || lease.claimant.is_some() && SeededBug::ClaimsNeverExpire.is_on(),
                is_avoided: self.avoided.contains_key(&lease.key),
            }
        };
        let rows = observed.listing.as_ref().map(|(listing, _)| &listing.leases);
        rows.into_iter().flatten().map(observe).collect()
    }

    pub(super) fn observed_workers(&self) -> Vec<ObservedWorker> {
        let now = self.ports.clock.now();
        let observe = |(row, silent): (&shardmill_core::fleet::WorkerRow, Duration)| ObservedWorker {
            id: row.worker.clone(),
            is_alive: silent <= row.lease_duration,
            is_draining: row.is_draining,
            max_leases: row.max_leases,
        };
        self.observed.observer.workers(now).map(observe).collect()
    }
}

/// A lease that was never started, and a parent of which has no row.
pub(super) fn is_orphan(lease: &Lease, listed: &BTreeSet<ShardId>) -> bool {
    let is_started = matches!(lease.checkpoint, Checkpoint::At(_) | Checkpoint::ShardEnd);
    !is_started && lease.parents.iter().any(|parent| !listed.contains(parent))
}
