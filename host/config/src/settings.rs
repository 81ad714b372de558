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
    /// Compiled code of all loaded versions together, in bytes.
    pub code_memory_bytes: usize,
    /// How long a planned exit may take.
    pub drain_limit: Duration,
    /// Where `/status` and `/metrics` are served, if anywhere.
    pub admin: Option<SocketAddr>,
    /// The token that requests for these pages must send. Required if the address is reachable from
    /// outside.
    pub admin_token: Option<SecretSource>,
    /// Names that requests for these pages may be addressed to, besides addresses.
    pub admin_names: Vec<String>,
    /// Where compiled plugins are kept, if anywhere.
    pub cache: CachePlace,
    /// Whether only plugins with a section `[plugin.NAME]` are run.
    pub only_listed: bool,
    /// What happens when a plugin's file is removed.
    pub on_remove: OnRemove,
    /// Largest plugin file, in bytes.
    pub plugin_bytes_max: u64,
    /// Most plugins that are loaded.
    pub plugins_max: usize,
    /// How often the folder is looked through, even if the system reports no change.
    pub rescan_every: Duration,
}

/// What a host does when a plugin's file is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnRemove {
    /// Logs it and keeps the plugin running: a deploy that deletes and copies must not move leases.
    #[default]
    Keep,
    /// Drains, checkpoints and releases its leases.
    Stop,
}

/// Settings for all HTTP requests of plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpConfig {
    /// Limits on a request.
    pub limits: HttpLimits,
    /// The addresses that plugins may connect to.
    pub addresses: AddressPolicy,
}

/// One secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretConfig {
    /// Where its value is kept.
    pub(crate) source: SecretSource,
    /// The plugins whose manifests may ask for it.
    pub(crate) plugins: BTreeSet<String>,
}

/// How to reach AWS. The SDK's usual sources provide what is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AwsConfig {
    /// The region.
    pub region: Option<String>,
    /// The URL for Kinesis, if not AWS's own.
    pub kinesis_endpoint: Option<String>,
    /// The URL for DynamoDB, if not AWS's own.
    pub dynamodb_endpoint: Option<String>,
    /// The wire format used with Kinesis.
    pub wire: WireSetting,
    /// Whether these endpoints are an embedded stack, which takes any credentials.
    pub is_local: bool,
}

impl AwsConfig {
    /// The options for creating clients.
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
