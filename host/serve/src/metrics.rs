//! The metrics of the process: what was built, and what it uses. Described by [`describe`].

use metrics::{Unit, describe_gauge};
use shardmill_core::plugin::CONTRACT;

/// 1; what runs is in its labels. Labels: version, commit, contract.
const BUILD: &str = "shardmill_build_info";
/// `host.buffer`.
pub(crate) const BUFFER_LIMIT: &str = "shardmill_buffer_limit_bytes";
/// Whether a plugin is ready: 1 or 0. Labels: plugin.
pub(crate) const READY: &str = "shardmill_ready";

/// Hosts wanted for all plugins; on one host only.
pub(crate) const HOSTS_WANTED: &str = "shardmill_hosts_wanted";

/// The commit that was built, if the build named it.
pub const COMMIT: &str = match option_env!("SHARDMILL_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Gives each metric its unit and help text, and sets what does not change.
pub(crate) fn describe() {
    describe_gauge!(BUILD, Unit::Count, "1; what runs is in the labels");
    describe_gauge!(
        BUFFER_LIMIT,
        Unit::Bytes,
        "bytes that all plugins may have fetched and not settled"
    );
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("commit", COMMIT),
        ("contract", CONTRACT),
    ];
    metrics::gauge!(BUILD, &labels).set(1.0);
}
