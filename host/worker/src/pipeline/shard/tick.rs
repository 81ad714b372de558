//! Calls the plugin because time has passed, between two batches and on a silent shard.
//!
//! What a tick emits is stored before anything that covers it is written, as of a batch. It is
//! covered at once then, and not with the next checkpoint: what the plugin emits for a window is to
//! come again as seldom as possible.

use std::time::Duration;

use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{HeldBack, TickTime, Ticked};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::time::Moment;

use super::ShardPipeline;
use crate::holding::Stopped;
use crate::pipeline::delivery::TickCalled;
use crate::status::Why;

impl ShardPipeline {
    /// How long until a tick is due; `None` if the version at work wants none.
    pub(super) fn tick_in(&self) -> Option<Duration> {
        let ticks = self.deliveries.first().instance().ticks();
        ticks.then(|| self.ticks.due_in(self.context.tick_now()))
    }

    /// Whether the plugin is to be called now because time has passed.
    pub(super) fn is_tick_due(&self) -> bool {
        self.tick_in().is_some_and(|wait| wait.is_zero())
    }

    /// Calls the plugin because time has passed, and does what follows from it. Only between two
    /// batches, and never on a shard that is paused or halted, or whose state cannot be saved.
    pub(super) async fn tick(&mut self) -> Result<(), Stopped> {
        if !self.deliveries.first().instance().is_alive() {
            // This may take up another version.
            self.make_instance(0).await?;
            return Ok(());
        }
        self.gate.pass().await?;
        let time = self.tick_time();
        let TickCalled { result, took } = self.deliveries.first_mut().tick(time).await?;
        // The lease may have gone during the call: then nothing of it counts.
        self.gate.check_held()?;
        match result {
            Ok(ticked) => {
                self.ticked(ticked).await?;
                self.context.update_status(|status| status.ticks += 1);
                if self.ticks.worked(took, self.context.tick_now()) {
                    self.clear_tick_trouble();
                }
            }
            Err(error) => self.tick_failed(&error, took),
        }
        self.write_if_due().await
    }

    fn tick_time(&mut self) -> TickTime {
        let wall_ms = self.context.tick_wall_ms();
        TickTime {
            now_ms: self.ticks.now_ms(wall_ms),
            delivered_until_ms: self.delivered_until().and_then(|at| {
                let ago = self.context.now().since(at).as_millis();
                Some(wall_ms.saturating_sub(u64::try_from(ago).ok()?))
            }),
        }
    }

    /// When Kinesis last had nothing more, if all that it had before is settled, or in the
    /// plugin's hands.
    fn delivered_until(&self) -> Option<Moment> {
        let tip_at = self.context.tip_at()?;
        let (fetched, _) = self.context.last_reply();
        let is_all = self.saving.is_all_delivered(fetched.as_ref());
        (is_all && !self.intake.has_something()).then_some(tip_at)
    }

    /// Takes in what came of a tick.
    async fn ticked(&mut self, ticked: Ticked) -> Result<(), Stopped> {
        let Ticked { held_back, emitted } = ticked;
        let has_news = !emitted.is_empty() || held_back == HeldBack::Commit;
        // Before the output is stored: should that fail, no state may be saved that is past it.
        self.saving.ticked();
        if SeededBug::TickIsCoveredFirst.is_on() {
            self.write_checkpoint().await?;
        }
        let cause = self.saving.handed_out().into();
        let storing = self.saving.store_output(emitted, cause, &mut self.gate);
        self.intake.unless_long(storing).await?;
        if held_back == HeldBack::Commit {
            self.saving.commit_held_back();
            self.settle();
        }
        if has_news {
            self.write_checkpoint().await?;
        }
        Ok(())
    }

    /// Shows that a tick has failed; it is tried again later. Records are delivered all the while.
    fn tick_failed(&mut self, error: &ProcessorError, took: Duration) {
        let failures = self.ticks.failed(took, self.context.tick_now());
        self.count_failure(error.code());
        let reason = format!("a tick failed: {error}");
        let digest = self.deliveries.digest().clone();
        // Powers of two: one that fails for days must not fill the log.
        if is_worth_a_line(failures) {
            let shard = self.context.shard();
            tracing::warn!(
                %shard,
                failures,
                %digest,
                reason,
                code = "tick-failed",
                "trying again later"
            );
        }
        self.context.signs().failed(Why::Tick, failures, reason);
        self.note_progress();
        let is_versions = !error.is_hosts() && error.lack().is_none();
        if is_versions && self.versions.did_not_tick(&digest, error) {
            self.deliveries.first_mut().instance_mut().kill();
        }
        if self.deliveries.have_lost(&self.saving) {
            // What it held back died with it, and must be read again.
            self.rewind();
        }
    }

    /// Ticks work again, or another version is at work.
    pub(super) fn clear_tick_trouble(&self) {
        self.context.signs().clear(Why::Tick);
        self.note_progress();
    }
}
