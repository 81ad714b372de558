//! Which version of the plugin a shard runs, and what it reports of it to the rollout.

use std::sync::Arc;

use shardmill_core::pipeline::Retries;
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::ProcessorFactory;
use shardmill_core::rollout::{Attempt, Report, ShardTrial, Site, StartFailure};
use tokio::sync::watch;

use super::context::ShardContext;
use crate::metrics;
use crate::rollout::{Assigned, RolloutView};
use crate::status::SwapRefusal;

/// See the module's description. Leaves the rollout when dropped.
pub(super) struct Versions {
    context: Arc<ShardContext>,
    /// The newest version.
    offered: watch::Receiver<Arc<dyn ProcessorFactory>>,
    rollout: RolloutView,
    trial: ShardTrial,
}

impl Versions {
    pub(super) fn new(context: Arc<ShardContext>) -> Self {
        let site = Site {
            plugin: context.options().plugin.clone(),
            shard: context.shard().clone(),
        };
        Self {
            offered: context.ports().versions.clone(),
            rollout: context.ports().rollout.clone(),
            trial: ShardTrial::new(site),
            context,
        }
    }

    /// The newest version.
    pub(super) fn newest(&mut self) -> Arc<dyn ProcessorFactory> {
        Arc::clone(&self.offered.borrow_and_update())
    }

    /// Returns once another version is on offer, or it may be this shard's turn to run another.
    /// Cancel-safe.
    pub(super) async fn news(&mut self) {
        tokio::select! {
            Ok(()) = self.offered.changed() => {}
            () = self.rollout.changed() => {}
        }
    }

    /// What the shard is to run. `has_records`: whether it has new records to deliver, besides what
    /// `retries` know.
    pub(super) fn assigned<'a>(
        &mut self,
        retries: impl Iterator<Item = &'a Retries> + Clone,
        has_records: bool,
    ) -> Assigned {
        let offered = self.newest();
        let trial = &mut self.trial;
        let may_try = self
            .rollout
            .with(|rollout| trial.may_try(rollout, retries, has_records));
        let at = self.context.at();
        self.rollout
            .assign(self.trial.site(), &offered, may_try, at)
    }

    /// Whether the version did not start here, and is not to be tried again yet.
    pub(super) fn has_refused(&self, digest: &PluginDigest) -> bool {
        let now = self.context.now();
        self.rollout
            .with(|rollout| self.trial.has_refused(rollout, digest, now))
    }

    /// Whether this is the first time that attempts are counted for this version, which is the
    /// active one.
    pub(super) fn charge(&mut self, digest: &PluginDigest) -> bool {
        self.trial.charge(digest)
    }

    /// An instance of the version was made.
    pub(super) fn started(&self, digest: &PluginDigest) {
        self.rollout.with(|rollout| rollout.started(digest));
    }

    /// An instance of the version could not be made. Whether that is news.
    pub(super) fn did_not_start(&mut self, digest: &PluginDigest, error: &ProcessorError) -> bool {
        let (failure, at) = (start_failure(error), self.context.at());
        let trial = &mut self.trial;
        self.rollout.with(|rollout| {
            let is_news = trial.refuse(rollout, digest, &failure, at.now);
            rollout.did_not_start(trial.site(), digest, failure, at);
            is_news
        })
    }

    /// The version failed to save its state. Whether its instance must end.
    pub(super) fn did_not_save(&self, digest: &PluginDigest, error: &ProcessorError) -> bool {
        let (reason, at) = (error.to_string(), self.context.at());
        self.rollout
            .with(|rollout| rollout.did_not_save(digest, reason, at))
    }

    /// The version failed when it was called because time had passed. Whether its instance must
    /// end.
    pub(super) fn did_not_tick(&self, digest: &PluginDigest, error: &ProcessorError) -> bool {
        let (reason, at) = (error.to_string(), self.context.at());
        self.rollout
            .with(|rollout| rollout.did_not_tick(digest, reason, at))
    }

    /// The last version that started on any shard of this host, if it is another one.
    pub(super) fn fallback_for(&self, digest: &PluginDigest) -> Option<Arc<dyn ProcessorFactory>> {
        let last = self.rollout.last_started()?;
        (last.digest() != digest).then_some(last)
    }

    /// Reports how a delivery went.
    pub(super) fn report(&mut self, attempt: &Attempt<'_>) -> Report {
        let at = self.context.at();
        let trial = &mut self.trial;
        self.rollout
            .with(|rollout| trial.report(rollout, attempt, at))
    }

    /// What the shard found out shows nothing: another one goes on with the trial.
    pub(super) fn leave_trial(&mut self) {
        let trial = &mut self.trial;
        self.rollout.with(|rollout| trial.leave(rollout));
    }

    /// Reports whether a throw-away instance of the version could be made.
    pub(super) fn probed(&self, digest: &PluginDigest, result: Result<(), StartFailure>) {
        let at = self.context.at();
        self.rollout
            .with(|rollout| rollout.probed(digest, result, at));
    }

    /// A throw-away instance of the version could not be made.
    pub(super) fn probe_refused(
        &mut self,
        digest: &PluginDigest,
        error: &ProcessorError,
        failure: &StartFailure,
    ) {
        let now = self.context.now();
        let trial = &mut self.trial;
        let is_news = self
            .rollout
            .with(|rollout| trial.refuse(rollout, digest, failure, now));
        if is_news {
            self.show_refused(digest, error);
        }
    }

    /// Another version has taken over.
    pub(super) fn show_swapped(&mut self, from: &PluginDigest, to: &PluginDigest) {
        tracing::info!(shard = %self.context.shard(), %from, %to, "plugin version swapped in");
        self.count_swap("swapped");
        self.trial.forget_refusal();
    }

    /// A version does not start.
    pub(super) fn show_refused(&self, digest: &PluginDigest, error: &ProcessorError) {
        tracing::warn!(
            shard = %self.context.shard(),
            %digest,
            %error,
            code = "version-start-failed",
            "the new plugin version does not start, keeping the old one"
        );
        self.count_swap("refused");
        let refusal = SwapRefusal {
            digest: Some(digest.as_str().to_owned()),
            reason: error.to_string(),
        };
        self.context.board().set_refused(Some(refusal));
    }

    fn count_swap(&self, outcome: &'static str) {
        let plugin = self.context.plugin();
        ::metrics::counter!(metrics::SWAPS, "plugin" => plugin, "outcome" => outcome).increment(1);
    }
}

impl Drop for Versions {
    fn drop(&mut self) {
        self.rollout
            .with(|rollout| rollout.leave(self.trial.site()));
    }
}

/// What it says of a version that an instance of it could not be made.
pub(super) fn start_failure(error: &ProcessorError) -> StartFailure {
    let reason = error.to_string();
    match error {
        error if error.lack().is_some() => StartFailure::NotMade(reason),
        ProcessorError::DeadlineExceeded { .. } => StartFailure::TooSlow(reason),
        error if error.is_hosts() => StartFailure::NotMade(reason),
        _ => StartFailure::Failed(reason),
    }
}
