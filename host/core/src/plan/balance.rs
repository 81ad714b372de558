//! Phase: even out the numbers of held leases, by claiming some from the richest hosts.
//!
//! Every host computes the moves of *all* hosts, poorest and richest first, and performs only its
//! own. Hosts that see the same fleet therefore ask for different leases, and a fleet is even after
//! one exchange; after that no host has a reason to claim, and nothing moves.

use std::collections::{BTreeMap, BTreeSet};

use super::fleet::Roster;
use super::{
    Balance, FleetView, ObservedLease, Plan, PlanLimits, ReadingOrder, Reason, Step, take,
};
use crate::hash;
use crate::lease::{Availability, WorkerId};
use crate::seeded_bug::SeededBug;

/// Least number of leases that a host may ask for in one pass; above it, half of what it lacks.
/// Bounds how much of the fleet is between two owners at a time.
pub(super) const MOVES_MIN: usize = 8;
/// By throughput, a fleet is even when its hosts differ by less than this part of their mean:
/// measured rates never agree, and every move costs a pause.
const DEADBAND_PERCENT: u64 = 15;
/// What an idle shard weighs beside a busy one, in KiB a second: it is polled and renewed too.
const IDLE_WEIGHT: u64 = 8;
/// A KCL knows no claims: its lease is taken while it works, which repeats records. So it is one at
/// a time, as the KCL does it.
pub(super) const UNREGISTERED_MOVES_MAX: usize = 1;

/// A lease that goes from the richest worker to the poorest.
pub(super) struct Move<'a> {
    pub(super) to: &'a WorkerId,
    pub(super) observed: &'a ObservedLease,
    /// How much more the richest held before the move: leases, or KiB a second.
    pub(super) gap: u64,
}

/// Adds claims, or steals from workers that know no claims, if this host is among the poor.
pub(super) fn plan_moves(
    view: &FleetView<'_>,
    roster: &Roster<'_>,
    limits: &PlanLimits,
    plan: &mut Plan,
) {
    let deleted = plan.deleted();
    let mut mine = exchange(view, roster, limits);
    // The row may name another owner while a pipeline of this process has yet to hear of it: two
    // would read at once.
    mine.retain(|gets| {
        let observed = gets.observed;
        gets.to == view.me && !observed.is_mine && !deleted.contains(&observed.lease.key)
    });
    let most = moves_max(mine.len());
    // What this host took since the last look may still count for another. An owner that is asked
    // gives in its own time; what is taken is here at once.
    let mut steals_left = UNREGISTERED_MOVES_MAX.min(take::capacity(view, limits));
    for Move { observed, gap, .. } in mine.into_iter().take(most) {
        let Some(from) = observed.lease.owner.clone() else {
            continue;
        };
        let knows_claims = !roster.unregistered.contains(&from);
        let seen = Box::new(observed.lease.clone());
        let reason = Reason::Uneven { from, lead: gap };
        if knows_claims && !SeededBug::StealsWithoutAsking.is_on() {
            plan.steps.push(Step::Claim { seen, reason });
        } else if may_steal(limits) && steals_left > 0 {
            plan.steps.push(Step::Take { seen, reason });
            steals_left -= 1;
        }
    }
}

/// How many of the leases that a host lacks it may ask for in one pass.
pub(super) fn moves_max(lacks: usize) -> usize {
    MOVES_MIN.max(lacks.div_ceil(2))
}

fn may_steal(limits: &PlanLimits) -> bool {
    limits.shared_with_kcl || SeededBug::StealsWithoutAsking.is_on()
}

/// Moves one lease at a time from the richest to the poorest, until no move makes the fleet more
/// even.
pub(super) fn exchange<'a>(
    view: &FleetView<'a>,
    roster: &Roster<'a>,
    limits: &PlanLimits,
) -> Vec<Move<'a>> {
    let mut exchange = Exchange::of(view, roster, limits);
    let mut moves = Vec::new();
    // Each round removes one lease or one worker from the exchange, so it ends.
    while let Some(pair) = exchange.uneven_pair() {
        moves.extend(exchange.even_out(pair));
    }
    moves
}

/// All workers that take part, and what they hold.
struct Exchange<'a> {
    parts: BTreeMap<&'a WorkerId, Part<'a>>,
    /// Workers by what they hold. One that has nothing to give which would help is left out.
    by_load: BTreeSet<(u64, &'a WorkerId)>,
    /// Workers that differ by no more than this are even.
    deadband: u64,
}

/// One worker's part in the exchange.
struct Part<'a> {
    load: u64,
    count: usize,
    /// The most leases that it will hold.
    cap: usize,
    /// Leases that may move, heaviest last.
    movable: Vec<Movable<'a>>,
}

struct Movable<'a> {
    weight: u64,
    rank: u64,
    observed: &'a ObservedLease,
}

/// The poorest worker that has room, and the richest, each with what it holds.
#[derive(Clone, Copy)]
struct Pair<'a> {
    poor: (u64, &'a WorkerId),
    rich: (u64, &'a WorkerId),
}

impl<'a> Exchange<'a> {
    fn of(view: &FleetView<'a>, roster: &Roster<'a>, limits: &PlanLimits) -> Self {
        let parts = parts(view, roster, limits.balance);
        let total: u64 = parts.values().map(|part| part.load).sum();
        let by_load = parts.iter().map(|(id, part)| (part.load, *id)).collect();
        let deadband = match limits.balance {
            Balance::Count if SeededBug::RestlessBalance.is_on() => 0,
            Balance::Count => 1,
            Balance::Throughput => total / parts.len().max(1) as u64 * DEADBAND_PERCENT / 100,
        };
        Self {
            parts,
            by_load,
            deadband,
        }
    }

    /// `None` once the fleet is even.
    fn uneven_pair(&self) -> Option<Pair<'a>> {
        let has_room = |id: &WorkerId| self.parts[id].count < self.parts[id].cap;
        let poor = *self.by_load.iter().find(|(_, id)| has_room(id))?;
        let rich = *self.by_load.last()?;
        let pair = Pair { poor, rich };
        (pair.gap() > self.deadband && poor != rich).then_some(pair)
    }

    /// Moves a lease, or takes the richest out if it has none that would help: the next richest may
    /// have one.
    fn even_out(&mut self, pair: Pair<'a>) -> Option<Move<'a>> {
        let gap = pair.gap();
        let Pair { poor, rich } = pair;
        self.by_load.remove(&rich);
        let given = self.parts.get_mut(rich.1)?.give(gap)?;
        self.by_load.insert((rich.0 - given.weight, rich.1));
        self.by_load.remove(&poor);
        self.by_load.insert((poor.0 + given.weight, poor.1));
        self.parts.get_mut(poor.1)?.count += 1;
        Some(Move {
            to: poor.1,
            observed: given.observed,
            gap,
        })
    }
}

impl Pair<'_> {
    fn gap(&self) -> u64 {
        self.rich.0.saturating_sub(self.poor.0)
    }
}

fn parts<'a>(
    view: &FleetView<'a>,
    roster: &Roster<'a>,
    balance: Balance,
) -> BTreeMap<&'a WorkerId, Part<'a>> {
    let mut parts: BTreeMap<&WorkerId, Part<'a>> = BTreeMap::new();
    for (id, cap) in &roster.caps {
        parts.insert(*id, Part::empty(*cap));
    }
    // A KCL holds leases that it does not read before their parents end; a host takes none of
    // those.
    let order = (!roster.unregistered.is_empty()).then(|| {
        let rows = view.leases.iter().map(|observed| &observed.lease);
        ReadingOrder::of(rows, view.is_bootstrapped)
    });
    for observed in view.unfinished() {
        let Some(part) = observed.holder().and_then(|holder| parts.get_mut(holder)) else {
            continue;
        };
        let weight = weight(observed, balance);
        part.load += weight;
        part.count += 1;
        if may_move(observed, view.me, order.as_ref()) {
            let rank = rank(observed, view.me);
            part.movable.push(Movable {
                weight,
                rank,
                observed,
            });
        }
    }
    for part in parts.values_mut() {
        part.movable
            .sort_unstable_by_key(|movable| (movable.weight, movable.rank));
    }
    parts
}

fn may_move(observed: &ObservedLease, me: &WorkerId, order: Option<&ReadingOrder<'_>>) -> bool {
    // A lease that was asked for is on its way already; one whose owner did not give it to us would
    // not now either.
    let was_refused = observed.lease.claimant.as_ref() == Some(me);
    let must_wait = order.is_some_and(|order| order.waits_for(&observed.lease).is_some());
    let is_settled = observed.availability == Availability::Held && !observed.is_claim_fresh;
    is_settled && !was_refused && !observed.is_avoided && !must_wait
}

impl<'a> Part<'a> {
    fn empty(cap: usize) -> Self {
        Self {
            load: 0,
            count: 0,
            cap,
            movable: Vec::new(),
        }
    }

    /// Gives away the lease that evens out a gap best: the heaviest of at most half of it, or else
    /// the lightest that is lighter than all of it.
    fn give(&mut self, gap: u64) -> Option<Movable<'a>> {
        let below = self
            .movable
            .partition_point(|movable| movable.weight <= gap / 2);
        let index = below.saturating_sub(1);
        let weight = self.movable.get(index)?.weight;
        if weight >= gap && !SeededBug::RestlessBalance.is_on() {
            return None;
        }
        self.count -= 1;
        Some(self.movable.remove(index))
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
