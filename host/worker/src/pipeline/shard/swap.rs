//! Makes the instance, and takes up a new version of the plugin between batches; the old one stays
//! if the new one does not start.

use std::sync::Arc;

use bytes::Bytes;
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::{CloseReason, ProcessorFactory};
use shardmill_core::rollout::StartFailure;

use super::ShardPipeline;
use crate::holding::Stopped;
use crate::metrics;
use crate::pipeline::instance::Instance;
use crate::pipeline::versions::start_failure;
use crate::rollout::Assigned;
use crate::signs::Stage;

/// The version that a shard is to run.
struct Wanted {
    version: Arc<dyn ProcessorFactory>,
    /// Whether it is the active one, and not tried.
    is_active: bool,
}

impl Wanted {
    fn digest(&self) -> &PluginDigest {
        self.version.digest()
    }
}

/// What came of one try to make an instance.
enum Tried {
    Made,
    /// Another version, or more memory, is there now: to be tried at once.
    Otherwise,
    Failed(ProcessorError),
}

impl ShardPipeline {
    // The instance.

    /// Makes the instance of strand `at`, trying again until it works.
    ///
    /// A version that does not start takes no shard away from one that does: if another started on
    /// this host before, that one is used, as on the shards that were running when the new one
    /// came. If none started here, another host may have one that does: after two plugin deadlines
    /// the lease is given up.
    pub(super) async fn make_instance(&mut self, at: usize) -> Result<(), Stopped> {
        let (mut failures, since) = (0, self.context.now());
        loop {
            self.context.enter(Stage::Starting);
            let error = match self.try_to_make(at).await? {
                Tried::Made => break,
                Tried::Otherwise => continue,
                Tried::Failed(error) => error,
            };
            failures += 1;
            let reason = format!("cannot create an instance: {error}");
            let limit = self.context.options().leases.plugin_deadline * 2;
            if self.context.now().since(since) >= limit {
                return Err(Stopped::Stuck(reason));
            }
            self.failed(failures, error.code(), reason);
            self.wait_to_retry(failures).await?;
            self.look_for_a_way_out().await?;
        }
        let digest = self.deliveries.digest();
        self.versions.started(digest);
        self.show_digest(digest);
        self.works_again(failures);
        Ok(())
    }

    /// Another place, another state, or another version may be it. Beside other instances at work,
    /// what operators want waits for its turn.
    async fn look_for_a_way_out(&mut self) -> Result<(), Stopped> {
        if !self.deliveries.parallelism().is_parallel() {
            self.obey().await?;
        }
        self.take_up_version().await
    }

    async fn try_to_make(&mut self, at: usize) -> Result<Tried, Stopped> {
        let state = match self.saving.state_to_load().await {
            Ok(state) => state,
            // No version's fault.
            Err(error) => return Ok(Tried::Failed(error)),
        };
        let start = self.saving.start_position();
        let instance = self.deliveries.one_mut(at).instance_mut();
        let Err(error) = instance.ensure(state, start).await else {
            return Ok(Tried::Made);
        };
        if self.is_replaced(&error).await? || self.makes_room_for(at, &error).await? {
            return Ok(Tried::Otherwise);
        }
        Ok(Tried::Failed(error))
    }

    /// Whether another version has replaced the one whose instance could not be made.
    async fn is_replaced(&mut self, error: &ProcessorError) -> Result<bool, Stopped> {
        if error.is_hosts() {
            // What the host lacks, the other version lacks as well.
            return Ok(false);
        }
        let failed = self.deliveries.digest().clone();
        self.versions.did_not_start(&failed, error);
        self.take_up_version().await?;
        if *self.deliveries.digest() != failed {
            return Ok(true);
        }
        let Some(good) = self.versions.fallback_for(&failed) else {
            return Ok(false);
        };
        self.versions.show_refused(&failed, error);
        self.write_checkpoint().await?;
        self.close_all_for_another().await?;
        self.deliveries.set_version(&good);
        Ok(true)
    }

    /// Whether the shard's other instances were closed, since the host has no memory for the one of
    /// strand `at`: none waits for memory that its own shard holds.
    async fn makes_room_for(&mut self, at: usize, error: &ProcessorError) -> Result<bool, Stopped> {
        let is_short = matches!(error, ProcessorError::HostMemory { .. });
        if !is_short || !self.deliveries.is_another_alive(at) {
            return Ok(false);
        }
        self.close_all_for_another().await?;
        Ok(true)
    }

    /// Closes an instance whose memory others wait for. It is made again for the next batch: the
    /// contract lets an instance go whenever it holds nothing back.
    pub(super) async fn make_room(&mut self, at: usize) -> Result<(), Stopped> {
        let instance = self.deliveries.one_mut(at).instance_mut();
        if self.saving.holds_back() || !instance.gives_room() {
            return Ok(());
        }
        self.context.count(metrics::ROOM_MADE, 1);
        self.close_for_another(at).await
    }

    async fn close_all_for_another(&mut self) -> Result<(), Stopped> {
        for at in 0..self.deliveries.parallelism().get() {
            self.close_for_another(at).await?;
        }
        Ok(())
    }

    async fn close_for_another(&mut self, at: usize) -> Result<(), Stopped> {
        let instance = self.deliveries.one_mut(at).instance_mut();
        match instance.close(CloseReason::Reload).await {
            Ok(output) => self.store_last_output(output).await,
            Err(error) => {
                tracing::warn!(
                    shard = %self.context.shard(),
                    %error,
                    code = "close-failed-at-restart", "the instance failed in close"
                );
                Ok(())
            }
        }
    }

    // Another version.

    /// Swaps to the version that is this shard's turn, if it is another one and starts. Reading
    /// starts again if the old instance held records back.
    ///
    /// Only called between batches, or between two attempts at a failing one: no attempt sees two
    /// versions. What the old version settled is checkpointed first, so that each written range
    /// belongs to one digest.
    pub(super) async fn take_up_version(&mut self) -> Result<(), Stopped> {
        loop {
            match self.assigned() {
                Assigned::Probe(version) => self.probe(&version).await,
                Assigned::Run { version, is_active } => {
                    return self.swap_to(Wanted { version, is_active }).await;
                }
            }
        }
    }

    fn assigned(&mut self) -> Assigned {
        let has_records = self.intake.is_batch_due() || !self.deliveries.have_nothing_waiting();
        self.versions
            .assigned(self.deliveries.retries(), has_records)
    }

    /// The same while calls are under way. False if they must end before that: then no other call
    /// may begin.
    pub(super) async fn take_up_version_beside_calls(&mut self) -> Result<bool, Stopped> {
        let Assigned::Run { version, is_active } = self.assigned() else {
            return Ok(false);
        };
        let is_at_work = version.digest() == self.deliveries.digest();
        if is_at_work {
            self.swap_to(Wanted { version, is_active }).await?;
            return Ok(true);
        }
        Ok(self.versions.has_refused(version.digest()))
    }

    async fn swap_to(&mut self, wanted: Wanted) -> Result<(), Stopped> {
        if self.versions.has_refused(wanted.digest()) {
            return Ok(());
        }
        if wanted.digest() == self.deliveries.digest() {
            if wanted.is_active && self.versions.charge(wanted.digest()) {
                // What was tried here is what all shards run now.
                self.deliveries.start_over();
            }
            return Ok(());
        }
        if !self.deliveries.have_started() {
            // Nothing is known of the version at work either: the newest is as good.
            self.write_checkpoint().await?;
            self.set_version(&wanted);
            return Ok(());
        }
        self.swap_running(wanted).await
    }

    /// Swaps from a version that has started here. Also if its instance is dead: a version that
    /// does not start must not give failing records all their attempts again, nor let a halted
    /// shard go on.
    async fn swap_running(&mut self, wanted: Wanted) -> Result<(), Stopped> {
        let state = self.state_to_hand_over().await?;
        let version = Arc::clone(&wanted.version);
        let mut candidate = self.deliveries.first().instance().with_version(version);
        let start = self.saving.start_position();
        if let Err(error) = candidate.ensure(state, start).await {
            if matches!(error, ProcessorError::HostMemory { .. }) {
                // There is no memory for both at once.
                tracing::info!(shard = %self.context.shard(), %error, "closing the old version to \
                    make room for the new one");
                drop(candidate);
                return self.swap_in_turn(wanted).await;
            }
            if self.versions.did_not_start(wanted.digest(), &error) {
                self.versions.show_refused(wanted.digest(), &error);
            }
            return Ok(());
        }
        if !self.context.options().keeps_state {
            // Of a plugin that keeps state it is written: what would be saved now the candidate has
            // not loaded.
            self.write_checkpoint().await?;
        }
        let mut old = self.deliveries.first_mut().replace_instance(candidate);
        self.close_replaced(&mut old).await?;
        self.replace_others(&wanted).await?;
        self.versions.started(wanted.digest());
        self.swapped_at_work(old.digest(), &wanted);
        Ok(())
    }

    /// The version has started, in the first strand: the others' instances are closed, and made
    /// again when they are needed. So a swap needs no more memory than one instance more.
    async fn replace_others(&mut self, wanted: &Wanted) -> Result<(), Stopped> {
        for at in 1..self.deliveries.parallelism().get() {
            self.close_for_another(at).await?;
            let version = Arc::clone(&wanted.version);
            self.deliveries
                .one_mut(at)
                .instance_mut()
                .set_version(version);
        }
        Ok(())
    }

    async fn close_replaced(&mut self, old: &mut Instance) -> Result<(), Stopped> {
        match old.close(CloseReason::Reload).await {
            Ok(output) => self.store_last_output(output).await,
            Err(error) => {
                tracing::warn!(
                    shard = %self.context.shard(),
                    %error,
                    code = "close-failed-at-swap", "the old version failed in close"
                );
                Ok(())
            }
        }
    }

    /// Closes the old version; the new one is made for the next batch. Should that not start, the
    /// shard falls back as it does for its first instance.
    async fn swap_in_turn(&mut self, wanted: Wanted) -> Result<(), Stopped> {
        self.write_checkpoint().await?;
        self.close_all_for_another().await?;
        let old = self.deliveries.digest().clone();
        self.deliveries.set_version(&wanted.version);
        self.swapped_at_work(&old, &wanted);
        Ok(())
    }

    /// The state that another version takes over: of everything handed out, if it can be saved now;
    /// else that of the checkpoint, and what came after is delivered again.
    async fn state_to_hand_over(&mut self) -> Result<Option<Bytes>, Stopped> {
        if !self.context.options().keeps_state {
            return Ok(None);
        }
        self.write_checkpoint().await?;
        let mut failures = 0;
        loop {
            let error = match self.saving.state_to_load().await {
                Ok(state) => {
                    self.works_again(failures);
                    return Ok(state);
                }
                Err(error) => error,
            };
            failures += 1;
            let reason = format!("a new version is waiting: {error}");
            self.failed(failures, error.code(), reason);
            self.wait_to_retry(failures).await?;
        }
    }

    /// Replaces a version that never started here.
    fn set_version(&mut self, wanted: &Wanted) {
        let old = self.deliveries.digest().clone();
        self.deliveries.set_version(&wanted.version);
        self.swapped(&old, wanted);
    }

    /// Another version has taken over from one that was at work.
    fn swapped_at_work(&mut self, old: &PluginDigest, wanted: &Wanted) {
        let save_failures = self.saving.forget_state();
        self.swapped(old, wanted);
        if self.saving.holds_back() {
            self.rewind();
        }
        self.works_again(save_failures);
    }

    fn swapped(&mut self, old: &PluginDigest, wanted: &Wanted) {
        let digest = wanted.digest();
        self.versions.show_swapped(old, digest);
        self.ticks.start_over(self.context.tick_now());
        self.clear_tick_trouble();
        // A trial gives no attempts, nor does going back from it: the records that failed are the
        // same version's still.
        if wanted.is_active && self.versions.charge(digest) {
            self.deliveries.start_over();
        } else {
            self.deliveries.try_at_once();
        }
        self.show_digest(digest);
    }

    fn show_digest(&self, digest: &PluginDigest) {
        let digest = digest.as_str().to_owned();
        self.context
            .update_status(|status| status.plugin_digest = Some(digest));
    }

    // Trials.

    /// Makes a throw-away instance of a version, which loads the shard's state, and reports how
    /// that went.
    async fn probe(&mut self, version: &Arc<dyn ProcessorFactory>) {
        let digest = version.digest();
        let instance = self.deliveries.first().instance();
        let mut probe = instance.with_version(Arc::clone(version));
        let result = match (probe.fits(), self.saving.state_to_load().await) {
            (Err(error), _) => {
                let failure = StartFailure::NotMade(error.to_string());
                self.versions.probe_refused(digest, &error, &failure);
                Err(failure)
            }
            (Ok(()), Err(error)) => Err(StartFailure::NotMade(error.to_string())),
            (Ok(()), Ok(state)) => match probe.ensure(state, self.saving.start_position()).await {
                // Or there is no memory for one more: the canary has to do, which takes its
                // predecessor's.
                Ok(()) | Err(ProcessorError::HostMemory { .. }) => Ok(()),
                Err(error) => {
                    let failure = start_failure(&error);
                    self.versions.probe_refused(digest, &error, &failure);
                    Err(failure)
                }
            },
        };
        probe.kill();
        self.versions.probed(digest, result);
    }
}
