//! The leader's duties: the shard list for all, rows for new shards, the removal of rows and
//! workers that are gone.
//!
//! Everything here is idempotent and conditional: two leaders at once are harmless, and none is
//! only slow.

use std::collections::BTreeSet;
use std::sync::Arc;

use shardmill_core::fleet::{FleetRows, LeaderStep, StreamRow};
use shardmill_core::pipeline::{is_told_to_all, read_again_after};
use shardmill_core::plan::GoneShards;
use shardmill_core::ports::{CachedShards, Raced, ReadError};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Shard, ShardId};
use shardmill_core::time::Moment;
use tokio::task::JoinSet;

use super::audit::CoverageAudits;
use super::serve::Serving;
use super::survey::{OpenSince, Questions, Survey, SurveyEnd, Surveys};
use super::{PassError, Worker};

/// A worker whose heart was silent for this many of its lease durations is removed: its leases are
/// long taken.
const REAP_AFTER_LEASES: u32 = 6;

/// What a leader remembers between its duties.
#[derive(Default)]
pub(super) struct Duties {
    /// When the shards were last listed by this host as the leader.
    listed_at: Option<Moment>,
    listing_failures: u32,
    /// Whether what followed from the last listing could not be done.
    has_failed: bool,
    /// After a listing that failed: not before then again.
    list_again_at: Option<Moment>,
    /// Why they cannot be listed, if that is refused.
    pub(super) cannot_list: Option<String>,
    /// Whether it failed as it would for any other host.
    would_fail_for_all: bool,
    pub(super) surveys: Surveys,
    /// Shards that were closed before the application began: they stay so.
    before_start: BTreeSet<ShardId>,
    /// Whether the next survey is to look for such shards.
    asks_before_start: bool,
    /// The list that others were last told.
    written: Option<Vec<Shard>>,
    /// Tells them another one; gives it once it is written.
    sharing: JoinSet<Option<Vec<Shard>>>,
    pub(super) audits: CoverageAudits,
}

/// A complete listing, and what follows from it.
pub(super) struct Sync {
    /// Before the listing.
    asked_at: Moment,
    pub(super) shards: Vec<Shard>,
    pub(super) gone: GoneShards,
    /// Shards that were closed before the application began, as far as they were asked about;
    /// `None` if that cannot be known.
    pub(super) before_start: Option<BTreeSet<ShardId>>,
    /// Whether nothing more can be learned of them.
    pub(super) knows_before_start: bool,
}

impl Worker {
    /// Becomes the leader if nobody is. Returns whether this host leads.
    pub(super) async fn campaign(&mut self) -> Result<bool, PassError> {
        let now = self.ports.clock.now();
        let step = self.observed.leadership.decide(
            &self.options.worker,
            &self.run,
            self.options.leases.duration,
            now,
        );
        let is_leader = match step {
            LeaderStep::Follow => {
                self.forget_holes();
                self.forget_unowned();
                false
            }
            LeaderStep::Lead | LeaderStep::Refresh => true,
            LeaderStep::Acquire => {
                // Before the answer, which may be lost: another may have led since, and what this
                // host listed then brings finished shards back.
                (self.duties, self.serving) = (Duties::default(), Serving::default());
                let is_mine = self.write_leader().await?;
                if is_mine {
                    tracing::info!(worker = %self.options.worker, "leading");
                }
                is_mine
            }
        };
        let leader = self
            .observed
            .leadership
            .seen()
            .and_then(|row| row.holder.as_ref())
            .map(|(id, _)| id.to_string());
        self.status.update(|status| status.leader = leader);
        Ok(is_leader)
    }

    /// Says that this host still leads. Only called once its duties went well, so that a leader
    /// that cannot perform them is replaced.
    pub(super) async fn refresh_leadership(&mut self) -> Result<(), PassError> {
        let now = self.ports.clock.now();
        let step = self.observed.leadership.decide(
            &self.options.worker,
            &self.run,
            self.options.leases.duration,
            now,
        );
        let can_list = self.duties.listing_failures == 0 || self.duties.would_fail_for_all;
        let can_lead = can_list && !self.duties.has_failed;
        let is_due =
            step == LeaderStep::Refresh || step == LeaderStep::Lead && self.is_service_outdated();
        if is_due && can_lead {
            self.write_leader().await?;
        }
        Ok(())
    }

    async fn write_leader(&mut self) -> Result<bool, PassError> {
        let sent_at = self.ports.clock.now();
        let next = self.observed.leadership.next(
            Some((self.options.worker.clone(), self.run.clone())),
            Some(self.service()),
        );
        match self
            .ports
            .coordinator
            .write_leader(self.observed.leadership.seen(), &next)
            .await?
        {
            Raced::Applied => {
                self.observed.leadership.written(next, sent_at);
                Ok(true)
            }
            Raced::Lost => Ok(false),
        }
    }

    /// Has the shards listed if it is time to, and shares the list once it is there. `None` before,
    /// and if they cannot be listed.
    ///
    /// Only a host whose table is empty waits for the answer: whatever else there is to do, passes
    /// go on while Kinesis does not answer.
    pub(super) async fn sync(&mut self) -> Result<Option<Sync>, PassError> {
        let is_table_empty = self
            .observed
            .listing
            .as_ref()
            .is_none_or(|(listing, _)| listing.leases.is_empty());
        if self.duties.surveys.is_idle() && self.is_survey_due(is_table_empty) {
            self.begin_survey();
        }
        if is_table_empty {
            self.wait_on("listing the stream's shards");
            self.duties.surveys.answered().await;
        }
        let survey = match self.duties.surveys.take_answer() {
            Some(Ok(survey)) => survey,
            // What has rows already is served all the same; only new shards wait for a listing.
            Some(Err(error)) if !is_table_empty => {
                self.listing_failed(&error);
                return Ok(None);
            }
            Some(Err(error)) => return Err(error.into()),
            None => return Ok(None),
        };
        (
            self.duties.listing_failures,
            self.duties.list_again_at,
            self.duties.cannot_list,
        ) = (0, None, None);
        let Survey {
            asked_at,
            shards,
            gone,
            open_since,
        } = survey;
        self.duties.listed_at = Some(asked_at);
        self.share(&shards);
        if SeededBug::HintStopsLeader.is_on() {
            return Ok(None);
        }
        self.reap_workers().await;
        if shards.is_empty() {
            // The stream is gone, or not there yet: there is nothing to cover.
            self.forget_holes();
        } else {
            self.audit(&gone);
        }
        let knows_before_start =
            self.start.since_ms().is_none() || !matches!(open_since, OpenSince::NotAsked);
        let before_start = self.before_start(&shards, open_since);
        Ok(Some(Sync {
            asked_at,
            shards,
            gone,
            before_start,
            knows_before_start,
        }))
    }

    /// Shards that were closed before the application began; `None` if that cannot be known.
    fn before_start(
        &mut self,
        shards: &[Shard],
        open_since: OpenSince,
    ) -> Option<BTreeSet<ShardId>> {
        match open_since {
            OpenSince::NotAsked => {}
            OpenSince::NotTold => return None,
            OpenSince::Shards(since) => {
                self.duties.asks_before_start = false;
                let before = shards
                    .iter()
                    .filter(|shard| !shard.is_open() && !since.contains(&shard.id));
                self.duties
                    .before_start
                    .extend(before.map(|shard| shard.id.clone()));
            }
        }
        (!self.start.found_leases).then(|| self.duties.before_start.clone())
    }

    /// Has the next survey find out which shards were closed before the application began, and has
    /// it begin at once: nothing of them is to be read.
    ///
    /// Without it each closed shard is read from the beginning on, where it turns out to be empty:
    /// right, but slow, since children wait for their parents.
    pub(super) fn ask_before_start(&mut self) {
        (self.duties.asks_before_start, self.duties.listed_at) = (true, None);
        self.observed.sync_at_once();
    }

    /// Whether this host may act on what it listed: a listing that took long has aged, and a leader
    /// after this one may have made, ended and removed rows since, which must not come back.
    pub(super) async fn still_leads(&mut self, sync: &Sync) -> Result<bool, PassError> {
        let has_aged =
            self.ports.clock.now().since(sync.asked_at) > self.options.leases.duration / 3;
        if !has_aged || self.write_leader().await? {
            return Ok(true);
        }
        tracing::info!(worker = %self.options.worker, "another worker has become leader since \
            shards were listed, looking again");
        Ok(false)
    }

    fn is_survey_due(&self, is_table_empty: bool) -> bool {
        let now = self.ports.clock.now();
        let jittered = self
            .options
            .leases
            .shard_sync_every
            .mul_f64(0.9 + fastrand::f64() * 0.2);
        let is_recent = self
            .duties
            .listed_at
            .is_some_and(|at| now.since(at) < jittered);
        let is_put_off = self.duties.list_again_at.is_some_and(|at| now < at);
        is_table_empty || !is_recent && !is_put_off
    }

    fn begin_survey(&mut self) {
        let listing = self
            .observed
            .listing
            .as_ref()
            .map(|(listing, _)| &listing.leases);
        let rows = listing
            .into_iter()
            .flatten()
            .map(|lease| lease.key.shard_id())
            .collect();
        let questions = Questions {
            asked_at: self.ports.clock.now(),
            rows,
            identity: self.identity,
            since_ms: self
                .start
                .since_ms()
                .filter(|_| self.duties.asks_before_start),
        };
        self.duties.surveys.begin(
            Arc::clone(&self.ports.reader),
            questions,
            &self.ports.freezer,
        );
    }

    /// Takes in what a survey found, in the pass that follows at once.
    pub(super) fn survey_ended(&mut self, ended: SurveyEnd) {
        self.duties.surveys.ended(ended);
        self.observed.sync_at_once();
    }

    fn listing_failed(&mut self, error: &ReadError) {
        self.duties.listing_failures += 1;
        let failures = self.duties.listing_failures;
        // A throttled leader stays in office, or its successors would ask as often as the fleet is
        // large.
        self.duties.would_fail_for_all = is_told_to_all(error);
        let wait = read_again_after(error, failures, self.options.backoff, fastrand::f64());
        self.duties.list_again_at = Some(self.ports.clock.now() + wait);
        if failures.is_power_of_two() {
            tracing::warn!(%error, failures, "cannot list shards, continuing with those that have leases");
        }
        if matches!(error, ReadError::Refused { .. }) {
            self.duties.cannot_list = Some(format!("new shards are not found: {error}"));
        }
    }

    /// Writes the list down for others, if it changed. Beside everything else: readers treat it as
    /// a hint, so that neither a long list nor one that cannot be written may keep the leader from
    /// what others wait for.
    fn share(&mut self, shards: &[Shard]) {
        while let Some(shared) = self.duties.sharing.try_join_next() {
            self.duties.written = shared.ok().flatten().or_else(|| self.duties.written.take());
        }
        if self.duties.written.as_deref() == Some(shards) || !self.duties.sharing.is_empty() {
            return;
        }
        let list = CachedShards {
            identity: self.identity,
            shards: shards.to_vec(),
            listed_by: self.run.clone(),
        };
        let coordinator = Arc::clone(&self.ports.coordinator);
        self.duties
            .sharing
            .spawn(self.ports.freezer.clone().guard(async move {
            match coordinator.write_shards(&list).await {
                Ok(()) => Some(list.shards),
                Err(error) => {
                    tracing::warn!(%error, "the shard list could not be shared, trying again at \
                        the next listing");
                    None
                }
            }
        }));
    }

    /// What was to follow from a listing was not done: the shards are listed again with the next
    /// try, and this host does not say that it leads until a try went well.
    pub(super) fn sync_failed(&mut self) {
        (self.duties.listed_at, self.duties.has_failed) = (None, true);
    }

    /// Removes the rows of workers that are long silent, but for those that renew their leases row
    /// by row, since they cannot write heartbeats: they would be taken for a KCL's. One that stays
    /// costs others a line in each look, so that a removal that fails is left to the next listing.
    async fn reap_workers(&self) {
        let now = self.ports.clock.now();
        let observer = &self.observed.observer;
        for (row, _) in observer.workers(now) {
            let silent = observer
                .watched_silence(&row.worker, now)
                .unwrap_or_default();
            let is_silent = silent > row.lease_duration * REAP_AFTER_LEASES;
            let is_at_work = row.worker == self.options.worker
                || observer.moves_rows(&row.worker, now, row.lease_duration * REAP_AFTER_LEASES)
                    && !SeededBug::ReapsWorkersAtWork.is_on();
            if !is_silent || is_at_work {
                continue;
            }
            match self.ports.coordinator.remove_worker(row).await {
                Ok(Raced::Applied) => {
                    // What is left there costs a few bytes, and nothing else.
                    let _ = self.ports.coordinator.leave_mail(&row.worker, None).await;
                    tracing::info!(worker = %row.worker, ?silent, "removed a worker whose \
                        heartbeat has stopped");
                }
                Ok(Raced::Lost) => {}
                Err(error) => {
                    tracing::warn!(worker = %row.worker, %error, "a silent worker could not be removed");
                }
            }
        }
    }

    /// The rows of a sync were all written: from now on, new shards are children or strays.
    pub(super) async fn sync_done(&mut self) -> Result<(), PassError> {
        self.duties.has_failed = false;
        let Some(seen) = self
            .observed
            .fleet
            .stream
            .clone()
            .filter(|row| !row.is_bootstrapped)
        else {
            return Ok(());
        };
        let next = StreamRow {
            is_bootstrapped: true,
            ..seen.clone()
        };
        if self
            .ports
            .coordinator
            .write_stream(Some(&seen), &next)
            .await?
            == Raced::Applied
        {
            self.observed.fleet.stream = Some(next);
            self.observed.look_soon();
        }
        Ok(())
    }

    /// Gives the office back, so that another host takes it at its next look.
    pub(super) async fn resign(&mut self) {
        if SeededBug::NeverResigns.is_on() {
            return;
        }
        // The stop may have cut short the very write that made this host the leader.
        if let Ok(FleetRows {
            leader: Some(row), ..
        }) = self.ports.coordinator.board().await
            && self
                .observed
                .leadership
                .seen()
                .is_none_or(|seen| seen.version < row.version)
        {
            self.observed
                .leadership
                .observe(Some(&row), self.ports.clock.now());
        }
        if !self
            .observed
            .leadership
            .is_mine(&self.options.worker, &self.run)
        {
            return;
        }
        let next = self
            .observed
            .leadership
            .next(None, self.observed.leadership.service().cloned());
        if let Err(error) = self
            .ports
            .coordinator
            .write_leader(self.observed.leadership.seen(), &next)
            .await
        {
            tracing::debug!(%error, "the leader's record could not be released, others will see \
                it as silent");
        }
    }
}
