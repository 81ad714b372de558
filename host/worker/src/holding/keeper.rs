//! The keeper: the only writer to a held lease's row, so that two writes of one host never fence
//! each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shardmill_core::lease::{ConflictVerdict, Hold, Lease, LeaseToken, LossReason, judge_conflict};
use shardmill_core::plan::Balance;
use shardmill_core::ports::{
    Clock, LeaseStore, PortFuture, Progress, StoreError, WriteResult, Written,
};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::time::Moment;
use tokio::sync::{mpsc, watch};

use super::gate::LeaseState;
use super::handle::{Command, KeeperHandle, Obeyed, Settled};
use super::held::{Held, Sent, Shown, Taken};
use super::rate::Rates;
use super::row_write::{Applied, NotApplied, Unwritten, Write};
use super::trouble::Troubles;
use crate::heart::HeartWatch;
use crate::options::LeaseOptions;

/// Commands that may wait for the keeper. Two: one being written, one behind it; more would only
/// delay back-pressure.
const COMMANDS_MAX: usize = 2;
/// First wait after a failed write; doubles up to a third of the lease duration.
const RETRY_BASE: Duration = Duration::from_millis(50);

/// How old the lag may be that the row of a shard shows which settles nothing. One unit a write:
/// for people, often enough.
const LAG_SHOWN_EVERY: Duration = Duration::from_secs(30);

/// Renews one lease and performs its pipeline's writes, one at a time, in order.
pub(crate) struct Keeper {
    ports: KeeperPorts,
    options: LeaseOptions,
    held: Held,
    /// Facts that the row shows to people, and to hosts that balance by throughput.
    shown: Shown,
    rate: Rates,
    /// When it was last checked whether there is something to write.
    ticked_at: Moment,
    commands: mpsc::Receiver<Command>,
    progress: watch::Receiver<Progress>,
    state: watch::Sender<LeaseState>,
    troubles: Troubles,
    /// Whether a write was given up that may have been applied, or may still be. From then on, a
    /// row that has moved by one does not prove that a later write was applied.
    gave_up_a_write: bool,
}

/// The ports and options that a keeper needs.
pub(crate) struct KeeperPorts {
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) heart: HeartWatch,
    /// Whether each row is renewed, as a KCL that shares the table needs it; else the heart holds
    /// them all.
    pub(crate) renews_rows: Arc<AtomicBool>,
    /// Why the lease is to be given up, if it is: only the release is tried again then. A write
    /// that comes through takes the wish back.
    pub(crate) give_up: watch::Sender<Option<String>>,
}

impl Keeper {
    /// A keeper for a lease just taken, the handle of its pipeline, and the state that it
    /// publishes.
    pub(crate) fn new(
        ports: KeeperPorts,
        options: LeaseOptions,
        taken: Taken,
        troubles: Troubles,
    ) -> (Self, KeeperHandle, watch::Receiver<LeaseState>) {
        let sent = Sent {
            at: taken.sent_at,
            generation: taken.generation,
        };
        let (state_sender, state) = watch::channel(LeaseState::Held(sent.hold(&options)));
        let (command_sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (progress_sender, progress) = watch::channel(Progress {
            stuck: taken.shown.stuck.clone(),
            ..Progress::default()
        });
        let settled = Settled::default();
        let rate = Rates::of(&settled, sent.at);
        let handle = KeeperHandle {
            commands: command_sender,
            progress: progress_sender,
            settled,
            trouble: troubles.watch(),
        };
        let keeper = Self {
            ports,
            options,
            held: Held {
                token: taken.token,
                sent,
                since_ms: taken.held_since_ms,
            },
            shown: taken.shown,
            rate,
            ticked_at: sent.at,
            commands,
            progress,
            state: state_sender,
            troubles,
            gave_up_a_write: false,
        };
        (keeper, handle, state)
    }

    /// Runs until the lease is released, ended or lost, or every handle is gone.
    pub(super) async fn run(mut self) {
        loop {
            let last = self.held.sent.at.max(self.ticked_at);
            let tick_in = (last + self.options.renew_every).since(self.ports.clock.now());
            let wait = tick_in.min(self.remaining());
            let kept = tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(command) => self.perform(command).await,
                    None => return,
                },
                () = self.ports.heart.changed() => Ok(true),
                () = tokio::time::sleep(wait) => self.tick().await,
            };
            match kept {
                // The pipeline also learns that the lease is to be given up, and asks for the
                // release.
                Ok(true) | Err(Unwritten::GivenUp | Unwritten::Outdated(_)) => {}
                Ok(false) => return,
                Err(Unwritten::Lost(reason)) => {
                    self.state.send_replace(LeaseState::Lost(reason));
                    return;
                }
            }
        }
    }

    /// Renews the row if it must be renewed or has news for people, and notices a passed deadline.
    /// Returns true: the lease is still held afterwards.
    async fn tick(&mut self) -> Result<bool, Unwritten> {
        self.ticked_at = self.ports.clock.now();
        let progress = self.progress_now();
        if self.must_renew(&progress) && !self.is_given_up() {
            self.write(Write::Renew(&progress)).await?;
            self.rate.written();
            self.shown = Shown::of(&progress);
        } else if self.remaining().is_zero() {
            return Err(Unwritten::Lost(LossReason::DeadlinePassed));
        }
        Ok(true)
    }

    /// The facts that the row should show now.
    fn progress_now(&mut self) -> Progress {
        let mut progress = self.progress.borrow().clone();
        progress.bytes_per_second = self.rate.measure(self.ticked_at);
        let signs = self.troubles.signs();
        signs.throughput(self.rate.records_per_second(), progress.bytes_per_second);
        signs.look();
        progress.stuck = progress.stuck.or_else(|| signs.note());
        let noted = progress.millis_behind_latest;
        progress.millis_behind_latest = if signs.age_ms().is_some() {
            signs.lag_ms().max(noted)
        } else {
            // Nothing waits here, so the last reply knows it, and what was noted may be old.
            signs.lag_ms().or(noted)
        };
        progress
    }

    fn must_renew(&self, progress: &Progress) -> bool {
        // If the heart is late, because the coordinator table does not answer, the lease need not
        // be lost: the row can be renewed by itself, as a KCL does it.
        let is_heart_late = self.remaining() < self.options.hold_for() * 2 / 5;
        // A heart that missed its deadline holds this lease again once a write proves that no host
        // took it.
        let is_heart_behind = self.held.sent.generation != self.ports.heart.generation();
        self.ports.renews_rows.load(Ordering::Relaxed)
            || is_heart_late
            || is_heart_behind
            || self.has_news(progress)
    }

    /// Whether the row says something outdated.
    fn has_news(&self, progress: &Progress) -> bool {
        let is_weighed = self.options.balance == Balance::Throughput;
        let lag = self.troubles.signs().lag_ms().map(Duration::from_millis);
        let lags = lag.is_some_and(|lag| lag >= LAG_SHOWN_EVERY);
        let is_lag_old = self.ticked_at.since(self.held.sent.at) >= LAG_SHOWN_EVERY;
        progress.stuck != self.shown.stuck
            || is_weighed && self.rate.has_changed()
            || lags && is_lag_old
            || self.shown.lag_is_over(progress, LAG_SHOWN_EVERY)
    }

    /// Time until the lease must be let go, unless a write or a heartbeat goes through.
    fn remaining(&self) -> Duration {
        if SeededBug::NoHolderDeadline.is_on() {
            return self.options.hold_for();
        }
        let deadline = self.ports.heart.deadline(self.hold());
        deadline.since(self.ports.clock.now())
    }

    /// What the last applied write gives.
    fn hold(&self) -> Hold {
        self.held.sent.hold(&self.options)
    }

    /// Performs a command. Returns whether the lease is still held afterwards.
    async fn perform(&mut self, command: Command) -> Result<bool, Unwritten> {
        let (done, is_held) = match command {
            Command::Checkpoint(mut write, done) => {
                write.progress.bytes_per_second = self.rate.measure(self.ports.clock.now());
                self.write(Write::Checkpoint(&write)).await?;
                self.rate.written();
                self.shown = Shown::of(&write.progress);
                (done, true)
            }
            Command::End(write, done) => {
                let ended = Obeyed::of(self.write(Write::End(&write)).await)?;
                let is_held = ended != Obeyed::Done;
                if !is_held {
                    // Finished rows need no owner: others then see at a glance that no host works
                    // on it.
                    self.release(None).await?;
                }
                let _ = done.send(ended);
                return Ok(is_held);
            }
            Command::Release(stuck, done) => {
                self.release(stuck).await?;
                (done, false)
            }
            Command::Obey(write, done) => {
                let obeyed = Obeyed::of(self.write(Write::Obey(&write)).await)?;
                if obeyed == Obeyed::Done {
                    self.shown = Shown::of(&write.progress);
                }
                let _ = done.send(obeyed);
                return Ok(true);
            }
            Command::Verify => {
                let progress = self.progress.borrow().clone();
                self.write(Write::Renew(&progress)).await?;
                return Ok(true);
            }
        };
        // The pipeline may have stopped waiting; the write counts nevertheless.
        let _ = done.send(());
        Ok(is_held)
    }

    async fn release(&mut self, stuck: Option<String>) -> Result<(), Unwritten> {
        let progress = Progress {
            stuck,
            ..Progress::default()
        };
        match self.write(Write::Release(&progress)).await {
            // The release was applied and its answer lost: the row has no owner, as wanted, or
            // somebody was quick.
            Err(Unwritten::Lost(LossReason::Unowned | LossReason::TakenBy(_))) => Ok(()),
            result => result,
        }
    }

    /// Sends one write until it is known to be applied, or the lease is known to be gone, or its
    /// deadline has passed, or it is given up.
    ///
    /// An unanswered write is sent again *unchanged*: should the first one still arrive, only one
    /// of the two meets the condition, and both mean the same.
    async fn write(&mut self, write: Write<'_>) -> Result<(), Unwritten> {
        let first_sent = self.sent_now();
        let mut failures = 0_u32;
        loop {
            let sent_now = self.sent_now();
            match self.try_write(write).await {
                Ok(Applied::Now(token)) => {
                    self.hold_from(token, sent_now);
                    return Ok(());
                }
                // It is not known which try was applied: assume the first.
                Ok(Applied::Earlier(token)) => {
                    self.hold_from(token, first_sent);
                    return Ok(());
                }
                Err(NotApplied::Lost(reason)) => return Err(Unwritten::Lost(reason)),
                Err(NotApplied::Outdated(now)) => {
                    self.in_no_doubt();
                    return Err(Unwritten::Outdated(now));
                }
                Err(NotApplied::Failed(error)) => {
                    failures += 1;
                    self.troubles.failed(first_sent.at, failures, &error);
                }
            }
            if self.is_given_up() && !self.is_last_chance(write, first_sent) {
                self.gave_up_a_write = true;
                return Err(Unwritten::GivenUp);
            }
            self.troubles.signs().look();
            self.wait_to_retry(failures).await;
        }
    }

    /// Sends a write once; [`NotApplied::Failed`] if it should be sent again.
    async fn try_write(&mut self, write: Write<'_>) -> Result<Applied, NotApplied> {
        let remaining = self.remaining();
        if remaining.is_zero() {
            return Err(NotApplied::Lost(LossReason::DeadlinePassed));
        }
        let sent = tokio::time::timeout(remaining, self.send(write)).await;
        let result = sent.unwrap_or_else(|_| Err(no_answer()));
        self.judge(write, result).await
    }

    /// Whether a write to a lease that is given up is tried for some time longer: what is settled
    /// is written down with the way back, so that the next owner does not repeat it.
    fn is_last_chance(&self, write: Write<'_>, first_sent: Sent) -> bool {
        let is_last = matches!(write, Write::Release(_) | Write::Checkpoint(_));
        is_last && self.ports.clock.now().since(first_sent.at) < self.options.duration
    }

    fn sent_now(&self) -> Sent {
        Sent {
            at: self.ports.clock.now(),
            generation: self.ports.heart.generation(),
        }
    }

    /// Notes that a write which was sent at that time was applied.
    fn hold_from(&mut self, token: LeaseToken, sent: Sent) {
        debug_assert!(
            sent.at >= self.held.sent.at,
            "the deadline of a holding never goes back: its writes are sent one after the other"
        );
        debug_assert!(
            token.key == self.held.token.key && token.owner == self.held.token.owner,
            "a keeper is the only writer of its row, and writes to no other"
        );
        self.held.token = token;
        self.held.sent = sent;
        if SeededBug::DeadlineFromReply.is_on() {
            self.held.sent.at = self.ports.clock.now();
        }
        self.troubles.over();
        // The pipeline may be in a long call when it is asked to give up, and go on after it.
        self.ports
            .give_up
            .send_if_modified(|reason| reason.take().is_some());
        self.state.send_replace(LeaseState::Held(self.hold()));
    }

    /// A write was found not to be applied, and is not sent again: the row is as the last one left
    /// it.
    fn in_no_doubt(&self) {
        self.troubles.over();
        self.state.send_replace(LeaseState::Held(self.hold()));
    }

    fn is_given_up(&self) -> bool {
        self.ports.give_up.borrow().is_some()
    }

    /// Waits before the next try; the moment at which the lease is given up ends the wait.
    async fn wait_to_retry(&self, failures: u32) {
        let wait = RETRY_BASE
            .saturating_mul(1 << failures.min(10))
            .min(self.options.duration / 3);
        let wait = wait
            .mul_f64(0.5 + fastrand::f64() / 2.0)
            .min(self.remaining());
        let is_given_up = self.is_given_up();
        let mut give_up = self.ports.give_up.subscribe();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Ok(_) = give_up.wait_for(Option::is_some), if !is_given_up => {}
        }
    }

    fn send<'a>(&'a self, write: Write<'a>) -> PortFuture<'a, WriteResult> {
        match write {
            Write::Renew(progress) => self.ports.store.renew(&self.held.token, progress),
            Write::Checkpoint(checkpoint) => {
                self.ports.store.checkpoint(&self.held.token, checkpoint)
            }
            Write::End(end) => self.ports.store.end(&self.held.token, end),
            Write::Release(progress) => self.ports.store.release(&self.held.token, progress),
            Write::Obey(obey) => self.ports.store.obey(&self.held.token, obey),
        }
    }

    /// The new token if the write is known to be applied; [`NotApplied::Failed`] if it should be
    /// sent again.
    async fn judge(
        &mut self,
        write: Write<'_>,
        result: WriteResult,
    ) -> Result<Applied, NotApplied> {
        match result {
            Ok(Written::Applied(token)) => Ok(Applied::Now(token)),
            Ok(Written::Conflict(row)) => self.verdict(write, row.as_deref(), no_answer()),
            Err(error @ StoreError::Unknown { .. }) => {
                tracing::debug!(lease = %self.held.token.key, %error, "no answer to a lease write, \
                    reading the row");
                self.state.send_replace(LeaseState::InDoubt(self.hold()));
                self.settle_doubt(write, error).await
            }
            Err(
                error @ (StoreError::Throttled { .. }
                | StoreError::Refused { .. }
                | StoreError::WrongTable { .. }),
            ) => Err(NotApplied::Failed(error)),
        }
    }

    /// One consistent read; if that fails too, the write is sent again, which settles it just as
    /// well.
    async fn settle_doubt(
        &mut self,
        write: Write<'_>,
        error: StoreError,
    ) -> Result<Applied, NotApplied> {
        if SeededBug::UnknownCountsAsApplied.is_on() {
            return Ok(Applied::Earlier(self.held.token.advanced()));
        }
        match tokio::time::timeout(self.remaining(), self.ports.store.get(&self.held.token.key))
            .await
        {
            Ok(Ok(row)) => self.verdict(write, row.as_ref(), error),
            Ok(Err(_)) | Err(_) => Err(NotApplied::Failed(error)),
        }
    }

    /// What a row means that did not meet a write's condition. A counter of one more under this
    /// worker's name is not its own write if another process of that name took the lease, which
    /// left the time of its take.
    fn meaning_of(&self, row: Option<&Lease>) -> ConflictVerdict {
        let is_anothers = row.is_some_and(|row| row.held_since_ms != Some(self.held.since_ms));
        match judge_conflict(&self.held.token, row) {
            ConflictVerdict::AppliedEarlier if is_anothers => {
                ConflictVerdict::Lost(LossReason::CounterMoved)
            }
            verdict => verdict,
        }
    }

    fn verdict(
        &mut self,
        write: Write<'_>,
        row: Option<&Lease>,
        error: StoreError,
    ) -> Result<Applied, NotApplied> {
        match self.meaning_of(row) {
            // It may be a write that was given up before this one; of a release it is, which would
            // have left no owner. If it is this one, sending it again changes nothing.
            ConflictVerdict::AppliedEarlier
                if self.gave_up_a_write || matches!(write, Write::Release(_)) =>
            {
                self.held.token = self.held.token.advanced();
                Err(NotApplied::Failed(error))
            }
            ConflictVerdict::AppliedEarlier => Ok(Applied::Earlier(self.held.token.advanced())),
            ConflictVerdict::NotApplied => self.not_applied(write, row, error),
            ConflictVerdict::Lost(reason) => Err(NotApplied::Lost(reason)),
        }
    }
}

impl Keeper {
    /// What follows if the row is as the last write left it, but perhaps for its directives.
    fn not_applied(
        &self,
        write: Write<'_>,
        row: Option<&Lease>,
        error: StoreError,
    ) -> Result<Applied, NotApplied> {
        match row {
            Some(row) if write.is_shown_by(row) => Ok(Applied::Earlier(self.held.token.clone())),
            Some(row) if write.is_outdated_by(row) => {
                Err(NotApplied::Outdated(Box::new(row.directives.clone())))
            }
            Some(_) | None => Err(NotApplied::Failed(error)),
        }
    }
}

fn no_answer() -> StoreError {
    StoreError::Unknown {
        message: "no answer before the lease's deadline".to_owned(),
    }
}
