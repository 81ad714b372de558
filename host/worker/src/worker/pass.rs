//! One pass: look, lead, plan, act.

use std::collections::BTreeSet;
use std::time::Duration;

use shardmill_core::fleet::{Errand, Task};
use shardmill_core::plan::{
    FleetView, OVERDUE_LEASES, ObservedLease, ObservedWorker, Plan, PlanLimits, Reason, ShardList,
    Step, plan, unowned,
};
use shardmill_core::ports::StoreError;
use shardmill_core::seeded_bug::SeededBug;
use tokio_util::sync::CancellationToken;

use super::gauges::{forget_unowned, show_unowned};
use super::lead::Sync;
use super::look::is_orphan;
use super::{PassError, Worker};

/// A pass that went well.
pub(super) struct Passed {
    /// For the next one.
    pub(super) wait: Duration,
    /// Whether it looked at the fleet or its mail: one that followed errands only says nothing of
    /// looks that failed before.
    pub(super) has_looked: bool,
}

/// A plan, with what it was decided on.
struct Decided {
    leases: Vec<ObservedLease>,
    plan: Plan,
    /// The listing that it takes as complete.
    sync: Option<Sync>,
}

impl Worker {
    /// Looks at the fleet, decides, acts.
    ///
    /// `stop` cuts the looking short, and the acting between two waves of writes: a take that was
    /// sent is followed by its holding, so that the lease is given back on the way out.
    pub(super) async fn pass(&mut self, stop: &CancellationToken) -> Result<Passed, PassError> {
        self.announce_news().await;
        if self.only_heeds() {
            return Ok(Passed {
                wait: self.heed(stop).await?,
                has_looked: true,
            });
        }
        if !self.is_look_due() {
            self.do_errands(stop).await?;
            return Ok(Passed {
                wait: self.next_pass(),
                has_looked: false,
            });
        }
        Ok(Passed {
            wait: self.look_and_act(stop).await?,
            has_looked: true,
        })
    }

    async fn look_and_act(&mut self, stop: &CancellationToken) -> Result<Duration, PassError> {
        self.begins_own_look();
        let looked = stop.run_until_cancelled(async {
            let has_looked = self.look().await?;
            if self.is_spare() {
                return Ok((false, None));
            }
            if self.is_deputy() {
                self.read_mail().await?;
            }
            let sync = if self.campaign().await? {
                self.sync().await?
            } else {
                None
            };
            Ok::<_, PassError>((has_looked, sync))
        });
        let Some(looked) = looked.await else {
            return Ok(Duration::ZERO);
        };
        let (has_looked, sync) = looked?;
        self.share_versions().await;
        if (has_looked || sync.is_some()) && !self.decide_and_act(sync, stop).await? {
            return Ok(Duration::ZERO);
        }
        self.do_errands(stop).await?;
        self.refresh_leadership().await?;
        let offered = self.ports.versions.borrow().digest().as_str().to_owned();
        self.status.update(|status| {
            status.passes += 1;
            status.plugin_digest = Some(offered);
        });
        Ok(self.next_pass())
    }

    /// Returns whether the pass may go on: not if this host is to stop, nor with rows just created,
    /// which the next pass takes at once.
    async fn decide_and_act(
        &mut self,
        sync: Option<Sync>,
        stop: &CancellationToken,
    ) -> Result<bool, PassError> {
        let Decided { leases, plan, sync } = self.decide_surely(sync).await?;
        self.show(&leases, &plan);
        self.follow_claims(&plan);
        let acted = self.act(plan, stop).await;
        if acted.is_err() {
            self.sync_failed();
        }
        let has_created = acted?;
        if stop.is_cancelled() {
            // Not all of the plan may be done, so that no sync is complete.
            return Ok(false);
        }
        if sync.is_some() {
            self.sync_done().await?;
        }
        self.announce_news().await;
        if has_created {
            self.observed.look_at_once();
            return Ok(false);
        }
        self.leave_errands(&leases).await?;
        Ok(true)
    }

    /// Decides, and where that rests on what may be stale, looks again and decides anew.
    async fn decide_surely(&mut self, mut sync: Option<Sync>) -> Result<Decided, PassError> {
        let mut leases = self.observed_leases();
        let mut plan = self.decide(&leases, sync.as_ref());
        let lacks_start =
            |sync: &Sync| !sync.knows_before_start && starts_closed_shards(&plan, sync);
        if sync.as_ref().is_some_and(lacks_start) {
            self.ask_before_start();
            sync = None;
            plan = self.decide(&leases, None);
        }
        if self.needs_closer_look(&plan) && !SeededBug::TrustsStaleListing.is_on() {
            self.look_closely().await?;
            leases = self.observed_leases();
            plan = self.decide(&leases, sync.as_ref());
        }
        if let Some(aged) = &sync
            && !self.still_leads(aged).await?
        {
            sync = None;
            plan = self.decide(&leases, None);
        }
        Ok(Decided { leases, plan, sync })
    }

    fn decide(&self, leases: &[ObservedLease], sync: Option<&Sync>) -> Plan {
        let mut decided = plan(
            &self.view(leases, &self.observed_workers(), sync),
            &self.limits(),
        );
        if !self.is_registered() || !self.is_heart_alive() {
            // Whoever began meanwhile would see rows move under an unknown owner, and take them as
            // a KCL's, without asking.
            decided
                .steps
                .retain(|step| !matches!(step, Step::Take { .. }));
        }
        decided
    }

    /// Whether this worker was registered at the last look: one that was silent for long is
    /// removed, and its heart registers again.
    fn is_registered(&self) -> bool {
        self.observed
            .fleet
            .workers
            .iter()
            .any(|row| row.worker == self.options.worker)
    }

    /// Whether the last heartbeat holds. If not, what the last look shows may be too old: a host
    /// that was suspended is removed, and hears of that from its next heartbeat. Beside a KCL rows
    /// are renewed, and no heartbeat holds anything.
    fn is_heart_alive(&self) -> bool {
        let now = self.ports.clock.now();
        self.renews_rows() || self.heart.as_ref().is_some_and(|heart| heart.is_alive(now))
    }

    pub(super) fn view<'a>(
        &'a self,
        leases: &'a [ObservedLease],
        workers: &'a [ObservedWorker],
        sync: Option<&'a Sync>,
    ) -> FleetView<'a> {
        let shards = sync.map(|sync| ShardList {
            shards: &sync.shards,
            gone: &sync.gone,
            before_start: sync.before_start.as_ref(),
        });
        let is_bootstrapped = self.observed.fleet.is_bootstrapped();
        FleetView {
            me: &self.options.worker,
            leases,
            workers,
            shards,
            is_bootstrapped,
        }
    }

    pub(super) fn limits(&self) -> PlanLimits {
        let settings = &self.options.leases;
        PlanLimits {
            initial_position: self.start.position,
            max_leases: settings.max_leases,
            balance: settings.balance,
            shared_with_kcl: self.renews_rows(),
            overdue_after: settings.duration * OVERDUE_LEASES,
        }
    }

    /// Whether a listing that is stale could do harm.
    ///
    /// A child that was never started is to be taken though a parent of it has no row in the
    /// listing: the parent may be finished and removed, or not listed. Or a row is to be made
    /// because others are missing.
    fn needs_closer_look(&self, decided: &Plan) -> bool {
        let listed = self.listed_shards();
        decided.steps.iter().any(|step| match step {
            Step::Take { seen, .. } => is_orphan(seen, &listed),
            Step::Create { reason, .. } => {
                matches!(reason, Reason::RowMissing | Reason::LineageTrimmed)
            }
            Step::Delete { .. }
            | Step::Claim { .. }
            | Step::Release { .. }
            | Step::HandOver { .. } => false,
        })
    }

    fn show(&self, leases: &[ObservedLease], decided: &Plan) {
        let held_back = decided
            .held_back
            .iter()
            .map(|(key, reason)| (key.to_string(), reason.to_string()))
            .collect();
        let workers = self
            .observed_workers()
            .iter()
            .filter(|worker| worker.is_alive && !worker.is_draining)
            .count();
        let unowned = self.leads().then(|| self.show_unowned(leases));
        self.status.update(|status| {
            status.unowned_leases = unowned;
            status.lease_rows = leases.len();
            status.unfinished_leases = leases
                .iter()
                .filter(|observed| !observed.lease.is_finished())
                .count();
            status.workers = workers;
            status.held_back = held_back;
        });
    }

    fn leads(&self) -> bool {
        let leadership = &self.observed.leadership;
        leadership.is_mine(&self.options.worker, &self.run)
    }

    /// What no host reads, which no owner can tell.
    fn show_unowned(&self, leases: &[ObservedLease]) -> usize {
        let workers = self.observed_workers();
        let unowned = unowned(&self.view(leases, &workers, None), &self.limits());
        show_unowned(&self.options.plugin, &unowned);
        unowned.not_taken + unowned.above_max
    }

    /// From now on it is another host's to tell.
    pub(super) fn forget_unowned(&self) {
        forget_unowned(&self.options.plugin);
        self.status.update(|status| status.unowned_leases = None);
    }

    /// A lease that this host asks for is taken as soon as its row says that it was given up.
    fn follow_claims(&mut self, decided: &Plan) {
        let claim = |step: &Step| match step {
            Step::Claim { seen, .. } => Some(Errand {
                key: seen.key.clone(),
                task: Task::Claim {
                    from: seen.owner.clone()?,
                    replaces: seen.claimant.clone(),
                    lead: 0,
                },
            }),
            Step::Create { .. }
            | Step::Delete { .. }
            | Step::Take { .. }
            | Step::Release { .. }
            | Step::HandOver { .. } => None,
        };
        let claims = decided.steps.iter().filter_map(claim).collect();
        self.heeding
            .admit(claims, self.options.leases.duration, self.ports.clock.now());
    }

    /// Tells others to look, if there is something to see.
    pub(super) async fn announce_news(&mut self) {
        if !self.has_news {
            return;
        }
        match self.ports.coordinator.announce().await {
            Ok(()) => (self.has_news, self.cannot_announce) = (false, None),
            Err(error) => {
                if matches!(error, StoreError::Refused { .. }) && self.cannot_announce.is_none() {
                    tracing::warn!(%error, "cannot announce changes to other hosts, which will \
                        find them later");
                    self.cannot_announce =
                        Some(format!("cannot announce changes to other hosts: {error}"));
                }
                tracing::debug!(%error, "could not raise the bulletin, other hosts will look later");
            }
        }
    }
}

/// Whether rows are to be made for closed shards, all of whose records may be older than the
/// application's beginning.
fn starts_closed_shards(decided: &Plan, sync: &Sync) -> bool {
    let closed: BTreeSet<_> = sync
        .shards
        .iter()
        .filter(|shard| !shard.is_open())
        .map(|shard| &shard.id)
        .collect();
    decided.steps.iter().any(|step| match step {
        Step::Create { lease, .. } => closed.contains(&lease.key.shard_id()),
        Step::Delete { .. }
        | Step::Take { .. }
        | Step::Claim { .. }
        | Step::Release { .. }
        | Step::HandOver { .. } => false,
    })
}
