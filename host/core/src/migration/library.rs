//! The libraries whose tables we know, and what we know about each.

use std::fmt;
use std::time::Duration;

/// A library or program that keeps its place on a stream in DynamoDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Library {
    /// `vmware/vmware-go-kcl` and `vmware-go-kcl-v2`: both write the same rows.
    VmwareGoKcl,
    /// `twitchscience/kinsumer`: three tables.
    Kinsumer,
    /// `lifion/lifion-kinesis`: one item for each consumer group and stream.
    Lifion,
    /// `waka/kcl-rb`.
    KclRb,
    /// `powersemmi/ruststream-kinesis`.
    Ruststream,
    /// `redpanda-data/connect`, the input `aws_kinesis`; Benthos before it.
    Redpanda,
    /// The KCL 2.x or 3.x in multi-stream mode: a lease table of several streams.
    KclMultiStream,
}

/// What a library does with the row of a finished shard while the stream still lists the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FinishedRows {
    /// It stays, and shows that the shard is finished.
    Stay,
    /// The library removes it at once.
    RemovedAtEnd,
    /// The library removes it once the shard's children have started.
    RemovedLater,
}

impl Library {
    /// Every library once, in the order of declaration.
    pub const ALL: [Self; 7] = [
        Self::VmwareGoKcl,
        Self::Kinsumer,
        Self::Lifion,
        Self::KclRb,
        Self::Ruststream,
        Self::Redpanda,
        Self::KclMultiStream,
    ];

    /// Its name for people, programs and command lines; never changes.
    pub fn code(self) -> &'static str {
        match self {
            Self::VmwareGoKcl => "vmware-go-kcl",
            Self::Kinsumer => "kinsumer",
            Self::Lifion => "lifion-kinesis",
            Self::KclRb => "kcl-rb",
            Self::Ruststream => "ruststream-kinesis",
            Self::Redpanda => "redpanda-connect",
            Self::KclMultiStream => "kcl-multi-stream",
        }
    }

    /// The library with this name.
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|library| library.code() == code)
    }

    /// The versions that write such rows. The rows do not show more.
    pub fn versions(self) -> &'static str {
        match self {
            Self::VmwareGoKcl => "v1 or v2, which write the same rows",
            Self::Kinsumer => "any version",
            Self::Lifion | Self::KclRb => "1.0 or later",
            Self::Ruststream => "0.6 or later, with dynamodb-lease",
            Self::Redpanda => "Redpanda Connect, or Benthos 3.36 or later",
            Self::KclMultiStream => "KCL 2.3 or later, in multi-stream mode",
        }
    }

    /// The key of its table of checkpoints, sorted, each part as `HASH name S`.
    pub fn key(self) -> &'static [&'static str] {
        match self {
            Self::VmwareGoKcl => &["HASH ShardID S"],
            Self::Kinsumer => &["HASH Shard S"],
            Self::Lifion => &["HASH consumerGroup S", "RANGE streamName S"],
            Self::KclRb => &["HASH shard_id S"],
            Self::Ruststream => &["HASH lease_key S"],
            Self::Redpanda => &["HASH StreamID S", "RANGE ShardID S"],
            Self::KclMultiStream => &["HASH leaseKey S"],
        }
    }

    /// The library whose table has this key. Never a KCL, which can only be recognized by its rows.
    pub fn of_key(key: &[String]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|library| *library != Self::KclMultiStream && key == library.key())
    }

    /// The table of checkpoints of the application `name`.
    pub fn checkpoints_table(self, name: &str) -> String {
        match self {
            Self::Kinsumer => format!("{name}_checkpoints"),
            _ => name.to_owned(),
        }
    }

    /// The table in which the workers of the application `name` register, if there is one.
    pub fn workers_table(self, name: &str) -> Option<String> {
        (self == Self::Kinsumer).then(|| format!("{name}_clients"))
    }

    /// How long a worker may be silent before its peers take its shards, by default. No table shows
    /// what was configured.
    ///
    /// | Library | Source of the default |
    /// |---|---|
    /// | vmware-go-kcl | `DefaultFailoverTimeMillis`, `clientlibrary/config/config.go` |
    /// | kinsumer | five times `shardCheckFrequency`, `kinsumer.go` |
    /// | lifion-kinesis | `HEARTBEAT_FAILURE_TIMEOUT`, `lib/heartbeat-manager.js`: twice 20 s |
    /// | kcl-rb | `dynamodb_failover_seconds`, `lib/kcl/config.rb` |
    /// | ruststream-kinesis | `LEASE_TTL`, `src/subscriber.rs` |
    /// | Redpanda Connect | `lease_period`, twice: `internal/impl/aws/kinesis/input.go` |
    /// | KCL | `failoverTimeMillis`, `LeaseManagementConfig.java` |
    pub fn failover_time(self) -> Duration {
        match self {
            Self::VmwareGoKcl | Self::KclRb | Self::Ruststream | Self::KclMultiStream => {
                Duration::from_secs(10)
            }
            Self::Kinsumer => Duration::from_mins(5),
            Self::Lifion => Duration::from_secs(40),
            Self::Redpanda => Duration::from_mins(1),
        }
    }

    /// The longest time between two writes of a live worker, by default. An observer that watches
    /// longer sees a write: kinsumer's clients register every `shardCheckFrequency`, lifion's every
    /// 20 s.
    pub fn writes_at_least_every(self) -> Duration {
        match self {
            Self::Kinsumer => Duration::from_mins(1),
            Self::Lifion => Duration::from_secs(20),
            Self::VmwareGoKcl
            | Self::KclRb
            | Self::Ruststream
            | Self::Redpanda
            | Self::KclMultiStream => Duration::from_secs(10),
        }
    }

    /// Whether a checkpoint can lie between two user records of an aggregate. If not, the library
    /// resumes after the whole Kinesis record.
    pub fn opens_aggregates(self) -> bool {
        self == Self::KclMultiStream
    }

    pub(super) fn finished_rows(self) -> FinishedRows {
        match self {
            Self::Redpanda => FinishedRows::RemovedAtEnd,
            Self::KclMultiStream => FinishedRows::RemovedLater,
            Self::VmwareGoKcl | Self::Kinsumer | Self::Lifion | Self::KclRb | Self::Ruststream => {
                FinishedRows::Stay
            }
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}
