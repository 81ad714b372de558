//! Fleets of real hosts in one thread: real worker and planner, in some runs real AWS adapters and
//! SDK clients too, over a simulated network, clock and cloud, all drawn from one seed. The same
//! seed gives the same run, byte for byte.
//!
//! ```text
//! Driver ── starts, crashes, stops hosts; partitions; reshards; puts records      (driver.rs, storm.rs)
//!   Host ── Worker ─ ports                                                        (host.rs)
//!     over the ports: fakes behind a network ─> rows and stream in memory         (memory/)
//!     over the wire:  real adapters ─ aws-sdk ─> dynoxide, ferrokinesis           (wire.rs, dynamodb.rs, kinesis.rs)
//!   Weather says what goes wrong on the way, on either                            (network.rs, weather.rs)
//! ```
//!
//! A run has two phases: with faults, then healed. Safety is checked over the whole history; after
//! the healing the fleet must settle and checkpoint everything within a bound.

#![allow(clippy::missing_panics_doc, reason = "a broken promise is a panic")]

pub mod bugs;
mod commands;
pub mod dimension;
pub mod driver;
pub mod dynamodb;
pub mod edits;
mod events;
mod healing;
pub mod hearing;
pub mod host;
pub mod kinesis;
pub mod lanes;
pub mod memory;
pub mod network;
pub mod observed;
pub mod options;
pub mod past;
pub mod plugin;
pub mod plugins;
pub mod poison;
pub mod producer;
pub mod reached;
pub mod refusal;
pub mod report;
pub mod run;
pub mod schedule;
mod sharing;
pub mod shown;
pub mod sink;
pub mod storm;
pub mod stream;
pub mod system;
pub mod tables;
pub mod trace_file;
pub mod verdict;
pub mod weather;
pub mod wire;
pub mod world;
