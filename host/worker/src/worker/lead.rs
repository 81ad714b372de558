//! The leader's duties: the shard list for all, rows for new shards, the removal of rows and workers that are gone.
//!
//! Everything here is idempotent and conditional: two leaders at once are harmless, and none is only slow.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_core::fleet::{FleetRows, LeaderStep, StreamRow};
use shardmill_core::pipeline::{is_told_to_all, read_again_after};
use shardmill_core::ports::{CachedShards, Raced, ReadError};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{HashKeyRange, ReadFrom, Shard, ShardId, holes};
use shardmill_core::time::Moment;

use super::serve::Serving;
use super::{PassError, Worker};
use crate::metrics;

/// A shard must be missing in this many listings in a row before Kinesis is asked about it directly.
const MISSING_LISTINGS: u32 = 2;
/// Shards asked about in one pass, each with one call: a whole stream's worth would use up the account's rate.
const QUESTIONS_MAX: usize = 16;
/// A worker whose heart was silent for this many of its lease durations is removed: its leases are long taken.
const REAP_AFTER_LEASES: u32 = 6;
/// A hole that is seen in this many audits in a row is no reshard under way (KCL: three).
const HOLE_AUDITS: u32 = 3;

/// What a leader remembers between its duties.
#[derive(Default)]
pub(super) struct Duties {
    /// When the shards were last listed by this host as the leader.
    listed_at: Option<Moment>,
    listing_failures: u32,
    /// After a listing that failed: not before then again.
    list_again_at: Option<Moment>,
    /// Whether it failed as it would for any other host.
    would_fail_for_all: bool,
    /// How many listings in a row did not show a shard that has a row.
    missing: BTreeMap<ShardId, u32>,
    /// Shards that were closed before the application began: they stay so.
    before_start: BTreeSet<ShardId>,
    written: Option<Vec<Shard>>,
    holes: Vec<HashKeyRange>,
    hole_audits: u32,
}

/// A complete listing, and what follows from it.
pub(super) struct Sync {
    pub(super) shards: Vec<Shard>,
    pub(super) gone: BTreeSet<ShardId>,
    /// Shards that were closed before the application began, as far as they were asked about; `None` if that cannot be known.
    pub(super) before_start: Option<BTreeSet<ShardId>>,
}

impl Worker {
    /// Becomes the leader if nobody is. Returns whether this host leads.
    pub(super) async fn campaign(&mut self) -> Result<bool, PassError> {
        let now = self.ports.clock.now();
        let step = self.observed.leadership.decide(&self.options.worker, &self.run, self.options.leases.duration, now);
        let is_leader = match step {
            LeaderStep::Follow => false,
            LeaderStep::Lead | LeaderStep::Refresh => true,
            LeaderStep::Acquire => {
                let is_mine = self.write_leader().await?;
                if is_mine {
                    tracing::info!(worker = %self.options.worker, "leading");
                    (self.duties, self.serving) = (Duties::default(), Serving::default());
                }
                is_mine
            }
        };
        let leader = self.observed.leadership.seen().and_then(|row| row.holder.as_ref()).map(|(id, _)| id.to_string());
        self.status.update(|status| status.leader = leader);
        Ok(is_leader)
    }

    /// Says that this host still leads. Only called once its duties went well, so that a leader that cannot perform them
    /// is replaced.
    pub(super) async fn refresh_leadership(&mut self) -> Result<(), PassError> {
        let now = self.ports.clock.now();
        let step = self.observed.leadership.decide(&self.options.worker, &self.run, self.options.leases.duration, now);
        let can_lead = self.duties.listing_failures == 0 || self.duties.would_fail_for_all;
        let is_due = step == LeaderStep::Refresh || step == LeaderStep::Lead && self.is_service_outdated();
        if is_due && can_lead {
            self.write_leader().await?;
        }
        Ok(())
    }

    async fn write_leader(&mut self) -> Result<bool, PassError> {
        let sent_at = self.ports.clock.now();
        let next =
            self.observed.leadership.next(Some((self.options.worker.clone(), self.run.clone())), Some(self.service()));
        match self.ports.coordinator.write_leader(self.observed.leadership.seen(), &next).await? {
            Raced::Applied => {
                self.observed.leadership.written(next, sent_at);
                Ok(true)
            }
            Raced::Lost => Ok(false),
        }
    }

    /// Lists the shards if it is time to, and shares the list. `None` if it is not, or cannot be done now.
    pub(super) async fn sync(&mut self) -> Result<Option<Sync>, PassError> {
        let now = self.ports.clock.now();
        let is_table_empty = self.observed.listing.as_ref().is_none_or(|(listing, _)| listing.leases.is_empty());
        let jittered = self.options.leases.shard_sync_every.mul_f64(0.9 + fastrand::f64() * 0.2);
        if !is_table_empty && self.duties.listed_at.is_some_and(|at| now.since(at) < jittered) {
            return Ok(None);
        }
        if !is_table_empty && self.duties.list_again_at.is_some_and(|at| now < at) {
            return Ok(None);
        }
        let shards = match self.ports.reader.list_shards().await {
            Ok(shards) => shards,
            // What has rows already is served all the same; only new shards wait for a listing.
            Err(error) if !is_table_empty => {
                self.duties.listing_failures += 1;
                let failures = self.duties.listing_failures;
                // A throttled leader stays in office, or its successors would ask as often as the fleet is large.
                self.duties.would_fail_for_all = is_told_to_all(&error);
                let wait = read_again_after(&error, failures, self.options.backoff, fastrand::f64());
                self.duties.list_again_at = Some(now + wait);
                if failures.is_power_of_two() {
                    tracing::warn!(%error, failures, "cannot list shards, going on with those that have leases");
                }
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        (self.duties.listing_failures, self.duties.list_again_at) = (0, None);
        self.duties.listed_at = Some(now);
        let gone = self.confirm_gone(&shards).await;
        self.share(&shards).await?;
        self.reap_workers().await?;
        self.audit(&shards, &gone);
        let before_start = (!self.start.found_leases).then(|| self.duties.before_start.clone());
        Ok(Some(Sync { shards, gone, before_start }))
    }

    /// Finds out which shards were closed before the application began: nothing of them is to be read.
    ///
    /// Without it each closed shard is read from the beginning on, where it turns out to be empty: right, but slow, since
    /// children wait for their parents.
    pub(super) async fn look_before_start(&mut self, sync: &mut Sync) -> Result<(), PassError> {
        let (Some(since_ms), Some(before_start)) = (self.start.since_ms(), &mut sync.before_start) else {
            return Ok(());
        };
        match self.ports.reader.list_shards_since(since_ms).await {
            Ok(since) => {
                let since: BTreeSet<&ShardId> = since.iter().map(|shard| &shard.id).collect();
                let before = sync.shards.iter().filter(|shard| !shard.is_open() && !since.contains(&shard.id));
                before_start.extend(before.map(|shard| shard.id.clone()));
                self.duties.before_start.clone_from(before_start);
                Ok(())
            }
            // A time that is still to come, or a service that knows no such listing.
            Err(ReadError::Refused { message }) => {
                tracing::debug!(message, "kinesis does not tell which shards were closed before the start");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Shards that have rows and are gone from Kinesis: missing in listings in a row, and unknown when asked for.
    ///
    /// A listing may lag behind the reply that named a child, so that a listing alone is no evidence.
    async fn confirm_gone(&mut self, shards: &[Shard]) -> BTreeSet<ShardId> {
        let listed: BTreeSet<&ShardId> = shards.iter().map(|shard| &shard.id).collect();
        let rows = self.observed.listing.as_ref().map(|(listing, _)| &listing.leases);
        let missing: Vec<ShardId> =
            rows.into_iter().flatten().map(|lease| lease.key.shard_id()).filter(|id| !listed.contains(id)).collect();
        let earlier = std::mem::take(&mut self.duties.missing);
        let mut gone = BTreeSet::new();
        let mut questions = 0;
        for id in missing {
            let times = earlier.get(&id).copied().unwrap_or(0) + 1;
            self.duties.missing.insert(id.clone(), times);
            if SeededBug::DeletesUnlistedShards.is_on() {
                gone.insert(id.clone());
            }
            if times >= MISSING_LISTINGS && questions < QUESTIONS_MAX {
                questions += 1;
                let answer = self.ports.reader.iterator(&id, &ReadFrom::TrimHorizon).await;
                if matches!(answer, Err(ReadError::NotFound { .. })) {
                    gone.insert(id);
                }
            }
        }
        // A stream that is gone, or another one, knows none of the shards: that says nothing about them.
        if !gone.is_empty() && !matches!(self.ports.reader.identity().await, Ok(Some(same)) if same == self.identity) {
            gone.clear();
        }
        gone
    }

    /// Writes the list down for others, if it changed.
    async fn share(&mut self, shards: &[Shard]) -> Result<(), PassError> {
        if self.duties.written.as_deref() == Some(shards) {
            return Ok(());
        }
        let list = CachedShards { identity: self.identity, shards: shards.to_vec(), listed_by: self.run.clone() };
        self.ports.coordinator.write_shards(&list).await?;
        self.duties.written = Some(list.shards);
        Ok(())
    }

    async fn reap_workers(&self) -> Result<(), PassError> {
        let now = self.ports.clock.now();
        for (row, silent) in self.observed.observer.workers(now) {
            if silent > row.lease_duration * REAP_AFTER_LEASES && row.worker != self.options.worker {
                let reaped = self.ports.coordinator.remove_worker(row).await?;
                if reaped == Raced::Applied {
                    // What is left there costs a few bytes, and nothing else.
                    let _ = self.ports.coordinator.leave_mail(&row.worker, None).await;
                    tracing::info!(worker = %row.worker, ?silent, "removed a worker whose heart stands still");
                }
            }
        }
        Ok(())
    }

    /// Looks for hash keys that no lease covers. What can be mended is mended by the plan; what stays is shown.
    fn audit(&mut self, shards: &[Shard], gone: &BTreeSet<ShardId>) {
        let rows = self.observed.listing.as_ref().map(|(listing, _)| &listing.leases);
        // A finished shard without children rows yet is covered by what its owner is about to create.
        let covered = rows.into_iter().flatten().filter(|lease| !gone.contains(&lease.key.shard_id()));
        let by_rows = covered.filter(|lease| !lease.is_finished()).filter_map(|lease| lease.hash_range);
        let holes = holes(by_rows);
        let is_served = !shards.is_empty() && self.duties.listed_at.is_some();
        self.duties.hole_audits =
            if holes == self.duties.holes && !holes.is_empty() && is_served { self.duties.hole_audits + 1 } else { 0 };
        self.duties.holes.clone_from(&holes);
        let lasting = if self.duties.hole_audits + 1 >= HOLE_AUDITS { holes } else { Vec::new() };
        let plugin = self.options.plugin.to_string();
        ::metrics::gauge!(metrics::HOLES, "plugin" => plugin).set(lasting.len() as f64);
        if !lasting.is_empty() {
            let first = lasting[0];
            tracing::warn!(holes = lasting.len(), %first, "no lease covers a part of the hash keys, audit after audit");
        }
        let text = lasting.iter().map(ToString::to_string).collect();
        self.status.update(|status| status.coverage_holes = text);
    }

    /// The rows of a sync were all written: from now on, new shards are children or strays.
    pub(super) async fn bootstrapped(&mut self) -> Result<(), PassError> {
        let Some(seen) = self.observed.fleet.stream.clone().filter(|row| !row.is_bootstrapped) else { return Ok(()) };
        let next = StreamRow { is_bootstrapped: true, ..seen.clone() };
        if self.ports.coordinator.write_stream(Some(&seen), &next).await? == Raced::Applied {
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
        if let Ok(FleetRows { leader: Some(row), .. }) = self.ports.coordinator.board().await
            && self.observed.leadership.seen().is_none_or(|seen| seen.version < row.version)
        {
            self.observed.leadership.observe(Some(&row), self.ports.clock.now());
        }
        if !self.observed.leadership.is_mine(&self.options.worker, &self.run) {
            return;
        }
        let next = self.observed.leadership.next(None, self.observed.leadership.service().cloned());
        if let Err(error) = self.ports.coordinator.write_leader(self.observed.leadership.seen(), &next).await {
            tracing::debug!(%error, "the leader's record could not be released, others will find it silent");
        }
    }
}
