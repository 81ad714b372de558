//! What all instances of a plugin share, whatever their version: its log budget and the names of its measurements.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use shardmill_core::plugin::GuestLimits;

use super::log_budget::{Admission, LogBudget};

/// Names that one plugin may measure under. Each is a time series in the monitoring system, which someone pays for.
const NAMES_MAX: usize = 64;
/// Bytes of one name.
const NAME_BYTES_MAX: usize = 64;

/// How a name is used. A name has one kind: two would be a broken exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeasurementKind {
    Counter,
    Gauge,
    Histogram,
}

/// One plugin's share of logs and metrics.
#[derive(Debug)]
pub(crate) struct PluginOutput {
    // Locked for some nanoseconds by instances on several threads; never across a call into a guest.
    names: Mutex<HashMap<String, MeasurementKind>>,
    log: Mutex<LogBudget>,
}

impl PluginOutput {
    pub(crate) fn new(limits: &GuestLimits) -> Self {
        let budget = LogBudget::new(limits.log_lines_per_second, limits.log_burst, Instant::now());
        Self { names: Mutex::default(), log: Mutex::new(budget) }
    }

    /// Whether a measurement may be kept.
    pub(crate) fn admit_measurement(&self, name: &str, kind: MeasurementKind) -> bool {
        if !is_measurement_name(name) {
            return false;
        }
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        match names.get(name) {
            Some(known) => *known == kind,
            None if names.len() >= NAMES_MAX => false,
            None => {
                names.insert(name.to_owned(), kind);
                true
            }
        }
    }

    /// Whether a log line may be written.
    pub(crate) fn admit_line(&self) -> Admission {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now())
    }

    /// Lines dropped since the last report, if a report is due.
    pub(crate) fn take_dropped_lines(&self) -> u64 {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).take_dropped(Instant::now())
    }
}

fn is_measurement_name(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_has_few_well_formed_names_of_one_kind_each() {
        let output = PluginOutput::new(&GuestLimits::default());
        for name in ["", "_a", "9a", "A", "a-b", "a b", "a\n", &"a".repeat(65)] {
            assert!(!output.admit_measurement(name, MeasurementKind::Counter), "{name:?}");
        }
        let admitted =
            (0..1_000).filter(|n| output.admit_measurement(&format!("name_{n}"), MeasurementKind::Counter)).count();
        assert_eq!(admitted, NAMES_MAX);
        assert!(output.admit_measurement("name_0", MeasurementKind::Counter));
        assert!(!output.admit_measurement("name_0", MeasurementKind::Gauge));
    }
}
