//! Metrics of plugins' HTTP requests.

use metrics::describe_counter;

/// Requests, ended in whatever way. Labels: plugin, outcome.
pub(crate) const REQUESTS: &str = "shardmill_plugin_http_requests_total";

pub(crate) fn describe() {
    describe_counter!(REQUESTS, "HTTP requests of plugins, by outcome");
}
