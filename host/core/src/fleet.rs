//! What the hosts of one application know of each other: the rows of the coordinator table.

mod leader;
mod stream_row;
mod worker_row;

pub use leader::{LEADER_SILENCE_LEASES, LeaderRow, LeaderStep, Leadership};
pub use stream_row::{StreamIdentity, StreamRow, StreamVerdict};
pub use worker_row::{Incarnation, WorkerRow};

use crate::rollout::Quarantined;

/// One look at the small rows, which are read together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetRows {
    /// Every registered worker, dead or alive; judge them with a [`LeaseObserver`](crate::lease::LeaseObserver).
    pub workers: Vec<WorkerRow>,
    /// The leader's record, if there ever was a leader.
    pub leader: Option<LeaderRow>,
    /// Raised by whoever changes something that others should look at soon: a released lease, a claim, a new row.
    pub bulletin: u64,
    /// Which stream the checkpoints belong to, once somebody wrote it down.
    pub stream: Option<StreamRow>,
    /// Versions of the plugin that hosts found bad.
    pub quarantined: Vec<Quarantined>,
}

impl FleetRows {
    /// Whether a first sync was complete.
    pub fn is_bootstrapped(&self) -> bool {
        self.stream.as_ref().is_some_and(|row| row.is_bootstrapped)
    }
}
