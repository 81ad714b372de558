//! Who should hold what: a view of the fleet in, steps with reasons out.

mod balance;
mod cleanup;
mod fleet;
mod planner;
mod shard_sync;
mod step;
mod take;

pub use fleet::{Balance, FleetView, ObservedLease, ObservedWorker, PlanLimits, ShardList};
pub use planner::plan;
pub use step::{Plan, Reason, Step};

#[cfg(test)]
mod tests;
