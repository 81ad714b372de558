//! What a pass decided, and why.

use std::fmt;

use crate::lease::{Lease, WorkerId};
use crate::stream::{LeaseKey, ShardId};

/// An ordered list of steps. Executing a stale one never does harm: every write is conditional on what was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// In order of execution.
    pub steps: Vec<Step>,
    /// What was not done, for `explain`.
    pub held_back: Vec<(LeaseKey, Reason)>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write a fresh row, if there is none.
    Create {
        /// The row.
        lease: Box<Lease>,
        /// Why.
        reason: Reason,
    },
    /// Become the owner, if nothing changed since.
    Take {
        /// The row as seen.
        seen: Box<Lease>,
        /// Why.
        reason: Reason,
    },
}

/// Why a step was chosen, or not. Its `Display` is the log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The shard has no lease and none of its ancestors has one.
    NewShard,
    /// The shard's parents have ended, but its lease is missing.
    ChildWithoutLease,
    /// Nobody owns it and this host is below its share.
    Free {
        /// How many leases each host should hold.
        fair_share: usize,
    },
    /// Its owner stopped renewing it and this host is below its share.
    Expired {
        /// Who let it expire.
        owner: WorkerId,
        /// How many leases each host should hold.
        fair_share: usize,
    },
    /// This worker held it before it restarted.
    HeldBeforeRestart,
    /// A parent has not ended yet.
    WaitsForParent {
        /// Which.
        parent: ShardId,
    },
    /// This host has its share.
    HasFairShare {
        /// How many leases each host should hold.
        fair_share: usize,
    },
    /// Left for hosts that start at the same time; taken in the next pass if there are none.
    LeftForOthersAtStart,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewShard => f.write_str("the shard has no lease yet"),
            Self::ChildWithoutLease => f.write_str("its parents have ended but it has no lease"),
            Self::Free { fair_share } => write!(f, "free, and below the fair share of {fair_share}"),
            Self::Expired { owner, fair_share } => {
                write!(f, "{owner} stopped renewing it, and below the fair share of {fair_share}")
            }
            Self::HeldBeforeRestart => f.write_str("held by this worker before it restarted"),
            Self::WaitsForParent { parent } => write!(f, "waits for parent {parent} to end"),
            Self::HasFairShare { fair_share } => write!(f, "this host has its fair share of {fair_share}"),
            Self::LeftForOthersAtStart => f.write_str("left for hosts that start at the same time"),
        }
    }
}
