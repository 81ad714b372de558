//! What the hosts of one application know about each other: the rows of the coordinator table.

mod errand;
mod leader;
pub mod pace;
mod service;
mod standalone;
mod start_row;
mod stream_row;
mod worker_row;

pub use errand::{Errand, Mail, Mailbox, OwnerSeen, Task, Why};
pub use leader::{LeaderRow, LeaderStep, Leadership};
pub use service::{DEPUTIES, Role, Service, is_spare};
pub use standalone::{Beginning, Restart, StandaloneHost, StandalonePolicy};
pub use start_row::ApplicationStart;
pub use stream_row::{StreamIdentity, StreamRow, StreamVerdict};
pub use worker_row::{Incarnation, WorkerRow};

use crate::control::Control;
use crate::rollout::Quarantined;

/// One look at the small rows, which are read together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetRows {
    /// Every registered worker, dead or alive; judge them with a
    /// [`LeaseObserver`](crate::lease::LeaseObserver).
    pub workers: Vec<WorkerRow>,
    /// The leader's record, if there ever was a leader.
    pub leader: Option<LeaderRow>,
    /// Raised by a host that changes something others should look at soon: a released lease, a
    /// claim, a new row.
    pub bulletin: u64,
    /// The stream that the checkpoints belong to, once a host has recorded it.
    pub stream: Option<StreamRow>,
    /// Where the application began on the stream, once a host has recorded it. Never changes.
    pub start: Option<ApplicationStart>,
    /// Versions of the plugin that hosts found bad.
    pub quarantined: Vec<Quarantined>,
    /// What operators want of all hosts.
    pub control: Control,
    /// The hosts that read by themselves: an application has either these or workers.
    pub standalone: Vec<StandaloneHost>,
    /// The streams whose leases are in one table, each of which has workers of its own.
    pub streams: Vec<String>,
}

impl FleetRows {
    /// The same for a command that looks before the first host has come. It takes existing rows for
    /// complete: another program did its own first sync ([`StreamRow::first`]).
    pub fn is_bootstrapped_given(&self, has_leases: bool) -> bool {
        self.stream
            .as_ref()
            .map_or(has_leases, |row| row.is_bootstrapped)
    }

    /// Whether a first sync was complete.
    pub fn is_bootstrapped(&self) -> bool {
        self.stream.as_ref().is_some_and(|row| row.is_bootstrapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::StreamName;

    #[test]
    fn a_first_sync_was_complete_only_if_the_streams_row_says_so() {
        let with = |stream| FleetRows {
            stream,
            ..FleetRows::default()
        };
        let identity = StreamIdentity {
            created_at_ms: 5_000,
        };
        let row =
            |has_leases| StreamRow::first(StreamName::new("orders").unwrap(), identity, has_leases);
        assert!(!with(None).is_bootstrapped());
        assert!(!with(Some(row(false))).is_bootstrapped());
        assert!(
            with(Some(row(true))).is_bootstrapped(),
            "rows that were there before: their first sync is theirs"
        );
    }
}
