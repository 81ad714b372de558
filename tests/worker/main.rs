//! The worker on fakes and the paused clock: one file for each kind of promise.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aggregates;
mod balancing;
mod blame;
mod by_name;
mod control;
mod delivery;
mod failure_policy;
mod fan_out;
mod fan_out_aggregates;
mod fan_out_costs;
mod fan_out_quiet;
mod filters;
mod fleet_costs;
mod given_back;
mod halting;
mod held;
mod history;
mod leases;
mod many;
mod memory;
mod neighbours;
mod order_by_key;
mod own_mistakes;
mod parallel;
mod permissions;
mod poison;
mod reading_faults;
mod recordings;
mod records;
mod resharding;
mod rollout;
mod scaling;
mod shadow;
mod shared_read;
mod signs;
mod standalone;
mod start_position;
mod state;
mod stopping;
mod swaps;
mod ticks;
mod traces;
mod trimming;
