//! Every metric of the log: name, unit, help.

use metrics::{Unit, describe_counter};

/// Lines that were dropped because standard error was not read.
pub(crate) const DROPPED: &str = "shardmill_log_lines_dropped_total";

/// Gives each metric its unit and help text.
pub(crate) fn describe() {
    describe_counter!(
        DROPPED,
        Unit::Count,
        "log lines dropped because standard error was not read"
    );
}
