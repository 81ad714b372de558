//! What a benchmark reports.

use std::fmt;

use comfy_table::{CellAlignment, Table};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use crate::output::table;

/// What was measured of a plugin.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct BenchReport {
    /// How often all records were delivered and measured.
    pub(crate) rounds: u32,
    /// Records that the plugin got in each.
    pub(crate) records_per_round: u64,
    /// Records in a batch, on average.
    pub(crate) records_per_batch: f64,
    /// Bytes of a record's data, on average.
    pub(crate) bytes_per_record: f64,
    /// Pieces that the plugin emitted for each record.
    pub(crate) emitted_per_record: f64,
    /// Bytes that it emitted for each record.
    pub(crate) emitted_bytes_per_record: f64,
    /// Microseconds to a new instance whose `init` is done.
    pub(crate) instantiate: Spread,
    /// Memory of the instance at the end, in bytes; it never shrinks.
    pub(crate) memory_bytes: usize,
    /// What the plugin's `process` took.
    pub(crate) plugin: Timing,
    /// A component that does nothing: what delivering costs.
    pub(crate) empty_component: Timing,
    /// Native code that does nothing: what measuring costs.
    pub(crate) native_no_op: Timing,
    /// Records that the plugin reported as failed, if any.
    pub(crate) failed: Option<Failed>,
}

/// How long `process` took.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Timing {
    /// Nanoseconds a record.
    pub(crate) nanos_per_record: Spread,
    /// Nanoseconds of a core a record: the same without the time that other processes took on a
    /// busy machine.
    pub(crate) cpu_nanos_per_record: Spread,
    /// Data in, at the median.
    pub(crate) mib_per_second: f64,
}

/// Several measurements of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The one in the middle.
    pub(crate) median: f64,
    /// The smallest of the measurements.
    pub(crate) min: f64,
    /// The largest of the measurements.
    pub(crate) max: f64,
}

/// Records that the plugin reported as failed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Failed {
    /// How many, over all rounds.
    pub(crate) records: u64,
    /// Why the first one did.
    pub(crate) first: String,
}

impl Spread {
    /// Of one measurement at least; of none, zeros.
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |index: usize| samples.get(index).copied().unwrap_or_default();
        let middle = samples.len() / 2;
        let median = if samples.len().is_multiple_of(2) {
            f64::midpoint(at(middle.saturating_sub(1)), at(middle))
        } else {
            at(middle)
        };
        Self {
            median,
            min: at(0),
            max: at(samples.len().saturating_sub(1)),
        }
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { median, min, max } = self.instantiate;
        let memory = HumanBytes(self.memory_bytes as u64);
        writeln!(
            f,
            "instantiate {median:.1} µs ({min:.1} to {max:.1}), memory {memory}"
        )?;
        writeln!(
            f,
            "{} rounds of {} records, {:.0} a batch, {:.0} bytes each; {:.2} pieces of \
                output a record, {:.0} bytes",
            self.rounds,
            HumanCount(self.records_per_round),
            self.records_per_batch,
            self.bytes_per_record,
            self.emitted_per_record,
            self.emitted_bytes_per_record
        )?;
        write!(f, "{}", self.table())
    }
}

impl BenchReport {
    fn table(&self) -> Table {
        let mut table = table([
            "process",
            "ns/record",
            "fastest",
            "slowest",
            "CPU ns",
            "MiB/s",
        ]);
        table.add_row(self.plugin.row("plugin"));
        table.add_row(self.empty_component.row("empty component"));
        table.add_row(self.native_no_op.row("native no-op"));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl Timing {
    fn row(&self, name: &str) -> Vec<String> {
        let Spread { median, min, max } = self.nanos_per_record;
        let cpu = self.cpu_nanos_per_record.median;
        let figures = [median, min, max, cpu, self.mib_per_second];
        let mut row = vec![name.to_owned()];
        row.extend(figures.map(|figure| format!("{figure:.1}")));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_both_ends_whatever_the_order() {
        assert_eq!(
            Spread::of(vec![3.0, 1.0, 9.0]),
            Spread {
                median: 3.0,
                min: 1.0,
                max: 9.0
            }
        );
        assert_eq!(
            Spread::of(vec![4.0, 1.0, 2.0, 9.0]),
            Spread {
                median: 3.0,
                min: 1.0,
                max: 9.0
            }
        );
        assert_eq!(
            Spread::of(vec![5.0]),
            Spread {
                median: 5.0,
                min: 5.0,
                max: 5.0
            }
        );
        assert_eq!(
            Spread::of(Vec::new()),
            Spread {
                median: 0.0,
                min: 0.0,
                max: 0.0
            }
        );
    }
}
