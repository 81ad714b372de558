//! Why a worker ends, and why a pass fails.

use shardmill_core::plugin::{Part, split_part};
use shardmill_core::ports::{ReadError, StoreError};
use shardmill_core::rollout::Quarantined;
use shardmill_core::stream::{LeaseKey, StreamName};

use crate::options::InvalidOptions;

/// Why a worker could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Its settings contradict each other.
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    /// The lease table cannot be used; an operator must act.
    #[error(transparent)]
    Table(StoreError),
    /// The application's checkpoints belong to another stream.
    #[error(
        "application {application} has checkpoints of stream {theirs}, but is configured to read \
            {ours}: {}",
        way_to_begin_anew(.application)
    )]
    OtherStream {
        /// The application.
        application: String,
        /// The configured stream.
        ours: StreamName,
        /// The stream that the checkpoints belong to.
        theirs: StreamName,
    },
    /// The stream was deleted and created again.
    #[error(
        "stream {stream} was deleted and created again: the checkpoints of application \
            {application} belong to the old one and mean nothing now; {}",
        way_to_begin_anew(.application)
    )]
    StreamRecreated {
        /// The application.
        application: String,
        /// The stream.
        stream: StreamName,
    },
    /// The table is that of a KCL in multi-stream mode.
    #[error(
        "table {application} has the lease {key}, of a KCL in multi-stream mode: shards of two \
            streams have the same ids, and would be confused; with multi-stream-table = true a \
            plugin uses the table in place, once the KCL has stopped"
    )]
    MultiStream {
        /// The application.
        application: String,
        /// One such key.
        key: LeaseKey,
    },
    /// Lease rows cannot be written on this host, and others may fare better.
    #[error("the leases of application {application} are left to other hosts: {reason}")]
    CannotWrite {
        /// The application.
        application: String,
        /// What the table said.
        reason: String,
    },
    /// A task that a worker cannot do without ended by itself, as only a bug makes it: another run
    /// begins.
    #[error("the task that {what} ended unexpectedly: {reason}")]
    TaskEnded {
        /// What it does.
        what: &'static str,
        /// How it ended.
        reason: String,
    },
    /// Another process runs under this worker's id.
    #[error(
        "another process registered as worker {worker}: give each host its own worker-id, this one stops"
    )]
    Replaced {
        /// The id.
        worker: String,
    },
}

/// Why a pass failed; the next one comes soon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot list shards: {0}")]
    Listing(#[from] ReadError),
    #[error("lease {0} is from a KCL in multi-stream mode")]
    MultiStream(LeaseKey),
    #[error("there is no stream {0}; its leases are kept, and work continues when it is back")]
    NoStream(StreamName),
    #[error(
        "version {} is quarantined, found bad by {}: {}; provide a good version, or release it \
            with `shardmill plugins APPLICATION --release DIGEST`",
        .0.digest, .0.host, .0.reason
    )]
    Quarantined(Box<Quarantined>),
}

/// Why a start failed.
pub(super) enum StartError {
    /// It may succeed later.
    NotYet(PassError),
    /// An operator must act.
    Never(WorkerError),
}

impl From<PassError> for StartError {
    fn from(error: PassError) -> Self {
        Self::NotYet(error)
    }
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::WrongTable { .. } => Self::Never(WorkerError::Table(error)),
            other => Self::NotYet(other.into()),
        }
    }
}

/// What an operator does about checkpoints of another stream.
fn way_to_begin_anew(application: &str) -> String {
    match split_part(application).1 {
        Part::Whole => format!(
            "name another application, or delete the tables {application} and \
                {application}-coordinator if nothing needs them"
        ),
        Part::Host(_) => format!(
            "name another application, or remove this host's rows with `shardmill delete \
                {application}` if nothing needs them"
        ),
        Part::Stream(_) => "restart the host: it begins anew on the new one".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_to_delete_a_table_that_holds_rows_of_others() {
        for (application, told) in [
            ("totals", "delete the tables totals and totals-coordinator"),
            ("totals@pod-1", "`shardmill delete totals@pod-1`"),
            ("totals:orders", "restart the host"),
        ] {
            let way = way_to_begin_anew(application);
            assert!(way.contains(told), "{way}");
            assert_eq!(way.contains("delete the tables"), application == "totals");
        }
    }
}
