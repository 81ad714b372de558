//! What people see of a shard: in the status, in the row, and in metrics.

use shardmill_core::ports::Progress;

use super::ShardPipeline;
use crate::metrics;
use crate::pipeline::trouble::Failing;
use crate::status::ShardState;

impl ShardPipeline {
    pub(super) fn show_state(&self, state: ShardState) {
        self.context.update_status(|status| status.state = state);
    }

    /// Has the row say how far the shard is, with the next write.
    pub(super) fn note_progress(&self) {
        self.context.keeper().note(self.progress());
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            plugin_digest: Some(self.deliveries.digest().clone()),
            millis_behind_latest: self.millis_behind_latest(),
            settled_arrival_ms: self.saving.settled_arrival_ms(),
            // The keeper measures it.
            bytes_per_second: None,
            stuck: self.trouble.note(),
            given_up: self.trouble.last_given_up(),
            state_fill: self.saving.state_fill(),
        }
    }

    /// How far the tip was ahead of what is in delivery; of the last reply, an empty one too, once
    /// all is delivered. The reader may be at the tip long before: that is not where the plugin is.
    /// At least the age of what is not settled.
    pub(super) fn millis_behind_latest(&self) -> Option<u64> {
        let (fetched, behind) = self.context.last_reply();
        let behind = if self.saving.is_all_delivered(fetched.as_ref()) {
            behind
        } else {
            self.intake.millis_behind_latest()
        };
        behind.max(self.context.signs().age_ms())
    }

    /// Something other than a delivery failed and is tried again.
    pub(super) fn failed(&mut self, attempts: u32, kind: &'static str, reason: String) {
        self.count_failure(kind);
        let failing = self.note_failure(attempts, kind, reason);
        self.trouble.show_failure(failing, self.deliveries.digest());
        self.hold_little();
    }

    /// What was tried besides deliveries works, after so many `failures` in a row. Also on a shard
    /// that gets no record from here on, nothing shows them any more; a state that is to be saved
    /// again, and records that wait, still do.
    pub(super) fn works_again(&mut self, failures: u32) {
        if failures == 0 || self.saving.must_save_again() {
            return;
        }
        if self.deliveries.are_clear() {
            self.show_progress();
        } else {
            self.trouble.show_records_alone();
            self.note_progress();
        }
    }

    pub(super) fn count_failure(&self, kind: &'static str) {
        let plugin = self.context.plugin();
        ::metrics::counter!(metrics::FAILURES, "plugin" => plugin, "kind" => kind).increment(1);
    }

    /// Records failed, and are delivered again.
    pub(super) fn show_records_failed(&mut self, attempts: u32, kind: &str, reason: String) {
        let failing = self.note_failure(attempts, kind, reason);
        let digest = self.deliveries.digest();
        self.trouble.show_records_failed(failing, digest);
    }

    /// Has the row say it, if it is worth that.
    fn note_failure(&mut self, attempts: u32, kind: &str, reason: String) -> Failing {
        if self.trouble.note_failure(attempts, &reason) {
            self.note_progress();
        }
        Failing {
            why: self.trouble.why(kind),
            attempts,
            reason,
        }
    }

    /// The shard makes no progress: after some seconds of that, it holds no more than what it tries
    /// again.
    pub(super) fn hold_little(&mut self) {
        if self.trouble.is_failing_long() {
            self.intake.drop_read_ahead();
        }
    }

    /// After a delivery: what still waits, and whether anything is in the way still.
    pub(super) fn show_progress(&mut self) {
        if self.deliveries.are_clear() {
            self.trouble.none_waits();
            self.note_progress();
        }
        self.trouble.show_parked(self.deliveries.parked());
    }
}
