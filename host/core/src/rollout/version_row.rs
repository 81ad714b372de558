use std::fmt;

use crate::plugin::PluginDigest;
use crate::stream::ShardId;

/// The state of a version on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutState {
    /// At work on all shards.
    Active,
    /// At work on all shards; the version before it is kept, in case it fails.
    Probation,
    /// Waits until other hosts of the fleet run it.
    Waiting,
    /// About to be tried, in a throw-away instance first.
    Probing,
    /// At work on one shard.
    Canary {
        /// Which.
        shard: ShardId,
    },
    /// Not taken.
    Quarantined,
    /// In the folder, and not loaded.
    Refused,
    /// At work, or meant to be, but its instances do not start, or die in a row.
    CrashLooping,
    /// Given the records as well, while its output is only compared.
    Shadow,
}

/// A version as a host shows it in its row and on its status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRow {
    /// The SHA-256 that names the version.
    pub digest: PluginDigest,
    /// A [`RolloutState`] as text: rows are written by hosts of other versions, too.
    pub state: String,
    /// Since when, on that host's wall clock, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Why, where that is not plain.
    pub reason: Option<String>,
}

impl RolloutState {
    /// The word in metrics, without the shard.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Probation => "probation",
            Self::Waiting => "waiting",
            Self::Probing => "probing",
            Self::Canary { .. } => "canary",
            Self::Quarantined => "quarantined",
            Self::Refused => "refused",
            Self::CrashLooping => "crash-looping",
            Self::Shadow => "shadow",
        }
    }

    /// The first word of every state, in the order of [`RolloutState`].
    pub const CODES: [&'static str; 9] = [
        "active",
        "probation",
        "waiting",
        "probing",
        "canary",
        "quarantined",
        "refused",
        "crash-looping",
        "shadow",
    ];
}

impl fmt::Display for RolloutState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Canary { shard } => write!(f, "canary({shard})"),
            other => f.write_str(other.code()),
        }
    }
}
