//! Which host should hold which lease: a view of the fleet in, steps with reasons out.

mod balance;
mod check;
mod cleanup;
mod errands;
mod fleet;
mod gone;
mod heed;
mod kcl_watch;
mod missing_row;
mod observe;
mod planner;
mod preview;
mod shard_sync;
mod step;
mod take;
mod unowned;
mod waits;

pub use errands::{Declined, Heeders, errands};
pub use fleet::{Balance, FleetView, ObservedLease, ObservedWorker, PlanLimits, ShardList};
pub use gone::{GoneShards, MissingShards};
pub use heed::{AtHand, Heeded, heed, reclaim};
pub use kcl_watch::KclWatch;
pub use missing_row::NoRow;
pub use observe::{
    CLAIM_PATIENCE_LEASES, FINISHED_ROWS_STAY_LEASES, OVERDUE_LEASES, Outlook, alive_workers,
    observed_workers,
};
pub use planner::plan;
pub use preview::{Preview, preview};
pub use shard_sync::{MissingRow, missing_rows};
pub use step::{Plan, Reason, Step};
pub use unowned::{Unowned, unowned};
pub(crate) use waits::ReadingOrder;

#[cfg(test)]
mod tests;
