//! The end of a shard: everything settled, children leased, `SHARD_END` written, in that order.

use shardmill_core::lease::{Checkpoint, Lease, WriteTrouble};
use shardmill_core::ports::{CloseReason, ShardEndWrite};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Shard, ShardId};

use super::consumer::Consumer;
use crate::holding::Stopped;
use crate::status::ShardState;

/// Listings that must agree that a closed shard has no children, before that is believed:
/// `ListShards` may lag.
const CHILDLESS_LISTINGS: u32 = 5;

impl Consumer {
    /// Finishes a shard whose records are all delivered. Returns false if records must be read
    /// again first.
    pub(super) async fn finish_shard(&mut self) -> Result<bool, Stopped> {
        let mut failures = 0;
        loop {
            self.gate.pass().await?;
            self.make_instance().await?;
            if self.options.keeps_state {
                // Should the instance fail now, what it handled need not come again.
                self.write_checkpoint().await?;
                if self.must_save_again() {
                    return Ok(false);
                }
            }
            match self.instance.close(CloseReason::ShardEnded).await {
                Ok(emitted) => {
                    self.gate.check_held()?;
                    self.output
                        .write(
                            emitted,
                            self.headway.ledger.handed_out().cloned(),
                            &mut self.gate,
                        )
                        .await?;
                    break;
                }
                Err(error) => {
                    failures += 1;
                    self.failed(
                        failures,
                        error.code(),
                        format!("close at the shard's end: {error}"),
                    );
                    self.leave_trial();
                    self.wait_to_retry(failures).await?;
                    if self.holds_back() {
                        self.rewind();
                        return Ok(false);
                    }
                    self.take_up_version().await?;
                }
            }
        }
        let named = self.buffer.ended.take().unwrap_or_default();
        let children = self.children(named).await?;
        if !SeededBug::EndsWithoutChildren.is_on() {
            self.lease_children(&children).await?;
        }
        self.output.flush(&mut self.gate).await?;
        self.gate.check_held()?;
        let children = children.into_iter().map(|child| child.id).collect();
        let write = ShardEndWrite {
            children,
            progress: self.progress(),
            keeps_state: self.options.keeps_state,
        };
        if self.keeper.end(write).await.is_err() {
            return Err(self.why_refused());
        }
        self.status.update_shard(&self.shard, |status| {
            status.state = ShardState::Ended;
            status.checkpoint = Checkpoint::ShardEnd;
        });
        self.mended_but(None);
        Ok(true)
    }

    /// The shards that follow this one: as named in the last reply, or in the leader's list, or
    /// else as listed.
    async fn children(&mut self, named: Vec<Shard>) -> Result<Vec<Shard>, Stopped> {
        if !named.is_empty() {
            return Ok(named);
        }
        let cached = self.ports.coordinator.shards().await.ok().flatten();
        if let Some(cached) = cached.filter(|cached| cached.identity == self.ports.identity) {
            let children = children_of(&self.shard, cached.shards);
            if !children.is_empty() {
                return Ok(children);
            }
        }
        let mut failures = 0;
        loop {
            self.gate.check_held()?;
            let problem = match self.ports.reader.list_shards().await {
                Ok(shards) => {
                    let is_closed = shards
                        .iter()
                        .any(|shard| shard.id == self.shard && !shard.is_open());
                    let children = children_of(&self.shard, shards);
                    if !children.is_empty() || (is_closed && failures >= CHILDLESS_LISTINGS) {
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
    async fn lease_children(&mut self, children: &[Shard]) -> Result<(), Stopped> {
        for child in children {
            let start = if SeededBug::ChildFromLatest.is_on() {
                Checkpoint::Latest
            } else {
                Checkpoint::TrimHorizon
            };
            let lease = Lease::fresh(child, start);
            // A host that was suspended since the last child may have lost the lease, and this
            // child's row may have been removed again as finished.
            self.gate.check_held()?;
            let (mut failures, asked_at) = (0, self.ports.clock.now());
            while let Err(error) = self.ports.store.create(&lease).await {
                failures += 1;
                let limit = self.options.leases.duration * WriteTrouble::GIVEN_UP_AFTER_LEASES;
                if self.ports.clock.now().since(asked_at) >= limit {
                    let problem =
                        format!("the lease of child {} cannot be created: {error}", child.id);
                    return Err(Stopped::Stuck(problem));
                }
                self.failed(
                    failures,
                    "shard_end",
                    format!("cannot create the lease of child {}: {error}", child.id),
                );
                self.wait_to_retry(failures).await?;
                self.gate.check_held()?;
            }
        }
        Ok(())
    }
}

fn children_of(parent: &ShardId, shards: Vec<Shard>) -> Vec<Shard> {
    shards
        .into_iter()
        .filter(|shard| shard.parents.contains(parent))
        .collect()
}
