//! What people see of a shard: in the status, in the row, and in metrics.

use shardmill_core::ports::Progress;

use super::ShardPipeline;
use crate::metrics;
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
        self.show_failure(attempts, kind, reason);
        self.hold_little();
    }

    pub(super) fn count_failure(&self, kind: &'static str) {
        let plugin = self.context.plugin();
        ::metrics::counter!(metrics::FAILURES, "plugin" => plugin, "kind" => kind).increment(1);
    }

    pub(super) fn show_failure(&mut self, attempts: u32, kind: &str, reason: String) {
        if self.trouble.note_failure(attempts, &reason) {
            self.note_progress();
        }
        let why = self.trouble.why(kind);
        let digest = self.deliveries.digest();
        self.trouble.show_failure(why, attempts, reason, digest);
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
