//! The metrics of the engine: name, unit, labels, help. Registered by [`describe`].

use metrics::{Unit, describe_counter, describe_gauge};

/// Linear memory that instances have, or are promised for their next call.
pub(crate) const MEMORY: &str = "shardmill_instances_memory_bytes";
pub(crate) const CODE: &str = "shardmill_code_memory_bytes";
pub(crate) const CODE_LIMIT: &str = "shardmill_code_memory_limit_bytes";
/// Linear memory that all instances may have together.
pub(crate) const MEMORY_LIMIT: &str = "shardmill_instances_memory_limit_bytes";
/// Calls that failed because that was spent. Labels: plugin.
pub(crate) const MEMORY_DENIED: &str = "shardmill_instances_memory_denied_total";

/// Gives each metric its unit and help text.
pub fn describe() {
    describe_gauge!(MEMORY, Unit::Bytes, "linear memory of all instances");
    describe_gauge!(
        MEMORY_LIMIT,
        Unit::Bytes,
        "linear memory that all instances may use in total"
    );
    describe_counter!(
        MEMORY_DENIED,
        Unit::Count,
        "calls that failed because the memory for all instances was used up"
    );
}
