//! The plugin's state of a shard: what a new instance starts from, and what goes with a checkpoint.
//!
//! Between the two lies the rule that makes them agree: what was handled since the state was saved
//! counts as held back ([`Ledger::with_state`](shardmill_core::pipeline::Ledger::with_state)), so
//! an instance that goes without saving takes the shard back to its checkpoint.

use bytes::Bytes;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::stream::LeaseKey;

use super::consumer::Consumer;
use crate::holding::Stopped;
use crate::metrics;

/// What became of saving.
#[derive(Debug, Default)]
pub(super) struct Saving {
    /// Saved with what is settled, and not written yet.
    pub(super) unwritten: Option<Bytes>,
    /// Failures in a row.
    failures: u32,
    /// Nothing is delivered before it was tried again: more records would only be repeated.
    is_due_again: bool,
}

impl Consumer {
    /// What an instance starts from that is made now: the state written with the checkpoint.
    pub(super) async fn state_to_load(&mut self) -> Result<Option<Bytes>, ProcessorError> {
        if !self.options.keeps_state {
            return Ok(None);
        }
        let broken = |message: String| ProcessorError::State { message };
        let saved = self
            .ports
            .store
            .state(&LeaseKey::of_shard(&self.shard))
            .await;
        let written = &self.headway.written;
        match saved.map_err(|error| broken(format!("cannot be read: {error}")))? {
            Some(saved) if saved.checkpoint == *written => Ok(Some(saved.bytes)),
            Some(saved) => Err(broken(format!(
                "was saved at {}, but the shard's checkpoint is {written}: something else moved \
                    the checkpoint. Move it back, or delete the shard's row from table {}-state \
                    to start without state",
                saved.checkpoint, self.options.application,
            ))),
            None => Ok(None),
        }
    }

    /// Has the instance save its state, if that is the state of all records handed out; they are
    /// settled by it.
    ///
    /// If it fails, nothing is settled, and nothing more is delivered until it has worked or a new
    /// instance has taken over.
    pub(super) async fn save_state(&mut self) {
        if !self.may_save() {
            return;
        }
        match self.save_once().await {
            Ok(state) => {
                ::metrics::histogram!(metrics::STATE_BYTES, "plugin" => self.options.plugin.to_string())
                    .record(state.len() as f64);
                self.saving = Saving {
                    unwritten: Some(state),
                    ..Saving::default()
                };
                self.headway.ledger.saved();
                self.settle();
            }
            Err(error) => {
                self.saving.failures += 1;
                self.saving.is_due_again = true;
                self.failed(
                    self.saving.failures,
                    error.code(),
                    format!("cannot save the plugin's state: {error}"),
                );
                if !self.instance.is_alive() && self.holds_back() {
                    self.rewind();
                }
            }
        }
    }

    fn may_save(&self) -> bool {
        // A dead instance took with it what was not saved.
        let is_lost = !self.instance.is_alive() && self.holds_back();
        self.headway.ledger.may_save() && !is_lost
    }

    async fn save_once(&mut self) -> Result<Bytes, ProcessorError> {
        if !self.instance.is_alive() {
            // All that came since was given up: the state is the one that was saved last.
            let state = self.state_to_load().await?;
            self.instance.ensure(state).await?;
        }
        let saved = self.instance.save().await;
        if let Err(error) = &saved
            && !error.is_hosts()
        {
            let (digest, reason, at) =
                (self.instance.digest().clone(), error.to_string(), self.at());
            if self
                .ports
                .rollout
                .tell(|rollout| rollout.did_not_save(&digest, reason, at))
            {
                self.instance.kill();
            }
        }
        saved
    }

    /// Whether saving failed and is to be tried again before anything else.
    pub(super) fn must_save_again(&self) -> bool {
        self.saving.is_due_again
    }

    /// Waits, and tries again.
    pub(super) async fn save_again(&mut self) -> Result<(), Stopped> {
        self.saving.is_due_again = false;
        self.wait_to_retry(self.saving.failures).await?;
        self.write_checkpoint().await?;
        if self.saving.failures == 0 {
            self.show_progress();
        }
        Ok(())
    }
}
