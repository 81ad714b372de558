//! The end of a holding that is not the shard's: drained, or given up.

use std::time::Duration;

use shardmill_core::lease::LossReason;
use shardmill_core::ports::CloseReason;
use shardmill_core::seeded_bug::SeededBug;
use tokio_util::sync::CancellationToken;

use super::consumer::{Consumer, PipelineEnd};
use crate::holding::{Refused, Stopped};
use crate::status::ShardState;

impl Consumer {
    /// Closes the instance, stores its outputs, checkpoints, gives the lease back. What is to be
    /// delivered again waits for the next owner: the checkpoint is below it.
    pub(super) async fn drain(mut self) -> PipelineEnd {
        self.status
            .update_shard(&self.shard, |status| status.state = ShardState::Draining);
        self.reading.abort();
        // The wish to stop was heard; from here on only a lost lease cuts the work short. A sink
        // that fails for a moment must not make the records behind it repeat.
        self.gate.drain = CancellationToken::new();
        if SeededBug::HandsOverWithoutCheckpoint.is_on() {
            self.headway.settled = None;
        }
        let finished = self.finish().await;
        if SeededBug::DrainsWithoutRelease.is_on() {
            return PipelineEnd::Released;
        }
        // If what is settled could not be written down it comes again, and the row says why.
        let stuck = match finished {
            Err(Stopped::Stuck(reason)) => Some(reason),
            Err(Stopped::Lost(_) | Stopped::Draining) | Ok(()) => None,
        };
        match self.keeper.release(stuck.clone()).await {
            Ok(()) => stuck.map_or(PipelineEnd::Released, PipelineEnd::GaveUp),
            Err(Refused) => self.not_released(),
        }
    }

    /// Closes the instance, stores what it emits, and checkpoints. If a sink cannot take that, the
    /// records behind it are not checkpointed either.
    async fn finish(&mut self) -> Result<(), Stopped> {
        self.save_state().await;
        let finished = match self.instance.close(CloseReason::Shutdown).await {
            Ok(emitted) => {
                let through = self.headway.ledger.handed_out().cloned();
                self.output.write(emitted, through, &mut self.gate).await
            }
            Err(error) => {
                tracing::warn!(shard = %self.shard, %error, "the plugin failed in close");
                Ok(())
            }
        };
        let finished = match finished {
            Ok(()) => self.write_checkpoint().await,
            Err(stopped) => Err(stopped),
        };
        if finished.is_err() {
            tracing::warn!(shard = %self.shard, "the last checkpoint could not be written, records \
                will repeat");
        }
        finished
    }

    /// Gives the lease back without waiting for what does not come: what is settled is checkpointed
    /// if that can be done at once.
    pub(super) async fn give_up(mut self, reason: String) -> PipelineEnd {
        /// A sink that fails at once or answers at once is quick; one that hangs is why we are
        /// here.
        const LAST_CHECKPOINT_MAX: Duration = Duration::from_secs(2);
        tracing::warn!(shard = %self.shard, reason, "the shard makes no progress here, giving up its lease");
        self.reading.abort();
        self.instance.kill();
        let _ = tokio::time::timeout(LAST_CHECKPOINT_MAX, self.write_checkpoint()).await;
        match self.keeper.release(Some(reason.clone())).await {
            Ok(()) => PipelineEnd::GaveUp(reason),
            Err(Refused) => self.not_released(),
        }
    }

    fn not_released(&self) -> PipelineEnd {
        match self.why_refused() {
            Stopped::Stuck(reason) => PipelineEnd::Unreleased(reason),
            Stopped::Lost(reason) => PipelineEnd::Lost(reason),
            Stopped::Draining => PipelineEnd::Lost(LossReason::DeadlinePassed),
        }
    }

    /// The keeper refuses only once the lease is gone, or to be given up.
    pub(super) fn why_refused(&self) -> Stopped {
        self.gate
            .check_held()
            .err()
            .unwrap_or(Stopped::Lost(LossReason::DeadlinePassed))
    }
}
