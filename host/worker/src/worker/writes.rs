//! Whether this host can write lease rows, and what follows if it cannot.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardmill_core::lease::{
    Checkpoint, Lease, LeaseCounter, LeaseToken, WriteTrouble, can_others_write,
};
use shardmill_core::ports::{CheckpointWrite, Progress, StoreError};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::LeaseKey;
use shardmill_core::time::Moment;

use super::holdings::Holdings;
use super::look::Lookout;
use super::run::Run;
use super::{Worker, WorkerError};

/// The key of a row that is never created, since no shard has this id.
const NO_ROW: &str = "shardmill-write-check";
/// Takes that failed before this many lease durations, and were not tried since, count no more:
/// others have tried by then.
const TAKES_COUNT_FOR_LEASES: u32 = 3;

/// What a worker remembers of writes that failed.
pub(super) struct Writes {
    run: Arc<Run>,
    /// Takes that fail, as long as none is answered.
    takes: Option<WriteTrouble>,
    take_sent_at: Option<Moment>,
    /// Until when none is tried, since the last ones were refused.
    takes_rest_until: Option<Moment>,
    /// Leases that were given up and could not be released, and why.
    unreleased: BTreeMap<LeaseKey, String>,
}

/// Writes that do not get through.
struct Failing {
    /// Of this lease's row; `None` if they are takes.
    lease: Option<LeaseKey>,
    trouble: WriteTrouble,
}

impl Writes {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            takes: None,
            take_sent_at: None,
            takes_rest_until: None,
            unreleased: BTreeMap::new(),
        }
    }

    /// Takes that failed in a row.
    pub(super) fn failed_takes(&self) -> u32 {
        self.takes.as_ref().map_or(0, |trouble| trouble.attempts)
    }

    /// Whether no take is to be tried yet.
    pub(super) fn do_takes_rest(&self, now: Moment) -> bool {
        self.takes_rest_until.is_some_and(|until| now < until)
    }

    pub(super) fn let_takes_rest(&mut self, until: Moment) {
        self.takes_rest_until = Some(until);
    }

    /// A take that was sent at `sent_at` was answered, or failed.
    pub(super) fn note_take(&mut self, sent_at: Moment, error: Option<&StoreError>) {
        self.take_sent_at = Some(sent_at);
        let earlier = self.takes.take();
        self.takes = error.map(|error| WriteTrouble {
            since: earlier.as_ref().map_or(sent_at, |trouble| trouble.since),
            attempts: earlier.map_or(0, |trouble| trouble.attempts) + 1,
            reason: format!("cannot take leases: {error}"),
        });
    }

    /// A lease was given up and could not be released.
    pub(super) fn note_unreleased(&mut self, key: LeaseKey, reason: String) {
        self.unreleased.insert(key, reason);
    }

    /// The holders of these leases were cut off while a write to their rows did not get through.
    pub(super) fn note_cut_off(&mut self, holdings: &Holdings) {
        for (key, trouble) in holdings.troubles() {
            self.unreleased.insert(key.clone(), trouble.reason);
        }
    }

    /// Leases that were given up and could not be released.
    pub(super) fn unreleased(&self) -> impl Iterator<Item = &LeaseKey> {
        self.unreleased.keys()
    }

    /// What a row says of a trouble once it is given back by name: why it was given up here, or
    /// what it says already.
    pub(super) fn stuck_of(&self, row: &Lease) -> Option<String> {
        let given_up = self.unreleased.get(&row.key);
        given_up.or(row.stuck.as_ref()).cloned()
    }

    fn forget_old_takes(&mut self) {
        let oldest = self.run.now() - self.run.lease_duration() * TAKES_COUNT_FOR_LEASES;
        if self.take_sent_at.is_some_and(|at| at < oldest) {
            self.takes = None;
        }
    }

    /// Forgets unreleased leases that others have, or this host holds again.
    fn forget_released(&mut self, lookout: &Lookout, holdings: &Holdings) {
        if !lookout.has_listed() {
            return;
        }
        let (me, rows) = (self.run.me(), lookout.rows());
        self.unreleased.retain(|key, _| {
            let row = rows.iter().find(|row| row.key == *key);
            let is_mine = row.is_some_and(|row| row.owner.as_ref() == Some(me));
            is_mine && !holdings.has(key)
        });
    }

    /// Everything that does not get through and is worth showing.
    fn failing(&self, holdings: &Holdings) -> Vec<Failing> {
        let mut failing = Vec::new();
        if let Some(trouble) = self.takes.clone() {
            failing.push(Failing {
                lease: None,
                trouble,
            });
        }
        for (key, trouble) in holdings.troubles() {
            failing.push(Failing {
                lease: Some(key.clone()),
                trouble,
            });
        }
        failing.retain(|failing| failing.trouble.is_shown());
        failing
    }

    /// Why rows cannot be written: what fails for longest, or a row that could not be released.
    fn reason(&self, failing: &[Failing]) -> Option<String> {
        let longest = failing.iter().min_by_key(|failing| failing.trouble.since);
        let reason = longest.map(|failing| &failing.trouble.reason);
        reason.or(self.unreleased.values().next()).cloned()
    }

    /// Fails if a row could not even be released and other hosts can write: this host's heartbeat
    /// holds that row for as long as it beats.
    fn check_unreleased(&self, can_others_write: bool) -> Result<(), WorkerError> {
        match self.unreleased.values().next() {
            Some(reason) if can_others_write => Err(self.cannot_write(reason.clone())),
            Some(_) | None => Ok(()),
        }
    }

    fn cannot_write(&self, reason: String) -> WorkerError {
        WorkerError::CannotWrite {
            application: self.run.options.application.clone(),
            reason,
        }
    }
}

impl Worker {
    /// Gives up what could not be written for long, if another host may do better: the lease
    /// concerned, if only its row cannot be written; else all of them. Then, and if a row cannot
    /// even be released, this host leaves the fleet until it can write again.
    pub(super) async fn judge_writes(&mut self) -> Result<(), WorkerError> {
        let can_others_write = can_others_write(
            self.run.me(),
            &self.lookout.fleet().workers,
            self.lookout.alive(),
        );
        self.writes.forget_released(&self.lookout, &self.holdings);
        self.writes.forget_old_takes();
        let mut lasting = self.writes.failing(&self.holdings);
        if SeededBug::WriteTroubleIsLeftAlone.is_on() {
            return Ok(());
        }
        self.reports.cannot_write(self.writes.reason(&lasting));
        let (now, duration) = (self.run.now(), self.run.lease_duration());
        lasting.retain(|failing| failing.trouble.is_to_be_given_up(now, duration, true));
        let Some(since) = lasting.iter().map(|failing| failing.trouble.since).min() else {
            return self.writes.check_unreleased(can_others_write);
        };
        // In an outage for all, the others need a while to write that into their rows. And a host
        // that heeds has not looked at the others for long, or never.
        if !self.lookout.has_looked_since(since + duration) {
            self.look_for_itself();
            return Ok(());
        }
        if !can_others_write {
            return Ok(());
        }
        let problem_of_all = check_writes(&self.run).await.err();
        if !self.give_up_failing(lasting) {
            return Ok(());
        }
        match problem_of_all {
            Some(error) => Err(self.writes.cannot_write(error.to_string())),
            None => self.writes.check_unreleased(can_others_write),
        }
    }

    /// Gives up the leases whose rows still cannot be written: meanwhile a write may have come
    /// through. Returns whether something still fails.
    fn give_up_failing(&self, failing: Vec<Failing>) -> bool {
        let mut is_any = false;
        for Failing { lease, trouble } in failing {
            let Some(key) = lease else {
                is_any = true;
                continue;
            };
            if self.holdings.trouble(&key).is_some() {
                is_any = true;
                self.holdings.give_up(&key, trouble.reason);
            }
        }
        is_any
    }
}

/// Checks that lease rows can be written, by writes whose condition no row meets. A host that
/// cannot write would only be counted in shares that it cannot take.
pub(super) async fn check_writes(run: &Run) -> Result<(), StoreError> {
    let token = LeaseToken {
        key: LeaseKey::new(NO_ROW).map_err(refused)?,
        owner: run.me().clone(),
        counter: LeaseCounter(0),
    };
    run.ports.store.renew(&token, &Progress::default()).await?;
    if run.options.keeps_state {
        let write = CheckpointWrite {
            checkpoint: Checkpoint::TrimHorizon,
            progress: Progress::default(),
            state: Some(bytes::Bytes::new()),
        };
        run.ports.store.checkpoint(&token, &write).await?;
    }
    Ok(())
}

fn refused(error: impl std::fmt::Display) -> StoreError {
    StoreError::Refused {
        message: error.to_string(),
    }
}
