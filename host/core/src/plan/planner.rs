//! The phases of a pass, in order.

use super::fleet::Roster;
use super::{FleetView, Plan, PlanLimits, balance, check, cleanup, shard_sync, take};

/// Decides one pass. Pure; on an unchanged view it decides the same again.
pub fn plan(view: &FleetView<'_>, limits: &PlanLimits) -> Plan {
    let mut plan = Plan::default();
    let roster = Roster::of(view, limits);
    if let Some(list) = &view.shards {
        cleanup::plan_deletes(view, list, limits, &mut plan);
        shard_sync::plan_creates(view, list, limits, &mut plan);
    }
    take::plan_hand_overs(view, &mut plan);
    let is_any_available = take::plan_takes(view, &roster, limits, &mut plan);
    // What is free is shared out first: moving leases while others are unread would only add to the
    // wait.
    if !is_any_available {
        balance::plan_moves(view, &roster, limits, &mut plan);
    }
    check::assert_sound(&plan, view, limits);
    plan
}
