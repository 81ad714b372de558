//! Checked settings: parts of a configuration as typed values, which need no second check.

mod applications;
mod plugin;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use shardmill_aws::{AwsOptions, Role, ServiceAccess, StaticCredentials, WireSetting};
use shardmill_core::artifact::ArtifactRef;
use shardmill_core::kcl_metrics::Level;
use shardmill_core::plugin::{AddressPolicy, HttpLimits, PluginName, SecretSource};
use shardmill_core::scaling::ScalingPolicy;
use shardmill_core::stream::StreamRef;
use shardmill_core::trace::Sampler;
use shardmill_sinks::HeaderSource;
use shardmill_sources::Login;

pub(crate) use self::applications::{Applications, shared_applications};
pub use self::plugin::{PluginConfig, StreamConfig};
use super::cache::CacheSetting;

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
    pub cache: CacheSetting,
    /// Whether only plugins with a section `[plugin.NAME]` are run.
    pub only_listed: bool,
    /// What happens when a plugin's file is removed.
    pub on_remove: OnRemove,
    /// What the histories of applications say.
    pub history: HistoryKept,
    /// Largest plugin file, in bytes.
    pub plugin_bytes_max: u64,
    /// Most plugins that are loaded.
    pub plugins_max: usize,
    /// How often the folder is looked through, even if the system reports no change.
    pub rescan_every: Duration,
}

/// Where the versions of a plugin are pulled from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConfig {
    /// The plugin that they are versions of.
    pub plugin: PluginName,
    /// The version that is wanted unless another is deployed: a certain one, or whatever is there.
    pub reference: ArtifactRef,
}

/// How versions are pulled.
#[derive(Debug, Clone)]
pub struct PullConfig {
    /// How often a host looks whether there is another version.
    pub every: Duration,
    /// How long one request may take, to the end of its answer.
    pub timeout: Duration,
    /// Hosts, with their ports, that may be reached without encryption.
    pub insecure: BTreeSet<String>,
    /// Instead of the region's endpoint of S3, if there is one.
    pub s3_endpoint: Option<String>,
    /// Who we are to registries, by their hosts.
    pub logins: BTreeMap<String, Login>,
}

/// What is kept of batches that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingsConfig {
    /// Whether batches that fail are recorded at all.
    pub is_enabled: bool,
    /// Bytes of batches that plugins were given, over all instances.
    pub memory_bytes: usize,
    /// The same for one instance.
    pub instance_memory_bytes: usize,
    /// Bytes of all recordings on the disk.
    pub disk_bytes: u64,
    /// How long one is kept.
    pub keep_for: Duration,
    /// Plugins of which nothing is kept.
    pub except: BTreeSet<String>,
}

/// How the KCL's metrics are written, for CloudWatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmfConfig {
    /// Where the lines go.
    pub target: EmfTarget,
    /// How much is written.
    pub level: Level,
    /// The namespace in CloudWatch; `{application}` in it stands for the application's name.
    pub namespace: String,
    /// How often it is written; from 1 s to a minute.
    pub every: Duration,
    /// The log group that an agent puts the lines into; `None` for the agent's own choice.
    pub log_group: Option<String>,
}

/// Where lines of metrics go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmfTarget {
    /// Standard error, between the lines of the log.
    Stderr,
    /// A file that nothing else is written to.
    File(PathBuf),
    /// A CloudWatch agent, at `HOST:PORT`.
    Tcp(String),
    /// The same, a datagram for each line.
    Udp(String),
}

/// Whether batches are traced, and where the traces go. What is `None` is left to the variables of
/// OpenTelemetry, and then to a default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracesConfig {
    /// Whether anything is traced at all.
    pub is_enabled: bool,
    /// The collector's URL, without the path of traces.
    pub endpoint: Option<Url>,
    /// Which batches are traced.
    pub sampler: Option<Sampler>,
    /// Whether those are traced as well that have records of spans that are recorded.
    pub follows: bool,
    /// Whether the context is written into JSON objects that plugins emit.
    pub injects: bool,
    /// How long a request to the collector may take.
    pub timeout: Option<Duration>,
    /// What the resource says as `service.name`.
    pub service_name: Option<String>,
    /// Headers of every request, by name; a value may be a secret.
    pub headers: BTreeMap<String, HeaderSource>,
    /// More attributes of the resource.
    pub attributes: BTreeMap<String, String>,
}

/// How many hosts are wanted, and what one of them is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalingConfig {
    /// What the operator wants.
    pub policy: ScalingPolicy,
    /// The cores that this host may count on; `None` for what the system lets it use.
    pub cores: Option<f64>,
}

/// Whether the console is served, and who may do what there.
#[derive(Debug, Clone, Default)]
pub struct ConsoleConfig {
    /// Whether it is served at all.
    pub is_enabled: bool,
    /// What those may do who do not say who they are.
    pub anonymous: BTreeSet<ConsoleRight>,
    /// Fields of records and outputs that are never shown, as paths of names.
    pub masked: Vec<Vec<String>>,
    /// Who shows a token.
    pub tokens: Vec<ConsoleToken>,
    /// Who comes through a proxy that knows them.
    pub proxy: Option<ForwardedUsers>,
}

/// A right in the console. `operate` includes `view`, and so does `admin`, which includes
/// `operate`; the data of records are a right of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConsoleRight {
    /// To see how the fleet does.
    View,
    /// To see the data of records, outputs and states.
    ViewData,
    /// To change what can be taken back: to pause, move, seek, skip.
    Operate,
    /// To change what cannot be taken back: to delete tables, to drop states.
    Admin,
}

/// Somebody who shows a token.
#[derive(Debug, Clone)]
pub struct ConsoleToken {
    /// Who it is, for the history.
    pub name: String,
    /// Where the token is kept.
    pub source: SecretSource,
    /// What they may do.
    pub may: BTreeSet<ConsoleRight>,
}

/// A proxy that says in a header who sends a request.
#[derive(Debug, Clone)]
pub struct ForwardedUsers {
    /// The header, in small letters.
    pub header: String,
    /// Where the proxy's requests come from. From elsewhere the header says nothing.
    pub addresses: Vec<IpNet>,
    /// What each of them may do.
    pub users: BTreeMap<String, BTreeSet<ConsoleRight>>,
    /// What those may do whom the proxy names and who are not listed.
    pub anybody: BTreeSet<ConsoleRight>,
}

impl ConsoleRight {
    /// Every right once, the least first.
    pub const ALL: [Self; 4] = [Self::View, Self::ViewData, Self::Operate, Self::Admin];

    /// Whether who has this right may do what needs `needed`.
    pub fn includes(self, needed: Self) -> bool {
        match self {
            Self::View | Self::ViewData => self == needed || needed == Self::View,
            Self::Operate => matches!(needed, Self::Operate | Self::View),
            Self::Admin => needed != Self::ViewData,
        }
    }
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

/// What an application's history says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryKept {
    /// Also what hosts do by themselves: leases that move, versions, records that are given up.
    #[default]
    All,
    /// Commands, and what hosts did about them.
    Commands,
}

/// Settings for all HTTP requests of plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpConfig {
    /// Limits on a request.
    pub limits: HttpLimits,
    /// The addresses that plugins may connect to.
    pub addresses: AddressPolicy,
}

/// Where the value of one secret comes from.
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
    /// The region's code, such as `eu-west-1`; `None` leaves it to the SDK.
    pub region: Option<String>,
    /// The role to assume, for both services.
    pub role: Option<Role>,
    /// What Kinesis has of its own.
    pub kinesis: ServiceAccess,
    /// What DynamoDB has of its own.
    pub dynamodb: ServiceAccess,
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
    /// The region of the tables; `None` if the SDK finds it elsewhere.
    pub(crate) fn region_of_tables(&self) -> Option<&str> {
        let of_dynamodb = self.dynamodb.region.as_deref();
        of_dynamodb.or(self.region.as_deref())
    }

    /// The role that is assumed for one of these services, if any.
    pub(crate) fn role_for<'a>(&'a self, service: &'a ServiceAccess) -> Option<&'a Role> {
        service.role.as_ref().or(self.role.as_ref())
    }

    /// Fails if a client of the region `ours` cannot reach the stream: it speaks to one region. The
    /// embedded stack is in none.
    pub fn check_region(&self, stream: &StreamRef, ours: &str) -> Result<(), String> {
        match stream.region() {
            Some(theirs) if theirs != ours && !self.is_local => Err(format!(
                "stream {stream} is in region {theirs}, this host in {ours}: run a host there for \
                    it"
            )),
            _ => Ok(()),
        }
    }

    /// The options for creating clients.
    pub fn options(&self) -> AwsOptions {
        AwsOptions {
            region: self.region.clone(),
            role: self.role.clone(),
            kinesis: self.kinesis.clone(),
            dynamodb: self.dynamodb.clone(),
            kinesis_endpoint: self.kinesis_endpoint.clone(),
            dynamodb_endpoint: self.dynamodb_endpoint.clone(),
            credentials: self.is_local.then(StaticCredentials::dummy),
            wire: self.wire,
        }
    }
}
