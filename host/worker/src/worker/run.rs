//! What all parts of a worker share: its id, its settings and its ports.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, SharedString};
use shardmill_core::fleet::Incarnation;
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Coordinator, LeaseStore};
use shardmill_core::rollout::At;
use shardmill_core::time::Moment;

use super::ports::Ports;
use crate::chronicle::{Chronicle, ChronicleWriter};
use crate::meters::WorkerMeters;
use crate::metrics as names;
use crate::options::WorkerOptions;
use crate::status::StatusBoard;

/// One run of a worker. It never changes; all parts of the worker share it.
pub(super) struct Run {
    pub(super) ports: Ports,
    pub(super) options: Arc<WorkerOptions>,
    pub(super) status: StatusBoard,
    /// Tells this run from others under the same worker id.
    pub(super) incarnation: Incarnation,
    /// The application's history.
    pub(super) chronicle: Arc<Chronicle>,
    /// Where it is noted what happens here.
    pub(super) meters: WorkerMeters,
    plugin_label: SharedString,
}

impl Run {
    /// Also gives back what writes the history, which is to run beside the worker.
    pub(super) fn new(
        ports: Ports,
        options: WorkerOptions,
        status: StatusBoard,
    ) -> (Self, ChronicleWriter) {
        let (chronicle, writer) = Chronicle::new(
            options.worker.clone(),
            Arc::clone(&ports.clock),
            Arc::clone(&ports.coordinator),
            ports.rollout.changes(),
            options.records_own_deeds,
        );
        let run = Self {
            chronicle,
            plugin_label: names::label(&options.plugin),
            meters: WorkerMeters::new(&ports.meters, &options, &ports.store),
            ports,
            options: Arc::new(options),
            status,
            incarnation: Incarnation::from_random(fastrand::u64(..)),
        };
        (run, writer)
    }

    /// This worker's id.
    pub(super) fn me(&self) -> &WorkerId {
        &self.options.worker
    }

    pub(super) fn plugin(&self) -> &PluginName {
        &self.options.plugin
    }

    pub(super) fn lease_duration(&self) -> Duration {
        self.options.leases.duration
    }

    pub(super) fn now(&self) -> Moment {
        self.ports.clock.now()
    }

    /// Now, on both clocks.
    pub(super) fn at(&self) -> At {
        At {
            now: self.now(),
            wall_ms: self.ports.clock.wall_ms(),
        }
    }

    pub(super) fn store(&self) -> Arc<dyn LeaseStore> {
        Arc::clone(&self.ports.store)
    }

    pub(super) fn coordinator(&self) -> Arc<dyn Coordinator> {
        Arc::clone(&self.ports.coordinator)
    }

    /// `future` as a task of this host, which a simulation can freeze.
    pub(super) fn guard<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        self.ports.freezer.clone().guard(future)
    }

    /// The counter `name` of this worker's plugin.
    pub(super) fn counter(&self, name: &'static str) -> Counter {
        metrics::counter!(name, "plugin" => self.plugin_label.clone())
    }

    /// Sets the gauge `name` of this worker's plugin.
    pub(super) fn gauge(&self, name: &'static str, value: f64) {
        metrics::gauge!(name, "plugin" => self.plugin_label.clone()).set(value);
    }

    /// Shows how much of the buffer the plugin uses, on all its streams.
    pub(super) fn show_buffer(&self) {
        let plugin = names::label_of_all_streams(self.plugin());
        let budget = &self.ports.budget;
        metrics::gauge!(names::BUFFER, "plugin" => plugin.clone()).set(budget.held_bytes() as f64);
        metrics::gauge!(names::BUFFER_GUARANTEED, "plugin" => plugin)
            .set(budget.guaranteed_bytes() as f64);
    }
}
