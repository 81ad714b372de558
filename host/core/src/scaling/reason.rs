use std::fmt;
use std::time::Duration;

use crate::stream::ShardId;

/// Why a figure is what it is, or why more hosts would not help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Hosts report too little: nothing is concluded.
    FewSigns {
        /// Shards that were measured.
        measured: u64,
        /// Those that can be read.
        shards: usize,
        /// Hosts that hold leases and report nothing.
        silent: Vec<String>,
    },
    /// Too many shards are stopped: nothing is concluded.
    Stopped {
        /// How many, by trouble or on purpose.
        stopped: u64,
        /// Those that can be read.
        shards: usize,
    },
    /// No shard can be read: nothing is concluded.
    NoShards,
    /// What arrives decides.
    KeepUp,
    /// A backlog decides.
    CatchUp {
        /// Records that wait.
        backlog: u64,
        /// How soon it is to be worked off.
        within: Duration,
    },
    /// `leases.max` decides: fewer hosts would leave shards unread.
    LeasesMax {
        /// Most leases on a host.
        max: usize,
    },
    /// More hosts would have no shard.
    NoMoreShards {
        /// Shards that can be read.
        shards: usize,
    },
    /// The operator wants no fewer.
    HostsMin,
    /// The operator wants no more.
    HostsMax,
    /// Shards that are behind though the host has idle cores: their consumer does all it can.
    Plugin {
        /// How many.
        shards: u64,
    },
    /// Shards that wait for their sinks.
    Sink {
        /// How many.
        shards: u64,
    },
    /// Shards of which Kinesis gives no more.
    Reading {
        /// How many.
        shards: u64,
    },
    /// Shards that make no progress.
    Blocked {
        /// How many.
        shards: u64,
    },
    /// Shards that are stopped on purpose.
    Paused {
        /// How many.
        shards: u64,
    },
    /// The shard that is farthest behind.
    Worst {
        /// Which one.
        shard: ShardId,
        /// Its lag.
        lag: Duration,
    },
}

impl Reason {
    /// Whether it says that more hosts would not help somewhere, and not how the figure came about.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::FewSigns { .. }
            | Self::Stopped { .. }
            | Self::NoShards
            | Self::KeepUp
            | Self::CatchUp { .. }
            | Self::LeasesMax { .. }
            | Self::NoMoreShards { .. }
            | Self::HostsMin
            | Self::HostsMax => false,
            Self::Plugin { .. }
            | Self::Sink { .. }
            | Self::Reading { .. }
            | Self::Blocked { .. }
            | Self::Paused { .. }
            | Self::Worst { .. } => true,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewSigns {
                measured,
                shards,
                silent,
            } => few_signs(f, *measured, *shards, silent),
            Self::Stopped { stopped, shards } => write!(
                f,
                "{stopped} of {shards} shard(s) are stopped, so the figure stays"
            ),
            Self::NoShards => f.write_str("no shard can be read now, so the figure stays"),
            Self::KeepUp => f.write_str("what arrives needs so many"),
            Self::CatchUp { backlog, within } => write!(
                f,
                "about {backlog} record(s) wait, to be worked off within {within:?}"
            ),
            Self::LeasesMax { max } => write!(f, "a host holds at most {max} leases (leases.max)"),
            Self::NoMoreShards { shards } => write!(
                f,
                "only {shards} shard(s) can be read, and a shard is read by one host"
            ),
            Self::HostsMin => f.write_str("scaling.hosts-min wants no fewer"),
            Self::HostsMax => f.write_str("scaling.hosts-max allows no more"),
            Self::Plugin { shards } => write!(
                f,
                "{shards} shard(s) are behind while cores are idle, because the plugin is at work \
                    all the time: more hosts do not help; raise `parallelism`, split the shards, \
                    or make the plugin faster"
            ),
            Self::Sink { shards } => write!(
                f,
                "{shards} shard(s) are behind and mostly wait for their sinks: more hosts do not \
                    help"
            ),
            Self::Reading { shards } => write!(
                f,
                "{shards} shard(s) are behind and mostly wait for records: Kinesis gives at most \
                    2 MB/s of a shard, to all that poll it; split them, or use enhanced fan-out"
            ),
            Self::Blocked { shards } => write!(
                f,
                "{shards} shard(s) make no progress, which more hosts do not change: \
                    `shardmill explain` says why; they count like the others"
            ),
            Self::Paused { shards } => {
                write!(
                    f,
                    "{shards} shard(s) are paused or halted; they count like the others"
                )
            }
            Self::Worst { shard, lag } => {
                write!(f, "farthest behind is {shard}, by {:?}", in_seconds(*lag))
            }
        }
    }
}

fn few_signs(
    f: &mut fmt::Formatter<'_>,
    measured: u64,
    shards: usize,
    silent: &[String],
) -> fmt::Result {
    write!(
        f,
        "only {measured} of {shards} shard(s) are measured, so the figure stays"
    )?;
    match silent {
        [] => Ok(()),
        [one] => write!(f, "; {one} reports nothing"),
        [one, rest @ ..] => write!(f, "; {one} and {} more report nothing", rest.len()),
    }
}

/// Without fractions of a second.
fn in_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}
