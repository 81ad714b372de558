//! What holds for every plan, whatever the view: the worker that carries it out relies on it, and
//! it is asserted where a plan is made.

use std::collections::{BTreeMap, BTreeSet};

use super::{FleetView, ObservedLease, Plan, PlanLimits, Reason, Step, cleanup};
use crate::lease::{Availability, Lease};
use crate::seeded_bug::SeededBug;
use crate::stream::{LeaseKey, ShardId};

/// Stops a build with debug assertions at a plan that breaks a rule, unless a seeded bug is on,
/// which may make it do so.
pub(super) fn assert_sound(plan: &Plan, view: &FleetView<'_>, limits: &PlanLimits) {
    if cfg!(debug_assertions) && !SeededBug::is_any_on() {
        let broken = broken_rule(plan, view, limits);
        debug_assert!(broken.is_none(), "{}", broken.unwrap_or_default());
    }
}

/// The first rule that a plan breaks, in a sentence; `None` for a sound plan.
///
/// # Rules
///
/// - A row has at most one step: steps are sent at once, and in no order.
/// - Only a host that has a complete list of the shards creates and removes rows; a row that is
///   created was missing.
/// - A row is removed as it was seen, and only if Kinesis does not know its shard any more, or if
///   nothing needs it: it has been finished for a while, no parent has a row, and each child has
///   left its initial position. Until then, the row of a parent or a child rests on it.
/// - Only a lease with a pipeline of this process is handed over; such a lease is not taken, claimed
///   or released.
/// - What is taken is not finished, and is free, expired, this worker's by name, or, to even out
///   shares, a KCL worker's.
/// - What is claimed has an owner that is registered: others know nothing of claims.
/// - No shard is taken whose parent's row is created in the same plan: the parent is read first.
/// - This host holds no more leases than it may.
pub(super) fn broken_rule(
    plan: &Plan,
    view: &FleetView<'_>,
    limits: &PlanLimits,
) -> Option<String> {
    let scene = Scene::of(view);
    twice(plan)
        .or_else(|| {
            plan.steps
                .iter()
                .find_map(|step| scene.broken_by(step, limits))
        })
        .or_else(|| before_its_parent(plan))
        .or_else(|| scene.above_the_most(plan, limits))
}

/// The view that a plan is checked against.
struct Scene<'a> {
    view: &'a FleetView<'a>,
    rows: BTreeMap<&'a LeaseKey, &'a ObservedLease>,
}

impl<'a> Scene<'a> {
    fn of(view: &'a FleetView<'a>) -> Self {
        let rows = view.leases.iter().map(|row| (&row.lease.key, row));
        Self {
            view,
            rows: rows.collect(),
        }
    }

    fn broken_by(&self, step: &Step, limits: &PlanLimits) -> Option<String> {
        let broken = match step {
            Step::Create { lease, .. } => self.by_create(lease),
            Step::Delete { seen, .. } => self.by_delete(seen, limits),
            Step::Take { seen, reason } => self.by_take(seen, reason),
            Step::Claim { seen, .. } => self.by_claim(seen),
            Step::Release { seen, .. } => self.by_release(seen),
            Step::HandOver { key, .. } => {
                (!self.row(key)?.is_mine).then_some("though it is not read here")
            }
        };
        broken.map(|how| format!("would {} {} {how}", step.code(), step.key()))
    }

    fn row(&self, key: &LeaseKey) -> Option<&'a ObservedLease> {
        self.rows.get(key).copied()
    }

    fn by_create(&self, lease: &Lease) -> Option<&'static str> {
        if self.view.shards.is_none() {
            return Some("without a list of the shards");
        }
        self.row(&lease.key).map(|_| "though it has a row")
    }

    fn by_delete(&self, seen: &Lease, limits: &PlanLimits) -> Option<&'static str> {
        let Some(list) = &self.view.shards else {
            return Some("without a list of the shards");
        };
        let Some(row) = self.row(&seen.key).filter(|row| row.lease == *seen) else {
            return Some("by a row that was not seen");
        };
        let shard = seen.key.shard_id();
        if list.gone.confirmed.contains(&shard) {
            let is_listed = list.shards.iter().any(|listed| listed.id == shard);
            return is_listed.then_some("though Kinesis lists its shard");
        }
        if !seen.is_finished() {
            Some("though its shard is not read to the end")
        } else if row.finished_for < limits.finished_rows_stay {
            Some("though it was finished a short while ago")
        } else if seen.parents.iter().any(|id| self.row_of(id).is_some()) {
            Some("though a parent still has a row")
        } else if seen.children.is_empty() || !seen.children.iter().all(|id| self.has_started(id)) {
            Some("though a child may still start by it")
        } else {
            None
        }
    }

    fn row_of(&self, shard: &ShardId) -> Option<&'a ObservedLease> {
        let mut rows = self.view.leases.iter();
        rows.find(|row| row.lease.key.shard_id() == *shard)
    }

    fn has_started(&self, child: &ShardId) -> bool {
        let row = self.row_of(child);
        row.is_some_and(|row| cleanup::has_started(&row.lease))
    }

    fn by_take(&self, seen: &Lease, reason: &Reason) -> Option<&'static str> {
        let row = match self.untouched(seen) {
            Ok(row) => row,
            Err(broken) => return Some(broken),
        };
        let is_mine_by_name = seen.owner.as_ref() == Some(self.view.me);
        let may_be_taken = match row.availability {
            Availability::Free | Availability::Expired => true,
            Availability::Held => is_mine_by_name || self.is_a_kcls(seen, reason),
        };
        (!may_be_taken).then_some("though its owner holds it")
    }

    /// Whether it is taken to even out shares, from a worker that is not registered.
    fn is_a_kcls(&self, seen: &Lease, reason: &Reason) -> bool {
        matches!(reason, Reason::Uneven { .. }) && !self.has_registered_owner(seen)
    }

    fn has_registered_owner(&self, seen: &Lease) -> bool {
        let mut workers = self.view.workers.iter();
        workers.any(|worker| seen.owner.as_ref() == Some(&worker.id))
    }

    fn by_claim(&self, seen: &Lease) -> Option<&'static str> {
        if let Err(broken) = self.untouched(seen) {
            return Some(broken);
        }
        let is_anothers = seen.owner.as_ref() != Some(self.view.me);
        let can_be_asked = is_anothers && self.has_registered_owner(seen);
        (!can_be_asked).then_some("though its owner knows nothing of claims")
    }

    fn by_release(&self, seen: &Lease) -> Option<&'static str> {
        if let Err(broken) = self.untouched(seen) {
            return Some(broken);
        }
        (seen.owner.as_ref() != Some(self.view.me)).then_some("though it is another's")
    }

    /// The row as the view has it: not finished, and without a pipeline of this process.
    fn untouched(&self, seen: &Lease) -> Result<&'a ObservedLease, &'static str> {
        let row = self.row(&seen.key).ok_or("though no row of it was seen")?;
        if row.lease != *seen {
            Err("by a row that was not seen")
        } else if row.is_mine {
            Err("though it is read here")
        } else if seen.is_finished() {
            Err("though it is finished")
        } else {
            Ok(row)
        }
    }

    /// Takes above the most leases that this host holds, what it gives away not counted.
    fn above_the_most(&self, plan: &Plan, limits: &PlanLimits) -> Option<String> {
        let is_take = |step: &&Step| matches!(step, Step::Take { .. });
        let takes = plan.steps.iter().filter(is_take).count();
        let stays = |row: &&ObservedLease| {
            row.is_mine && !row.lease.is_finished() && row.claimed_by_other(self.view.me).is_none()
        };
        let held = self.view.leases.iter().filter(stays).count();
        (takes > 0 && held + takes > limits.max_leases).then(|| {
            format!(
                "would take {takes} leases besides {held}, and may hold {}",
                limits.max_leases
            )
        })
    }
}

fn before_its_parent(plan: &Plan) -> Option<String> {
    let made: BTreeSet<ShardId> = plan
        .created()
        .iter()
        .map(|lease| lease.key.shard_id())
        .collect();
    plan.steps.iter().find_map(|step| match step {
        Step::Take { seen, .. } if seen.parents.iter().any(|parent| made.contains(parent)) => {
            Some(format!("would take {} before its parent", seen.key))
        }
        _ => None,
    })
}

fn twice(plan: &Plan) -> Option<String> {
    let mut keys = BTreeSet::new();
    let again = plan.steps.iter().find(|step| !keys.insert(step.key()));
    again.map(|step| format!("would do two things to {}", step.key()))
}
