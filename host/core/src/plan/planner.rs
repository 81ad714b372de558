//! The phases of a pass, in order.

use super::{FleetView, Plan, PlanLimits, shard_sync, take};

/// Decides one pass. Pure; on an unchanged view it decides the same again.
///
/// Stealing and hand-over will be a phase after `take`, which only runs when nothing is free.
pub fn plan(view: &FleetView<'_>, limits: &PlanLimits) -> Plan {
    let mut plan = Plan::default();
    shard_sync::plan_creates(view, limits, &mut plan);
    take::plan_takes(view, limits, &mut plan);
    plan
}
