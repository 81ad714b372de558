//! Takes up a new version of the plugin between batches; the old one stays if the new one does not
//! start.

use std::sync::Arc;

use bytes::Bytes;
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::{CloseReason, ProcessorFactory};

use super::consumer::Consumer;
use super::state::Saving;
use super::trial::start_failure;
use crate::holding::Stopped;
use crate::metrics;
use crate::rollout::Assigned;
use crate::signs::Stage;
use crate::status::SwapRefusal;

impl Consumer {
    /// Makes the first instance, trying again until it works.
    ///
    /// A version that does not start takes no shard away from one that does: if another started on
    /// this host before, that one is used, as on the shards that were running when the new one
    /// came.
    pub(super) async fn make_instance(&mut self) -> Result<(), Stopped> {
        let mut failures = 0;
        loop {
            self.signs.enter(Stage::Starting);
            let error = match self.state_to_load().await {
                Ok(state) => {
                    let Err(error) = self.instance.ensure(state).await else {
                        break;
                    };
                    if self.stands_in(&error).await? {
                        continue;
                    }
                    error
                }
                // No version's fault.
                Err(error) => error,
            };
            failures += 1;
            self.failed(
                failures,
                error.code(),
                format!("cannot create an instance: {error}"),
            );
            self.wait_to_retry(failures).await?;
            self.take_up_version().await?;
        }
        let digest = self.instance.digest().clone();
        self.ports.rollout.tell(|rollout| rollout.started(&digest));
        self.status.update_shard(&self.shard, |status| {
            status.plugin_digest = Some(digest.as_str().to_owned());
        });
        if failures > 0 {
            self.mended_but(None);
        }
        Ok(())
    }

    /// Swaps to the version that is this shard's turn, if it is another one and starts. Reading
    /// starts again if the old instance held records back.
    ///
    /// Only called between batches, or between two attempts at a failing one: no attempt sees two
    /// versions. What the old version settled is checkpointed first, so that each written range
    /// belongs to one digest.
    pub(super) async fn take_up_version(&mut self) -> Result<(), Stopped> {
        loop {
            let offered = Arc::clone(&self.ports.versions.borrow_and_update());
            let (may_try, at) = (self.may_try(), self.at());
            match self
                .ports
                .rollout
                .assign(self.trial.site(), &offered, may_try, at)
            {
                Assigned::Probe(version) => self.probe(&version).await,
                Assigned::Run { version, is_active } => {
                    return self.swap_to(version, is_active).await;
                }
            }
        }
    }

    async fn swap_to(
        &mut self,
        version: Arc<dyn ProcessorFactory>,
        is_active: bool,
    ) -> Result<(), Stopped> {
        if self
            .trial
            .has_refused(version.digest(), self.ports.clock.now())
        {
            return Ok(());
        }
        if version.digest() == self.instance.digest() {
            if is_active && self.trial.charge(version.digest()) {
                // What was tried here is what all shards run now.
                self.retries.start_over(self.ports.clock.now());
            }
            return Ok(());
        }
        if !self.instance.has_started() {
            // Nothing is known of the version at work either: the newest is as good.
            self.write_checkpoint().await?;
            let old = self.instance.digest().clone();
            self.instance.set_version(Arc::clone(&version));
            self.swapped(&old, &version, is_active);
            return Ok(());
        }
        // Also if the instance is dead: a version that does not start must not give failing records
        // all their attempts again, nor let a halted shard go on.
        let state = self.state_to_hand_over().await?;
        let mut candidate = self.instance.with_version(Arc::clone(&version));
        if let Err(error) = candidate.ensure(state).await {
            if matches!(error, ProcessorError::HostMemory { .. }) {
                // There is no memory for both at once.
                tracing::info!(shard = %self.shard, %error, "closing the old version to make room \
                    for the new one");
                drop(candidate);
                return self.swap_in_turn(version, is_active).await;
            }
            if self.did_not_start(&version, &error) {
                self.tell_refused(&version, &error);
            }
            return Ok(());
        }
        if !self.options.keeps_state {
            // Of a plugin that keeps state it is written: what would be saved now the candidate has
            // not loaded.
            self.write_checkpoint().await?;
        }
        let mut old = std::mem::replace(&mut self.instance, candidate);
        let replaced = old.digest().clone();
        match old.close(CloseReason::Reload).await {
            Ok(emitted) => {
                self.output
                    .write(
                        emitted,
                        self.headway.ledger.handed_out().cloned(),
                        &mut self.gate,
                    )
                    .await?;
            }
            Err(error) => {
                tracing::warn!(shard = %self.shard, %error, "the old version failed in close");
            }
        }
        self.ports
            .rollout
            .tell(|rollout| rollout.started(version.digest()));
        self.saving = Saving::default();
        self.swapped(&replaced, &version, is_active);
        if self.holds_back() {
            self.rewind();
        }
        Ok(())
    }

    /// Whether another version takes the place of the one whose instance could not be made.
    async fn stands_in(&mut self, error: &ProcessorError) -> Result<bool, Stopped> {
        if error.is_hosts() {
            // What the host lacks, the other version lacks as well.
            return Ok(false);
        }
        let version = Arc::clone(self.instance.version());
        self.did_not_start(&version, error);
        self.take_up_version().await?;
        if self.instance.digest() != version.digest() {
            return Ok(true);
        }
        let good = self
            .ports
            .rollout
            .last_started()
            .filter(|good| good.digest() != version.digest());
        let Some(good) = good else { return Ok(false) };
        self.tell_refused(&version, error);
        self.write_checkpoint().await?;
        self.instance.set_version(good);
        Ok(true)
    }

    /// Whether that is news.
    fn did_not_start(
        &mut self,
        version: &Arc<dyn ProcessorFactory>,
        error: &ProcessorError,
    ) -> bool {
        let (failure, at) = (start_failure(error), self.at());
        let is_news = self.trial.refuse(version.digest(), &failure, at.now);
        self.ports.rollout.tell(|rollout| {
            rollout.did_not_start(self.trial.site(), version.digest(), failure, at);
        });
        is_news
    }

    /// The state that another version takes over: of everything handed out, if it can be saved now;
    /// else that of the checkpoint, and what came after is delivered again.
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
            self.failed(
                failures,
                error.code(),
                format!("a new version is waiting: {error}"),
            );
            self.wait_to_retry(failures).await?;
        }
    }

    /// Closes the old version; the new one is made for the next batch. Should that not start, the
    /// shard falls back as it does for its first instance.
    async fn swap_in_turn(
        &mut self,
        version: Arc<dyn ProcessorFactory>,
        is_active: bool,
    ) -> Result<(), Stopped> {
        self.write_checkpoint().await?;
        let replaced = self.instance.digest().clone();
        self.close_for_another().await?;
        self.instance.set_version(Arc::clone(&version));
        self.saving = Saving::default();
        self.swapped(&replaced, &version, is_active);
        if self.holds_back() {
            self.rewind();
        }
        Ok(())
    }

    /// Closes an instance whose memory others wait for. It is made again for the next batch: the
    /// contract lets an instance go whenever it holds nothing back.
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
            Err(error) => {
                tracing::warn!(shard = %self.shard, %error, "the instance failed in close");
            }
        }
        Ok(())
    }

    fn swapped(
        &mut self,
        old: &PluginDigest,
        version: &Arc<dyn ProcessorFactory>,
        is_active: bool,
    ) {
        let digest = version.digest();
        tracing::info!(shard = %self.shard, from = %old, to = %digest, "plugin version swapped in");
        self.count_swap("swapped");
        self.trial.forget_refusal();
        // A trial gives no attempts, nor does going back from it: the records that failed are the
        // same version's still.
        if is_active && self.trial.charge(digest) {
            self.retries.start_over(self.ports.clock.now());
        } else {
            self.retries.try_at_once(self.ports.clock.now());
        }
        let digest = digest.as_str().to_owned();
        self.status
            .update_shard(&self.shard, |status| status.plugin_digest = Some(digest));
    }

    pub(super) fn tell_refused(&self, version: &Arc<dyn ProcessorFactory>, error: &ProcessorError) {
        let digest = version.digest();
        tracing::warn!(shard = %self.shard, %digest, %error, "the new plugin version does not \
            start, keeping the old one");
        self.count_swap("refused");
        let refusal = SwapRefusal {
            digest: Some(digest.as_str().to_owned()),
            reason: error.to_string(),
        };
        self.status.set_refused(Some(refusal));
    }

    fn count_swap(&self, outcome: &'static str) {
        let plugin = self.options.plugin.to_string();
        ::metrics::counter!(metrics::SWAPS, "plugin" => plugin, "outcome" => outcome).increment(1);
    }
}
