//! What a shard is doing, and what blocks it.

use serde::Serialize;
use tokio::time::Instant;

use crate::timer::Stopwatch;

/// What a pipeline is doing.
#[derive(Debug, Clone, Serialize)]
pub struct StageStatus {
    /// What the stage does, in words for people.
    #[serde(rename = "stage")]
    pub what: String,
    /// When the stage began; shown as seconds since then.
    #[serde(rename = "stage-seconds", serialize_with = "seconds_since")]
    pub since: Instant,
}

/// What keeps a shard from making progress; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// An operator paused it.
    Paused,
    /// The failure policy stopped it.
    Halted,
    /// Its row in the lease table cannot be written.
    Row,
    /// A sink stores no output: before the plugin, which is not tried meanwhile.
    Sink,
    /// The plugin fails, cannot be started, or does not return.
    Plugin,
    /// The plugin says that somebody must fix something, and the failure policy gives nothing up
    /// for it.
    Misconfigured,
    /// The host lacks the memory for the plugin's instance.
    Memory,
    /// The plugin's state cannot be saved or loaded.
    State,
    /// The shard has ended, and its children cannot be leased.
    Children,
    /// It cannot be read.
    Reading,
    /// There is no room for more records.
    Buffer,
    /// The plugin fails when it is called because time has passed; it gets its records all the
    /// same.
    Tick,
}

/// A batch, a sink, an instance, a row or a reader that fails again and again, or takes long.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockedStatus {
    /// The kind of obstacle; stable, for programs.
    pub why: Why,
    /// Failures in a row; 0 if nothing failed, and it takes long.
    pub attempts: u32,
    /// What the last failure said, or what the shard waits for.
    pub reason: String,
}

impl StageStatus {
    /// A stage that begins now.
    pub(crate) fn new(what: String) -> Self {
        Self::since(what, Stopwatch::start())
    }

    /// Began when the stopwatch was started.
    pub(crate) fn since(what: String, started: Stopwatch) -> Self {
        Self {
            what,
            since: started.started_at(),
        }
    }
}

impl Why {
    /// The word used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Halted => "halted",
            Self::Row => "row",
            Self::Plugin => "plugin",
            Self::Misconfigured => "misconfigured",
            Self::Memory => "memory",
            Self::State => "state",
            Self::Children => "children",
            Self::Sink => "sink",
            Self::Reading => "reading",
            Self::Buffer => "buffer",
            Self::Tick => "tick",
        }
    }

    /// The cause of a failed delivery, from its kind in the metrics.
    pub(crate) fn of_failure(kind: &str) -> Self {
        match kind {
            "host_memory" => Self::Memory,
            "state" => Self::State,
            "shard_end" => Self::Children,
            _ => Self::Plugin,
        }
    }
}

fn seconds_since<S: serde::Serializer>(at: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(at.elapsed().as_secs_f64())
}
