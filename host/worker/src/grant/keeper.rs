//! The keeper: the only writer to a held lease's row, so that two writes of one host never fence each other.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::lease::{ConflictVerdict, LeaseToken, LossReason, judge_conflict};
use shardmill_core::ports::{
    CheckpointWrite, Clock, LeaseStore, PortFuture, Progress, ShardEndWrite, StoreError, WriteResult, Written,
};
use shardmill_core::time::Moment;
use tokio::sync::{mpsc, oneshot, watch};

use super::standing::LeaseState;
use crate::options::LeaseOptions;

/// Commands that may wait for the keeper. Two: one being written, one behind it; more would only delay back-pressure.
const COMMANDS_MAX: usize = 2;
/// First wait after a failed write; doubles up to a third of the lease duration.
const RETRY_BASE: Duration = Duration::from_millis(50);

/// A write asked for by the pipeline.
enum Command {
    Checkpoint(Box<CheckpointWrite>, oneshot::Sender<()>),
    End(Box<ShardEndWrite>, oneshot::Sender<()>),
    Release(oneshot::Sender<()>),
}

/// What a single write does; kept as a value so that an unanswered one can be sent again unchanged.
#[derive(Clone, Copy)]
enum Write<'a> {
    Renew(&'a Progress),
    Checkpoint(&'a CheckpointWrite),
    End(&'a ShardEndWrite),
    Release,
}

/// The lease was lost before the write could be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused;

/// Asks the keeper for writes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct KeeperHandle {
    commands: mpsc::Sender<Command>,
    progress: watch::Sender<Progress>,
}

/// Renews one lease and performs its pipeline's writes, one at a time, in order.
pub(crate) struct Keeper {
    store: Arc<dyn LeaseStore>,
    clock: Arc<dyn Clock>,
    options: LeaseOptions,
    token: LeaseToken,
    /// When the last successful write was *sent*: from there the deadline counts, not from its answer.
    sent_at: Moment,
    commands: mpsc::Receiver<Command>,
    progress: watch::Receiver<Progress>,
    state: watch::Sender<LeaseState>,
}

// === impl KeeperHandle ===

impl KeeperHandle {
    /// Writes a checkpoint and waits until it is applied.
    pub(crate) async fn checkpoint(&self, write: CheckpointWrite) -> Result<(), Refused> {
        self.ask(|done| Command::Checkpoint(Box::new(write), done)).await
    }

    /// Writes the shard's end and waits until it is applied; the lease is given back with it.
    pub(crate) async fn end(&self, write: ShardEndWrite) -> Result<(), Refused> {
        self.ask(|done| Command::End(Box::new(write), done)).await
    }

    /// Gives the lease back.
    pub(crate) async fn release(&self) -> Result<(), Refused> {
        self.ask(Command::Release).await
    }

    /// Notes facts to ride along with the next renewal.
    pub(crate) fn note(&self, progress: Progress) {
        self.progress.send_replace(progress);
    }

    async fn ask(&self, command: impl FnOnce(oneshot::Sender<()>) -> Command) -> Result<(), Refused> {
        let (done, applied) = oneshot::channel();
        self.commands.send(command(done)).await.map_err(|_| Refused)?;
        applied.await.map_err(|_| Refused)
    }
}

// === impl Keeper ===

impl Keeper {
    /// A keeper for a lease whose take was sent at `sent_at`.
    pub(super) fn new(
        store: Arc<dyn LeaseStore>,
        clock: Arc<dyn Clock>,
        options: LeaseOptions,
        token: LeaseToken,
        sent_at: Moment,
    ) -> (Self, KeeperHandle, watch::Receiver<LeaseState>) {
        let (command_sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (progress_sender, progress) = watch::channel(Progress::default());
        let (state, state_receiver) = watch::channel(LeaseState::Held { until: sent_at + options.hold_for() });
        let handle = KeeperHandle { commands: command_sender, progress: progress_sender };
        (Self { store, clock, options, token, sent_at, commands, progress, state }, handle, state_receiver)
    }

    /// Runs until the lease is released, ended or lost, or every handle is gone.
    pub(super) async fn run(mut self) {
        loop {
            let renew_in = (self.sent_at + self.options.renew_every).since(self.clock.now());
            let kept = tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(command) => self.perform(command).await,
                    None => return,
                },
                () = tokio::time::sleep(renew_in) => {
                    let progress = self.progress.borrow().clone();
                    self.write(Write::Renew(&progress)).await.map(|()| true)
                }
            };
            match kept {
                Ok(true) => {}
                Ok(false) => return,
                Err(reason) => {
                    self.state.send_replace(LeaseState::Lost(reason));
                    return;
                }
            }
        }
    }

    /// Whether the lease is still held afterwards.
    async fn perform(&mut self, command: Command) -> Result<bool, LossReason> {
        let (done, is_held) = match command {
            Command::Checkpoint(write, done) => {
                self.write(Write::Checkpoint(&write)).await?;
                (done, true)
            }
            Command::End(write, done) => {
                self.write(Write::End(&write)).await?;
                // Finished rows need no owner; others then see at a glance that nobody works on it.
                self.release().await?;
                (done, false)
            }
            Command::Release(done) => {
                self.release().await?;
                (done, false)
            }
        };
        // The pipeline may have stopped waiting; the write counts all the same.
        let _ = done.send(());
        Ok(is_held)
    }

    async fn release(&mut self) -> Result<(), LossReason> {
        match self.write(Write::Release).await {
            // The release was applied and its answer lost: nobody owns the row, as wanted.
            Err(LossReason::Unowned) => Ok(()),
            result => result,
        }
    }

    /// Sends one write until it is known to be applied, or the lease is known to be gone, or its deadline has passed.
    ///
    /// An unanswered write is sent again *unchanged*: should the first one still arrive, only one of the two meets the
    /// condition, and both mean the same.
    async fn write(&mut self, write: Write<'_>) -> Result<(), LossReason> {
        let first_sent_at = self.clock.now();
        let mut failures = 0_u32;
        loop {
            let sent_at = if failures == 0 { first_sent_at } else { self.clock.now() };
            let remaining = (self.sent_at + self.options.hold_for()).since(sent_at);
            if remaining.is_zero() {
                return Err(LossReason::DeadlinePassed);
            }
            let sent = tokio::time::timeout(remaining, self.send(write)).await;
            if let Some(token) = self.judge(sent.unwrap_or_else(|_| Err(no_answer()))).await? {
                self.token = token;
                // After a lost answer nobody knows which attempt was applied: assume the first.
                self.sent_at = first_sent_at;
                self.state.send_replace(LeaseState::Held { until: first_sent_at + self.options.hold_for() });
                return Ok(());
            }
            failures += 1;
            self.wait_to_retry(failures).await;
        }
    }

    async fn wait_to_retry(&self, failures: u32) {
        let wait = RETRY_BASE.saturating_mul(1 << failures.min(10)).min(self.options.duration / 3);
        let until_deadline = (self.sent_at + self.options.hold_for()).since(self.clock.now());
        tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0).min(until_deadline)).await;
    }

    fn send<'a>(&'a self, write: Write<'a>) -> PortFuture<'a, WriteResult> {
        match write {
            Write::Renew(progress) => self.store.renew(&self.token, progress),
            Write::Checkpoint(checkpoint) => self.store.checkpoint(&self.token, checkpoint),
            Write::End(end) => self.store.end(&self.token, end),
            Write::Release => self.store.release(&self.token),
        }
    }

    /// The new token if the write is known to be applied; `None` if it should be sent again.
    async fn judge(&self, result: WriteResult) -> Result<Option<LeaseToken>, LossReason> {
        match result {
            Ok(Written::Applied(token)) => Ok(Some(token)),
            Ok(Written::Conflict(row)) => self.verdict(row.as_deref()),
            Err(StoreError::Unknown { message }) => {
                tracing::debug!(lease = %self.token.key, message, "lease write has no answer, reading the row");
                let until = self.sent_at + self.options.hold_for();
                self.state.send_replace(LeaseState::InDoubt { until });
                self.settle_doubt().await
            }
            Err(
                error @ (StoreError::Throttled { .. } | StoreError::Refused { .. } | StoreError::WrongTable { .. }),
            ) => {
                tracing::warn!(lease = %self.token.key, %error, "lease write failed, trying again until the deadline");
                Ok(None)
            }
        }
    }

    /// One consistent read; if that fails too, the write is sent again, which settles it just as well.
    async fn settle_doubt(&self) -> Result<Option<LeaseToken>, LossReason> {
        let remaining = (self.sent_at + self.options.hold_for()).since(self.clock.now());
        match tokio::time::timeout(remaining, self.store.get(&self.token.key)).await {
            Ok(Ok(row)) => self.verdict(row.as_ref()),
            Ok(Err(_)) | Err(_) => Ok(None),
        }
    }

    fn verdict(&self, row: Option<&shardmill_core::lease::Lease>) -> Result<Option<LeaseToken>, LossReason> {
        match judge_conflict(&self.token, row) {
            ConflictVerdict::AppliedEarlier => Ok(Some(self.token.advanced())),
            ConflictVerdict::NotApplied => Ok(None),
            ConflictVerdict::Lost(reason) => Err(reason),
        }
    }
}

fn no_answer() -> StoreError {
    StoreError::Unknown { message: "no answer before the lease's deadline".to_owned() }
}
