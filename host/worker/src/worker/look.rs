//! What a worker sees of the fleet, and when it looks at the leases again.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use shardmill_core::fleet::{FleetRows, Leadership, Service, is_spare, pace};
use shardmill_core::lease::{Checkpoint, Lease, LeaseObserver, Pulse, Standing, WorkerId};
use shardmill_core::plan::{
    ObservedLease, ObservedWorker, Outlook, alive_workers, observed_workers,
};
use shardmill_core::ports::LeaseListing;
use shardmill_core::stream::{LeaseKey, ShardId};
use shardmill_core::time::Moment;

use super::{PassError, Worker};

/// What a worker remembers from pass to pass.
#[derive(Default)]
pub(super) struct Observed {
    pub(super) observer: LeaseObserver,
    pub(super) leadership: Leadership,
    pub(super) fleet: FleetRows,
    /// The last listing of leases, and when it was asked for.
    pub(super) listing: Option<(LeaseListing, Moment)>,
    seen_bulletin: u64,
    pub(super) alive: BTreeSet<WorkerId>,
    late: BTreeSet<WorkerId>,
    /// Whether a lease is to be had soon: it names an owner that does not live, and has not expired
    /// yet, or it is free and kept for another who asked for it.
    awaits_lease: bool,
    must_look: bool,
    is_urgent: bool,
    /// When the leases are to be looked at again in any case.
    pub(super) look_at: Option<Moment>,
    /// When the fleet was last looked at.
    looked_at: Option<Moment>,
    /// When it was looked at for the first time.
    first_look: Option<Moment>,
}

impl Observed {
    /// Makes the next pass look at the leases, whatever the bulletin says.
    pub(super) fn look_soon(&mut self) {
        self.must_look = true;
    }

    /// Whether the fleet was looked at since `moment`: a host that heeds seldom does.
    pub(super) fn has_looked_since(&self, moment: Moment) -> bool {
        self.looked_at.is_some_and(|at| at >= moment)
    }

    /// The same, and the next pass is not only for errands.
    pub(super) fn look_at_once(&mut self) {
        (self.must_look, self.is_urgent) = (true, true);
    }

    /// Makes the next pass follow at once, for what a survey brought; it looks at the leases only
    /// if there is a reason to.
    pub(super) fn sync_at_once(&mut self) {
        self.is_urgent = true;
    }
}

impl Worker {
    /// Whether it is time to look at the fleet: between two looks, passes follow errands only.
    pub(super) fn is_look_due(&self) -> bool {
        let every = self.options.leases.scan_every.mul_f64(0.85);
        let now = self.ports.clock.now();
        self.observed.is_urgent
            || self
                .observed
                .looked_at
                .is_none_or(|at| now.since(at) >= every)
    }

    /// Reads the small rows, and the leases if there is reason to.
    ///
    /// Reasons: the bulletin was raised, a worker came, went or is late, the first sync ended,
    /// something ended here, an owner is dead, a free lease is kept for another, or nobody looked
    /// for a lease duration. The sooner after a crash its rows are looked at, the sooner they have
    /// stood still for a lease duration: checkpoints move them too. While a KCL shares the table,
    /// which raises no bulletin and may have few units to share, the leases are looked at in time,
    /// and never more often.
    pub(super) async fn look(&mut self) -> Result<bool, PassError> {
        let mut fleet = self.ports.coordinator.fleet().await?;
        let now = self.ports.clock.now();
        let waits_for_kcl = self.waits_beside_kcl(now);
        let observed = &mut self.observed;
        observed.observer.observe_workers(&fleet.workers, now);
        observed.leadership.observe(fleet.leader.as_ref(), now);
        let alive = alive_workers(&observed.observer, now);
        if observed.fleet.is_bootstrapped() {
            // A read may be stale, and this is never unsaid.
            fleet.stream = observed.fleet.stream.clone();
        }
        let late = late_workers(&observed.observer, now);
        let listed_at = observed.listing.as_ref().map(|(_, at)| *at);
        let is_due = observed.must_look
            || fleet.bulletin != observed.seen_bulletin
            || observed.awaits_lease
            || alive != observed.alive
            || !late.is_subset(&observed.late)
            // Some leases wait for the end of the first sync.
            || fleet.is_bootstrapped() != observed.fleet.is_bootstrapped()
            || observed.look_at.is_some_and(|at| now >= at)
            || listed_at.is_none_or(|at| now.since(at) >= self.options.leases.duration);
        (observed.looked_at, observed.is_urgent) = (Some(now), false);
        observed.seen_bulletin = fleet.bulletin;
        observed.alive = alive;
        observed.late = late;
        observed.fleet = fleet;
        self.observed.must_look |= is_due;
        self.observed.first_look.get_or_insert(now);
        if !self.observed.must_look || waits_for_kcl || self.is_spare() {
            return Ok(false);
        }
        self.list_leases(now).await?;
        (self.observed.must_look, self.observed.look_at) = (false, None);
        Ok(true)
    }

    /// Whether this host waits for a leader's errands though there is no such leader yet, for at
    /// most a lease duration from its first look on.
    pub(super) fn is_spare(&self) -> bool {
        let Observed {
            leadership,
            alive,
            first_look,
            ..
        } = &self.observed;
        let is_served = leadership.service().is_some_and(Service::has_deputies);
        let leads = leadership.is_mine(&self.options.worker, &self.run);
        let Some(first_look) = *first_look else {
            return false;
        };
        let is_new = self.ports.clock.now().since(first_look) < self.options.leases.duration;
        is_new && !is_served && !leads && is_spare(&self.options.worker, alive)
    }

    /// Whether it is too soon after the last scan for another one, beside a KCL on a table that may
    /// be provisioned.
    fn waits_beside_kcl(&self, now: Moment) -> bool {
        let Some((listing, at)) = &self.observed.listing else {
            return false;
        };
        let scanning = match self.observed.leadership.service() {
            Some(service) => (service.deputies.len() + 1).min(service.hosts),
            None => self.observed.alive.len(),
        };
        let every =
            pace::scan_every_beside_kcl(listing.bytes, scanning, self.options.leases.duration);
        // Hosts must not scan together for ever.
        let is_known = !listing.leases.is_empty();
        self.renews_rows()
            && is_known
            && now.since(*at) < every.mul_f64(1.0 + fastrand::f64() / 5.0)
    }

    async fn list_leases(&mut self, now: Moment) -> Result<(), PassError> {
        let listing = self.ports.store.list().await?;
        refuse_multi_stream(&listing)?;
        for bad in &listing.bad_rows {
            tracing::warn!(
                key = bad.key,
                problem = bad.problem,
                "a row of the lease table cannot be read, leaving it alone"
            );
        }
        self.observed
            .observer
            .observe(&listing.leases, self.ports.clock.now());
        self.observed.awaits_lease = self.awaits_lease(&listing);
        self.verify_held(&listing);
        self.look_out_for_kcl(&listing);
        self.observed.listing = Some((listing, now));
        self.heeding.set_heir(false);
        Ok(())
    }

    fn awaits_lease(&self, listing: &LeaseListing) -> bool {
        let (me, outlook) = (&self.options.worker, self.outlook());
        let is_dead = |owner: &WorkerId| owner != me && !self.observed.alive.contains(owner);
        let awaited = |lease: &Lease| {
            let seen = outlook.lease(lease, false, false);
            match &lease.owner {
                Some(owner) => is_dead(owner) && seen.standing == Standing::Held,
                None => seen.is_claim_fresh && lease.claimant.as_ref() != Some(me),
            }
        };
        listing
            .leases
            .iter()
            .any(|lease| !lease.is_finished() && awaited(lease))
    }

    /// Reads all rows consistently, and after that each row that should be there if the listing was
    /// torn.
    ///
    /// A listing is not of one moment: it may show a shard as ended and miss the child whose row
    /// was made before that end. A child's other child would then look as if all its parents were
    /// done. Rows are made before the parent's end is written, so a row that is missing from this
    /// listing and from a read after it was removed for good.
    pub(super) async fn look_closely(&mut self) -> Result<(), PassError> {
        let now = self.ports.clock.now();
        let mut listing = self.ports.store.list_consistently().await?;
        let listed: BTreeSet<ShardId> = listing
            .leases
            .iter()
            .map(|lease| lease.key.shard_id())
            .collect();
        let orphans = listing
            .leases
            .iter()
            .filter(|lease| is_orphan(lease, &listed));
        let missing: BTreeSet<ShardId> = orphans
            .flat_map(|lease| lease.parents.iter())
            .filter(|parent| !listed.contains(parent))
            .cloned()
            .collect();
        for parent in missing {
            listing
                .leases
                .extend(self.ports.store.get(&LeaseKey::of_shard(&parent)).await?);
        }
        self.observed
            .observer
            .observe(&listing.leases, self.ports.clock.now());
        self.observed.listing = Some((listing, now));
        Ok(())
    }

    /// Shards that have a row in the last listing.
    pub(super) fn listed_shards(&self) -> BTreeSet<ShardId> {
        let rows = self
            .observed
            .listing
            .as_ref()
            .map(|(listing, _)| &listing.leases);
        rows.into_iter()
            .flatten()
            .map(|lease| lease.key.shard_id())
            .collect()
    }

    /// A held lease whose row shows another owner, or that has no row, is looked into by its
    /// keeper. The listing may be stale, so it decides nothing.
    fn verify_held(&self, listing: &LeaseListing) {
        let mine = |lease: &&Lease| lease.owner.as_ref() == Some(&self.options.worker);
        let still_mine: BTreeSet<_> = listing
            .leases
            .iter()
            .filter(mine)
            .map(|lease| &lease.key)
            .collect();
        for (key, held) in &self.held {
            if !still_mine.contains(key) {
                held.keeper.verify();
            }
        }
    }

    /// An owner that is not registered is a KCL's worker, which judges us by our rows: they are
    /// renewed while it is there.
    fn look_out_for_kcl(&mut self, listing: &LeaseListing) {
        let now = self.ports.clock.now();
        let foreign = self
            .outlook()
            .foreign(&listing.leases, &self.observed.fleet.workers);
        let owner = foreign.and_then(|lease| lease.owner.clone());
        if owner.is_some() {
            self.kcl.saw_foreign(now);
        }
        // Whoever leads looks far more often than a host that heeds, and goes by its own eyes.
        let leadership = &self.observed.leadership;
        let is_told = !leadership.is_mine(&self.options.worker, &self.run)
            && leadership
                .service()
                .is_some_and(|service| service.is_beside_kcl);
        let is_shared = is_told || self.kcl.is_shared(now, self.options.leases.duration);
        match (
            self.renews_rows.swap(is_shared, Ordering::Relaxed),
            is_shared,
        ) {
            (false, true) => tracing::warn!(
                owner = owner.as_ref().map(WorkerId::as_str),
                "a worker that is not shardmill's shares the lease table: renewing each lease \
                    from now on; set leases.shared-with-kcl to do so from the start"
            ),
            (true, false) => tracing::info!(
                "no other worker than shardmill's has moved a lease for a long time: the host's \
                    heartbeat holds its leases again"
            ),
            (true, true) | (false, false) => {}
        }
    }

    pub(super) fn observed_leases(&mut self) -> Vec<ObservedLease> {
        let now = self.ports.clock.now();
        self.avoided.retain(|_, until| *until > now);
        let outlook = Outlook {
            now,
            ..self.outlook()
        };
        let observe = |lease: &Lease| {
            outlook.lease(
                lease,
                self.held.contains_key(&lease.key),
                self.avoided.contains_key(&lease.key),
            )
        };
        let rows = self
            .observed
            .listing
            .as_ref()
            .map(|(listing, _)| &listing.leases);
        rows.into_iter().flatten().map(observe).collect()
    }

    pub(super) fn observed_workers(&self) -> Vec<ObservedWorker> {
        observed_workers(&self.observed.observer, self.ports.clock.now())
    }

    fn outlook(&self) -> Outlook<'_> {
        Outlook {
            me: &self.options.worker,
            observer: &self.observed.observer,
            alive: &self.observed.alive,
            lease_duration: self.options.leases.duration,
            now: self.ports.clock.now(),
        }
    }
}

/// Workers that should have beaten by now.
fn late_workers(observer: &LeaseObserver, now: Moment) -> BTreeSet<WorkerId> {
    let ids = observer.workers(now).map(|(row, _)| &row.worker);
    ids.filter(|id| observer.worker_pulse(id, now).is_some_and(Pulse::is_late))
        .cloned()
        .collect()
}

/// A table that a KCL keeps in multi-stream mode is none to take from: shards of two streams have
/// the same ids.
pub(super) fn refuse_multi_stream(listing: &LeaseListing) -> Result<(), PassError> {
    match listing
        .leases
        .iter()
        .find(|lease| lease.key.stream_prefix().is_some())
    {
        Some(lease) => Err(PassError::MultiStream(lease.key.clone())),
        None => Ok(()),
    }
}

/// A lease that was never started, and a parent of which has no row.
pub(super) fn is_orphan(lease: &Lease, listed: &BTreeSet<ShardId>) -> bool {
    let is_started = matches!(lease.checkpoint, Checkpoint::At(_) | Checkpoint::ShardEnd);
    !is_started && lease.parents.iter().any(|parent| !listed.contains(parent))
}
