//! Phase: even out what is held, by asking the richest for leases.
//!
//! Every host computes the moves of *all* hosts, poorest and richest first, and performs only its
//! own. Hosts that see the same fleet therefore ask for different leases, and a fleet is even after
//! one exchange; then nobody has a reason to move, and nothing moves.

use std::collections::{BTreeMap, BTreeSet};

use super::fleet::Roster;
use super::{
    Balance, FleetView, ObservedLease, Plan, PlanLimits, ReadingOrder, Reason, Step, take,
};
use crate::hash;
use crate::lease::{Standing, WorkerId};
use crate::seeded_bug::SeededBug;

/// Least number of leases that a host may ask for in one pass; above it, half of what it lacks.
/// Bounds how much of the fleet is between two owners at a time.
pub(super) const MOVES_MIN: usize = 8;
/// By throughput, a fleet is even when its hosts differ by less than this part of their mean:
/// measured rates never agree, and every move costs a pause.
const DEADBAND_PERCENT: u64 = 15;
/// What an idle shard weighs beside a busy one, in KiB a second: it is polled and renewed all the
/// same.
const IDLE_WEIGHT: u64 = 8;
/// A KCL knows no claims: its lease is taken while it works, which repeats records, so one at a
/// time, as it does itself.
pub(super) const UNREGISTERED_MOVES_MAX: usize = 1;

/// One worker's part in the exchange.
struct Part<'a> {
    /// Before the exchange.
    load: u64,
    /// Leases that may move, heaviest last.
    movable: Vec<(u64, u64, &'a ObservedLease)>,
    count: usize,
}

/// Adds claims, or steals from workers that know no claims, if this host is among the poor.
pub(super) fn plan_moves(
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    limits: &PlanLimits,
    plan: &mut Plan,
) {
    let deleted = plan.deleted();
    let mut mine = Vec::new();
    exchange(view, roster, limits, |to, observed, gap| {
        // The row may name another owner while a pipeline of this process has yet to hear of it:
        // two would read at once.
        if to == view.me && !observed.is_mine && !deleted.contains(&observed.lease.key) {
            mine.push((observed, gap));
        }
    });
    let most = MOVES_MIN.max(mine.len().div_ceil(2));
    // What this host took since the last look may count for another still. An owner that is asked
    // gives in its own time; what is taken is here at once.
    let steals_max = UNREGISTERED_MOVES_MAX.min(take::capacity(view, limits));
    let mut stolen = 0;
    for (observed, lead) in mine.into_iter().take(most) {
        let Some(from) = observed.lease.owner.clone() else {
            continue;
        };
        let seen = Box::new(observed.lease.clone());
        let reason = Reason::Uneven {
            from: from.clone(),
            lead,
        };
        if roster.unregistered.contains(&from) || SeededBug::StealsWithoutAsking.is_on() {
            let may_steal = limits.shared_with_kcl || SeededBug::StealsWithoutAsking.is_on();
            if may_steal && stolen < steals_max {
                plan.steps.push(Step::Take { seen, reason });
                stolen += 1;
            }
        } else {
            plan.steps.push(Step::Claim { seen, reason });
        }
    }
}

/// Moves one lease at a time from the richest to the poorest, until no move makes the fleet more
/// even.
pub(super) fn exchange<'a>(
    view: &FleetView<'a>,
    roster: &Roster<'a>,
    limits: &PlanLimits,
    mut each: impl FnMut(&WorkerId, &'a ObservedLease, u64),
) {
    let mut parts = parts(view, roster, limits.balance);
    let total: u64 = parts.values().map(|part| part.load).sum();
    let deadband = match limits.balance {
        Balance::Count if SeededBug::RestlessBalance.is_on() => 0,
        Balance::Count => 1,
        Balance::Throughput => total / parts.len().max(1) as u64 * DEADBAND_PERCENT / 100,
    };
    let mut by_load: BTreeSet<(u64, &WorkerId)> =
        parts.iter().map(|(id, part)| (part.load, *id)).collect();
    // Each move takes one lease from a list, or one worker from the exchange.
    for _ in 0..view.leases.len() + parts.len() {
        let poorest = by_load
            .iter()
            .find(|(_, id)| parts[*id].count < roster.caps[*id])
            .copied();
        let (Some((poor_load, poor)), Some((rich_load, rich))) = (poorest, by_load.last().copied())
        else {
            return;
        };
        let gap = rich_load.saturating_sub(poor_load);
        if gap <= deadband || poor == rich {
            return;
        }
        let Some((weight, lease)) = parts.get_mut(rich).and_then(|part| part.give(gap)) else {
            // It has nothing that would help; the next richest may.
            by_load.remove(&(rich_load, rich));
            continue;
        };
        by_load.remove(&(rich_load, rich));
        by_load.insert((rich_load - weight, rich));
        by_load.remove(&(poor_load, poor));
        by_load.insert((poor_load + weight, poor));
        if let Some(part) = parts.get_mut(poor) {
            part.count += 1;
        }
        each(poor, lease, gap);
    }
}

fn parts<'a>(
    view: &FleetView<'a>,
    roster: &Roster<'a>,
    balance: Balance,
) -> BTreeMap<&'a WorkerId, Part<'a>> {
    let none = || Part {
        load: 0,
        movable: Vec::new(),
        count: 0,
    };
    let mut parts: BTreeMap<&WorkerId, Part<'a>> =
        roster.caps.keys().map(|id| (*id, none())).collect();
    // A KCL holds leases that it does not read before their parents end; a host takes none of
    // those.
    let order = (!roster.unregistered.is_empty()).then(|| {
        ReadingOrder::of(
            view.leases.iter().map(|observed| &observed.lease),
            view.is_bootstrapped,
        )
    });
    for observed in view
        .leases
        .iter()
        .filter(|observed| !observed.lease.is_finished())
    {
        let Some(part) = observed.holder().and_then(|holder| parts.get_mut(holder)) else {
            continue;
        };
        let weight = weight(observed, balance);
        part.load += weight;
        part.count += 1;
        // A lease that was asked for is on its way already; one whose owner did not give it to us
        // would not now either.
        let was_refused = observed.lease.claimant.as_ref() == Some(view.me);
        let must_wait = order
            .as_ref()
            .is_some_and(|order| order.waits_for(&observed.lease).is_some());
        let may_move =
            !observed.is_claim_fresh && !was_refused && !observed.is_avoided && !must_wait;
        if observed.standing == Standing::Held && may_move {
            part.movable
                .push((weight, rank(observed, view.me), observed));
        }
    }
    for part in parts.values_mut() {
        part.movable
            .sort_unstable_by_key(|(weight, rank, _)| (*weight, *rank));
    }
    parts
}

impl<'a> Part<'a> {
    /// Gives away the lease that evens out a gap best: the heaviest of at most half of it, or else
    /// the lightest that is lighter than all of it.
    fn give(&mut self, gap: u64) -> Option<(u64, &'a ObservedLease)> {
        let below = self
            .movable
            .partition_point(|(weight, _, _)| *weight <= gap / 2);
        let index = below.saturating_sub(1);
        let (weight, _, _) = *self.movable.get(index)?;
        if weight >= gap && !SeededBug::RestlessBalance.is_on() {
            return None;
        }
        let (weight, _, lease) = self.movable.remove(index);
        self.count -= 1;
        Some((weight, lease))
    }
}

fn weight(observed: &ObservedLease, balance: Balance) -> u64 {
    match balance {
        Balance::Count => 1,
        Balance::Throughput => IDLE_WEIGHT + observed.lease.bytes_per_second.unwrap_or(0) / 1024,
    }
}

/// The same on every host, so that all compute the same exchange.
fn rank(observed: &ObservedLease, me: &WorkerId) -> u64 {
    let key = observed.lease.key.as_str().bytes();
    if SeededBug::OrderDiffersByHost.is_on() {
        return hash::stable(me.as_str().bytes().chain(key));
    }
    hash::stable(key)
}
