//! Who should hold what: a view of the fleet in, steps with reasons out.

mod balance;
mod cleanup;
mod errands;
mod fleet;
mod heed;
mod missing_row;
mod observe;
mod planner;
mod preview;
mod shard_sync;
mod step;
mod take;

pub use errands::{Declined, Heeders, errands};
pub use fleet::{Balance, FleetView, ObservedLease, ObservedWorker, PlanLimits, ShardList};
pub use heed::{AtHand, Heeded, heed};
pub use missing_row::NoRow;
pub use observe::{CLAIM_PATIENCE_LEASES, OVERDUE_LEASES, Outlook, alive_workers, observed_workers};
pub use planner::plan;
pub use preview::{Preview, preview};
pub use shard_sync::{MissingRow, missing_rows};
pub use step::{Plan, Reason, Step};

#[cfg(test)]
mod tests;
