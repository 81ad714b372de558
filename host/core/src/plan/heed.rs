//! What a host does about an errand, once it has read the lease's row.

use super::{Reason, Step};
use crate::fleet::{Errand, OwnerSeen, Task, Why};
use crate::lease::{Lease, LeaseCounter, WorkerId};

/// What a host knows of itself when it heeds an errand.
#[derive(Debug, Clone, Copy)]
pub struct AtHand<'a> {
    /// The host's worker id.
    pub me: &'a WorkerId,
    /// Whether a pipeline of this process runs on the lease.
    pub is_mine: bool,
    /// Whether this host gave the lease up a short while ago, because it made no progress on it.
    pub is_avoided: bool,
    /// Whether the host may hold one more lease.
    pub has_room: bool,
}

impl AtHand<'_> {
    /// Why this host may not hold the lease.
    fn why_not(self) -> Option<Reason> {
        match (self.is_avoided, self.has_room) {
            (true, _) => Some(Reason::GaveUpLately),
            (false, false) => Some(Reason::AtMaxLeases),
            (false, true) => None,
        }
    }
}

/// What to do about an errand now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heeded {
    /// Take this step, then look at the row again.
    Do(Step),
    /// Look at the row again soon.
    Wait,
    /// Nothing more: the errand is done, or void.
    Done,
}

/// Judges `errand` by `row`, read consistently just now. Pure; the step is as conditional as any.
pub fn heed(errand: &Errand, row: Option<&Lease>, at_hand: AtHand<'_>) -> Heeded {
    let Some(row) = row.filter(|row| !row.is_finished()) else {
        return Heeded::Done;
    };
    if at_hand.is_mine {
        held(errand, row)
    } else {
        wanted(errand, row, at_hand)
    }
}

/// Judges a lease that this host does not serve, though its row may name it: a take got no answer,
/// or the lease was lost by silence. `row` was read consistently just now; `taken_at` is the
/// counter of the row that such a take was sent for.
///
/// No other host may take a lease that names a living host, so this host serves it or gives it
/// back.
pub fn reclaim(row: Option<&Lease>, taken_at: Option<LeaseCounter>, at_hand: AtHand<'_>) -> Heeded {
    let Some(row) = row.filter(|row| !row.is_finished() && !at_hand.is_mine) else {
        return Heeded::Done;
    };
    if row.owner.as_ref() == Some(at_hand.me) {
        return own_by_name(row, at_hand);
    }
    // The take may still arrive, as long as its condition is met.
    if taken_at == Some(row.counter) {
        Heeded::Wait
    } else {
        Heeded::Done
    }
}

fn own_by_name(row: &Lease, at_hand: AtHand<'_>) -> Heeded {
    let seen = Box::new(row.clone());
    Heeded::Do(match at_hand.why_not() {
        Some(reason) => Step::Release { seen, reason },
        None => Step::Take {
            seen,
            reason: Reason::OwnByName,
        },
    })
}

/// The host holds the lease: it hands it over to the claimant that it expects, once that one asks.
fn held(errand: &Errand, row: &Lease) -> Heeded {
    let Task::Expect { by } = &errand.task else {
        return Heeded::Done;
    };
    if row.claimant.as_ref() != Some(by) {
        return Heeded::Wait;
    }
    Heeded::Do(Step::HandOver {
        key: row.key.clone(),
        reason: Reason::AskedFor { by: by.clone() },
    })
}

/// The host does not hold the lease:
///
/// | the row | the errand | then |
/// |---|---|---|
/// | names this host | any | take it, or release it if it may not be held |
/// | any other, and this host may not hold it | any | done |
/// | without an owner, claimed by this host | any | take it |
/// | as the leader saw it | take | take it |
/// | of the owner that the leader saw, claimed by this host | claim | wait |
/// | of the owner and the claimant that the leader saw | claim | claim it |
/// | any other | any | done |
fn wanted(errand: &Errand, row: &Lease, at_hand: AtHand<'_>) -> Heeded {
    if row.owner.as_ref() == Some(at_hand.me) {
        return own_by_name(row, at_hand);
    }
    if at_hand.why_not().is_some() {
        return Heeded::Done;
    }
    let is_claimed_by_me = row.claimant.as_ref() == Some(at_hand.me);
    match (&row.owner, &errand.task) {
        (None, _) if is_claimed_by_me => take(row, Reason::HandedOver),
        (
            owner_in_row,
            Task::Take {
                counter,
                owner,
                why,
            },
        ) if *counter == row.counter
            && owner_in_row.as_ref() == owner.as_ref().map(|owner| &owner.id) =>
        {
            take(row, reason(*why, owner.as_ref()))
        }
        (Some(owner), Task::Claim { from, .. }) if owner == from && is_claimed_by_me => {
            Heeded::Wait
        }
        (
            Some(owner),
            Task::Claim {
                from,
                replaces,
                lead,
            },
        ) if owner == from && row.claimant == *replaces => claim(row, from, *lead),
        (_, Task::Take { .. } | Task::Claim { .. } | Task::Expect { .. }) => Heeded::Done,
    }
}

fn take(row: &Lease, reason: Reason) -> Heeded {
    let seen = Box::new(row.clone());
    Heeded::Do(Step::Take { seen, reason })
}

fn claim(row: &Lease, from: &WorkerId, lead: u64) -> Heeded {
    Heeded::Do(Step::Claim {
        seen: Box::new(row.clone()),
        reason: Reason::Uneven {
            from: from.clone(),
            lead,
        },
    })
}

fn reason(why: Why, owner: Option<&OwnerSeen>) -> Reason {
    match (why, owner) {
        (Why::BelowShare { fair_share }, Some(owner)) => Reason::Expired {
            owner: owner.id.clone(),
            fair_share,
        },
        (Why::Uneven { lead }, Some(owner)) => Reason::Uneven {
            from: owner.id.clone(),
            lead,
        },
        (Why::BelowShare { fair_share }, None) => Reason::Free { fair_share },
        (Why::Overdue, _) | (Why::Uneven { .. }, None) => Reason::Overdue,
    }
}
