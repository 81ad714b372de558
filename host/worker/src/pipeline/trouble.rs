//! Shows what is in a shard's way, and waits between tries.

use tokio::time::Instant;

use super::consumer::Consumer;
use crate::holding::Stopped;
use crate::metrics;
use crate::signs::Stage;
use crate::status::{Parking, Why};

impl Consumer {
    /// Something else than a delivery failed and is tried again.
    pub(super) fn failed(&mut self, attempts: u32, kind: &'static str, reason: String) {
        let plugin = self.options.plugin.to_string();
        ::metrics::counter!(metrics::FAILURES, "plugin" => plugin, "kind" => kind).increment(1);
        self.blocked(self.why(kind), attempts, reason);
        self.hold_little();
    }

    /// Whose a failed delivery is, by the kind that metrics have of it.
    pub(super) fn why(&self, kind: &str) -> Why {
        let is_for_good =
            kind == "misconfigured" && self.options.failure.misconfigured_attempts.is_none();
        if is_for_good {
            Why::Misconfigured
        } else {
            Why::of_failure(kind)
        }
    }

    pub(super) fn blocked(&mut self, why: Why, attempts: u32, reason: String) {
        /// From here on the row says it, for people; a single failure is not worth a write.
        const NOTED_FROM: u32 = 3;
        if attempts >= NOTED_FROM {
            self.stuck = Some(format!("attempt {attempts} failed: {reason}"));
            // Powers of two, as in the log: the row must not be written at every attempt.
            if attempts == NOTED_FROM || attempts.is_power_of_two() {
                self.keeper.note(self.progress());
            }
        }
        self.is_blocked = true;
        // Powers of two: a batch that fails for days must not fill the log.
        if attempts.is_power_of_two() {
            let digest = self.instance.digest();
            tracing::warn!(shard = %self.shard, attempts, %digest, reason, "delivery failed, \
                trying again");
        }
        // Of a delivery it is one at a time: the last.
        self.mended_but(Some(why));
        self.signs.failed(why, attempts, reason);
    }

    /// What failed in the plugin's calls, or around them, works again.
    pub(super) fn mended_but(&self, still: Option<Why>) {
        let own = [
            Why::Halted,
            Why::Plugin,
            Why::Misconfigured,
            Why::Memory,
            Why::State,
            Why::Children,
        ];
        own.into_iter()
            .filter(|why| Some(*why) != still)
            .for_each(|why| self.signs.clear(why));
    }

    /// After a delivery: what still waits, and whether anything is in the way still.
    pub(super) fn show_progress(&mut self) {
        let parked = self.retries.parked();
        let usage = Parking {
            keys: parked.keys(),
            records: parked.records(),
            bytes: parked.bytes(),
        };
        let is_mended = self.retries.is_clear() && self.is_blocked;
        if is_mended {
            self.is_blocked = false;
            tracing::info!(shard = %self.shard, "the records that failed are settled");
            self.mended_but(None);
        }
        if self.retries.is_clear() {
            self.failing_since = None;
            self.stuck = None;
            self.keeper.note(self.progress());
        }
        let mut has_changed = false;
        self.status.update_shard(&self.shard, |status| {
            has_changed = status.parked != usage;
            status.parked = usage;
        });
        if has_changed {
            self.signs.gauge(metrics::PARKED, usage.records as f64);
        }
    }

    /// Waits between tries, but not when there is something new to try.
    pub(super) async fn wait_to_retry(&mut self, failures: u32) -> Result<(), Stopped> {
        self.signs.enter(Stage::Waiting);
        let wait = self.options.backoff.delay(failures, fastrand::f64());
        let checkpoint_in = self
            .headway
            .unwritten
            .due_in(&self.options.checkpoints, self.ports.clock.now());
        let deadline = Instant::now() + wait;
        tokio::select! {
            biased;
            stopped = self.gate.stopped() => return Err(stopped),
            () = self.ports.version_news() => return Ok(()),
            () = tokio::time::sleep_until(deadline) => return Ok(()),
            () = tokio::time::sleep(checkpoint_in.unwrap_or_default()), if checkpoint_in.is_some() => {}
        }
        // What is settled below a failing record is written down while the record waits.
        self.write_checkpoint().await?;
        self.signs.enter(Stage::Waiting);
        tokio::select! {
            stopped = self.gate.stopped() => Err(stopped),
            () = tokio::time::sleep_until(deadline) => Ok(()),
        }
    }
}
