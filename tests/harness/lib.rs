//! What tests share: the fakes of the ports, the contract that fakes and real adapters both keep,
//! the embedded stack, compiled guests, and the real binary as a child process.

#![allow(clippy::missing_panics_doc, reason = "a broken promise is a panic")]

pub use shardmill_fakes::{
    fake_coordinator, fake_dead_letters, fake_fan_out, fake_lease_store, fake_standalone_hosts,
    fake_stream, fake_tracer, faults, units,
};

pub mod aggregates;
pub mod contract;
pub mod corpus;
pub mod embedded;
pub mod endpoint;
pub mod feed;
pub mod fleet;
pub mod flights;
pub mod gate;
pub mod grammar;
pub mod guests;
pub mod instance;
pub mod kcl_peer;
pub mod native;
pub mod otlp;
mod policed;
pub mod process;
pub mod provisioned;
pub mod registry;
pub mod rig;
pub mod setting;
pub mod shared_stream;
pub mod standalone_scene;
pub mod throttle;
