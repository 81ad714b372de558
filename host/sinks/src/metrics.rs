//! Every metric of the sinks: name, unit, labels, help. Registered by [`describe`].

use metrics::{Unit, describe_counter, describe_histogram};

/// Requests sent by sinks over a network. Labels: sink, outcome.
pub const REQUESTS: &str = "shardmill_sink_requests_total";
/// Seconds a request took. Labels: sink.
pub(crate) const REQUEST_SECONDS: &str = "shardmill_sink_request_seconds";
/// Pieces that a sink over a network stored. Labels: sink.
pub const STORED: &str = "shardmill_sink_stored_total";
/// Pieces that were sent and not stored, and so are sent again. Labels: sink.
pub(crate) const RESENT: &str = "shardmill_sink_resent_total";
/// Dead letters stored. Labels: sink, plugin.
pub(crate) const DEAD_LETTERS: &str = "shardmill_dead_letters_stored_total";

/// Gives each metric its unit and help text.
pub fn describe() {
    describe_counter!(REQUESTS, Unit::Count, "requests of sinks, by outcome");
    describe_histogram!(REQUEST_SECONDS, Unit::Seconds, "time of a sink's request");
    describe_counter!(
        STORED,
        Unit::Count,
        "pieces of output stored over a network"
    );
    describe_counter!(RESENT, Unit::Count, "pieces of output to be sent again");
    describe_counter!(DEAD_LETTERS, Unit::Count, "dead letters stored");
}
