//! Causes that can block a shard.

use std::fmt;
use std::time::Duration;

use super::Holder;
use crate::lease::{Checkpoint, Pulse, Seconds, WorkerId};
use crate::plan::{NoRow, Reason};
use crate::stream::ShardId;

/// Why a shard does not move. Its `Display` is the sentence that an operator reads: what is wrong,
/// and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The planner's reason, the same on every host.
    Planned(Reason),
    /// It has a row but is not in the shard list; a listing may lag.
    NotListed,
    /// It was read to its end.
    Finished,
    /// Its holder reports that it makes no progress.
    Stuck {
        /// The holder's report, as the row has it.
        text: String,
    },
    /// Its owner is shutting down.
    OwnerLeaves {
        /// The worker that the row names.
        owner: WorkerId,
    },
    /// Its owner lives, and reports that it cannot write lease rows: nothing is checkpointed.
    OwnerCannotWrite {
        /// The worker that the row names.
        owner: WorkerId,
        /// The owner's report, from its own row.
        text: String,
    },
    /// Its owner was not seen to move.
    OwnerSilent {
        /// The worker that the row names.
        owner: WorkerId,
        /// How long neither its heart nor the row moved, as far as they were watched.
        silent: Duration,
        /// The time until others may take the lease, if nothing moves before.
        expires_in: Duration,
    },
    /// Its owner stopped, and the lease has expired.
    OwnerDead {
        /// The worker that the row names.
        owner: WorkerId,
        /// How long neither its heart nor the row moved, as far as they were watched.
        silent: Duration,
    },
    /// A worker asked the owner for it, and its claim no longer counts.
    ClaimVoid {
        /// The worker that asked.
        by: WorkerId,
    },
    /// It has no owner.
    Free,
    /// Its last holder gave it up because it made no progress.
    GivenUp {
        /// The holder's report, as the row has it.
        text: String,
    },
    /// No live worker could take it.
    NobodyAlive,
    /// Its row cannot be read.
    Unreadable {
        /// What is wrong with the row.
        problem: String,
    },
    /// It has no row, and the leader makes one at its next listing.
    RowToCome {
        /// Where the shard will be read from.
        checkpoint: Checkpoint,
        /// Why the row is needed, and why it starts there.
        reason: Reason,
        /// The leader, if it was not seen dead.
        leader: Option<WorkerId>,
    },
    /// It has no row, and does not get one now.
    NoRow {
        /// The planner's reason, if it has one.
        why: Option<NoRow>,
    },
}

impl Cause {
    /// The cause's stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Planned(reason) => reason.code(),
            Self::NotListed => "not-listed",
            Self::Finished => "finished",
            Self::Stuck { .. } => "stuck",
            Self::OwnerLeaves { .. } => "owner-leaves",
            Self::OwnerCannotWrite { .. } => "owner-cannot-write",
            Self::OwnerSilent { .. } => "owner-silent",
            Self::OwnerDead { .. } => "owner-dead",
            Self::ClaimVoid { .. } => "claim-void",
            Self::Free => "free",
            Self::GivenUp { .. } => "given-up",
            Self::NobodyAlive => "nobody-alive",
            Self::Unreadable { .. } => "unreadable-row",
            Self::RowToCome { .. } => "row-to-come",
            Self::NoRow { .. } => "no-row",
        }
    }

    /// The shards that must end before this one is read.
    pub fn waits_for(&self) -> &[ShardId] {
        match self {
            Self::Planned(reason) => reason.waits_for(),
            Self::NoRow { why: Some(why) } => why
                .waits_for()
                .map(std::slice::from_ref)
                .unwrap_or_default(),
            _ => &[],
        }
    }

    /// Whether no worker could do anything about it, so that none needs to be asked.
    pub(super) fn is_beyond_workers(&self) -> bool {
        match self {
            Self::Planned(reason) => *reason == Reason::FirstSync || !reason.waits_for().is_empty(),
            Self::Unreadable { .. } | Self::NobodyAlive => true,
            _ => false,
        }
    }

    /// What is wrong with a holder that has not expired, if anything.
    pub(super) fn of_holder(holder: &Holder) -> Option<Self> {
        let owner = holder.worker.clone();
        match (holder.pulse, &holder.cannot_write) {
            (Pulse::Silent { silent, expires_in }, _) => Some(Self::OwnerSilent {
                owner,
                silent,
                expires_in,
            }),
            (Pulse::Beats, _) if holder.is_leaving => Some(Self::OwnerLeaves { owner }),
            (Pulse::Beats | Pulse::Unwatched { .. }, Some(text)) => Some(Self::OwnerCannotWrite {
                owner,
                text: text.clone(),
            }),
            // A look that is too short shows nothing about movement.
            (Pulse::Beats | Pulse::Unwatched { .. } | Pulse::Expired { .. }, _) => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Planned(reason) => reason.fmt(f),
            Self::NotListed => f.write_str("it has a row but is not in kinesis' shard list"),
            Self::Finished => f.write_str("it was read to its end; nothing is left to do"),
            Self::Stuck { text } => write!(f, "its holder makes no progress: {text}"),
            Self::OwnerLeaves { owner } => {
                write!(
                    f,
                    "{owner} is shutting down and releases it after the batch in hand"
                )
            }
            Self::OwnerCannotWrite { owner, text } => {
                write!(
                    f,
                    "{owner} cannot write lease rows, and releases its leases if another host can: {text}"
                )
            }
            Self::OwnerSilent {
                owner,
                silent,
                expires_in,
            } => write!(
                f,
                "{owner} was not seen to move for {}; if it stays silent, others may take the lease in {}",
                Seconds(*silent),
                Seconds(*expires_in)
            ),
            Self::OwnerDead { owner, silent } => write!(
                f,
                "{owner} has been silent for {} or more, longer than its lease duration: the \
                    lease is free to be taken",
                Seconds(*silent)
            ),
            Self::ClaimVoid { by } => {
                write!(
                    f,
                    "{by} asked for it, but is gone or has waited too long: the claim is void"
                )
            }
            Self::Free => f.write_str("it has no owner"),
            Self::GivenUp { text } => write!(f, "its last holder gave it up: {text}"),
            Self::NobodyAlive => f.write_str(
                "no live worker is registered: start a host, or find out why they stopped",
            ),
            Self::Unreadable { problem } => {
                write!(
                    f,
                    "its row cannot be read, and is left alone: {problem}; fix the row by hand, \
                        or delete it"
                )
            }
            Self::RowToCome {
                checkpoint,
                reason,
                leader,
            } => {
                write!(f, "it has no row: {reason}; ")?;
                fmt_who_creates(leader.as_ref(), f)?;
                write!(f, ", which starts at {checkpoint}")
            }
            Self::NoRow { why: Some(why) } => write!(f, "it has no row, and needs none now: {why}"),
            Self::NoRow { why: None } => f.write_str("it has no row"),
        }
    }
}

fn fmt_who_creates(leader: Option<&WorkerId>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match leader {
        Some(leader) => write!(f, "the leader, {leader}, creates one at its next listing"),
        None => f.write_str("the next leader creates one"),
    }
}
