//! Fleets of real hosts in one thread: real worker, planner, AWS adapters and SDK clients, over a simulated network,
//! clock and cloud, all drawn from one seed. The same seed gives the same run, byte for byte.
//!
//! ```text
//! Driver ── starts, crashes, stops hosts; partitions; reshards; puts records      (driver.rs, storm.rs)
//!   Host ── Worker ─ LeaseTable, KinesisReader ─ aws-sdk ─ Wire                   (host.rs, wire.rs)
//!   Wire ── Weather says what goes wrong ─> Tables (dynoxide), Stream (ferrokinesis)
//! ```
//!
//! A run has two phases: with faults, then healed. Safety is checked over the whole history; after the healing the fleet
//! must settle and checkpoint everything within a bound.

#![allow(clippy::missing_panics_doc, reason = "a broken promise is a panic")]

pub mod driver;
mod events;
pub mod hearing;
pub mod host;
pub mod lanes;
pub mod observed;
pub mod options;
pub mod plugin;
pub mod poison;
pub mod producer;
pub mod reached;
pub mod report;
pub mod run;
pub mod schedule;
pub mod storm;
pub mod stream;
pub mod system;
pub mod tables;
pub mod trace_file;
pub mod verdict;
pub mod weather;
pub mod wire;
pub mod world;
