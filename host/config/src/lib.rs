//! The configuration file: parsed once, into values that cannot be wrong.

mod all_plugins;
mod asked;
mod aws;
mod cache;
mod ceilings;
mod compile;
mod config;
mod delivery;
mod environment;
mod error;
mod failure;
mod file;
pub mod files;
mod folder;
mod gather;
mod grants;
mod host;
mod http;
mod integrity;
mod key;
mod key_lines;
mod leases;
mod limits;
mod load;
pub mod machine;
mod manifest;
mod names;
mod of_plugin;
mod plugin;
mod problem;
mod reads;
mod rest;
mod retrieval;
mod rights;
mod rollout;
mod secrets;
mod section;
mod sections;
mod settings;
mod sinks;
mod streams;
mod units;
mod wording;

#[cfg(test)]
mod tests;

pub use cache::CachePlace;
pub use config::{Config, SectionOverrides};
pub use error::ConfigError;
pub use folder::Checked;
pub use host::refuse_open;
pub use limits::told as limits_told;
pub use manifest::Manifest;
pub use rest::Rest;
pub use rights::{AwsPlace, Need, Resource, Statement};
pub use settings::{AwsConfig, HostConfig, HttpConfig, OnRemove, PluginConfig, StreamConfig};
