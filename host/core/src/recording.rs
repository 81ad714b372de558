//! What is recorded of a batch that failed, so that it can be run again elsewhere: the batch, what
//! the instance had been given before it, and how it failed.
//!
//! An instance is its state and what it was given since ([`RunUp`]). Neither is asked of the
//! plugin: the state is the one that it started from, or saved for a checkpoint.

mod failure;
mod likeness;
mod record_name;
mod retention;
mod run_up;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::plugin::PluginDigest;
use crate::ports::InstanceContext;
use crate::stream::Batch;

pub use failure::FailureRecord;
pub use likeness::Likeness;
pub use record_name::{InvalidRecordName, RecordName};
pub use retention::{KeptFile, Retention};
pub use run_up::{RunUp, bytes_of, detached};

/// A batch that failed, and all that the plugin had been given: enough to run it again.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Whom the instance served, and its settings. Values of secrets and of environment variables
    /// are not part of it.
    pub context: Arc<InstanceContext>,
    /// Names of the secrets that the plugin could read.
    pub secrets: Vec<String>,
    /// The version that failed.
    pub digest: PluginDigest,
    /// The state that the run-up began with; `None` if the plugin keeps none, had none yet, or it
    /// was too large to keep ([`Recording::is_state_missing`]).
    pub state: Option<Bytes>,
    /// Whether there was a state, but no room to keep it.
    pub is_state_missing: bool,
    /// Batches that the instance was given after that state and before the one that failed, the
    /// oldest first.
    pub run_up: Vec<Batch>,
    /// Batches before those that are not kept.
    pub missing_batches: u64,
    /// The batch that failed.
    pub batch: Batch,
    /// How the batch failed that is recorded.
    pub failure: FailureRecord,
    /// How long the call took.
    pub took: Duration,
    /// When it failed, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

impl Recording {
    /// Whether the instance can be brought to exactly where it was: nothing that it was given is
    /// missing.
    pub fn is_whole(&self) -> bool {
        !self.is_state_missing && self.missing_batches == 0
    }

    /// Whether the record is part of the batch that failed.
    pub fn holds(&self, place: &RecordName) -> bool {
        let mut records = self.batch.records.iter();
        self.context.shard == place.shard && records.any(|record| place.is_at(&record.position))
    }
}
