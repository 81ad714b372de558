//! The ports in memory. `tests/contract` holds them to the same promises as the real adapters, so
//! that they may stand in for those: in the worker's tests with faults to order, in the simulator
//! behind a simulated network.

#![allow(clippy::missing_panics_doc, reason = "a broken promise is a panic")]

pub mod coordinator_rows;
pub mod fake_coordinator;
pub mod fake_dead_letters;
pub mod fake_fan_out;
pub mod fake_lease_store;
pub mod fake_standalone_hosts;
pub mod fake_stream;
pub mod fake_tracer;
pub mod faults;
pub mod lease_rows;
pub mod units;
