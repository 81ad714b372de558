//! The configuration file: parsed once, into values that cannot be wrong.

mod all_plugins;
mod asked;
mod aws;
mod cache;
mod ceilings;
mod compile;
mod config;
mod console;
mod delivery;
mod duration;
mod emf;
mod environment;
mod error;
mod failure;
mod file;
pub mod files;
mod files_and_variables;
mod filter;
pub mod floor;
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
mod of_sections;
mod of_sources;
mod parallelism;
mod plugin;
mod problem;
mod pull;
mod reads;
mod recordings;
mod reload;
mod rest;
mod retrieval;
mod rights;
mod role;
mod rollout;
mod scaling;
mod secrets;
mod section;
mod sections;
mod settings;
mod shadow;
mod sinks;
mod size;
mod standalone;
mod streams;
mod tables;
mod tick;
mod token;
mod traces;
mod units;
mod wording;
mod written;

#[cfg(test)]
mod tests;

pub use cache::CacheSetting;
pub use config::{Config, SectionOverrides};
pub use duration::parse_duration;
pub use error::ConfigError;
pub use folder::Checked;
pub use host::refuse_open;
pub use limits::shown as limits_shown;
pub use manifest::Manifest;
pub use reload::Reload;
pub use rest::Rest;
pub use rights::{AwsScope, Caller, NamedConsumer, Need, Resource, Statement, USE_TABLE_KEY};
pub use settings::{
    AwsConfig, ConsoleConfig, ConsoleRight, ConsoleToken, EmfConfig, EmfTarget, ForwardedUsers,
    HistoryKept, HostConfig, HttpConfig, OnRemove, PluginConfig, PullConfig, RecordingsConfig,
    ScalingConfig, SourceConfig, StreamConfig, TracesConfig,
};
pub use sinks::check_url;
pub use token::{TokenError, read_token};
pub use traces::check_trace_header;
