//! What a failed condition means: a lost lease, or our own write whose answer was lost.

use std::fmt;

use super::{Lease, LeaseToken, WorkerId};

/// Why a lease is no longer ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LossReason {
    /// Another worker took it.
    TakenBy(WorkerId),
    /// It has no owner: it was released, by hand or by an earlier write of ours.
    Unowned,
    /// The row is gone.
    RowDeleted,
    /// The row has our name but its counter moved without us: another process uses the same worker
    /// id.
    CounterMoved,
    /// The holder's own deadline passed before a renewal went through.
    DeadlinePassed,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TakenBy(owner) => write!(f, "taken by {owner}"),
            Self::Unowned => f.write_str("the row shows no owner"),
            Self::RowDeleted => f.write_str("the row was deleted"),
            Self::CounterMoved => f.write_str("another process uses this worker id"),
            Self::DeadlinePassed => f.write_str("no renewal succeeded in time"),
        }
    }
}

/// The meaning of a row that did not meet a write's condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConflictVerdict {
    /// The write had been applied; only its answer was lost, or the SDK sent it twice.
    AppliedEarlier,
    /// The write was not applied and the row has not changed: it may be sent again.
    NotApplied,
    /// The lease is gone.
    Lost(LossReason),
}

/// Judges the row that was found after a write with `token` failed its condition or got no answer.
///
/// Sound because a counter value is only ever written once by one owner: `counter + 1` under our
/// name is our write.
pub fn judge_conflict(token: &LeaseToken, row: Option<&Lease>) -> ConflictVerdict {
    let Some(row) = row else {
        return ConflictVerdict::Lost(LossReason::RowDeleted);
    };
    match &row.owner {
        Some(owner) if *owner == token.owner => match row.counter {
            counter if counter == token.counter.next() => ConflictVerdict::AppliedEarlier,
            counter if counter == token.counter => ConflictVerdict::NotApplied,
            _ => ConflictVerdict::Lost(LossReason::CounterMoved),
        },
        Some(owner) => ConflictVerdict::Lost(LossReason::TakenBy(owner.clone())),
        None => ConflictVerdict::Lost(LossReason::Unowned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Checkpoint, LeaseCounter};
    use crate::stream::{HashKeyRange, Shard, ShardId};

    fn row(owner: Option<&str>, counter: u64) -> Lease {
        let id = ShardId::new("shardId-000000000000").unwrap();
        let shard = Shard {
            id,
            parents: Vec::new(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        let mut lease = Lease::fresh(&shard, Checkpoint::TrimHorizon);
        lease.owner = owner.and_then(WorkerId::new);
        lease.counter = LeaseCounter(counter);
        lease
    }

    #[test]
    fn a_row_tells_a_lost_answer_from_a_lost_lease() {
        let token = row(Some("me"), 7).token(WorkerId::new("me").unwrap());
        let verdict = |owner, counter| judge_conflict(&token, Some(&row(owner, counter)));
        let lost = ConflictVerdict::Lost;
        assert_eq!(verdict(Some("me"), 8), ConflictVerdict::AppliedEarlier);
        assert_eq!(verdict(Some("me"), 7), ConflictVerdict::NotApplied);
        assert_eq!(verdict(Some("me"), 9), lost(LossReason::CounterMoved));
        assert_eq!(
            verdict(Some("other"), 8),
            lost(LossReason::TakenBy(WorkerId::new("other").unwrap()))
        );
        assert_eq!(verdict(None, 8), lost(LossReason::Unowned));
        assert_eq!(judge_conflict(&token, None), lost(LossReason::RowDeleted));
    }

    #[test]
    fn a_lost_lease_says_who_or_what_took_it() {
        let taken = LossReason::TakenBy(WorkerId::new("host-7").unwrap());
        assert_eq!(taken.to_string(), "taken by host-7");
        assert_eq!(LossReason::RowDeleted.to_string(), "the row was deleted");
    }
}
