//! What a host does about an errand, once it has read the row.

use super::{Reason, Step};
use crate::fleet::{Errand, OwnerSeen, Task, Why};
use crate::lease::{Lease, LeaseCounter, WorkerId};

/// What a host knows of itself when it heeds an errand.
#[derive(Debug, Clone, Copy)]
pub struct AtHand<'a> {
    /// The host.
    pub me: &'a WorkerId,
    /// Whether a pipeline of this process runs on the lease.
    pub is_mine: bool,
    /// Whether this host gave the lease up a short while ago, because it could not get on with it.
    pub is_avoided: bool,
    /// Whether it may hold one more.
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
    /// This; and then look at the row again.
    Do(Step),
    /// Look at the row again soon.
    Wait,
    /// It is done, or void.
    Over,
}

/// Judges `errand` by `row`, read consistently just now. Pure; the step is as conditional as any.
pub fn heed(errand: &Errand, row: Option<&Lease>, at_hand: AtHand<'_>) -> Heeded {
    let Some(row) = row.filter(|row| !row.is_finished()) else {
        return Heeded::Over;
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
/// Nobody else may take what a living host has by name, so it is served or given back.
pub fn reclaim(row: Option<&Lease>, taken_at: Option<LeaseCounter>, at_hand: AtHand<'_>) -> Heeded {
    let Some(row) = row.filter(|row| !row.is_finished() && !at_hand.is_mine) else {
        return Heeded::Over;
    };
    if row.owner.as_ref() == Some(at_hand.me) {
        return own_by_name(row, at_hand);
    }
    // The take may still arrive, as long as its condition is met.
    if taken_at == Some(row.counter) {
        Heeded::Wait
    } else {
        Heeded::Over
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

/// The host holds the lease: it gives it to the one that it was told of, once that one asks.
fn held(errand: &Errand, row: &Lease) -> Heeded {
    let Task::Expect { by } = &errand.task else {
        return Heeded::Over;
    };
    if row.claimant.as_ref() != Some(by) {
        return Heeded::Wait;
    }
    Heeded::Do(Step::HandOver {
        key: row.key.clone(),
        reason: Reason::AskedFor { by: by.clone() },
    })
}

fn wanted(errand: &Errand, row: &Lease, at_hand: AtHand<'_>) -> Heeded {
    let me = at_hand.me;
    if row.owner.as_ref() == Some(me) {
        return own_by_name(row, at_hand);
    }
    if at_hand.why_not().is_some() {
        return Heeded::Over;
    }
    let take = |reason| {
        Heeded::Do(Step::Take {
            seen: Box::new(row.clone()),
            reason,
        })
    };
    match (&row.owner, &errand.task) {
        (None, _) if row.claimant.as_ref() == Some(me) => take(Reason::HandedOver),
        (
            _,
            Task::Take {
                counter,
                owner,
                why,
            },
        ) if *counter == row.counter && is_owner(owner.as_ref(), row) => {
            take(reason(*why, owner.as_ref()))
        }
        (Some(owner), Task::Claim { from, .. })
            if owner == from && row.claimant.as_ref() == Some(me) =>
        {
            Heeded::Wait
        }
        (
            Some(owner),
            Task::Claim {
                from,
                replaces,
                lead,
            },
        ) if owner == from && row.claimant == *replaces => {
            let reason = Reason::Uneven {
                from: from.clone(),
                lead: *lead,
            };
            Heeded::Do(Step::Claim {
                seen: Box::new(row.clone()),
                reason,
            })
        }
        (_, Task::Take { .. } | Task::Claim { .. } | Task::Expect { .. }) => Heeded::Over,
    }
}

fn is_owner(seen: Option<&OwnerSeen>, row: &Lease) -> bool {
    seen.map(|owner| &owner.id) == row.owner.as_ref()
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
