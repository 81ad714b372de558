//! What all instances of a plugin share across versions: its log budget and the names of its
//! measurements.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use shardmill_core::plugin::GuestLimits;
use shardmill_core::time::Moment;
use shardmill_core::token_bucket::TokenBucket;

use super::log_budget::{Admission, LogBudget};
use super::measurement_names::{MeasurementKind, MeasurementNames};
use super::shard_gauges::ShardGauges;

/// Most names that one plugin may measure under. Each is a time series that costs money in the
/// monitoring system.
const NAMES_MAX: usize = 64;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Values for histograms that one plugin may measure each second, and in a burst. Each is kept
/// until it is counted into its bucket, once a second: some hundred KiB.
const VALUES_PER_SECOND: u32 = 10_000;
const VALUES_BURST: u32 = 20_000;

/// One plugin's share of logs and metrics.
#[derive(Debug)]
pub(crate) struct PluginOutput {
    // Locked for some nanoseconds by instances on several threads; never across a call into a
    // guest.
    names: Mutex<HashMap<String, MeasurementKind>>,
    names_max: usize,
    /// The names of all plugins.
    all_names: Arc<MeasurementNames>,
    log: Mutex<LogBudget>,
    values: Mutex<TokenBucket>,
    gauges: Arc<ShardGauges>,
    /// What moments are counted from.
    made_at: Instant,
}

impl PluginOutput {
    pub(crate) fn new(limits: &GuestLimits, all_names: Arc<MeasurementNames>) -> Self {
        let now = Moment::default();
        let log = LogBudget::new(limits.log_lines_per_second, limits.log_burst, now);
        let values = TokenBucket::new(VALUES_PER_SECOND, VALUES_BURST, now);
        let (log, values) = (Mutex::new(log), Mutex::new(values));
        Self {
            names: Mutex::default(),
            names_max: NAMES_MAX,
            all_names,
            log,
            values,
            gauges: Arc::default(),
            made_at: Instant::now(),
        }
    }

    /// For a plugin whose measurements are all dropped.
    pub(crate) fn without_measurements(limits: &GuestLimits) -> Self {
        Self {
            names_max: 0,
            ..Self::new(limits, Arc::default())
        }
    }

    /// The gauges of all its instances.
    pub(crate) fn gauges(&self) -> &Arc<ShardGauges> {
        &self.gauges
    }

    pub(crate) fn may_measure(&self) -> bool {
        self.names_max > 0
    }

    /// Whether a measurement may be kept. The name is one that [`is_measurement_name`].
    pub(crate) fn admit_measurement(&self, name: &str, kind: MeasurementKind) -> bool {
        self.admit_name(name, kind)
            && (kind != MeasurementKind::Histogram || self.admit_value(self.now()))
    }

    fn now(&self) -> Moment {
        Moment::from_origin(self.made_at.elapsed())
    }

    fn admit_value(&self, now: Moment) -> bool {
        self.values
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(now)
    }

    fn admit_name(&self, name: &str, kind: MeasurementKind) -> bool {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        match names.get(name) {
            Some(known) => *known == kind,
            None if names.len() >= self.names_max || !self.all_names.admit(name, kind) => false,
            None => {
                names.insert(name.to_owned(), kind);
                true
            }
        }
    }

    /// Whether a log line may be written.
    pub(crate) fn admit_line(&self) -> Admission {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .admit(self.now())
    }

    /// Lines dropped since the last report, if a report is due.
    pub(crate) fn take_dropped_lines(&self) -> u64 {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take_dropped(self.now())
    }
}

/// Whether a measurement may have this name. Rejects a long one by its length alone.
pub(crate) fn is_measurement_name(name: &str) -> bool {
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
        let output = PluginOutput::new(&GuestLimits::default(), Arc::default());
        for name in ["", "_a", "9a", "A", "a-b", "a b", "a\n", &"a".repeat(65)] {
            assert!(!is_measurement_name(name), "{name:?}");
        }
        let admitted = (0..1_000)
            .filter(|n| output.admit_measurement(&format!("name_{n}"), MeasurementKind::Counter))
            .count();
        assert_eq!(admitted, NAMES_MAX);
        assert!(output.admit_measurement("name_0", MeasurementKind::Counter));
        assert!(!output.admit_measurement("name_0", MeasurementKind::Gauge));
    }

    #[test]
    fn a_plugin_without_room_for_measurements_may_still_log() {
        let output = PluginOutput::without_measurements(&GuestLimits::default());
        assert!(!output.admit_measurement("rows", MeasurementKind::Counter));
        assert!(matches!(output.admit_line(), Admission::Write));
    }

    #[test]
    fn a_loop_of_measurements_is_cut_to_what_is_counted_into_buckets_in_a_second() {
        let output = PluginOutput::new(&GuestLimits::default(), Arc::default());
        let start = Moment::default();
        let admitted = |now| (0..1_000_000).filter(|_| output.admit_value(now)).count();
        assert_eq!(admitted(start), VALUES_BURST as usize);
        assert_eq!(admitted(start), 0);
        assert_eq!(
            admitted(start + std::time::Duration::from_secs(1)),
            VALUES_PER_SECOND as usize
        );
    }
}
