//! The application: command line, configuration, assembly, shutdown, telemetry. The only package that knows all others.
//!
//! A library beside the binary, so that scenarios and benchmarks run the same assembly in their own process.

pub mod aws;
pub mod bench;
pub mod capture;
pub mod cli;
pub mod commands;
pub mod feed;
pub mod output;
mod probe;
pub mod pump;
pub mod replay;
pub mod scaffold;
#[cfg(feature = "local")]
pub mod summary;
#[cfg(feature = "local")]
pub mod trial;
