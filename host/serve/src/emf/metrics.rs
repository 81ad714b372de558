//! The metrics of what is written for CloudWatch. Described by [`describe`].

use metrics::{Unit, describe_counter};

/// Lines of the KCL's metrics. Labels: outcome.
const LINES: &str = "shardmill_emf_lines_total";
/// Values of the KCL's metrics that are in no line.
const VALUES_DROPPED: &str = "shardmill_emf_values_dropped_total";

/// Counts what became of lines.
pub(super) fn count_lines(written: u64, dropped: u64) {
    metrics::counter!(LINES, "outcome" => "written").increment(written);
    metrics::counter!(LINES, "outcome" => "dropped").increment(dropped);
}

/// Counts values that found no room before they could be written.
pub(super) fn count_values_dropped(values: u64) {
    metrics::counter!(VALUES_DROPPED).increment(values);
}

/// Gives each its unit and help text.
pub(crate) fn describe() {
    describe_counter!(
        LINES,
        Unit::Count,
        "lines of the KCL's metrics, by whether they were written"
    );
    describe_counter!(
        VALUES_DROPPED,
        Unit::Count,
        "values of the KCL's metrics that found no room before they could be written"
    );
}
