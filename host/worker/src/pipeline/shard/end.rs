//! The end of a shard: everything settled, children leased, `SHARD_END` written, in that order. And
//! the end of a holding that is not the shard's: drained, or given up.

use std::time::Duration;

use shardmill_core::lease::{Checkpoint, Lease, LossReason, WriteTrouble};
use shardmill_core::ports::{CloseReason, LastOutput, ShardEndWrite};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Shard, ShardId};
use tokio_util::sync::CancellationToken;

use super::parallel::Closed;
use super::{PipelineEnd, ShardPipeline};
use crate::holding::{Obeyed, Refused, Stopped};
use crate::pipeline::context::ShardContext;
use crate::status::ShardState;

/// Listings that must agree that a closed shard has no children, before that is believed:
/// `ListShards` may lag.
const CHILDLESS_LISTINGS: u32 = 5;
/// How long the last checkpoint of a shard may take that is given up. A sink that fails at once or
/// answers at once is quick; one that hangs is why we are here.
const LAST_CHECKPOINT_MAX: Duration = Duration::from_secs(2);

impl ShardPipeline {
    // The shard ends.

    /// Finishes a shard whose records are all delivered. Returns false if records must be read
    /// again first.
    pub(super) async fn finish_shard(&mut self) -> Result<bool, Stopped> {
        if !self.close_at_end().await? {
            return Ok(false);
        }
        // They stay named: what operators want may come first, and the end again after it.
        let named = self.intake.children();
        let children = self.children(named).await?;
        if !SeededBug::EndsWithoutChildren.is_on() {
            for child in &children {
                self.lease_child(child).await?;
            }
        }
        self.saving.flush(&mut self.gate).await?;
        self.gate.check_held()?;
        let children: Vec<ShardId> = children.into_iter().map(|child| child.id).collect();
        if !self.write_end(&children).await? {
            return Ok(false);
        }
        self.context.update_status(|status| {
            status.state = ShardState::Ended;
            status.checkpoint = Checkpoint::ShardEnd;
        });
        self.trouble.clear_all_but(None);
        Ok(true)
    }

    /// False if operators want something first of which the holder had not heard: nobody would do
    /// it once the shard has ended.
    async fn write_end(&mut self, children: &[ShardId]) -> Result<bool, Stopped> {
        loop {
            let write = ShardEndWrite {
                children: children.to_vec(),
                progress: self.progress(),
                keeps_state: self.context.options().keeps_state,
                seen_version: self.directions.own().version,
            };
            match self.context.keeper().end(write).await {
                Ok(Obeyed::Done) => return Ok(true),
                Ok(Obeyed::Outdated(now)) => self.directions.see(&now),
                Err(Refused) => return Err(self.why_refused()),
            }
            if self.must_obey() {
                return Ok(false);
            }
        }
    }

    /// Closes the instance for the shard's end, and stores what it emits. False if records must be
    /// read again first.
    async fn close_at_end(&mut self) -> Result<bool, Stopped> {
        let mut failures = 0;
        loop {
            self.gate.pass().await?;
            self.make_instance(0).await?;
            if !self.is_finished() {
                // While none could be made, the shard was sent elsewhere.
                return Ok(false);
            }
            if self.context.options().keeps_state {
                // Should the instance fail now, what it handled need not come again.
                self.write_checkpoint().await?;
                if self.saving.must_save_again() {
                    return Ok(false);
                }
            }
            let Closed { output, error } = self.close_all(CloseReason::ShardEnded).await;
            self.gate.check_held()?;
            self.store_last_output(output).await?;
            let Some(error) = error else {
                self.works_again(failures);
                return Ok(true);
            };
            failures += 1;
            let reason = format!("close at the shard's end: {error}");
            self.failed(failures, error.code(), reason);
            self.versions.leave_trial();
            self.wait_to_retry(failures).await?;
            self.obey().await?;
            if !self.is_finished() {
                return Ok(false);
            }
            if self.saving.holds_back() {
                self.rewind();
                return Ok(false);
            }
            self.take_up_version().await?;
        }
    }

    /// The shards that follow this one: as named in the last reply, or in the leader's list, or
    /// else as listed.
    async fn children(&mut self, named: Vec<Shard>) -> Result<Vec<Shard>, Stopped> {
        if !named.is_empty() {
            return Ok(named);
        }
        let cached = cached_children(&self.context).await;
        if !cached.is_empty() {
            return Ok(cached);
        }
        let mut failures = 0;
        loop {
            self.gate.check_held()?;
            let problem = match self.context.ports().reader.list_shards().await {
                Ok(shards) => {
                    let shard = self.context.shard();
                    let is_closed = shards
                        .iter()
                        .any(|listed| listed.id == *shard && !listed.is_open());
                    let children = children_of(shard, shards);
                    if !children.is_empty() || (is_closed && failures >= CHILDLESS_LISTINGS) {
                        self.works_again(failures);
                        return Ok(children);
                    }
                    "the shard has ended but its children are not listed yet".to_owned()
                }
                Err(error) => error.to_string(),
            };
            failures += 1;
            self.failed(failures, "shard_end", problem);
            self.wait_to_retry(failures).await?;
        }
    }

    /// Children start at the oldest record whatever is configured, or what arrived since the
    /// reshard would be lost.
    async fn lease_child(&mut self, child: &Shard) -> Result<(), Stopped> {
        let start = if SeededBug::ChildFromLatest.is_on() {
            Checkpoint::Latest
        } else {
            Checkpoint::TrimHorizon
        };
        let lease = Lease::fresh(child, start);
        // A host that was suspended since the last child may have lost the lease, and this child's
        // row may have been removed again as finished.
        self.gate.check_held()?;
        let (mut failures, asked_at) = (0, self.context.now());
        let limit = self.context.options().leases.duration * WriteTrouble::GIVEN_UP_AFTER_LEASES;
        while let Err(error) = self.context.store().create(&lease).await {
            failures += 1;
            if self.context.now().since(asked_at) >= limit {
                let problem = format!("the lease of child {} cannot be created: {error}", child.id);
                return Err(Stopped::Stuck(problem));
            }
            let problem = format!("cannot create the lease of child {}: {error}", child.id);
            self.failed(failures, "shard_end", problem);
            self.wait_to_retry(failures).await?;
            self.gate.check_held()?;
        }
        self.works_again(failures);
        Ok(())
    }

    // The holding ends.

    /// Closes the instance, stores its outputs, checkpoints, releases the lease. What is to be
    /// delivered again waits for the next owner: the checkpoint is below it.
    pub(super) async fn drain(mut self) -> PipelineEnd {
        self.show_state(ShardState::Draining);
        self.intake.stop();
        // The wish to stop was heard; from here on only a lost lease cuts the work short. A sink
        // that fails for a moment must not make the records behind it repeat.
        self.gate.drain = CancellationToken::new();
        if SeededBug::HandsOverWithoutCheckpoint.is_on() {
            self.saving.misjudge(None);
        }
        let finished = match self.finish_calls().await {
            Ok(()) => self.finish().await,
            Err(stopped) => Err(stopped),
        };
        if SeededBug::DrainsWithoutRelease.is_on() {
            return PipelineEnd::Released;
        }
        // If what is settled could not be written down it comes again, and the row says why.
        let stuck = match finished {
            Err(Stopped::Stuck(reason)) => Some(reason),
            Err(Stopped::Lost(_) | Stopped::Draining) | Ok(()) => None,
        };
        match self.context.keeper().release(stuck.clone()).await {
            Ok(()) => stuck.map_or(PipelineEnd::Released, PipelineEnd::GaveUp),
            Err(Refused) => self.not_released(),
        }
    }

    /// Closes the instance, stores what it emits, and checkpoints. If a sink cannot take that, the
    /// records behind it are not checkpointed either.
    async fn finish(&mut self) -> Result<(), Stopped> {
        self.save_state().await;
        let Closed { output, error } = self.close_all(CloseReason::Shutdown).await;
        if let Some(error) = error {
            tracing::warn!(
                shard = %self.context.shard(),
                %error,
                code = "close-failed",
                "the plugin failed in close"
            );
        }
        let stored = self.store_last_output(output).await;
        let finished = match stored {
            Ok(()) => self.write_checkpoint().await,
            Err(stopped) => Err(stopped),
        };
        if finished.is_err() {
            tracing::warn!(
                shard = %self.context.shard(),
                code = "last-checkpoint-failed",
                "the last checkpoint could not be written, records will repeat"
            );
        }
        finished
    }

    /// Stores what instances emitted when they were closed.
    pub(super) async fn store_last_output(&mut self, last: LastOutput) -> Result<(), Stopped> {
        // Held until the output is stored, or given up.
        let LastOutput {
            emitted,
            charges: _charges,
        } = last;
        let cause = self.saving.handed_out().into();
        let gate = &mut self.gate;
        self.saving.store_output(emitted, cause, gate).await
    }

    /// Releases the lease without waiting for what does not come: what is settled is checkpointed
    /// if that can be done at once.
    pub(super) async fn give_up(mut self, reason: String) -> PipelineEnd {
        tracing::warn!(
            shard = %self.context.shard(),
            reason,
            code = "no-progress", "the shard makes no progress here, giving up its lease"
        );
        self.intake.stop();
        self.drop_instances();
        let _ = tokio::time::timeout(LAST_CHECKPOINT_MAX, self.write_checkpoint()).await;
        match self.context.keeper().release(Some(reason.clone())).await {
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
}

/// The children as in the leader's list, if there is one of this stream.
async fn cached_children(context: &ShardContext) -> Vec<Shard> {
    let ports = context.ports();
    match ports.coordinator.shards().await {
        Ok(Some(cached)) if cached.identity == ports.identity => {
            children_of(context.shard(), cached.shards)
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}

fn children_of(parent: &ShardId, shards: Vec<Shard>) -> Vec<Shard> {
    shards
        .into_iter()
        .filter(|shard| shard.parents.contains(parent))
        .collect()
}
