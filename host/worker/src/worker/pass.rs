//! One pass: look, lead, plan, act.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_core::fleet::{Errand, LeaderStep, Role, Service, Task};
use shardmill_core::kcl_metrics::{Fleet, Observation};
use shardmill_core::lease::Availability;
use shardmill_core::plan::{ObservedLease, Plan, Reason, Step, plan, unowned};
use shardmill_core::seeded_bug::SeededBug;
use tokio_util::sync::CancellationToken;

use super::gauges::show_unowned;
use super::lead::Duties;
use super::look::is_orphan;
use super::serve::Serving;
use super::sync::Sync;
use super::{PassError, Worker};

/// A pass that went well.
pub(super) struct Passed {
    /// For the next one.
    pub(super) wait: Duration,
    /// Whether it looked at the fleet or its mail. A pass that only did errands says nothing of
    /// looks that failed before.
    pub(super) has_looked: bool,
}

/// What a look brought.
struct Looked {
    /// Whether the leases were listed.
    has_listed: bool,
    /// The stream's shards, if this host leads and has just listed them.
    sync: Option<Sync>,
}

/// A plan, with what it was decided on.
struct Decided {
    leases: Vec<ObservedLease>,
    plan: Plan,
    /// The listing of shards that it takes as complete.
    sync: Option<Sync>,
}

impl Worker {
    /// Looks at the fleet, decides, acts.
    ///
    /// `stop` cuts the looking short, and the acting between two waves of writes: a take that was
    /// sent is followed by its holding, so that the lease is given back on the way out.
    pub(super) async fn pass(&mut self, stop: &CancellationToken) -> Result<Passed, PassError> {
        self.reports.announce_news().await;
        if self.only_heeds() {
            return Ok(Passed {
                wait: self.heed(stop).await?,
                has_looked: true,
            });
        }
        if !self.lookout.is_look_due() {
            self.do_errands(stop).await?;
            return Ok(Passed {
                wait: self.heeding.next_pass(),
                has_looked: false,
            });
        }
        Ok(Passed {
            wait: self.look_and_act(stop).await?,
            has_looked: true,
        })
    }

    async fn look_and_act(&mut self, stop: &CancellationToken) -> Result<Duration, PassError> {
        self.begin_own_look();
        let Some(looked) = stop.run_until_cancelled(self.look_and_lead()).await else {
            return Ok(Duration::ZERO);
        };
        let Looked { has_listed, sync } = looked?;
        self.versions.share(&self.lookout).await;
        if (has_listed || sync.is_some()) && !self.decide_and_act(sync, stop).await? {
            return Ok(Duration::ZERO);
        }
        self.do_errands(stop).await?;
        self.want_hosts();
        self.refresh_leadership().await?;
        self.show_hosts_wanted();
        let offered = self
            .run
            .ports
            .versions
            .borrow()
            .digest()
            .as_str()
            .to_owned();
        self.run.status.update(|status| {
            status.passes += 1;
            status.plugin_digest = Some(offered);
        });
        Ok(self.heeding.next_pass())
    }

    /// Looks at the fleet, and does what a leader does first if this host leads.
    async fn look_and_lead(&mut self) -> Result<Looked, PassError> {
        let has_listed = self.look().await?;
        if self.lookout.is_spare(&self.office) {
            return Ok(Looked {
                has_listed: false,
                sync: None,
            });
        }
        if self.office.is_deputy() {
            self.heeding.read_mail().await?;
        }
        let sync = if self.campaign().await? {
            self.duties.sync(&self.lookout, &self.origin).await?
        } else {
            None
        };
        Ok(Looked { has_listed, sync })
    }

    async fn look(&mut self) -> Result<bool, PassError> {
        if self.may_take() {
            self.lookout.next().may_take();
        }
        let has_listed = self.lookout.look(&mut self.office).await?;
        self.follow_control();
        if has_listed {
            self.holdings.verify(self.lookout.rows());
            self.holdings.see_directives(self.lookout.rows());
            self.holdings.see_owners(self.lookout.rows());
            self.heeding.set_heir(false);
        }
        Ok(has_listed)
    }

    /// Becomes the leader if there is none. Returns whether this host leads.
    pub(super) async fn campaign(&mut self) -> Result<bool, PassError> {
        let leads = match self.office.next_step() {
            LeaderStep::Follow => {
                self.duties.step_down();
                self.wanted.step_down();
                false
            }
            LeaderStep::Lead | LeaderStep::Refresh => true,
            LeaderStep::Acquire => self.take_office().await?,
        };
        let leader = self.office.holder();
        self.run.status.update(|status| status.leader = leader);
        Ok(leads)
    }

    async fn take_office(&mut self) -> Result<bool, PassError> {
        // Before the answer, which may be lost: another may have led since, and what this host
        // listed then brings finished shards back.
        self.duties = Duties::new(self.run.clone());
        self.wanted.step_down();
        self.serving = Serving::new(self.run.clone());
        let is_mine = self.office.write(self.service()).await?;
        if is_mine {
            tracing::info!(worker = %self.run.me(), "leading");
        }
        Ok(is_mine)
    }

    /// Writes that this host still leads, if that is due. Only called once its duties went well, so
    /// that a leader that cannot perform them is replaced.
    async fn refresh_leadership(&mut self) -> Result<(), PassError> {
        let service = self.service();
        let is_due = match self.office.next_step() {
            LeaderStep::Refresh => true,
            LeaderStep::Lead => self.office.is_outdated(&service),
            LeaderStep::Acquire | LeaderStep::Follow => false,
        };
        if is_due && self.duties.go_well() {
            self.office.write(service).await?;
        }
        Ok(())
    }

    /// What this host writes of its service as the leader.
    fn service(&self) -> Service {
        let me = self.run.me();
        let before = self.office.service();
        // It has not looked at the fleet for long: the deputies have, and stay until it did.
        if let Some(before) = before
            && before.role(me) == Role::Heed
            && !self.office.is_mine()
        {
            return before.clone();
        }
        let sharing = self.lookout.sharing_workers();
        let deputies = before.map_or(&[][..], |service| &service.deputies);
        let published = before.and_then(|service| service.hosts_wanted.as_ref());
        Service {
            deputies: Service::choose_deputies(deputies, &sharing, me),
            hosts: sharing.len(),
            leases: self.lookout.rows().len(),
            is_beside_kcl: self.lookout.kcl().renews_rows(),
            hosts_wanted: self.wanted.to_publish(published),
        }
    }

    /// Returns whether the pass may go on: not if this host is to stop, nor with rows just created,
    /// which the next pass takes at once.
    async fn decide_and_act(
        &mut self,
        sync: Option<Sync>,
        stop: &CancellationToken,
    ) -> Result<bool, PassError> {
        let Decided { leases, plan, sync } = self.decide_surely(sync).await?;
        self.lookout.next().takes_wait(plan.withholds_takes());
        self.wanted.listed(&leases, &self.lookout);
        self.show(&leases, &plan);
        self.follow_claims(&plan);
        let acted = self.act(plan, stop).await;
        if acted.is_err() {
            self.duties.sync_failed();
        }
        let has_created = acted?;
        if stop.is_cancelled() {
            // Not all of the plan may be done, so no sync is complete.
            return Ok(false);
        }
        if sync.is_some() {
            self.sync_done().await?;
        }
        self.reports.announce_news().await;
        if has_created {
            self.lookout.next().look_at_once();
            return Ok(false);
        }
        self.leave_errands(&leases).await?;
        Ok(true)
    }

    async fn sync_done(&mut self) -> Result<(), PassError> {
        let seen = self.lookout.fleet().stream.as_ref();
        if let Some(row) = self.duties.sync_done(seen).await? {
            self.lookout.wrote_stream(row);
            self.lookout.next().look_soon();
        }
        Ok(())
    }

    /// Decides. Where the decision rests on what may be stale, looks again and decides again.
    async fn decide_surely(&mut self, mut sync: Option<Sync>) -> Result<Decided, PassError> {
        let mut leases = self.lookout.leases(&self.holdings);
        let mut plan = self.decide(&leases, sync.as_ref());
        if let Some(asked) = &sync
            && asked.can_ask_before_start()
            && starts_closed_shards(&plan, asked)
        {
            self.duties.ask_before_start();
            self.lookout.next().pass_at_once();
            sync = None;
            plan = self.decide(&leases, None);
        }
        if self.needs_closer_look(&plan) && !SeededBug::TrustsStaleListing.is_on() {
            self.lookout.look_closely().await?;
            leases = self.lookout.leases(&self.holdings);
            plan = self.decide(&leases, sync.as_ref());
        }
        if let Some(listed) = &sync
            && !self.still_leads(listed).await?
        {
            sync = None;
            plan = self.decide(&leases, None);
        }
        Ok(Decided { leases, plan, sync })
    }

    /// Whether this host may act on what it listed: a listing that took long has aged, and a leader
    /// after this one may have made, ended and removed rows since, which must not come back.
    async fn still_leads(&mut self, sync: &Sync) -> Result<bool, PassError> {
        if !sync.has_aged(&self.run) || self.office.write(self.service()).await? {
            return Ok(true);
        }
        tracing::info!(worker = %self.run.me(), "another worker has become leader since shards \
            were listed, looking again");
        Ok(false)
    }

    fn decide(&self, leases: &[ObservedLease], sync: Option<&Sync>) -> Plan {
        let workers = self.lookout.workers();
        let limits = self.lookout.limits(self.origin.start().position);
        let mut decided = plan(&self.lookout.view(leases, &workers, sync), &limits);
        if !self.may_take() {
            decided.withhold_takes();
        }
        self.without_drained_takes(decided)
    }

    /// Whether this worker is known to others as alive. Another host that began meanwhile would
    /// otherwise see rows move under an unknown owner, and take them as a KCL's, without asking.
    ///
    /// Without a heartbeat that holds, what the last look shows may be too old: a host that was
    /// suspended is removed, and learns of that from its next heartbeat. Beside a KCL rows are
    /// renewed, and no heartbeat holds anything.
    fn may_take(&self) -> bool {
        let is_held = self.lookout.kcl().renews_rows() || self.registration.is_heart_alive();
        self.lookout.is_registered() && is_held
    }

    /// Whether a listing that is stale could do harm.
    ///
    /// A child that was never started is to be taken though a parent of it has no row in the
    /// listing: the parent may be finished and removed, or not listed. Or a row is to be made
    /// because others are missing.
    fn needs_closer_look(&self, decided: &Plan) -> bool {
        let listed = self.lookout.listed_shards();
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

    /// A pass that only did errands is none of the KCL's lease taker.
    pub(super) fn note_pass(&self, took: Duration, passed: &Result<Passed, PassError>) {
        if passed.as_ref().is_ok_and(|passed| !passed.has_looked) {
            return;
        }
        self.run.meters.of_worker().note(&Observation::Passed {
            took,
            is_ok: passed.is_ok(),
            is_leader: self.office.is_mine(),
        });
    }

    fn note_fleet(&self, leases: &[ObservedLease], decided: &Plan, workers: usize) {
        let is_expired = |seen: &&ObservedLease| {
            !seen.lease.is_finished() && seen.availability != Availability::Held
        };
        let is_take = |step: &&Step| matches!(step, Step::Take { .. });
        self.run.meters.of_worker().note(&Observation::Fleet(Fleet {
            workers,
            leases: leases.len(),
            expired: leases.iter().filter(is_expired).count(),
            to_take: decided.steps.iter().filter(is_take).count(),
            is_leader: self.office.is_mine(),
        }));
    }

    fn show(&self, leases: &[ObservedLease], decided: &Plan) {
        let held_back = held_back_as_text(decided);
        let workers = self.lookout.workers();
        let workers = workers.iter();
        let sharing = workers.filter(|worker| worker.is_alive && !worker.is_draining);
        let sharing = sharing.count();
        let unfinished = leases.iter().filter(|seen| !seen.lease.is_finished());
        let unfinished = unfinished.count();
        let unowned = if self.office.is_mine() {
            Some(self.show_unowned(leases))
        } else {
            None
        };
        self.note_fleet(leases, decided, sharing);
        self.run.status.update(|status| {
            status.unowned_leases = unowned;
            status.lease_rows = leases.len();
            status.unfinished_leases = unfinished;
            status.workers = sharing;
            status.held_back = held_back;
        });
    }

    /// Shows how many leases no host reads, which no owner can show. Returns how many.
    fn show_unowned(&self, leases: &[ObservedLease]) -> usize {
        let workers = self.lookout.workers();
        let limits = self.lookout.limits(self.origin.start().position);
        let unowned = unowned(&self.lookout.view(leases, &workers, None), &limits);
        show_unowned(self.run.plugin(), &unowned);
        unowned.not_taken + unowned.above_max
    }

    /// Follows the leases that this host claims, to take each as soon as its row shows that it was
    /// given up.
    fn follow_claims(&mut self, decided: &Plan) {
        let mut claims = Vec::new();
        for step in &decided.steps {
            if let Step::Claim { seen, .. } = step
                && let Some(owner) = &seen.owner
            {
                let task = Task::Claim {
                    from: owner.clone(),
                    replaces: seen.claimant.clone(),
                    lead: 0,
                };
                claims.push(Errand {
                    key: seen.key.clone(),
                    task,
                });
            }
        }
        self.heeding.admit(claims);
    }

    /// Makes the next pass look at the whole fleet, on a host that heeds too.
    pub(super) fn look_for_itself(&mut self) {
        self.heeding.look_for_itself();
        self.lookout.next().look_at_once();
    }
}

/// Leases that are not acted on, each with the reason.
fn held_back_as_text(decided: &Plan) -> BTreeMap<String, String> {
    let held_back = decided.held_back.iter();
    held_back
        .map(|(key, reason)| (key.to_string(), reason.to_string()))
        .collect()
}

/// Whether rows are to be made for closed shards, all of whose records may be older than the
/// application's beginning.
fn starts_closed_shards(decided: &Plan, sync: &Sync) -> bool {
    let closed = sync.closed_shards();
    decided.steps.iter().any(|step| match step {
        Step::Create { lease, .. } => closed.contains(&lease.key.shard_id()),
        Step::Delete { .. }
        | Step::Take { .. }
        | Step::Claim { .. }
        | Step::Release { .. }
        | Step::HandOver { .. } => false,
    })
}
