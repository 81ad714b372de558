//! The file as written: every key, every default, every check.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::CheckpointPolicy;
use shardmill_core::plugin::{GuestLimits, PluginName, SecretSource};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_wasm::IntegrityRules;
use shardmill_worker::{BatchLimits, ReadLimits};

use super::applications::{Applications, shared_applications};
use super::compile::CompileFile;
use super::failure::FailureFile;
use super::grants::CeilingsFile;
use super::http::HttpRequestsFile;
use super::integrity::IntegrityFile;
use super::leases::LeasesFile;
use super::limits::{HostLimitsFile, default_ceilings};
use super::plugin::{self, BatchFile, CheckpointFile, PluginFile, RetryFile};
use super::problem::Problem;
use super::retrieval::{RetrievalMode, refuse_shared_consumers};
use super::rollout::RolloutFile;
use super::secrets::{SecretFile, check_secrets};
use super::sinks::{SinkFile, check_sinks, check_url};
use super::{AwsConfig, Config, HostConfig, OnRemove};
use crate::admin::refuse_open;
use crate::machine::memory_bytes;

/// `reads.idle-max`, unless it is set, in multiples of `reads.idle-every`: three doublings, 2 s by default.
const IDLE_MAX_TIMES: u32 = 8;

/// Plugins on one host: each is leases, a heartbeat and readers of its own, and ten times what one host is good for.
const PLUGINS_MAX: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ConfigFile {
    stream: Option<String>,
    #[serde(default = "default_plugins")]
    plugins: PathBuf,
    worker_id: Option<String>,
    initial_position: Option<String>,
    #[serde(default)]
    aws: AwsFile,
    #[serde(default)]
    leases: LeasesFile,
    #[serde(default)]
    reads: ReadsFile,
    #[serde(default)]
    batch: BatchFile,
    #[serde(default)]
    checkpoint: CheckpointFile,
    #[serde(default)]
    retry: RetryFile,
    #[serde(default)]
    failure: FailureFile,
    #[serde(default)]
    limits: HostLimitsFile,
    #[serde(default)]
    ceilings: CeilingsFile,
    #[serde(default)]
    http: HttpRequestsFile,
    #[serde(default)]
    secrets: BTreeMap<String, SecretFile>,
    #[serde(default)]
    compile: CompileFile,
    #[serde(default)]
    rollout: RolloutFile,
    #[serde(default)]
    integrity: IntegrityFile,
    #[serde(default)]
    host: HostFile,
    #[serde(default)]
    sinks: BTreeMap<String, SinkFile>,
    #[serde(default)]
    plugin: BTreeMap<String, PluginFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct AwsFile {
    region: Option<String>,
    endpoint: Option<String>,
    kinesis_endpoint: Option<String>,
    dynamodb_endpoint: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ReadsFile {
    calls_per_second: Option<f64>,
    bytes_per_second: Option<ByteSize>,
    records_per_call: Option<u32>,
    #[serde(default, with = "humantime_serde")]
    idle_every: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    idle_max: Option<Duration>,
    #[serde(default)]
    retrieval: RetrievalMode,
    #[serde(default)]
    deregister_on_exit: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct HostFile {
    buffer: Option<ByteSize>,
    instances_memory: Option<ByteSize>,
    #[serde(default, with = "humantime_serde")]
    drain_limit: Option<Duration>,
    admin: Option<SocketAddr>,
    admin_token: Option<TokenFile>,
    #[serde(default)]
    admin_names: Vec<String>,
    #[serde(default)]
    fan_out_allowed: bool,
    cache: Option<PathBuf>,
    #[serde(default)]
    on_remove: OnRemove,
    plugin_bytes_max: Option<ByteSize>,
    plugins_max: Option<usize>,
    #[serde(default, with = "humantime_serde")]
    rescan_every: Option<Duration>,
}

/// Where the token of the admin pages is kept.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct TokenFile {
    file: Option<PathBuf>,
    env: Option<String>,
}

fn default_plugins() -> PathBuf {
    "plugins".into()
}

// === impl ConfigFile ===

impl ConfigFile {
    /// `sections` is the same file's `[plugin]`, as it stands there.
    pub(super) fn check(self, folder: &Path, sections: BTreeMap<String, toml::Table>) -> Result<Config, Problem> {
        let worker_id = self.worker_id.unwrap_or_else(made_up_worker_id);
        let worker_id = usable_worker_id(&worker_id).map_err(|message| Problem::new("worker-id", message))?;
        let sinks = check_sinks(self.sinks, folder)?;
        let limits = self.limits.check(GuestLimits::default()).map_err(|problem| problem.under("limits"))?;
        let mut config = Config {
            stream: self.stream.as_deref().map(plugin::stream).transpose()?,
            plugins: folder.join(self.plugins),
            worker_id,
            initial_position: plugin::initial_position(self.initial_position.as_deref())?,
            aws: self.aws.check().map_err(|problem| problem.under("aws"))?,
            leases: self.leases.check()?,
            retrieval: self.reads.retrieval,
            deregister_on_exit: self.reads.deregister_on_exit,
            reads: self.reads.check()?,
            batches: self.batch.check(BatchLimits::default())?,
            checkpoints: self.checkpoint.check(CheckpointPolicy::default()),
            retry: self.retry.check(Backoff::standard())?,
            grant_ceilings: self.ceilings.check_grants().map_err(|problem| problem.under("ceilings"))?,
            name_ceilings: self.ceilings.names.check(&sinks).map_err(|problem| problem.under("ceilings"))?,
            ceilings: self.ceilings.limits.over(default_ceilings()).map_err(|problem| problem.under("ceilings"))?,
            compile: self.compile.check().map_err(|problem| problem.under("compile"))?,
            http: self.http.check().map_err(|problem| problem.under("http"))?,
            secrets: check_secrets(self.secrets, folder)?,
            host: self.host.check(folder, &limits)?,
            limits,
            integrity: self.integrity.check(IntegrityRules::default()).map_err(|problem| problem.under("integrity"))?,
            rollout: self.rollout.check(RolloutPolicy::default()).map_err(|problem| problem.under("rollout"))?,
            failure: self.failure.check(&sinks).map_err(|problem| problem.under("failure"))?,
            sinks,
            plugin: sections,
            applications: Applications::default(),
        };
        let (mut plugins, mut by_name) = (BTreeMap::new(), BTreeMap::new());
        let mut applications = Applications::default();
        for (name, file) in self.plugin {
            let section = format!("plugin.{name}");
            let name = PluginName::new(&name).map_err(|error| Problem::new(&section, error.to_string()))?;
            let base = file.application_of(&name).to_owned();
            let plugin = file.check(&name, &config).map_err(|problem| problem.under(&section))?;
            applications.add(&name, &base, &plugin);
            by_name.insert(name.to_string(), plugin.clone());
            plugins.insert(section, plugin);
        }
        refuse_shared_consumers(&plugins)?;
        if let Some(shared) = shared_applications(&by_name).pop() {
            return Err(Problem::new("plugin", shared));
        }
        config.applications = applications;
        Ok(config)
    }
}

/// In rows, logs and tables; a KCL's ids are host names and random parts.
const WORKER_ID_BYTES_MAX: usize = 128;

/// The id, if it can stand in a row, a log line and a table.
fn usable_worker_id(id: &str) -> Result<WorkerId, String> {
    let example = "such as \"host-1\", or leave it out to have one made up";
    if id.len() > WORKER_ID_BYTES_MAX {
        return Err(format!(
            "is {} bytes long, at most are {WORKER_ID_BYTES_MAX}: write a shorter one, {example}",
            id.len()
        ));
    }
    if id.chars().any(|character| character.is_control() || character.is_whitespace()) {
        return Err(format!("holds white space or a control character: write one word, {example}"));
    }
    WorkerId::new(id).ok_or_else(|| format!("must not be empty: write one, {example}"))
}

/// Unlike a fixed id, a made-up one never meets a twin; the price is that a restart waits for the old leases to expire.
fn made_up_worker_id() -> String {
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    format!("{host}-{:08x}", fastrand::u32(..))
}

impl AwsFile {
    fn check(self) -> Result<AwsConfig, Problem> {
        for (key, endpoint) in [
            ("endpoint", &self.endpoint),
            ("kinesis-endpoint", &self.kinesis_endpoint),
            ("dynamodb-endpoint", &self.dynamodb_endpoint),
        ] {
            if let Some(endpoint) = endpoint {
                check_url(endpoint).map_err(|message| Problem::new(key, message))?;
            }
        }
        Ok(AwsConfig {
            region: self.region,
            kinesis_endpoint: self.kinesis_endpoint.or_else(|| self.endpoint.clone()),
            dynamodb_endpoint: self.dynamodb_endpoint.or(self.endpoint),
            is_local: false,
        })
    }
}

impl ReadsFile {
    fn check(self) -> Result<ReadLimits, Problem> {
        let defaults = ReadLimits::default();
        let idle_every = self.idle_every.unwrap_or(defaults.idle_every);
        let some_times = idle_every.saturating_mul(IDLE_MAX_TIMES).min(ReadLimits::SLOWEST);
        let limits = ReadLimits {
            calls_per_second: self.calls_per_second.unwrap_or(defaults.calls_per_second),
            bytes_per_second: self.bytes_per_second.map_or(defaults.bytes_per_second, |size| size.as_u64() as f64),
            records_per_call: self.records_per_call.unwrap_or(defaults.records_per_call),
            idle_every,
            idle_max: self.idle_max.unwrap_or(some_times),
        };
        limits.validate()?;
        Ok(limits)
    }
}

impl HostFile {
    fn check(self, folder: &Path, limits: &GuestLimits) -> Result<HostConfig, Problem> {
        let buffer_bytes = self.buffer.map_or(256 << 20, to_usize);
        if buffer_bytes < 20 << 20 {
            return Err(Problem::new("host.buffer", "must be at least 20MiB: one GetRecords reply may hold 10"));
        }
        let instances_memory_bytes = match self.instances_memory {
            Some(size) => to_usize(size),
            None => default_instances_memory(limits),
        };
        if instances_memory_bytes < limits.memory_bytes {
            return Err(Problem::new(
                "host.instances-memory",
                "must be at least limits.memory, or no instance could have that",
            ));
        }
        Ok(HostConfig {
            buffer_bytes,
            instances_memory_bytes,
            drain_limit: self.drain_limit.unwrap_or(Duration::from_secs(20)),
            admin: self.admin,
            admin_token: admin_token(self.admin, self.admin_token, folder)?,
            admin_names: self.admin_names,
            is_fan_out_allowed: self.fan_out_allowed,
            cache: self.cache.map(|path| folder.join(path)),
            on_remove: self.on_remove,
            plugin_bytes_max: self.plugin_bytes_max.map_or(32 << 20, |size| size.as_u64()),
            plugins_max: self.plugins_max.unwrap_or(PLUGINS_MAX),
            rescan_every: self.rescan_every.unwrap_or(Duration::from_secs(5)),
        })
    }
}

/// The token of the admin pages, which must be there if others reach their address.
fn admin_token(
    address: Option<SocketAddr>,
    token: Option<TokenFile>,
    folder: &Path,
) -> Result<Option<SecretSource>, Problem> {
    if let Some(address) = address {
        refuse_open(address, token.is_some()).map_err(|message| Problem::new("host.admin", message))?;
    }
    match token {
        None => Ok(None),
        Some(TokenFile { file: Some(file), env: None }) => Ok(Some(SecretSource::File(folder.join(file)))),
        Some(TokenFile { file: None, env: Some(name) }) => Ok(Some(SecretSource::Variable(name))),
        Some(_) => Err(Problem::new("host.admin-token", "say either file or env, where the token is kept")),
    }
}

/// Half of the memory that the process may use: the other half is for what is fetched, for the process, and for others.
/// 1 GiB where nobody knows. Enough for one instance in any case.
fn default_instances_memory(limits: &GuestLimits) -> usize {
    let half = memory_bytes().map_or(1 << 30, |bytes| usize::try_from(bytes / 2).unwrap_or(usize::MAX));
    half.max(limits.memory_bytes)
}

pub(super) fn to_usize(size: ByteSize) -> usize {
    usize::try_from(size.as_u64()).unwrap_or(usize::MAX)
}
