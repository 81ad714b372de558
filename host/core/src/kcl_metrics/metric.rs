//! The metrics, as the KCL 3.5.1 and 2.7.2 name them.

/// How much is published: the KCL's `MetricsLevel`, in which each metric has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What alarms need.
    Summary,
    /// Also how single requests went. The KCL's default.
    Detailed,
}

/// A unit of CloudWatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Things, or 1 and 0 for success and failure.
    Count,
    /// Bytes of record data.
    Bytes,
    /// Milliseconds, with fractions; the KCL rounds them down to whole ones.
    Milliseconds,
}

/// What a metric is of, which decides on its dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The application: `Operation` alone.
    Application,
    /// A stream: also `StreamId`, if the table holds several streams.
    Stream,
    /// A shard: also `ShardId`.
    Shard,
    /// This host: also `WorkerIdentifier`.
    Worker,
}

/// What may become of values when there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An amount: two values can be added, and the sum stays right.
    Amount,
    /// A sample: it stands alone.
    Sample,
}

/// One of the KCL's metrics. The order is that of a line: metrics of the same dimensions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KclMetric {
    /// The value of the dimension `Operation`: a task of the KCL.
    pub operation: &'static str,
    /// Which other dimensions it has.
    pub scope: Scope,
    /// What CloudWatch lists it under, within its namespace.
    pub name: &'static str,
    /// In what its values are counted.
    pub unit: Unit,
    /// The lowest level at which it is published.
    pub level: Level,
    /// Whether its values can be added.
    pub kind: Kind,
}

impl Unit {
    /// As CloudWatch spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Bytes => "Bytes",
            Self::Milliseconds => "Milliseconds",
        }
    }
}

impl Level {
    /// As the KCL spells it, in small letters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Detailed => "detailed",
        }
    }
}

/// Of reading and processing a shard.
const PROCESS: &str = "ProcessTask";
/// Of all shards, without naming them.
const TRACKER: &str = "ApplicationTracker";
/// Of the calls before the first record.
const INITIALIZE: &str = "InitializeTask";
/// Of the calls after the last record.
const SHUTDOWN: &str = "ShutdownTask";
/// Of holding leases.
const RENEW: &str = "RenewAllLeases";
/// Of getting leases.
const TAKE: &str = "TakeLeases";
/// Of the leader of a KCL 3.x.
const ASSIGN: &str = "LeaseAssignmentManager";

const fn summary(
    operation: &'static str,
    scope: Scope,
    name: &'static str,
    unit: Unit,
) -> KclMetric {
    KclMetric {
        operation,
        scope,
        name,
        unit,
        level: Level::Summary,
        kind: Kind::Sample,
    }
}

const fn amount(
    operation: &'static str,
    scope: Scope,
    name: &'static str,
    unit: Unit,
) -> KclMetric {
    KclMetric {
        kind: Kind::Amount,
        ..summary(operation, scope, name, unit)
    }
}

const fn detail(
    operation: &'static str,
    scope: Scope,
    name: &'static str,
    unit: Unit,
) -> KclMetric {
    KclMetric {
        level: Level::Detailed,
        ..summary(operation, scope, name, unit)
    }
}

use Scope::{Application, Shard, Stream, Worker};
use Unit::{Bytes, Count, Milliseconds};

pub(super) const RECORDS: KclMetric = amount(PROCESS, Shard, "RecordsProcessed", Count);
pub(super) const DATA_BYTES: KclMetric = amount(PROCESS, Shard, "DataBytesProcessed", Bytes);
pub(super) const BEHIND: KclMetric = summary(PROCESS, Shard, "MillisBehindLatest", Milliseconds);
pub(super) const BEHIND_OF_ALL: KclMetric =
    summary(TRACKER, Application, "MillisBehindLatest", Milliseconds);
pub(super) const PROCESS_TIME: KclMetric = summary(PROCESS, Shard, "Time", Milliseconds);
pub(super) const PROCESS_SUCCESS: KclMetric = summary(PROCESS, Shard, "Success", Count);
pub(super) const CALL_TIME: KclMetric = summary(
    PROCESS,
    Shard,
    "RecordProcessor.processRecords.Time",
    Milliseconds,
);
pub(super) const READ_TIME: KclMetric = detail(
    PROCESS,
    Shard,
    "KinesisDataFetcher.getRecords.Time",
    Milliseconds,
);
pub(super) const READ_SUCCESS: KclMetric = detail(
    PROCESS,
    Shard,
    "KinesisDataFetcher.getRecords.Success",
    Count,
);
pub(super) const ITERATOR_TIME: KclMetric = detail(
    PROCESS,
    Shard,
    "KinesisDataFetcher.getShardIterator.Time",
    Milliseconds,
);
pub(super) const ITERATOR_SUCCESS: KclMetric = detail(
    PROCESS,
    Shard,
    "KinesisDataFetcher.getShardIterator.Success",
    Count,
);
pub(super) const EXPIRED_ITERATOR: KclMetric = amount(PROCESS, Stream, "ExpiredIterator", Count);
pub(super) const CHECKPOINT_TIME: KclMetric =
    detail(PROCESS, Shard, "UpdateLease.Time", Milliseconds);
pub(super) const CHECKPOINT_SUCCESS: KclMetric =
    detail(PROCESS, Shard, "UpdateLease.Success", Count);
pub(super) const INITIALIZE_TIME: KclMetric = summary(
    INITIALIZE,
    Application,
    "RecordProcessor.initialize.Time",
    Milliseconds,
);
pub(super) const SHUTDOWN_TIME: KclMetric = summary(
    SHUTDOWN,
    Application,
    "RecordProcessor.shutdown.Time",
    Milliseconds,
);
pub(super) const RENEW_ALL_TIME: KclMetric = summary(RENEW, Worker, "Time", Milliseconds);
pub(super) const RENEW_ALL_SUCCESS: KclMetric = summary(RENEW, Worker, "Success", Count);
pub(super) const CURRENT_LEASES: KclMetric = summary(RENEW, Worker, "CurrentLeases", Count);
pub(super) const LOST_LEASES: KclMetric = amount(RENEW, Worker, "LostLeases", Count);
pub(super) const RENEW_TIME: KclMetric = detail(RENEW, Worker, "RenewLease.Time", Milliseconds);
pub(super) const RENEW_SUCCESS: KclMetric = detail(RENEW, Worker, "RenewLease.Success", Count);
pub(super) const LIST_TIME: KclMetric = detail(TAKE, Worker, "ListLeases.Time", Milliseconds);
pub(super) const LIST_SUCCESS: KclMetric = detail(TAKE, Worker, "ListLeases.Success", Count);
pub(super) const TAKE_TIME: KclMetric = detail(TAKE, Worker, "TakeLease.Time", Milliseconds);
pub(super) const TAKE_SUCCESS: KclMetric = detail(TAKE, Worker, "TakeLease.Success", Count);
pub(super) const TAKEN_LEASES: KclMetric = amount(TAKE, Worker, "TakenLeases", Count);
pub(super) const UNTAKEN_LEASES: KclMetric = amount(TAKE, Worker, "UntakenLeases", Count);
pub(super) const TAKER_TIME: KclMetric = summary(TAKE, Worker, "Time", Milliseconds);
pub(super) const TAKER_SUCCESS: KclMetric = summary(TAKE, Worker, "Success", Count);
pub(super) const EXPIRED_LEASES: KclMetric = summary(TAKE, Worker, "ExpiredLeases", Count);
pub(super) const LEASES_TO_TAKE: KclMetric = detail(TAKE, Worker, "LeasesToTake", Count);
pub(super) const NUM_WORKERS: KclMetric = summary(TAKE, Worker, "NumWorkers", Count);
pub(super) const TOTAL_LEASES: KclMetric = detail(TAKE, Worker, "TotalLeases", Count);
pub(super) const ASSIGNED_NUM_WORKERS: KclMetric =
    summary(ASSIGN, Application, "NumWorkers", Count);
pub(super) const ASSIGNED_TOTAL_LEASES: KclMetric =
    summary(ASSIGN, Application, "TotalLeases", Count);
pub(super) const ASSIGNED_EXPIRED_LEASES: KclMetric =
    summary(ASSIGN, Application, "ExpiredLeases", Count);
pub(super) const ASSIGNER_TIME: KclMetric = summary(ASSIGN, Application, "Time", Milliseconds);
pub(super) const ASSIGNER_SUCCESS: KclMetric = summary(ASSIGN, Application, "Success", Count);

/// All that a host publishes.
pub const EMITTED: [KclMetric; 39] = [
    RECORDS,
    DATA_BYTES,
    BEHIND,
    BEHIND_OF_ALL,
    PROCESS_TIME,
    PROCESS_SUCCESS,
    CALL_TIME,
    READ_TIME,
    READ_SUCCESS,
    ITERATOR_TIME,
    ITERATOR_SUCCESS,
    EXPIRED_ITERATOR,
    CHECKPOINT_TIME,
    CHECKPOINT_SUCCESS,
    INITIALIZE_TIME,
    SHUTDOWN_TIME,
    RENEW_ALL_TIME,
    RENEW_ALL_SUCCESS,
    CURRENT_LEASES,
    LOST_LEASES,
    RENEW_TIME,
    RENEW_SUCCESS,
    LIST_TIME,
    LIST_SUCCESS,
    TAKE_TIME,
    TAKE_SUCCESS,
    TAKEN_LEASES,
    UNTAKEN_LEASES,
    TAKER_TIME,
    TAKER_SUCCESS,
    EXPIRED_LEASES,
    LEASES_TO_TAKE,
    NUM_WORKERS,
    TOTAL_LEASES,
    ASSIGNED_NUM_WORKERS,
    ASSIGNED_TOTAL_LEASES,
    ASSIGNED_EXPIRED_LEASES,
    ASSIGNER_TIME,
    ASSIGNER_SUCCESS,
];
