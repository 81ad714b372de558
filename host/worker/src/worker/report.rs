//! What a worker tells of its passes, in its status and in its row.

use shardmill_core::plugin::plugin_of_label;

use super::{PassError, Worker};
use crate::metrics;
use crate::status::StageStatus;

/// Passes that failed in a row from which on others are told why: one is a hiccup.
const TOLD_FROM: u32 = 3;

impl Worker {
    pub(super) fn pass_failed(&self, error: &PassError, failures: u32) {
        if failures.is_power_of_two() {
            tracing::warn!(application = self.options.application, %error, failures, "cannot read leases");
        }
        let reason = error.to_string();
        if failures >= TOLD_FROM {
            self.tell_others(Some(&reason));
        }
        self.status
            .update(|status| (status.pass_error, status.waits_on) = (Some(reason), None));
    }

    /// What a pass can do without may be refused all the same, and is shown: somebody forgot a
    /// right.
    pub(super) fn pass_went_well(&self) {
        let reason = self
            .cannot_announce
            .clone()
            .or_else(|| self.duties.cannot_list.clone());
        self.tell_others(reason.as_ref());
        self.status
            .update(|status| (status.pass_error, status.waits_on) = (reason, None));
    }

    /// What this worker waits for from now on; the next pass that is over ends it.
    pub(super) fn wait_on(&self, what: &str) {
        let stage = StageStatus::new(what.to_owned());
        self.status.update(|status| status.waits_on = Some(stage));
    }

    /// Says in this host's row why it cannot look after leases.
    fn tell_others(&self, reason: Option<&String>) {
        self.cannot_look.send_if_modified(|told| {
            let is_news = told.as_ref() != reason;
            *told = reason.cloned();
            is_news
        });
    }

    /// Of the plugin on all its streams.
    pub(super) fn show_buffer(&self) {
        let plugin = plugin_of_label(self.options.plugin.as_str()).to_owned();
        let budget = &self.ports.budget;
        ::metrics::gauge!(metrics::BUFFER, "plugin" => plugin.clone())
            .set(budget.held_bytes() as f64);
        ::metrics::gauge!(metrics::BUFFER_GUARANTEED, "plugin" => plugin)
            .set(budget.guaranteed_bytes() as f64);
    }
}
