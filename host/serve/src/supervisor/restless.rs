//! Plugins whose manifests change soon after a start, and are followed later.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::plugin::PluginName;
use shardmill_core::rollout::Restart;

use super::{Running, Supervisor};

/// A plugin whose manifest changes is restarted no sooner after its last start: each start asks
/// Kinesis and DynamoDB a dozen questions, and how many they answer in a second is the account's
/// limit, which all hosts share.
const RESTART_SPACING: Duration = Duration::from_secs(5);

impl Running {
    pub(super) fn has_just_started(&self) -> bool {
        self.started_at.elapsed() < RESTART_SPACING
    }
}

impl Supervisor {
    /// The manifest is looked at again once the plugin may be restarted.
    pub(super) fn follow_later(&mut self, name: &PluginName) {
        if self.restless.insert(name.clone()) {
            tracing::info!(plugin = %name, "settings changed soon after a start; the plugin restarts \
                with the new settings in some seconds");
        }
    }

    /// Follows the manifests that changed too soon, where that is long enough ago.
    pub(super) fn look_at_restless(&mut self) {
        let is_due = |name: &PluginName| {
            let running = self.running.get(name);
            running.is_none_or(|running| !running.has_just_started())
        };
        let (due, later) = self.restless.iter().cloned().partition(is_due);
        self.restless = later;
        let due: HashSet<PluginName> = due;
        for name in due {
            self.follow_settings_of(&name);
            // If the manifest is as it was, or refused, nothing restarts.
            if let Some(running) = self.running.get_mut(&name)
                && !running.stop.is_cancelled()
                && let Some(version) = running.next.take()
            {
                running.versions.send_replace(version);
            }
        }
    }
}

impl Running {
    /// Drains its workers, to start the same version again once they have ended, or a newer one
    /// that waits for that.
    pub(super) fn restart(&mut self, how: Restart) {
        self.rollout.restarts(how);
        let same = Arc::clone(&self.versions.borrow());
        self.next.get_or_insert(same);
        self.stop.cancel();
    }
}
