//! The worker on fakes and the paused clock: one file for each kind of promise.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod balancing;
mod delivery;
mod fan_out;
mod fan_out_costs;
mod leases;
mod resharding;
mod swaps;
