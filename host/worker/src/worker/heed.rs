//! Errands: what the leader left for this host, and the leases that it asked for. Each is followed
//! by reading its own row, where a host that watches would list all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::fleet::{Errand, FleetRows, Incarnation, Mail, Role, Task, pace};
use shardmill_core::lease::{Lease, LeaseCounter, WorkerId};
use shardmill_core::plan::{AtHand, CLAIM_PATIENCE_LEASES, Heeded, Plan, Step, heed, reclaim};
use shardmill_core::ports::StoreError;
use shardmill_core::stream::LeaseKey;
use shardmill_core::time::Moment;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{PassError, Worker};

/// Rows read at once: well below the DynamoDB client's connection pool.
const READS_MAX: usize = 16;
/// While a lease is on its way to or from another host, its row is read this often, so that its
/// shard rests only for a moment.
const ROW_LOOK: Duration = Duration::from_millis(200);

/// Writes tried for one errand: a table that does not take three in half a second has other
/// troubles, and the leader asks again.
const TRIES_MAX: u8 = 3;

/// The run and the beat of an owner as the leader saw them; `None` of one that is not registered.
type SeenBeat = Option<(Incarnation, u64)>;

/// What a host has to do, and when it last asked.
#[derive(Default)]
pub(super) struct Heeding {
    open: BTreeMap<LeaseKey, Open>,
    strays: BTreeMap<LeaseKey, Stray>,
    /// The number of the last mail that was heeded.
    heard: Option<u64>,
    mail_at: Option<Moment>,
    board_at: Option<Moment>,
    /// When the rows of all workers are to be read, while a version waits for this host's turn.
    fleet_look_at: Option<Moment>,
    /// When a host that heeds looks for itself again.
    own_look_at: Option<Moment>,
    /// What owners of the leases that are to be taken in this pass looked like to the leader.
    owners: HashMap<WorkerId, SeenBeat>,
    /// Whether this host is to look at all rows for leases of an earlier run.
    is_heir: bool,
}

/// A lease that this host does not serve, though its row may name it. Its heart would hold such a
/// one with nobody reading it, and in a large fleet its own look comes hours later.
struct Stray {
    /// The counter of the row that a take was sent for, which was not answered.
    taken_at: Option<LeaseCounter>,
    /// For so long such a take may still arrive.
    until: Moment,
    /// How often it was tried to serve it or to give it back, and when that may be tried again.
    attempts: u32,
    not_before: Moment,
}

/// An errand that is not over.
struct Open {
    errand: Errand,
    /// Writes that may still be tried.
    tries: u8,
    /// Then it is dropped: the leader asks again if there is still reason to.
    until: Moment,
}

impl Stray {
    fn new(taken_at: Option<LeaseCounter>, now: Moment) -> Self {
        Self {
            taken_at,
            until: now,
            attempts: 0,
            not_before: now,
        }
    }
}

impl Heeding {
    /// Whether `row`, an owner's, read consistently just now, shows what the leader saw; `None` if
    /// no leader said anything.
    pub(super) fn is_as_seen(
        &self,
        owner: &WorkerId,
        row: Option<(&Incarnation, u64)>,
    ) -> Option<bool> {
        let seen = self.owners.get(owner)?;
        Some(
            seen.as_ref()
                .map(|(incarnation, beat)| (incarnation, *beat))
                == row,
        )
    }

    /// Whether this host was ever left mail.
    pub(super) fn has_mail(&self) -> bool {
        self.heard.is_some()
    }

    /// Whether an earlier run of this worker, which did not sign off, may have left leases that no
    /// look has shown yet.
    pub(super) fn set_heir(&mut self, is_heir: bool) {
        self.is_heir = is_heir;
    }

    /// A take that was sent for a row with this counter was not answered.
    pub(super) fn follow_take(&mut self, seen: &Lease, lease_duration: Duration, now: Moment) {
        /// A request that its sender has given up arrives within its connection's life; one more
        /// lease duration is allowed for.
        const ARRIVES_WITHIN_LEASES: u32 = 2;
        let until = now + lease_duration * ARRIVES_WITHIN_LEASES;
        self.strays.insert(
            seen.key.clone(),
            Stray {
                until,
                ..Stray::new(Some(seen.counter), now)
            },
        );
    }

    /// A lease ended here, and its row may name this host still.
    pub(super) fn follow_lost(&mut self, key: LeaseKey, now: Moment) {
        self.strays.insert(key, Stray::new(None, now));
    }

    /// Leases that this host does not serve and whose rows may name it, each with the moment until
    /// which a take that was not answered may still arrive.
    pub(super) fn strays(&self) -> BTreeMap<LeaseKey, Moment> {
        self.strays
            .iter()
            .map(|(key, stray)| (key.clone(), stray.until))
            .collect()
    }

    fn is_following(&self) -> bool {
        !self.open.is_empty() || !self.strays.is_empty()
    }

    /// What this host was asked to do, or asks for itself.
    pub(super) fn admit(&mut self, errands: Vec<Errand>, lease_duration: Duration, now: Moment) {
        for errand in errands {
            let patience = match errand.task {
                Task::Claim { .. } => lease_duration * CLAIM_PATIENCE_LEASES,
                Task::Take { .. } | Task::Expect { .. } => lease_duration / 2,
            };
            self.open.insert(
                errand.key.clone(),
                Open {
                    errand,
                    tries: TRIES_MAX,
                    until: now + patience,
                },
            );
        }
    }
}

impl Worker {
    /// Whether this pass reads nothing but what was left for this host: it heeds, and need not look
    /// for itself yet.
    pub(super) fn only_heeds(&mut self) -> bool {
        let is_told_to_watch = self.observed.leadership.role(&self.options.worker) == Role::Watch;
        if is_told_to_watch && !self.is_spare() {
            self.heeding.own_look_at = None;
            return false;
        }
        if self.heeding.is_heir && !self.is_spare() {
            self.observed.look_at_once();
            return false;
        }
        let now = self.ports.clock.now();
        if self.heeding.own_look_at.is_none() {
            self.heeding.own_look_at = Some(now + self.own_look_wait());
        }
        self.heeding.own_look_at.is_some_and(|at| now < at)
    }

    /// A host that heeds begins to look for itself: at everything, whatever it has heard.
    pub(super) fn begins_own_look(&mut self) {
        if self.heeding.own_look_at.is_some() {
            self.heeding.own_look_at = Some(self.ports.clock.now() + self.own_look_wait());
            self.observed.look_soon();
        }
    }

    /// Makes the next pass of a host that heeds one that looks for itself.
    pub(super) fn look_for_itself(&mut self) {
        self.heeding.own_look_at = Some(self.ports.clock.now());
        self.observed.look_at_once();
    }

    fn own_look_wait(&self) -> Duration {
        let (hosts, leases) = self
            .observed
            .leadership
            .service()
            .map_or((1, 1), |told| (told.hosts, told.leases));
        // Hosts that started together must not look together.
        pace::own_look_every(hosts, leases, self.options.leases.duration)
            .mul_f64(0.75 + fastrand::f64() / 2.0)
    }

    /// A pass of a host that heeds. Returns how long to wait for the next one.
    pub(super) async fn heed(&mut self, stop: &CancellationToken) -> Result<Duration, PassError> {
        let heard = stop.run_until_cancelled(async {
            if self.read_board().await? {
                return Ok::<_, PassError>(true);
            }
            self.read_mail().await?;
            Ok(false)
        });
        let Some(heard) = heard.await else {
            return Ok(Duration::ZERO);
        };
        if heard? {
            // It leads now, and looks.
            return Ok(Duration::ZERO);
        }
        self.do_errands(stop).await?;
        self.status.update(|status| status.passes += 1);
        Ok(self.next_pass())
    }

    /// How long until something is to be read.
    pub(super) fn next_pass(&self) -> Duration {
        let scan_every = self.options.leases.scan_every;
        if self.heeding.is_following() {
            return ROW_LOOK.min(scan_every);
        }
        // Hosts started together must not look together for ever.
        scan_every.mul_f64(0.9 + fastrand::f64() * 0.2)
    }

    /// Reads what everybody is told, three times a lease duration. Returns whether this host leads
    /// from now on.
    async fn read_board(&mut self) -> Result<bool, PassError> {
        let now = self.ports.clock.now();
        let every = self
            .options
            .leases
            .duration
            .mul_f64(0.3 + fastrand::f64() / 30.0);
        let is_due = self
            .heeding
            .board_at
            .is_none_or(|at| now.since(at) >= every);
        if is_due {
            let board = self.ports.coordinator.board().await?;
            self.heeding.board_at = Some(now);
            let observed = &mut self.observed;
            observed
                .leadership
                .observe(board.leader.as_ref(), self.ports.clock.now());
            let FleetRows {
                workers, stream, ..
            } = std::mem::take(&mut observed.fleet);
            // A read may be stale, and a first sync that is over is never unsaid.
            let stream = stream
                .filter(|row| row.is_bootstrapped)
                .or(board.stream.clone());
            observed.fleet = FleetRows {
                workers,
                stream,
                ..board
            };
            self.heed_service();
            if self.campaign().await? {
                return Ok(true);
            }
        }
        let knows_fleet = self.read_fleet_in_turn(now).await?;
        self.share_versions_while_heeding(is_due, knows_fleet).await;
        Ok(false)
    }

    fn heed_service(&self) {
        let Some(service) = self.observed.leadership.service() else {
            return;
        };
        let is_shared = service.is_beside_kcl || self.options.leases.shared_with_kcl;
        self.renews_rows
            .store(is_shared, std::sync::atomic::Ordering::Relaxed);
        self.status.update(|status| {
            status.workers = service.hosts;
            status.lease_rows = service.leases;
        });
    }

    /// While a version waits for this host's turn, the rows of all workers say when it comes.
    async fn read_fleet_in_turn(&mut self, now: Moment) -> Result<bool, PassError> {
        if !self.waits_for_turn() {
            if self.heeding.fleet_look_at.take().is_some() {
                // Nobody tells this host any more what the others run.
                self.forget_fleet_versions();
            }
            return Ok(false);
        }
        let hosts = self
            .observed
            .leadership
            .service()
            .map_or(1, |service| service.hosts);
        let every = pace::fleet_look_every(hosts, self.options.leases.scan_every);
        // All hosts are given a version at the same time.
        let look_at = *self
            .heeding
            .fleet_look_at
            .get_or_insert_with(|| now + every.mul_f64(fastrand::f64()));
        if now < look_at {
            return Ok(false);
        }
        self.observed.fleet = self.ports.coordinator.fleet().await?;
        self.heeding.fleet_look_at = Some(now + every);
        let now = self.ports.clock.now();
        self.observed
            .observer
            .observe_workers(&self.observed.fleet.workers, now);
        Ok(true)
    }

    /// Reads what the leader left, as often as a watching host looks at the fleet.
    pub(super) async fn read_mail(&mut self) -> Result<(), PassError> {
        let now = self.ports.clock.now();
        let every = self.options.leases.scan_every.mul_f64(0.85);
        if self.heeding.mail_at.is_some_and(|at| now.since(at) < every) {
            return Ok(());
        }
        let mail = self.ports.coordinator.mail(&self.options.worker).await?;
        self.heeding.mail_at = Some(now);
        if let Some(Mail {
            to,
            number,
            errands,
        }) = mail
            && to == self.run
            && self.heeding.heard != Some(number)
        {
            self.heeding.heard = Some(number);
            self.heeding
                .admit(errands, self.options.leases.duration, now);
        }
        Ok(())
    }

    /// Reads the rows of all errands and strays, and does what is to be done now.
    pub(super) async fn do_errands(&mut self, stop: &CancellationToken) -> Result<(), PassError> {
        if !self.heeding.is_following() {
            return Ok(());
        }
        let followed: BTreeSet<&LeaseKey> = self
            .heeding
            .open
            .keys()
            .chain(self.heeding.strays.keys())
            .collect();
        let keys: Vec<LeaseKey> = followed.into_iter().cloned().collect();
        let Some(rows) = stop.run_until_cancelled(self.read_rows(keys)).await else {
            return Ok(());
        };
        let decided = self.decide_errands(rows?);
        if decided.steps.is_empty() {
            return Ok(());
        }
        // Whoever has a part in an errand reads the row, so that nobody else need look.
        let had_news = self.has_news;
        let acted = self.act(decided, stop).await;
        self.has_news = had_news;
        self.heeding.owners.clear();
        acted.map(drop)
    }

    pub(super) async fn read_rows(
        &self,
        keys: Vec<LeaseKey>,
    ) -> Result<Vec<(LeaseKey, Option<Lease>)>, StoreError> {
        let mut rows = Vec::with_capacity(keys.len());
        for wave in keys.chunks(READS_MAX) {
            let mut reads = JoinSet::new();
            for key in wave.iter().cloned() {
                let store = Arc::clone(&self.ports.store);
                reads.spawn(self.ports.freezer.clone().guard(async move {
                    let row = store.get(&key).await;
                    row.map(|row| (key, row))
                }));
            }
            while let Some(read) = reads.join_next().await {
                rows.push(read.map_err(|error| StoreError::Unknown {
                    message: error.to_string(),
                })??);
            }
        }
        Ok(rows)
    }

    fn decide_errands(&mut self, rows: Vec<(LeaseKey, Option<Lease>)>) -> Plan {
        self.heeding.owners.clear();
        let mut room = self
            .options
            .leases
            .max_leases
            .saturating_sub(self.held.len());
        let mut decided = Plan::default();
        for (key, row) in rows {
            let step = match self.decide_stray(&key, row.as_ref(), room > 0) {
                Some(step) => Some(step),
                None => self.decide_errand(&key, row.as_ref(), room > 0),
            };
            if let Some(step) = step {
                room = room.saturating_sub(usize::from(matches!(
                    step,
                    Step::Take { .. } | Step::Claim { .. }
                )));
                decided.steps.push(step);
            }
        }
        decided
    }

    /// What is followed until its row names another: it is this host's alone to serve or give back.
    fn decide_stray(
        &mut self,
        key: &LeaseKey,
        row: Option<&Lease>,
        has_room: bool,
    ) -> Option<Step> {
        let now = self.ports.clock.now();
        let taken_at = self.heeding.strays.get(key)?.taken_at;
        let decided = reclaim(row, taken_at, self.at_hand(key, has_room));
        let stray = self.heeding.strays.get_mut(key)?;
        match decided {
            Heeded::Do(step) if now >= stray.not_before => {
                stray.attempts += 1;
                let wait = self.options.backoff.delay(stray.attempts, fastrand::f64());
                stray.not_before = now + wait.min(self.options.leases.duration);
                return Some(step);
            }
            Heeded::Do(_) => {}
            Heeded::Wait if now < stray.until => {}
            Heeded::Wait | Heeded::Done => {
                self.heeding.strays.remove(key);
            }
        }
        None
    }

    fn decide_errand(
        &mut self,
        key: &LeaseKey,
        row: Option<&Lease>,
        has_room: bool,
    ) -> Option<Step> {
        let (now, at_hand) = (self.ports.clock.now(), self.at_hand(key, has_room));
        let heeded = heed(&self.heeding.open.get(key)?.errand, row, at_hand);
        let open = self.heeding.open.get_mut(key)?;
        let mut is_over = heeded == Heeded::Done || now >= open.until;
        let mut decided = None;
        if let Heeded::Do(step) = heeded {
            let is_write = !matches!(step, Step::HandOver { .. });
            is_over |= is_write && open.tries == 0;
            open.tries = open.tries.saturating_sub(u8::from(is_write));
            // Only for a step that is carried out now: what a leader saw of an owner once says
            // nothing in a later pass.
            if !is_over
                && let Task::Take {
                    owner: Some(owner), ..
                } = &open.errand.task
            {
                self.heeding
                    .owners
                    .insert(owner.id.clone(), owner.beat.clone());
            }
            decided = (!is_over).then_some(step);
        }
        if is_over {
            self.heeding.open.remove(key);
        }
        decided
    }

    fn at_hand(&self, key: &LeaseKey, has_room: bool) -> AtHand<'_> {
        AtHand {
            me: &self.options.worker,
            is_mine: self.held.contains_key(key),
            is_avoided: self
                .avoided
                .get(key)
                .is_some_and(|until| *until > self.ports.clock.now()),
            has_room,
        }
    }
}
