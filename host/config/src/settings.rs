//! Checked settings: parts of a configuration as typed values, which need no second check.

mod applications;
mod plugin;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use shardmill_aws::{AwsOptions, StaticCredentials, WireSetting};
use shardmill_core::plugin::{AddressPolicy, HttpLimits, SecretSource};

pub(crate) use self::applications::{Applications, shared_applications};
pub use self::plugin::{PluginConfig, StreamConfig};
use super::cache::CachePlace;

/// The process's own settings.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Bytes fetched and not yet settled, over all shards.
    pub buffer_bytes: usize,
    /// Linear memory of all instances together, in bytes.
    pub instances_memory_bytes: usize,
    /// How long a planned exit may take.
    pub drain_limit: Duration,
    /// Where `/status` and `/metrics` are served, if anywhere.
    pub admin: Option<SocketAddr>,
    /// What a request for these pages must show; required if others reach the address.
    pub admin_token: Option<SecretSource>,
    /// Names that requests for these pages may be addressed to, besides addresses.
    pub admin_names: Vec<String>,
    /// Where compiled plugins are kept, if anywhere.
    pub cache: CachePlace,
    /// What happens when a plugin's file is removed.
    pub on_remove: OnRemove,
    /// Largest plugin file, in bytes.
    pub plugin_bytes_max: u64,
    /// Plugins that are loaded at most.
    pub plugins_max: usize,
    /// How often the folder is looked through, even if the system reports no change.
    pub rescan_every: Duration,
}

/// What a removed file means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnRemove {
    /// Nothing but a message: a deploy that deletes and copies must not move leases.
    #[default]
    Keep,
    /// Drain, checkpoint, release.
    Stop,
}

/// Requests of plugins, to any host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpConfig {
    /// What a request may cost.
    pub limits: HttpLimits,
    /// Which addresses may be connected to.
    pub addresses: AddressPolicy,
}

/// One secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretConfig {
    /// Where its value is kept.
    pub source: SecretSource,
    /// The plugins whose manifests may ask for it.
    pub plugins: BTreeSet<String>,
}

/// How to reach AWS; what is absent comes from the ordinary chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AwsConfig {
    /// The region.
    pub region: Option<String>,
    /// Another address for Kinesis.
    pub kinesis_endpoint: Option<String>,
    /// Another address for DynamoDB.
    pub dynamodb_endpoint: Option<String>,
    /// The format that Kinesis is spoken to in.
    pub wire: WireSetting,
    /// Whether these endpoints are an embedded stack, which takes any credentials.
    pub is_local: bool,
}

impl AwsConfig {
    /// What clients are made with.
    pub fn options(&self) -> AwsOptions {
        AwsOptions {
            region: self.region.clone(),
            kinesis_endpoint: self.kinesis_endpoint.clone(),
            dynamodb_endpoint: self.dynamodb_endpoint.clone(),
            credentials: self.is_local.then(StaticCredentials::dummy),
            wire: self.wire,
        }
    }
}
