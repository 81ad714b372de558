//! The metrics of the tables and of the wire: name, unit, labels, help. Registered by [`describe`].

use metrics::{Unit, describe_counter};

/// Requests to tables, each try counted. Labels: table, operation, outcome.
pub(crate) const TABLE_REQUESTS: &str = "shardmill_table_requests_total";
/// Capacity units that they consumed. Labels: table, operation.
pub(crate) const TABLE_CAPACITY: &str = "shardmill_table_capacity_units_total";
/// Replies of Kinesis in JSON that the host could not decode and left to the AWS SDK. No labels.
pub(crate) const WIRE_FALLBACKS: &str = "shardmill_wire_fallbacks_total";

/// Gives each metric its unit and help text.
pub fn describe() {
    describe_counter!(
        TABLE_REQUESTS,
        Unit::Count,
        "requests to tables, by operation and outcome"
    );
    describe_counter!(
        TABLE_CAPACITY,
        Unit::Count,
        "capacity units that requests to tables consumed"
    );
    describe_counter!(
        WIRE_FALLBACKS,
        Unit::Count,
        "replies of Kinesis that the host could not decode and left to the AWS SDK"
    );
}
