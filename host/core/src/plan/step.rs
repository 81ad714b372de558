//! What a pass decided, and why.

use std::collections::BTreeSet;
use std::fmt;

use crate::lease::{Checkpoint, Lease, WorkerId};
use crate::stream::{LeaseKey, ShardId};

/// An ordered list of steps. Executing a stale one never does harm: every write is conditional on
/// what was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The steps, in order of execution; at most one for each row.
    pub steps: Vec<Step>,
    /// Leases that are left for now, each with the reason, for `explain`.
    pub held_back: Vec<(LeaseKey, Reason)>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write a new row, if there is none.
    Create {
        /// The row to write.
        lease: Box<Lease>,
        /// Why the shard needs a row, and why it starts where it does.
        reason: Reason,
    },
    /// Remove a row, if nothing changed since.
    Delete {
        /// The row as it was seen: the condition of the write.
        seen: Box<Lease>,
        /// Why this step was chosen.
        reason: Reason,
    },
    /// Become the owner, if nothing changed since.
    Take {
        /// The row as it was seen: the condition of the write.
        seen: Box<Lease>,
        /// Why this step was chosen.
        reason: Reason,
    },
    /// Ask a live owner for its lease.
    Claim {
        /// The row as it was seen: the condition of the write.
        seen: Box<Lease>,
        /// Why this step was chosen.
        reason: Reason,
    },
    /// Release a lease that names this worker as owner, and that it must not hold.
    Release {
        /// The row as it was seen: the condition of the write.
        seen: Box<Lease>,
        /// Why this step was chosen.
        reason: Reason,
    },
    /// Finish the batch, checkpoint, and release the lease: another worker asked for it.
    HandOver {
        /// The key of the lease's row.
        key: LeaseKey,
        /// Why this step was chosen.
        reason: Reason,
    },
}

impl Plan {
    /// Takes nothing, and says so of each lease that it would have taken.
    pub fn withhold_takes(&mut self) {
        for key in self.taken() {
            self.held_back.push((key, Reason::NotKnownAlive));
        }
        self.steps.retain(|step| !matches!(step, Step::Take { .. }));
    }

    /// Takes nothing and asks for nothing, since this host, `me`, is drained; says so of each lease
    /// that it would have taken. What has its name is released.
    pub fn withhold_for_drain(&mut self, me: &WorkerId) {
        for step in std::mem::take(&mut self.steps) {
            match step {
                Step::Take { seen, .. } if seen.owner.as_ref() == Some(me) => {
                    let reason = Reason::HostDrained;
                    self.steps.push(Step::Release { seen, reason });
                }
                Step::Take { .. } | Step::Claim { .. } => {
                    self.held_back
                        .push((step.key().clone(), Reason::HostDrained));
                }
                other => self.steps.push(other),
            }
        }
    }

    /// Whether takes were withheld from it.
    pub fn withholds_takes(&self) -> bool {
        let mut reasons = self.held_back.iter().map(|(_, reason)| reason);
        reasons.any(|reason| *reason == Reason::NotKnownAlive)
    }

    /// The keys of the rows that it removes.
    pub(super) fn deleted(&self) -> BTreeSet<LeaseKey> {
        self.steps
            .iter()
            .filter(|step| matches!(step, Step::Delete { .. }))
            .map(|step| step.key().clone())
            .collect()
    }

    /// The keys of the rows that it takes.
    pub(super) fn taken(&self) -> BTreeSet<LeaseKey> {
        self.steps
            .iter()
            .filter(|step| matches!(step, Step::Take { .. }))
            .map(|step| step.key().clone())
            .collect()
    }

    /// The rows that it creates.
    pub(super) fn created(&self) -> Vec<Lease> {
        let creates = self.steps.iter().filter_map(|step| match step {
            Step::Create { lease, .. } => Some(lease.as_ref().clone()),
            _ => None,
        });
        creates.collect()
    }
}

impl Step {
    /// The key of the row that the step writes.
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

    /// The step's stable name for programs and logs.
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

    /// Why the step was chosen.
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
    /// Kinesis no longer knows the shard; its records that were not read are lost.
    ShardGone {
        /// How far the shard was settled.
        checkpoint: Checkpoint,
    },
    /// Kinesis does not know the shard, but one listing without it is not enough to remove its row.
    GoneAfterNextListing,
    /// It has no owner, and this host is below its share.
    Free {
        /// How many leases each host should hold.
        fair_share: usize,
    },
    /// Its owner stopped renewing it, and this host is below its share.
    Expired {
        /// The owner that let it expire.
        owner: WorkerId,
        /// How many leases each host should hold.
        fair_share: usize,
    },
    /// No host took it for so long that the shares no longer count.
    Overdue,
    /// The row names this worker: it held the lease before a restart, or the answer to its take was
    /// lost.
    OwnByName,
    /// This worker asked for it, and its owner released it.
    HandedOver,
    /// Another worker asked for it.
    AskedFor {
        /// The claimant.
        by: WorkerId,
    },
    /// Its owner holds more than this host.
    Uneven {
        /// Its owner.
        from: WorkerId,
        /// How much more the owner holds: leases, or KiB a second.
        lead: u64,
    },
    /// Parents have not ended yet.
    WaitsForParents {
        /// The parents that have not ended.
        parents: Vec<ShardId>,
    },
    /// A parent has no row, and an older shard over the same hash keys, which it may descend from,
    /// has not ended yet.
    WaitsForOlder {
        /// That shard.
        older: ShardId,
    },
    /// A parent has no row, and the first sync is not complete: the row may still be created.
    FirstSync,
    /// Its owner released it for another worker, which has not taken it yet.
    KeptFor {
        /// That worker.
        claimant: WorkerId,
    },
    /// This host has its share.
    HasFairShare {
        /// How many leases each host should hold.
        fair_share: usize,
    },
    /// A host takes leases in portions, so that hosts that start at the same time share.
    NextPortion,
    /// This host holds the most leases that it may.
    AtMaxLeases,
    /// This host made no progress on it a short while ago; others may try first.
    GaveUpLately,
    /// This host is not registered, or no heartbeat of its holds leases: other hosts would take it
    /// for dead, or for a KCL's worker.
    NotKnownAlive,
    /// An operator drains this host.
    HostDrained,
}

impl Reason {
    /// Whether the lease already belongs to this worker, by name or by a claim, so that no share
    /// bounds it.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Self::OwnByName | Self::HandedOver)
    }

    /// The reason's stable name for programs; it never changes.
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
            Self::NotKnownAlive => "not-known-alive",
            Self::HostDrained => "host-drained",
        }
    }

    /// The shards that must end before this one is read; empty for other reasons.
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
            Self::RowMissing => {
                f.write_str("its row is missing, perhaps deleted by hand; starting as configured")
            }
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
            Self::Free { fair_share } => {
                write!(f, "free, and below the fair share of {fair_share}")
            }
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
            Self::WaitsForParents { parents } => write!(
                f,
                "waits for {} to end, so that records stay in order",
                named(parents)
            ),
            Self::WaitsForOlder { older } => write!(
                f,
                "waits for {older} to end, an older shard over some of the same hash keys: \
                    parents that have no rows yet may descend from it"
            ),
            Self::FirstSync => {
                f.write_str("a parent has no row, and not all shards of the stream have one yet")
            }
            Self::KeptFor { claimant } => write!(f, "kept for {claimant}, which asked for it"),
            Self::HasFairShare { fair_share } => {
                write!(f, "this host has its fair share of {fair_share}")
            }
            Self::NextPortion => {
                f.write_str("to be taken in the next pass: hosts that start together share")
            }
            Self::AtMaxLeases => f.write_str("this host holds the most leases it may (leases.max)"),
            Self::GaveUpLately => {
                f.write_str("this host made no progress on it and leaves it to others for a while")
            }
            Self::NotKnownAlive => f.write_str(
                "this host takes no lease before a heartbeat shows the others that it is alive",
            ),
            Self::HostDrained => f.write_str("an operator drains this host"),
        }
    }
}

fn named(parents: &[ShardId]) -> String {
    let names: Vec<&str> = parents.iter().map(ShardId::as_str).collect();
    let noun = if names.len() == 1 {
        "parent"
    } else {
        "parents"
    };
    format!("{noun} {}", names.join(" and "))
}
