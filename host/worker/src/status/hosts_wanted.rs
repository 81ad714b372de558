use serde::Serialize;
use shardmill_core::scaling::Figure;
use tokio::time::Instant;

/// How many hosts the leader wants, as `/status` and `/scaling` show it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostsWantedStatus {
    /// Hosts wanted for this application alone.
    pub wanted: usize,
    /// The same before damping; `None` while there are too few signs.
    pub undamped: Option<usize>,
    /// Shards that can be read now: there are never more hosts wanted.
    pub shards: usize,
    /// The leader's reason, in a sentence.
    pub why: String,
    /// What else the leader noticed, on the leader: shards for which more hosts would do nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether this host leads.
    pub leads: bool,
    /// When the leader's record last moved, as this host saw.
    #[serde(rename = "age-seconds", serialize_with = "seconds_since")]
    pub at: Instant,
    /// The figure itself, as the leader's record has it.
    #[serde(skip)]
    pub figure: Figure,
}

fn seconds_since<S: serde::Serializer>(at: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(at.elapsed().as_secs_f64())
}
