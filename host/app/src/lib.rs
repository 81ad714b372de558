//! The application: command line, configuration, assembly, shutdown, telemetry. The only package that knows all others.
//!
//! A library beside the binary, so that scenarios and benchmarks run the same assembly in their own process.

pub mod admin;
pub mod assembly;
pub mod aws;
pub mod bench;
pub mod capture;
pub mod cli;
pub mod clock;
pub mod commands;
mod component;
pub mod engine;
pub mod feed;
pub mod hardening;
mod host_status;
mod kept;
pub mod measurements;
mod metrics;
pub mod output;
mod parts;
mod probe;
mod process;
pub mod pump;
pub mod readiness;
pub mod replay;
pub mod scaffold;
pub mod shutdown;
#[cfg(feature = "local")]
pub mod summary;
mod supervisor;
pub mod telemetry;
#[cfg(feature = "local")]
pub mod trial;

pub use host_status::{HostSnapshot, HostStatus, PluginSnapshot};
