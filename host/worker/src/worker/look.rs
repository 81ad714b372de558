//! What a worker sees of the fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shardmill_core::fleet::{FleetRows, Incarnation, Service, StreamRow, is_spare, pace};
use shardmill_core::lease::{Availability, Checkpoint, Lease, LeaseObserver, Pulse, WorkerId};
use shardmill_core::plan::{
    FINISHED_ROWS_STAY_LEASES, FleetView, OVERDUE_LEASES, ObservedLease, ObservedWorker, Outlook,
    PlanLimits, alive_workers, observed_workers,
};
use shardmill_core::ports::LeaseListing;
use shardmill_core::stream::{InitialPosition, LeaseKey, ShardId};
use shardmill_core::time::Moment;

use super::PassError;
use super::finished::FinishedRows;
use super::holdings::Holdings;
use super::kcl::KclSharing;
use super::next_look::NextLook;
use super::office::Office;
use super::rows::refuse_multi_stream;
use super::run::Run;
use super::sync::Sync;

/// Reads the tables, and remembers what they showed.
pub(super) struct Lookout {
    run: Arc<Run>,
    observer: LeaseObserver,
    finished: FinishedRows,
    /// The small rows, as of the last look.
    fleet: FleetRows,
    alive: BTreeSet<WorkerId>,
    listed: Option<Listed>,
    next: NextLook,
    kcl: KclSharing,
}

/// The last listing of leases.
struct Listed {
    rows: LeaseListing,
    /// When it was asked for.
    at: Moment,
    /// Whether a lease may be had soon: it names an owner that is not alive and has not expired
    /// yet, or it is free and kept for the host that claimed it.
    awaits_lease: bool,
}

impl Lookout {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            observer: LeaseObserver::default(),
            finished: FinishedRows::default(),
            fleet: FleetRows::default(),
            alive: BTreeSet::new(),
            listed: None,
            next: NextLook::default(),
            kcl: KclSharing::new(Arc::clone(&run)),
            run,
        }
    }

    /// When to look again.
    pub(super) fn next(&mut self) -> &mut NextLook {
        &mut self.next
    }

    /// Whether the fleet was looked at since `moment`: a host that heeds seldom does that.
    pub(super) fn has_looked_since(&self, moment: Moment) -> bool {
        self.next.has_looked_since(moment)
    }

    /// Whether it is time to look at the fleet: between two looks, passes only do errands.
    pub(super) fn is_look_due(&self) -> bool {
        let every = self.run.options.leases.scan_every.mul_f64(0.85);
        self.next.is_due(every, self.run.now())
    }

    pub(super) fn kcl(&self) -> &KclSharing {
        &self.kcl
    }

    /// Reads the small rows, and the leases if there is reason to. Returns whether it listed the
    /// leases.
    ///
    /// Reasons: the bulletin was raised, a worker came, went or is late, the first sync ended,
    /// something ended here, an owner is dead, a free lease is kept for another host, or this host
    /// did not list them for a lease duration. The sooner after a crash its rows are looked at, the
    /// sooner they have stood still for a lease duration: checkpoints move them too. A KCL raises
    /// no bulletin and may have few units to share, so beside one the leases are listed at regular
    /// times, and never more often.
    pub(super) async fn look(&mut self, office: &mut Office) -> Result<bool, PassError> {
        let fleet = self.run.ports.coordinator.fleet().await?;
        let waits_for_kcl = self.waits_beside_kcl(office);
        office.observe(fleet.leader.as_ref());
        self.take_in(fleet);
        if !self.next.must_list() || waits_for_kcl || self.is_spare(office) {
            return Ok(false);
        }
        self.list_leases(office).await?;
        self.next.listed();
        Ok(true)
    }

    fn take_in(&mut self, fleet: FleetRows) {
        let now = self.run.now();
        self.observer.observe_workers(&fleet.workers, now);
        let alive = alive_workers(&self.observer, now);
        let fleet = self.keep_end_of_first_sync(fleet);
        let is_listing_due = match &self.listed {
            Some(listed) => {
                listed.awaits_lease || now.since(listed.at) >= self.run.lease_duration()
            }
            None => true,
        };
        // Some leases wait for the end of the first sync.
        let has_first_sync_ended = fleet.is_bootstrapped() != self.fleet.is_bootstrapped();
        if is_listing_due || has_first_sync_ended || alive != self.alive {
            self.next.look_soon();
        }
        self.next
            .looked(fleet.bulletin, late_workers(&self.observer, now), now);
        self.alive = alive;
        self.fleet = fleet;
    }

    /// A read may be stale: once a row says that the first sync ended, no later one takes that
    /// back.
    fn keep_end_of_first_sync(&self, mut read: FleetRows) -> FleetRows {
        if self.fleet.is_bootstrapped() {
            read.stream.clone_from(&self.fleet.stream);
        }
        read
    }

    /// Whether this host waits for errands though there is no leader yet that leaves any. It does
    /// so for at most a lease duration from its first look.
    pub(super) fn is_spare(&self, office: &Office) -> bool {
        let Some(age) = self.next.since_first_look(self.run.now()) else {
            return false;
        };
        let is_served = office.service().is_some_and(Service::has_deputies);
        let is_new = age < self.run.lease_duration();
        is_new && !is_served && !office.is_mine() && is_spare(self.run.me(), &self.alive)
    }

    /// Whether it is too soon for another scan, beside a KCL on a table that may be provisioned.
    fn waits_beside_kcl(&self, office: &Office) -> bool {
        let Some(Listed { rows, at, .. }) = &self.listed else {
            return false;
        };
        let scanning = match office.service() {
            Some(service) => (service.deputies.len() + 1).min(service.hosts),
            None => self.alive.len(),
        };
        let every = pace::scan_every_beside_kcl(rows.bytes, scanning, self.run.lease_duration());
        self.kcl.renews_rows()
            && !rows.leases.is_empty()
            // Otherwise hosts that scanned together once would always do so.
            && self.run.now().since(*at) < every.mul_f64(1.0 + fastrand::f64() / 5.0)
    }

    async fn list_leases(&mut self, office: &Office) -> Result<(), PassError> {
        let asked_at = self.run.now();
        let rows = self.run.ports.store.list().await?;
        refuse_multi_stream(&rows)?;
        for bad in &rows.bad_rows {
            tracing::warn!(
                key = bad.key,
                problem = bad.problem,
                code = "row-unreadable",
                "a row of the lease table cannot be read, leaving it alone"
            );
        }
        self.observer.observe(&rows.leases, self.run.now());
        self.finished.observe(&rows.leases);
        let foreign = self.outlook().foreign(&rows.leases, &self.fleet.workers);
        let foreign = foreign.and_then(|lease| lease.owner.clone());
        self.kcl.judge(foreign.as_ref(), office);
        self.listed = Some(Listed {
            awaits_lease: self.awaits_lease(&rows.leases),
            rows,
            at: asked_at,
        });
        Ok(())
    }

    fn awaits_lease(&self, rows: &[Lease]) -> bool {
        let (me, outlook) = (self.run.me(), self.outlook());
        rows.iter().any(|row| {
            let seen = outlook.lease(row, false, false);
            let may_be_free_soon = match &row.owner {
                Some(owner) => {
                    let is_dead = owner != me && !self.alive.contains(owner);
                    is_dead && seen.availability == Availability::Held
                }
                None => seen.is_claim_fresh && row.claimant.as_ref() != Some(me),
            };
            !row.is_finished() && may_be_free_soon
        })
    }

    /// Reads all rows consistently, and then each row that should be there if the listing was torn.
    ///
    /// A listing is not of one moment: it may show a shard as ended and miss the child whose row
    /// was made before that end. A child's other child would then look as if all its parents were
    /// done. Rows are made before the parent's end is written, so a row that neither this listing
    /// nor a later read finds was removed for good.
    pub(super) async fn look_closely(&mut self) -> Result<(), PassError> {
        let asked_at = self.run.now();
        let store = &self.run.ports.store;
        let mut rows = store.list_consistently().await?;
        for parent in missing_parents(&rows.leases) {
            rows.leases
                .extend(store.get(&LeaseKey::of_shard(&parent)).await?);
        }
        self.observer.observe(&rows.leases, self.run.now());
        self.finished.observe(&rows.leases);
        self.listed = Some(Listed {
            awaits_lease: self
                .listed
                .as_ref()
                .is_some_and(|listed| listed.awaits_lease),
            rows,
            at: asked_at,
        });
        Ok(())
    }

    /// Whether the lease table was ever listed.
    pub(super) fn has_listed(&self) -> bool {
        self.listed.is_some()
    }

    /// The rows of the last listing of leases.
    pub(super) fn rows(&self) -> &[Lease] {
        self.listed
            .as_ref()
            .map_or(&[], |listed| &listed.rows.leases)
    }

    /// Shards that have a row in the last listing.
    pub(super) fn listed_shards(&self) -> BTreeSet<ShardId> {
        shards_of(self.rows())
    }

    /// The small rows, as they were last read.
    pub(super) fn fleet(&self) -> &FleetRows {
        &self.fleet
    }

    pub(super) fn observer(&self) -> &LeaseObserver {
        &self.observer
    }

    /// Workers that are alive and stay, as of the last look.
    pub(super) fn alive(&self) -> &BTreeSet<WorkerId> {
        &self.alive
    }

    /// Whether this worker was registered at the last look: a worker that was silent for long is
    /// removed, and its heart registers it again.
    pub(super) fn is_registered(&self) -> bool {
        let mut workers = self.fleet.workers.iter();
        workers.any(|row| row.worker == *self.run.me())
    }

    /// Takes in the fleet's rows without those of the workers.
    pub(super) fn read_board(&mut self, board: FleetRows) {
        let board = self.keep_end_of_first_sync(board);
        self.fleet = FleetRows {
            workers: std::mem::take(&mut self.fleet.workers),
            ..board
        };
    }

    /// Takes in all small rows, on a host that does not look at the leases.
    pub(super) fn read_fleet(&mut self, fleet: FleetRows) {
        self.observer
            .observe_workers(&fleet.workers, self.run.now());
        self.fleet = fleet;
    }

    /// This host wrote the stream's row.
    pub(super) fn wrote_stream(&mut self, row: StreamRow) {
        self.fleet.stream = Some(row);
    }

    /// Every row of the last listing, with what may be assumed of it.
    pub(super) fn leases(&self, holdings: &Holdings) -> Vec<ObservedLease> {
        let outlook = self.outlook();
        let mut leases = Vec::with_capacity(self.rows().len());
        for row in self.rows() {
            let mut seen = outlook.lease(row, holdings.has(&row.key), holdings.avoids(row));
            // The clock goes on while machines are suspended; a request on its way does not.
            seen.finished_for = seen.finished_for.min(self.finished.awake_for(&row.key));
            leases.push(seen);
        }
        leases
    }

    /// Every registered worker, with what may be assumed of it.
    pub(super) fn workers(&self) -> Vec<ObservedWorker> {
        observed_workers(&self.observer, self.run.now())
    }

    /// Workers that share the leases, this one included.
    pub(super) fn sharing_workers(&self) -> BTreeSet<WorkerId> {
        let mut sharing = alive_workers(&self.observer, self.run.now());
        sharing.insert(self.run.me().clone());
        sharing
    }

    /// The run of each registered worker.
    pub(super) fn runs(&self) -> BTreeMap<WorkerId, Incarnation> {
        let workers = self.observer.workers(self.run.now());
        workers
            .map(|(row, _)| (row.worker.clone(), row.incarnation.clone()))
            .collect()
    }

    /// What the planner decides on. `sync` is the list of shards, if this host leads and has one.
    pub(super) fn view<'a>(
        &'a self,
        leases: &'a [ObservedLease],
        workers: &'a [ObservedWorker],
        sync: Option<&'a Sync>,
    ) -> FleetView<'a> {
        FleetView {
            me: self.run.me(),
            leases,
            workers,
            shards: sync.map(Sync::shard_list),
            is_bootstrapped: self.fleet.is_bootstrapped(),
        }
    }

    /// What bounds a plan, for an application that begins at `initial_position`.
    pub(super) fn limits(&self, initial_position: InitialPosition) -> PlanLimits {
        let settings = &self.run.options.leases;
        PlanLimits {
            initial_position,
            max_leases: settings.max_leases,
            balance: settings.balance,
            shared_with_kcl: self.kcl.renews_rows(),
            overdue_after: settings.duration * OVERDUE_LEASES,
            finished_rows_stay: settings.duration * FINISHED_ROWS_STAY_LEASES,
        }
    }

    fn outlook(&self) -> Outlook<'_> {
        Outlook {
            me: self.run.me(),
            observer: &self.observer,
            alive: &self.alive,
            lease_duration: self.run.lease_duration(),
            now: self.run.now(),
        }
    }
}

/// Workers whose next beat is overdue.
fn late_workers(observer: &LeaseObserver, now: Moment) -> BTreeSet<WorkerId> {
    let workers = observer.workers(now);
    workers
        .map(|(row, _)| &row.worker)
        .filter(|id| observer.worker_pulse(id, now).is_some_and(Pulse::is_late))
        .cloned()
        .collect()
}

/// Parents without a row, of leases that were never started.
fn missing_parents(rows: &[Lease]) -> BTreeSet<ShardId> {
    let listed = shards_of(rows);
    let orphans = rows.iter().filter(|lease| is_orphan(lease, &listed));
    orphans
        .flat_map(|lease| lease.parents.iter())
        .filter(|parent| !listed.contains(parent))
        .cloned()
        .collect()
}

/// Whether a lease was never started and a parent of it has no row.
pub(super) fn is_orphan(lease: &Lease, listed: &BTreeSet<ShardId>) -> bool {
    let is_started = matches!(lease.checkpoint, Checkpoint::At(_) | Checkpoint::ShardEnd);
    !is_started && lease.parents.iter().any(|parent| !listed.contains(parent))
}

fn shards_of(rows: &[Lease]) -> BTreeSet<ShardId> {
    rows.iter().map(|lease| lease.key.shard_id()).collect()
}
