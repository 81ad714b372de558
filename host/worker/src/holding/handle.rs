//! What a pipeline asks of its keeper.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shardmill_core::lease::WriteTrouble;
use shardmill_core::ports::{CheckpointWrite, Progress, ShardEndWrite};
use tokio::sync::{mpsc, oneshot, watch};

/// A write asked for by the pipeline.
pub(super) enum Command {
    Checkpoint(Box<CheckpointWrite>, oneshot::Sender<()>),
    End(Box<ShardEndWrite>, oneshot::Sender<()>),
    Release(Option<String>, oneshot::Sender<()>),
    /// The row may belong to another host now: find out.
    Verify,
}

/// The lease was lost, or is given up, before the write could be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused;

/// Asks the keeper for writes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct KeeperHandle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) settled_bytes: Arc<AtomicU64>,
    pub(super) trouble: watch::Receiver<Option<WriteTrouble>>,
}

impl KeeperHandle {
    /// Writes a checkpoint and waits until it is applied.
    pub(crate) async fn checkpoint(&self, write: CheckpointWrite) -> Result<(), Refused> {
        self.ask(|done| Command::Checkpoint(Box::new(write), done))
            .await
    }

    /// Writes the shard's end and waits until it is applied; the lease is given back with it.
    pub(crate) async fn end(&self, write: ShardEndWrite) -> Result<(), Refused> {
        self.ask(|done| Command::End(Box::new(write), done)).await
    }

    /// Releases the lease, with the trouble that caused it, if any.
    pub(crate) async fn release(&self, stuck: Option<String>) -> Result<(), Refused> {
        self.ask(|done| Command::Release(stuck, done)).await
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

    /// Counts bytes of settled data, from which the lease's throughput is measured.
    pub(crate) fn count_bytes(&self, bytes: u64) {
        self.settled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes facts to ride along with the next renewal.
    pub(crate) fn note(&self, progress: Progress) {
        self.progress.send_replace(progress);
    }

    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<()>) -> Command,
    ) -> Result<(), Refused> {
        let (done, applied) = oneshot::channel();
        self.commands
            .send(command(done))
            .await
            .map_err(|_| Refused)?;
        applied.await.map_err(|_| Refused)
    }
}
