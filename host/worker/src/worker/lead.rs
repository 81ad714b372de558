//! The leader's duties: the shard list for all, rows for new shards, the removal of rows and
//! workers that are gone.
//!
//! Everything here is idempotent and conditional: two leaders at once do no harm, and a fleet
//! without one is only slow.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::fleet::{StreamRow, WorkerRow};
use shardmill_core::pipeline::{is_told_to_all, read_again_after};
use shardmill_core::ports::{Raced, ReadError, StoreError};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Shard, ShardId, missing_from_listing};
use shardmill_core::time::Moment;

use super::PassError;
use super::audit::CoverageAudits;
use super::gauges::forget_unowned;
use super::look::Lookout;
use super::origin::Origin;
use super::run::Run;
use super::shard_list::ShardList;
use super::survey::{OpenSince, Questions, Survey, SurveyEnd, Surveys};
use super::sync::Sync;

/// A worker whose heart was silent for this many of its lease durations is removed: others took
/// its leases long ago.
const REAP_AFTER_LEASES: u32 = 6;

/// What a leader remembers between its duties.
pub(super) struct Duties {
    run: Arc<Run>,
    surveys: Surveys,
    /// When the shards were last listed by this host as the leader.
    listed_at: Option<Moment>,
    trouble: ListingTrouble,
    /// Whether what followed from the last listing could not be done.
    has_failed: bool,
    before_start: BeforeStart,
    shared: ShardList,
    audits: CoverageAudits,
}

/// Listings that failed since the last that went well.
#[derive(Default)]
struct ListingTrouble {
    failures: u32,
    /// Not before then again.
    list_again_at: Option<Moment>,
    /// Why shards cannot be listed, if that is refused.
    refused: Option<String>,
    /// Whether the last one would have failed for any other host too.
    would_fail_for_all: bool,
}

/// Shards that were closed before the application began. They stay so.
#[derive(Default)]
struct BeforeStart {
    known: BTreeSet<ShardId>,
    /// Whether the next survey looks for them.
    is_asked: bool,
}

impl Duties {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            surveys: Surveys::default(),
            listed_at: None,
            trouble: ListingTrouble::default(),
            has_failed: false,
            before_start: BeforeStart::default(),
            shared: ShardList::new(Arc::clone(&run)),
            audits: CoverageAudits::default(),
            run,
        }
    }

    /// Whether this host does what a leader must. A host that cannot is replaced, unless any other
    /// would fail as well: a throttled leader stays in office, or its successors would ask as often
    /// as the fleet is large.
    pub(super) fn go_well(&self) -> bool {
        let can_list = self.trouble.failures == 0 || self.trouble.would_fail_for_all;
        can_list && !self.has_failed
    }

    /// Why shards cannot be listed, if that is refused.
    pub(super) fn cannot_list(&self) -> Option<&String> {
        self.trouble.refused.as_ref()
    }

    /// Has the shards listed if it is time to, and returns what follows from the list once it is
    /// there. `None` before that, and if they cannot be listed.
    ///
    /// Only a host whose table is empty waits for the answer: with rows there are other things to
    /// do, and passes go on while Kinesis does not answer.
    pub(super) async fn sync(
        &mut self,
        lookout: &Lookout,
        origin: &Origin,
    ) -> Result<Option<Sync>, PassError> {
        let is_table_empty = lookout.rows().is_empty();
        if self.surveys.is_idle() && self.is_survey_due(is_table_empty) {
            self.begin_survey(lookout, origin);
        }
        if is_table_empty {
            self.run.status.wait_on("listing the stream's shards");
            self.surveys.answered().await;
        }
        let answer = self.surveys.take_answer();
        match answer.map(|answer| answer.and_then(|survey| complete(survey, lookout))) {
            Some(Ok(survey)) => Ok(self.follow(survey, lookout, origin).await),
            // What has rows already is served nevertheless; only new shards wait for a listing.
            Some(Err(error)) if !is_table_empty => {
                self.listing_failed(&error);
                Ok(None)
            }
            Some(Err(error)) => Err(error.into()),
            None => Ok(None),
        }
    }

    async fn follow(&mut self, survey: Survey, lookout: &Lookout, origin: &Origin) -> Option<Sync> {
        let Survey {
            asked_at,
            shards,
            gone,
            open_since,
        } = survey;
        self.listed_at = Some(asked_at);
        self.trouble = ListingTrouble::default();
        self.shared.share(&shards, origin.identity());
        if SeededBug::HintStopsLeader.is_on() {
            return None;
        }
        self.reap_workers(lookout).await;
        if shards.is_empty() {
            // The stream is gone, or not there yet: there is nothing to cover.
            self.audits.forget(&self.run);
        } else {
            self.audits.audit(lookout.rows(), &gone, &self.run);
        }
        let start = origin.start();
        let knows_before_start =
            start.since_ms().is_none() || !matches!(open_since, OpenSince::NotAsked);
        let is_known = self.before_start.learn(&shards, open_since);
        let before_start =
            (is_known && !start.found_leases).then(|| self.before_start.known.clone());
        Some(Sync {
            asked_at,
            shards,
            gone,
            before_start,
            knows_before_start,
        })
    }

    /// Has the next survey find out which shards were closed before the application began, and has
    /// it begin at once: nothing of them is to be read.
    ///
    /// Without it each closed shard is read from the beginning on, where it turns out to be empty:
    /// right, but slow, since children wait for their parents.
    pub(super) fn ask_before_start(&mut self) {
        self.before_start.is_asked = true;
        self.listed_at = None;
    }

    fn is_survey_due(&self, is_table_empty: bool) -> bool {
        let now = self.run.now();
        let jitter = 0.9 + fastrand::f64() * 0.2;
        let every = self.run.options.leases.shard_sync_every.mul_f64(jitter);
        let is_recent = self.listed_at.is_some_and(|at| now.since(at) < every);
        let is_put_off = self.trouble.list_again_at.is_some_and(|at| now < at);
        is_table_empty || !is_recent && !is_put_off
    }

    fn begin_survey(&mut self, lookout: &Lookout, origin: &Origin) {
        let rows = lookout.rows().iter();
        let questions = Questions {
            asked_at: self.run.now(),
            rows: rows.map(|row| row.key.shard_id()).collect(),
            identity: origin.identity(),
            since_ms: if self.before_start.is_asked {
                origin.start().since_ms()
            } else {
                None
            },
        };
        self.surveys.begin(questions, &self.run.ports);
    }

    /// The next survey that ends; `None` if none runs. Cancel-safe.
    pub(super) async fn next_survey(&mut self) -> Option<SurveyEnd> {
        self.surveys.next_ended().await
    }

    /// Keeps what a survey found for the next pass.
    pub(super) fn survey_ended(&mut self, ended: SurveyEnd) {
        self.surveys.ended(ended);
    }

    fn listing_failed(&mut self, error: &ReadError) {
        let trouble = &mut self.trouble;
        trouble.failures += 1;
        trouble.would_fail_for_all = is_told_to_all(error);
        let backoff = self.run.options.backoff;
        let wait = read_again_after(error, trouble.failures, backoff, fastrand::f64());
        trouble.list_again_at = Some(self.run.now() + wait);
        let failures = trouble.failures;
        if is_worth_a_line(failures) {
            tracing::warn!(
                %error,
                failures,
                code = "list-failed", "cannot list shards, continuing with those that have leases"
            );
        }
        if matches!(error, ReadError::Refused { .. }) {
            trouble.refused = Some(format!("new shards are not found: {error}"));
        }
    }

    /// What was to follow from a listing was not done: the shards are listed again with the next
    /// try, and this host does not write that it leads until a try goes well.
    pub(super) fn sync_failed(&mut self) {
        self.listed_at = None;
        self.has_failed = true;
    }

    /// The rows of a sync were all written: from now on, new shards are children or strays. Returns
    /// the stream's row if this host wrote into it that the first sync ended.
    pub(super) async fn sync_done(
        &mut self,
        seen: Option<&StreamRow>,
    ) -> Result<Option<StreamRow>, StoreError> {
        self.has_failed = false;
        let Some(seen) = seen.filter(|row| !row.is_bootstrapped) else {
            return Ok(None);
        };
        let next = StreamRow {
            is_bootstrapped: true,
            ..seen.clone()
        };
        let coordinator = &self.run.ports.coordinator;
        let raced = coordinator.write_stream(Some(seen), &next).await?;
        Ok((raced == Raced::Applied).then_some(next))
    }

    /// Removes the rows of workers that are silent for long. A removal that fails is left to the
    /// next listing: such a row costs others a line in each look.
    async fn reap_workers(&self, lookout: &Lookout) {
        for (row, silent) in self.silent_workers(lookout) {
            match self.run.ports.coordinator.remove_worker(row).await {
                Ok(Raced::Applied) => {
                    // Mail that stays there costs a few bytes, and nothing else.
                    let _ = self
                        .run
                        .ports
                        .coordinator
                        .leave_mail(&row.worker, None)
                        .await;
                    tracing::info!(worker = %row.worker, ?silent, "removed a worker whose \
                        heartbeat has stopped");
                }
                Ok(Raced::Lost) => {}
                Err(error) => {
                    tracing::warn!(
                        worker = %row.worker,
                        %error,
                        code = "worker-not-removed", "a silent worker could not be removed"
                    );
                }
            }
        }
    }

    /// Workers that were silent for long, and for how long. Those that cannot write heartbeats and
    /// renew their leases row by row are not among them: without a registration they would be taken
    /// for a KCL's.
    fn silent_workers<'a>(&self, lookout: &'a Lookout) -> Vec<(&'a WorkerRow, Duration)> {
        let (now, observer) = (self.run.now(), lookout.observer());
        let mut silent_workers = Vec::new();
        for (row, _) in observer.workers(now) {
            let patience = row.lease_duration * REAP_AFTER_LEASES;
            let silent = observer.watched_silence(&row.worker, now);
            let silent = silent.unwrap_or_default();
            let is_at_work = observer.moves_rows(&row.worker, now, patience)
                && !SeededBug::ReapsWorkersAtWork.is_on();
            if silent > patience && row.worker != *self.run.me() && !is_at_work {
                silent_workers.push((row, silent));
            }
        }
        silent_workers
    }

    /// Another host leads, or none that this host knows of: what this one showed as the leader is
    /// for its successor to show.
    pub(super) fn step_down(&mut self) {
        self.audits.forget(&self.run);
        forget_unowned(self.run.plugin());
        self.run
            .status
            .update(|status| status.unowned_leases = None);
    }
}

/// Refuses a first listing that lacks a shard. After the first sync, a shard without a row counts
/// as one that the application chose not to read, or that was read to its end: so what the first
/// listing lacks would never be read. Later listings may lag: their shards get rows later.
fn complete(survey: Survey, lookout: &Lookout) -> Result<Survey, ReadError> {
    if lookout.fleet().is_bootstrapped() {
        return Ok(survey);
    }
    match missing_from_listing(&survey.shards) {
        None => Ok(survey),
        Some(range) => Err(ReadError::Unavailable {
            message: format!(
                "the list of shards lacks those of hash keys {range}, as in the middle of a reshard"
            ),
        }),
    }
}

impl BeforeStart {
    /// Takes in what Kinesis said. Returns false if it does not know.
    fn learn(&mut self, shards: &[Shard], open_since: OpenSince) -> bool {
        match open_since {
            OpenSince::NotAsked => true,
            OpenSince::NotKnown => false,
            OpenSince::Shards(since) => {
                self.is_asked = false;
                let closed = shards.iter().filter(|shard| !shard.is_open());
                let before = closed.filter(|shard| !since.contains(&shard.id));
                self.known.extend(before.map(|shard| shard.id.clone()));
                true
            }
        }
    }
}
