//! Takes up a new version of the plugin between batches; the old one stays if the new one does not start.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::{CloseReason, ProcessorFactory};

use super::consumer::Consumer;
use super::state::Saving;
use crate::grant::Stopped;
use crate::metrics;
use crate::status::SwapRefusal;

/// The last version that started on any shard of a host: what a shard falls back on whose first instance cannot be of
/// the version on offer. Cheap to clone.
///
/// A mutex, since every consumer of the host writes it; never held across an await.
#[derive(Clone, Default)]
pub(crate) struct LastGood(Arc<Mutex<Option<Arc<dyn ProcessorFactory>>>>);

impl LastGood {
    fn get(&self) -> Option<Arc<dyn ProcessorFactory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, version: &Arc<dyn ProcessorFactory>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(version));
    }
}

impl Consumer {
    /// Makes the first instance, trying again until it works.
    ///
    /// A version that does not start takes no shard away from one that does: if another started on this host before,
    /// that one is used, as on the shards that were running when the new one came.
    pub(super) async fn make_instance(&mut self) -> Result<(), Stopped> {
        let mut failures = 0;
        loop {
            let error = match self.state_to_load().await {
                Ok(state) => {
                    let Err(error) = self.instance.ensure(state).await else { break };
                    // What the host lacks, the other version lacks as well.
                    let good = self.ports.last_good.get().filter(|_| !error.is_hosts());
                    let good = good.filter(|good| good.digest() != self.instance.digest());
                    if let Some(good) = good {
                        self.refused(self.instance.version(), &error);
                        self.instance.set_version(good);
                        continue;
                    }
                    error
                }
                // No version's fault.
                Err(error) => error,
            };
            failures += 1;
            self.failed(failures, error.kind(), format!("cannot make an instance: {error}"));
            self.wait_to_retry(failures).await?;
            self.take_up_version().await?;
        }
        self.ports.last_good.set(self.instance.version());
        let digest = self.instance.digest().as_str().to_owned();
        self.status.update_shard(&self.shard, |status| {
            status.plugin_digest = Some(digest);
            if failures > 0 {
                status.blocked = None;
            }
        });
        Ok(())
    }

    /// Swaps to the version on offer, if it is new and starts. Reading starts again if the old instance held records back.
    ///
    /// Only called between batches, or between two attempts at a failing one: no attempt sees two versions. What the
    /// old version settled is checkpointed first, so that each written range belongs to one digest.
    pub(super) async fn take_up_version(&mut self) -> Result<(), Stopped> {
        if !self.ports.versions.has_changed().unwrap_or(false) {
            return Ok(());
        }
        let offered = Arc::clone(&self.ports.versions.borrow_and_update());
        if offered.digest() == self.instance.digest() {
            return Ok(());
        }
        if !self.instance.has_started() {
            // Nothing is known of the version at work either: the newest is as good.
            self.write_checkpoint().await?;
            let old = self.instance.digest().clone();
            self.instance.set_version(Arc::clone(&offered));
            self.swapped(&old, &offered);
            return Ok(());
        }
        // Also if the instance is dead: a version that does not start must not give failing records all their attempts
        // again, nor let a halted shard go on.
        let state = self.state_to_hand_over().await?;
        let mut candidate = self.instance.with_version(Arc::clone(&offered));
        match candidate.ensure(state).await {
            Ok(()) => {
                if !self.options.keeps_state {
                    // Of a plugin that keeps state it is written: what would be saved now the candidate has not loaded.
                    self.write_checkpoint().await?;
                }
                let mut old = std::mem::replace(&mut self.instance, candidate);
                let replaced = old.digest().clone();
                match old.close(CloseReason::Reload).await {
                    Ok(emitted) => {
                        self.output.write(emitted, self.headway.ledger.handed_out().cloned(), &mut self.gate).await?;
                    }
                    Err(error) => tracing::warn!(shard = %self.shard, %error, "the old version failed in close"),
                }
                self.ports.last_good.set(&offered);
                self.saving = Saving::default();
                self.swapped(&replaced, &offered);
                if self.holds_back() {
                    self.rewind();
                }
                Ok(())
            }
            Err(error) if error.is_hosts() => {
                // It says nothing of the version; most likely there is no memory for both at once.
                tracing::info!(shard = %self.shard, %error, "the old version makes room for the new one");
                drop(candidate);
                self.swap_in_turn(offered).await
            }
            Err(error) => {
                self.refused(&offered, &error);
                Ok(())
            }
        }
    }

    /// The state that another version takes over: of everything handed out, if it can be saved now; else that of the
    /// checkpoint, and what came after is delivered again.
    async fn state_to_hand_over(&mut self) -> Result<Option<Bytes>, Stopped> {
        if !self.options.keeps_state {
            return Ok(None);
        }
        self.write_checkpoint().await?;
        let mut failures = 0;
        loop {
            let error = match self.state_to_load().await {
                Ok(state) => return Ok(state),
                Err(error) => error,
            };
            failures += 1;
            self.failed(failures, error.kind(), format!("a new version waits: {error}"));
            self.wait_to_retry(failures).await?;
        }
    }

    /// Closes the old version; the new one is made for the next batch. Should that not start, the shard falls back as it does
    /// for its first instance.
    async fn swap_in_turn(&mut self, offered: Arc<dyn ProcessorFactory>) -> Result<(), Stopped> {
        self.write_checkpoint().await?;
        let replaced = self.instance.digest().clone();
        self.close_for_another().await?;
        self.instance.set_version(Arc::clone(&offered));
        self.saving = Saving::default();
        self.swapped(&replaced, &offered);
        if self.holds_back() {
            self.rewind();
        }
        Ok(())
    }

    /// Closes an instance whose memory others wait for. It is made again for the next batch: the contract lets an instance
    /// go whenever it holds nothing back.
    pub(super) async fn make_room(&mut self) -> Result<(), Stopped> {
        if self.holds_back() || !self.instance.gives_room() {
            return Ok(());
        }
        self.count(metrics::ROOM_MADE, 1);
        self.close_for_another().await
    }

    async fn close_for_another(&mut self) -> Result<(), Stopped> {
        match self.instance.close(CloseReason::Reload).await {
            Ok(emitted) => {
                let through = self.headway.ledger.handed_out().cloned();
                self.output.write(emitted, through, &mut self.gate).await?;
            }
            Err(error) => tracing::warn!(shard = %self.shard, %error, "the instance failed in close"),
        }
        Ok(())
    }

    fn swapped(&mut self, old: &PluginDigest, version: &Arc<dyn ProcessorFactory>) {
        let digest = version.digest();
        tracing::info!(shard = %self.shard, from = %old, to = %digest, "plugin version taken up");
        self.count_swap("swapped");
        self.retries.start_over();
        let digest = digest.as_str().to_owned();
        self.status.update_shard(&self.shard, |status| status.plugin_digest = Some(digest));
    }

    fn refused(&self, version: &Arc<dyn ProcessorFactory>, error: &ProcessorError) {
        let digest = version.digest();
        tracing::warn!(shard = %self.shard, %digest, %error, "new plugin version does not start, keeping the old one");
        self.count_swap("refused");
        let refusal = SwapRefusal { digest: Some(digest.as_str().to_owned()), reason: error.to_string() };
        self.status.set_refused(Some(refusal));
    }

    fn count_swap(&self, outcome: &'static str) {
        let plugin = self.options.plugin.to_string();
        ::metrics::counter!(metrics::SWAPS, "plugin" => plugin, "outcome" => outcome).increment(1);
    }
}
