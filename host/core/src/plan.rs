//! Who should hold what: a view of the fleet in, steps with reasons out.

mod fleet;
mod planner;
mod shard_sync;
mod step;
mod take;

pub use fleet::{FleetView, ObservedLease, Phase, PlanLimits};
pub use planner::plan;
pub use step::{Plan, Reason, Step};

#[cfg(test)]
mod tests;
