//! The metrics of the process: what was built, and what it uses. Described by [`describe`].

use metrics::{Unit, describe_counter, describe_gauge};
use shardmill_core::plugin::{CONTRACT, PluginName};

/// 1; what runs is in its labels. Labels: version, commit, contract.
const BUILD: &str = "shardmill_build_info";
/// `host.buffer`.
pub(crate) const BUFFER_LIMIT: &str = "shardmill_buffer_limit_bytes";
/// Whether a plugin is ready: 1 or 0. Labels: plugin.
pub(crate) const READY: &str = "shardmill_ready";
/// Looks at a source of a plugin's versions. Labels: plugin, outcome.
const PULLS: &str = "shardmill_plugin_pulls_total";

/// Hosts wanted for all plugins; on one host only.
pub(crate) const HOSTS_WANTED: &str = "shardmill_hosts_wanted";

/// The commit that was built, if the build named it.
pub const COMMIT: &str = match option_env!("SHARDMILL_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// What came of a look at a source.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PullOutcome {
    /// What is wanted was there already.
    Unchanged,
    /// It was pulled.
    Pulled,
    /// It could not be found out, or pulled.
    Failed,
}

impl PullOutcome {
    const ALL: [Self; 3] = [Self::Unchanged, Self::Pulled, Self::Failed];

    fn code(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Pulled => "pulled",
            Self::Failed => "failed",
        }
    }
}

pub(crate) fn pulls(plugin: &PluginName, outcome: PullOutcome) -> metrics::Counter {
    let labels = [
        ("plugin", plugin.to_string()),
        ("outcome", outcome.code().to_owned()),
    ];
    metrics::counter!(PULLS, &labels)
}

/// A counter that is not there before its first event hides that event from alerts.
pub(crate) fn count_pulls_from_zero(plugin: &PluginName) {
    for outcome in PullOutcome::ALL {
        pulls(plugin, outcome).increment(0);
    }
}

/// Gives each metric its unit and help text, and sets what does not change.
pub(crate) fn describe() {
    describe_gauge!(BUILD, Unit::Count, "1; what runs is in the labels");
    describe_gauge!(
        BUFFER_LIMIT,
        Unit::Bytes,
        "bytes that all plugins may have fetched and not settled"
    );
    describe_counter!(
        PULLS,
        Unit::Count,
        "looks at the source of a plugin's versions, by outcome"
    );
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("commit", COMMIT),
        ("contract", CONTRACT),
    ];
    metrics::gauge!(BUILD, &labels).set(1.0);
}
