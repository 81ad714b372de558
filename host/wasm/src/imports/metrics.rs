//! `shardmill:processor/metrics`: measurements. Counters and histograms are labelled with the
//! plugin only: those of all instances add up, and a shard label would multiply every name by the
//! number of shards. Gauges do not add up by themselves: each shard has its own.

use crate::bindings::shardmill::processor::metrics::Host;
use crate::instance::state::InstanceState;
use crate::output::is_measurement_name;
use crate::output::{MeasurementKind, PREFIX};

impl Host for InstanceState {
    fn counter(&mut self, name: String, add: u64) {
        if let Some(name) = self.admitted(&name, MeasurementKind::Counter) {
            metrics::counter!(name, "plugin" => self.plugin()).increment(add);
        }
    }

    fn gauge(&mut self, name: String, value: f64) {
        if let Some(name) = self.admitted(&name, MeasurementKind::Gauge)
            && value.is_finite()
            && !self.gauges.set(&name, value)
        {
            self.count_dropped();
        }
    }

    fn histogram(&mut self, name: String, value: f64) {
        if !value.is_finite() {
            return;
        }
        if let Some(name) = self.admitted(&name, MeasurementKind::Histogram) {
            metrics::histogram!(name, "plugin" => self.plugin()).record(value);
        }
    }
}

impl InstanceState {
    fn admitted(&self, name: &str, kind: MeasurementKind) -> Option<String> {
        let is_admitted = is_measurement_name(name)
            && !self.log.redactor().is_in(name)
            && self.output.admit_measurement(name, kind);
        if !is_admitted {
            self.count_dropped();
        }
        is_admitted.then(|| format!("{PREFIX}{name}"))
    }

    fn count_dropped(&self) {
        metrics::counter!("shardmill_plugin_measurements_dropped_total", "plugin" => self.plugin())
            .increment(1);
    }

    fn plugin(&self) -> String {
        self.label.to_string()
    }
}
