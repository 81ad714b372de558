//! What a pass decided, and why.

use std::collections::BTreeSet;
use std::fmt;

use crate::lease::{Checkpoint, Lease, WorkerId};
use crate::stream::{LeaseKey, ShardId};

/// An ordered list of steps. Executing a stale one never does harm: every write is conditional on
/// what was seen.
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
    /// Remove a row, if nothing changed since.
    Delete {
        /// The row as seen.
        seen: Box<Lease>,
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
    /// Ask a live owner for its lease.
    Claim {
        /// The row as seen.
        seen: Box<Lease>,
        /// Why.
        reason: Reason,
    },
    /// Give up a lease that is this worker's by name, and that it must not hold.
    Release {
        /// The row as seen.
        seen: Box<Lease>,
        /// Why.
        reason: Reason,
    },
    /// Finish the batch, checkpoint, and give the lease up: somebody asked for it.
    HandOver {
        /// The row.
        key: LeaseKey,
        /// Why.
        reason: Reason,
    },
}

impl Plan {
    /// The rows that it removes.
    pub(super) fn deleted(&self) -> BTreeSet<LeaseKey> {
        let deletes = self
            .steps
            .iter()
            .filter(|step| matches!(step, Step::Delete { .. }));
        deletes.map(|step| step.key().clone()).collect()
    }

    /// The rows that it makes.
    pub(super) fn created(&self) -> Vec<Lease> {
        let creates = self.steps.iter().filter_map(|step| match step {
            Step::Create { lease, .. } => Some(lease.as_ref().clone()),
            _ => None,
        });
        creates.collect()
    }
}

impl Step {
    /// The row that it is about.
    pub fn key(&self) -> &LeaseKey {
        match self {
            Self::Create { lease, .. } => &lease.key,
            Self::Delete { seen, .. }
            | Self::Take { seen, .. }
            | Self::Claim { seen, .. }
            | Self::Release { seen, .. } => &seen.key,
            Self::HandOver { key, .. } => key,
        }
    }

    /// What is done, in a word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Delete { .. } => "delete",
            Self::Take { .. } => "take",
            Self::Claim { .. } => "claim",
            Self::Release { .. } => "release",
            Self::HandOver { .. } => "hand over",
        }
    }

    /// Why.
    pub fn reason(&self) -> &Reason {
        match self {
            Self::Create { reason, .. }
            | Self::Delete { reason, .. }
            | Self::Take { reason, .. }
            | Self::Claim { reason, .. }
            | Self::Release { reason, .. }
            | Self::HandOver { reason, .. } => reason,
        }
    }
}

/// Why a step was chosen, or not. Its `Display` is the log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The shard has no lease and none of its ancestors has one.
    NewShard,
    /// The shard's parents have ended, but its lease is missing.
    ChildWithoutLease,
    /// The shard has no parents and no lease, though the first sync was complete.
    RowMissing,
    /// The shards between this one and those that have leases are gone.
    LineageTrimmed,
    /// The shard is finished, its children have started, and its parents' rows are gone.
    ChildrenStarted,
    /// Kinesis does not know the shard any more; what was not read of it is lost.
    ShardGone {
        /// How far it was settled.
        checkpoint: Checkpoint,
    },
    /// Kinesis does not know the shard, but one listing without it is not enough to remove its row.
    GoneAfterNextListing,
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
    /// Nobody took it for long, whatever the shares are.
    Overdue,
    /// The row says that it is this worker's: held before a restart, or taken with an answer that
    /// got lost.
    OwnByName,
    /// This worker asked for it, and its owner gave it up.
    HandedOver,
    /// Another worker asked for it.
    AskedFor {
        /// Who.
        by: WorkerId,
    },
    /// Its owner holds more than this host.
    Uneven {
        /// Who.
        from: WorkerId,
        /// By how much: leases, or KiB a second.
        lead: u64,
    },
    /// Parents have not ended yet.
    WaitsForParents {
        /// Which.
        parents: Vec<ShardId>,
    },
    /// A parent has no row, and an older shard over the same hash keys, which it may descend from,
    /// has not ended yet.
    WaitsForOlder {
        /// Which.
        older: ShardId,
    },
    /// A parent has no row, and the first listing of the stream is not worked off yet: its row may
    /// be still to come.
    FirstSync,
    /// It was given up for another worker.
    KeptFor {
        /// Whom.
        claimant: WorkerId,
    },
    /// This host has its share.
    HasFairShare {
        /// How many leases each host should hold.
        fair_share: usize,
    },
    /// A host takes leases in portions, so that hosts that start at the same time share.
    NextPortion,
    /// This host may hold no more.
    AtMaxLeases,
    /// This host could not get on with it a short while ago; others may try first.
    GaveUpLately,
}

impl Reason {
    /// Whether the lease is this worker's already, in name or by promise, so that no share bounds
    /// it.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Self::OwnByName | Self::HandedOver)
    }
}

impl Reason {
    /// A word for programs; it never changes.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NewShard => "new-shard",
            Self::ChildWithoutLease => "child-without-lease",
            Self::RowMissing => "row-missing",
            Self::LineageTrimmed => "lineage-trimmed",
            Self::ChildrenStarted => "children-started",
            Self::ShardGone { .. } => "gone",
            Self::GoneAfterNextListing => "gone-after-next-listing",
            Self::Free { .. } => "free",
            Self::Expired { .. } => "owner-dead",
            Self::Overdue => "overdue",
            Self::OwnByName => "own-by-name",
            Self::HandedOver => "handed-over",
            Self::AskedFor { .. } => "asked-for",
            Self::Uneven { .. } => "uneven",
            Self::WaitsForParents { .. } => "waits-for-parents",
            Self::WaitsForOlder { .. } => "waits-for-older",
            Self::FirstSync => "first-sync",
            Self::KeptFor { .. } => "kept-for",
            Self::HasFairShare { .. } => "has-fair-share",
            Self::NextPortion => "next-portion",
            Self::AtMaxLeases => "at-max-leases",
            Self::GaveUpLately => "gave-up-lately",
        }
    }

    /// The shards that must end first, if it is that.
    pub fn waits_for(&self) -> &[ShardId] {
        match self {
            Self::WaitsForParents { parents } => parents,
            Self::WaitsForOlder { older } => std::slice::from_ref(older),
            _ => &[],
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewShard => f.write_str("the shard has no lease yet"),
            Self::ChildWithoutLease => f.write_str("its parents have ended but it has no lease"),
            Self::RowMissing => f.write_str(
                "its row is missing, perhaps deleted by hand; \
                starting as configured",
            ),
            Self::LineageTrimmed => f.write_str("its ancestors were trimmed before they were read"),
            Self::ChildrenStarted => f.write_str("finished, and all its children have started"),
            Self::ShardGone { checkpoint } => {
                write!(
                    f,
                    "the shard is no longer in kinesis; it was settled through {checkpoint}"
                )
            }
            Self::GoneAfterNextListing => f.write_str(
                "the shard is no longer in kinesis; its row is removed if the leader's next \
                    listing does not show it either",
            ),
            Self::Free { fair_share } => write!(
                f,
                "free, and below the fair share of \
                {fair_share}"
            ),
            Self::Expired { owner, fair_share } => {
                write!(
                    f,
                    "{owner} stopped renewing it, and below the fair share of {fair_share}"
                )
            }
            Self::Overdue => f.write_str("no host took it for three lease durations"),
            Self::OwnByName => f.write_str("the row already names this worker"),
            Self::HandedOver => f.write_str("this worker asked for it and got it"),
            Self::AskedFor { by } => write!(f, "{by} asked for it"),
            Self::Uneven { from, lead } => write!(f, "{from} holds {lead} more than this host"),
            Self::WaitsForParents { parents } => {
                let names: Vec<&str> = parents.iter().map(ShardId::as_str).collect();
                let noun = if names.len() == 1 {
                    "parent"
                } else {
                    "parents"
                };
                write!(
                    f,
                    "waits for {noun} {} to end, so that records stay in order",
                    names.join(" and ")
                )
            }
            Self::WaitsForOlder { older } => write!(
                f,
                "waits for {older} to end, an older shard over some of the same hash keys: \
                    parents that have no rows yet may descend from it"
            ),
            Self::FirstSync => f.write_str(
                "a parent has no row, and not all shards of the stream \
                have one yet",
            ),
            Self::KeptFor { claimant } => write!(f, "kept for {claimant}, which asked for it"),
            Self::HasFairShare { fair_share } => write!(
                f,
                "this host has its fair share of \
                {fair_share}"
            ),
            Self::NextPortion => f.write_str(
                "to be taken in the next pass: hosts that start \
                together share",
            ),
            Self::AtMaxLeases => f.write_str("this host holds the most leases it may (leases.max)"),
            Self::GaveUpLately => f.write_str(
                "this host made no progress on it and leaves it to \
                others for a while",
            ),
        }
    }
}
