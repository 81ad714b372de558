//! What a pipeline asks of its keeper.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shardmill_core::control::Directives;
use shardmill_core::lease::WriteTrouble;
use shardmill_core::ports::{CheckpointWrite, ObeyWrite, Progress, ShardEndWrite};
use tokio::sync::{mpsc, oneshot, watch};

use super::row_write::Unwritten;

/// A write asked for by the pipeline.
pub(super) enum Command {
    Checkpoint(Box<CheckpointWrite>, oneshot::Sender<()>),
    End(Box<ShardEndWrite>, oneshot::Sender<Obeyed>),
    Release(Option<String>, oneshot::Sender<()>),
    Obey(Box<ObeyWrite>, oneshot::Sender<Obeyed>),
    /// The row may belong to another host now: find out.
    Verify,
}

/// How a write ended that rests on what operators want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obeyed {
    /// It is in the row.
    Done,
    /// Nothing was written: operators want something else by now.
    Outdated(Box<Directives>),
}

impl Obeyed {
    /// How such a write went: the lease is held, also if operators want something else by now.
    pub(super) fn of(written: Result<(), Unwritten>) -> Result<Self, Unwritten> {
        match written {
            Ok(()) => Ok(Self::Done),
            Err(Unwritten::Outdated(now)) => Ok(Self::Outdated(now)),
            Err(unwritten) => Err(unwritten),
        }
    }
}

/// The lease was lost, or is given up, before the write could be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused;

/// What was settled in a holding so far.
#[derive(Clone, Default)]
pub(super) struct Settled {
    pub(super) records: Arc<AtomicU64>,
    pub(super) bytes: Arc<AtomicU64>,
}

/// Asks the keeper for writes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct KeeperHandle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) settled: Settled,
    pub(super) trouble: watch::Receiver<Option<WriteTrouble>>,
}

impl KeeperHandle {
    /// Writes a checkpoint and waits until it is applied.
    pub(crate) async fn checkpoint(&self, write: CheckpointWrite) -> Result<(), Refused> {
        self.ask(|done| Command::Checkpoint(Box::new(write), done))
            .await
    }

    /// Writes the shard's end and waits until it is applied, or known to be outdated; the lease is
    /// given back with it.
    pub(crate) async fn end(&self, write: ShardEndWrite) -> Result<Obeyed, Refused> {
        self.ask(|done| Command::End(Box::new(write), done)).await
    }

    /// Releases the lease, with the trouble that caused it, if any.
    pub(crate) async fn release(&self, stuck: Option<String>) -> Result<(), Refused> {
        self.ask(|done| Command::Release(stuck, done)).await
    }

    /// Writes that what operators wanted is done, and waits until it is applied or known to be
    /// outdated.
    pub(crate) async fn obey(&self, write: ObeyWrite) -> Result<Obeyed, Refused> {
        self.ask(|done| Command::Obey(Box::new(write), done)).await
    }

    /// Makes the keeper find out whether this host still holds the lease. If it is busy writing,
    /// that write shows it.
    pub(crate) fn verify(&self) {
        let _ = self.commands.try_send(Command::Verify);
    }

    /// The write that keeps failing, if there is one.
    pub(crate) fn trouble(&self) -> Option<WriteTrouble> {
        self.trouble.borrow().clone()
    }

    /// Counts settled records and the bytes of their data, from which the lease's throughput is
    /// measured.
    pub(crate) fn count(&self, records: u64, bytes: u64) {
        self.settled.records.fetch_add(records, Ordering::Relaxed);
        self.settled.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes facts to ride along with the next renewal.
    pub(crate) fn note(&self, progress: Progress) {
        self.progress.send_replace(progress);
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Refused> {
        let (done, applied) = oneshot::channel();
        self.commands
            .send(command(done))
            .await
            .map_err(|_| Refused)?;
        applied.await.map_err(|_| Refused)
    }
}
