//! Shows that a row cannot be written, to people and to whoever decides what comes of it.

use shardmill_core::lease::WriteTrouble;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::StoreError;
use shardmill_core::stream::ShardId;
use shardmill_core::time::Moment;
use tokio::sync::watch;

use crate::metrics;
use crate::status::{BlockedStatus, StatusBoard};

/// A keeper's troubles with its row.
pub(crate) struct Troubles {
    told: watch::Sender<Option<WriteTrouble>>,
    status: StatusBoard,
    plugin: PluginName,
    shard: ShardId,
}

impl Troubles {
    /// None yet.
    pub(crate) fn new(status: StatusBoard, plugin: PluginName, shard: ShardId) -> Self {
        Self { told: watch::channel(None).0, status, plugin, shard }
    }

    /// What is told of them from now on.
    pub(super) fn watch(&self) -> watch::Receiver<Option<WriteTrouble>> {
        self.told.subscribe()
    }

    /// A write that was first sent at `since` failed, the `attempts`th time.
    pub(super) fn failed(&self, since: Moment, attempts: u32, error: &StoreError) {
        let reason = format!("its row in the lease table cannot be written: {error}");
        let trouble = WriteTrouble { since, attempts, reason: reason.clone() };
        if trouble.is_shown() {
            let blocked = BlockedStatus { attempts, reason };
            self.status.update_shard(&self.shard, |status| status.blocked = Some(blocked));
            self.set_gauge(1.0);
        }
        if attempts.is_power_of_two() {
            tracing::warn!(shard = %self.shard, attempts, %error, "lease write failed, trying again");
        }
        self.told.send_replace(Some(trouble));
    }

    /// The row was written.
    pub(super) fn over(&self) {
        let Some(trouble) = self.told.send_replace(None) else { return };
        if trouble.is_shown() {
            tracing::info!(shard = %self.shard, attempts = trouble.attempts, "the lease's row can be written again");
            self.status.update_shard(&self.shard, |status| status.blocked = None);
            self.set_gauge(0.0);
        }
    }

    fn set_gauge(&self, value: f64) {
        let labels = [("plugin", self.plugin.to_string()), ("shard", self.shard.to_string())];
        ::metrics::gauge!(metrics::BLOCKED, &labels).set(value);
    }
}

impl Drop for Troubles {
    /// Whoever holds the lease next says whether its row can be written.
    fn drop(&mut self) {
        if self.told.borrow().is_some() {
            self.set_gauge(0.0);
        }
    }
}
