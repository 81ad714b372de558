//! What every part of a pipeline knows of its shard: which it is, the settings, the ports, and
//! where to show what happens.

use std::sync::Arc;
use std::time::Duration;

use ::metrics::SharedString;
use shardmill_core::ports::LeaseStore;
use shardmill_core::rollout::At;
use shardmill_core::stream::{Position, ShardId};
use shardmill_core::time::Moment;

use super::ports::PipelinePorts;
use crate::holding::KeeperHandle;
use crate::meters::Meter;
use crate::metrics;
use crate::options::WorkerOptions;
use crate::signs::{Signs, Stage};
use crate::status::{ShardStatus, StatusBoard};

/// Where a pipeline shows what it does.
pub(crate) struct ShardReports {
    pub(crate) status: StatusBoard,
    pub(crate) signs: Signs,
    pub(crate) meter: Meter,
}

/// See the module's description.
pub(crate) struct ShardContext {
    shard: ShardId,
    options: Arc<WorkerOptions>,
    ports: PipelinePorts,
    reports: ShardReports,
    keeper: KeeperHandle,
    /// Made once: each batch counts by it.
    plugin_label: SharedString,
}

impl ShardContext {
    pub(crate) fn new(
        shard: ShardId,
        options: Arc<WorkerOptions>,
        ports: PipelinePorts,
        reports: ShardReports,
        keeper: KeeperHandle,
    ) -> Self {
        Self {
            plugin_label: metrics::label(&options.plugin),
            shard,
            options,
            ports,
            reports,
            keeper,
        }
    }

    pub(super) fn shard(&self) -> &ShardId {
        &self.shard
    }

    pub(super) fn options(&self) -> &WorkerOptions {
        &self.options
    }

    pub(super) fn ports(&self) -> &PipelinePorts {
        &self.ports
    }

    pub(super) fn store(&self) -> &dyn LeaseStore {
        self.ports.store.as_ref()
    }

    /// The only writer of the lease's row.
    pub(super) fn keeper(&self) -> &KeeperHandle {
        &self.keeper
    }

    pub(super) fn signs(&self) -> &Signs {
        &self.reports.signs
    }

    /// Where it is noted what happens to the shard.
    pub(super) fn meter(&self) -> &Meter {
        &self.reports.meter
    }

    /// The pipeline does something else now.
    pub(super) fn enter(&self, stage: Stage) {
        self.reports.signs.enter(stage);
    }

    pub(super) fn now(&self) -> Moment {
        self.ports.clock.now()
    }

    /// The time by which the plugin ticks.
    pub(super) fn tick_now(&self) -> Moment {
        self.ports.tick_clock.clock().now()
    }

    /// The wall time that the plugin is told at a tick.
    pub(super) fn tick_wall_ms(&self) -> u64 {
        self.ports.tick_clock.clock().wall_ms()
    }

    /// The time of spans, if batches are traced.
    pub(super) fn span_ns(&self) -> Option<u64> {
        self.ports.tracer.as_ref().map(|tracer| tracer.now_ns())
    }

    pub(super) fn at(&self) -> At {
        At {
            now: self.ports.clock.now(),
            wall_ms: self.ports.clock.wall_ms(),
        }
    }

    /// How long to wait after the `failures`th failure in a row.
    pub(super) fn back_off(&self, failures: u32) -> Duration {
        self.options.backoff.delay(failures, fastrand::f64())
    }

    pub(super) fn update_status(&self, change: impl FnOnce(&mut ShardStatus)) {
        self.reports.status.update_shard(&self.shard, change);
    }

    pub(super) fn board(&self) -> &StatusBoard {
        &self.reports.status
    }

    /// Whether the last reply reached the tip of the shard and had no records.
    pub(super) fn is_at_tip(&self) -> bool {
        self.reports.status.is_at_tip(&self.shard)
    }

    /// When the last reply came, if that reached the tip of the shard and had no records.
    pub(super) fn tip_at(&self) -> Option<Moment> {
        self.reports.status.tip_at(&self.shard)
    }

    /// The last record fetched, and how far the tip was ahead of the last reply, in milliseconds.
    pub(super) fn last_reply(&self) -> (Option<Position>, Option<u64>) {
        self.reports.status.last_reply(&self.shard)
    }

    /// The label of the plugin's metrics.
    pub(super) fn plugin(&self) -> SharedString {
        self.plugin_label.clone()
    }

    /// Adds to a counter of the plugin.
    pub(super) fn count(&self, metric: &'static str, by: u64) {
        ::metrics::counter!(metric, "plugin" => self.plugin()).increment(by);
    }
}
