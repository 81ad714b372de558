//! The file as written: every key, every default, every check.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::CheckpointPolicy;
use shardmill_core::plugin::{GuestLimits, PluginName};
use shardmill_core::stream::{InitialPosition, StreamName};
use shardmill_worker::{BatchLimits, ReadLimits};

use super::leases::LeasesFile;
use super::{AwsConfig, Config, HostConfig, OnRemove, PluginConfig, RetrievalMode, SinkConfig};
use crate::sinks::LineFormat;

/// A setting that parses but cannot work.
#[derive(Debug)]
pub(crate) struct Problem {
    key: &'static str,
    message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ConfigFile {
    stream: String,
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
    limits: LimitsFile,
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
    #[serde(default)]
    retrieval: RetrievalMode,
    #[serde(default)]
    deregister_on_exit: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct BatchFile {
    records: Option<usize>,
    bytes: Option<ByteSize>,
    #[serde(default, with = "humantime_serde")]
    window: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct CheckpointFile {
    records: Option<u64>,
    bytes: Option<ByteSize>,
    #[serde(default, with = "humantime_serde")]
    age: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RetryFile {
    #[serde(default, with = "humantime_serde")]
    base: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    cap: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct LimitsFile {
    memory: Option<ByteSize>,
    #[serde(default, with = "humantime_serde")]
    process_deadline: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    init_deadline: Option<Duration>,
    emit_bytes: Option<ByteSize>,
    log_lines_per_second: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct HostFile {
    buffer: Option<ByteSize>,
    #[serde(default, with = "humantime_serde")]
    drain_limit: Option<Duration>,
    admin: Option<SocketAddr>,
    #[serde(default)]
    fan_out_allowed: bool,
    cache: Option<PathBuf>,
    #[serde(default)]
    on_remove: OnRemove,
    plugin_bytes_max: Option<ByteSize>,
    #[serde(default, with = "humantime_serde")]
    rescan_every: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
enum SinkFile {
    Stdout {
        #[serde(default)]
        format: LineFormat,
    },
    #[serde(rename_all = "kebab-case")]
    File {
        path: PathBuf,
        rotate_bytes: Option<ByteSize>,
        #[serde(default)]
        format: LineFormat,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct PluginFile {
    application: Option<String>,
    retrieval: Option<RetrievalMode>,
    consumer: Option<String>,
    #[serde(default)]
    config: BTreeMap<String, String>,
}

fn default_plugins() -> PathBuf {
    "plugins".into()
}

// === impl Problem ===

impl Problem {
    pub(super) fn new(key: &'static str, message: impl Into<String>) -> Self {
        Self { key, message: message.into() }
    }

    /// Finds the line that sets the key, for people; the key itself is named in any case.
    pub(super) fn with_line(&self, text: &str) -> String {
        let name = self.key.rsplit('.').next().unwrap_or(self.key);
        let sets_key =
            |line: &str| line.trim_start().strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('='));
        match text.lines().position(sets_key) {
            Some(index) => format!("line {}: {}: {}", index + 1, self.key, self.message),
            None => format!("{}: {}", self.key, self.message),
        }
    }
}

// === impl ConfigFile ===

impl ConfigFile {
    pub(super) fn check(self, folder: &Path) -> Result<Config, Problem> {
        let stream = StreamName::new(&self.stream).map_err(|error| Problem::new("stream", error.to_string()))?;
        let worker_id = self.worker_id.unwrap_or_else(made_up_worker_id);
        let worker_id = WorkerId::new(&worker_id).ok_or_else(|| Problem::new("worker-id", "must not be empty"))?;
        let config = Config {
            stream,
            plugins: folder.join(self.plugins),
            worker_id,
            initial_position: initial_position(self.initial_position.as_deref())?,
            aws: self.aws.check(),
            leases: self.leases.check()?,
            retrieval: self.reads.retrieval,
            deregister_on_exit: self.reads.deregister_on_exit,
            reads: self.reads.check(),
            batches: self.batch.check(),
            checkpoints: self.checkpoint.check(),
            retry: self.retry.check()?,
            limits: self.limits.check()?,
            host: self.host.check(folder)?,
            sinks: self.sinks.into_iter().map(|(name, sink)| (name, sink.check(folder))).collect(),
            plugin: check_plugins(self.plugin)?,
        };
        config.check_retrieval()?;
        Ok(config)
    }
}

/// Unlike a fixed id, a made-up one never meets a twin; the price is that a restart waits for the old leases to expire.
fn made_up_worker_id() -> String {
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    format!("{host}-{:08x}", fastrand::u32(..))
}

fn initial_position(text: Option<&str>) -> Result<InitialPosition, Problem> {
    match text {
        None | Some("trim-horizon") => Ok(InitialPosition::TrimHorizon),
        Some("latest") => Ok(InitialPosition::Latest),
        Some(time) => {
            let time = humantime::parse_rfc3339_weak(time).map_err(|_| {
                let help = r#"use "trim-horizon", "latest" or a time such as "2026-01-31T00:00:00Z""#;
                Problem::new("initial-position", format!("{time:?} is none of these: {help}"))
            })?;
            let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok(InitialPosition::AtTimestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)))
        }
    }
}

fn check_plugins(plugins: BTreeMap<String, PluginFile>) -> Result<BTreeMap<String, PluginConfig>, Problem> {
    for (name, file) in &plugins {
        PluginName::new(name).map_err(|error| Problem::new("plugin", error.to_string()))?;
        // The application names the lease table.
        if let Some(application) = &file.application {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            if !(3..=255).contains(&application.len()) || !application.chars().all(is_allowed) {
                let rule = "it names a DynamoDB table: use 3 to 255 letters, digits, '_', '.' or '-'";
                return Err(Problem::new("plugin.application", format!("{application:?}: {rule}")));
            }
        }
    }
    Ok(plugins
        .into_iter()
        .map(|(name, file)| {
            let PluginFile { application, retrieval, consumer, config } = file;
            (name, PluginConfig { application, retrieval, consumer, config })
        })
        .collect())
}

impl AwsFile {
    fn check(self) -> AwsConfig {
        AwsConfig {
            region: self.region,
            kinesis_endpoint: self.kinesis_endpoint.or_else(|| self.endpoint.clone()),
            dynamodb_endpoint: self.dynamodb_endpoint.or(self.endpoint),
            is_local: false,
        }
    }
}

impl ReadsFile {
    fn check(self) -> ReadLimits {
        let defaults = ReadLimits::default();
        ReadLimits {
            calls_per_second: self.calls_per_second.unwrap_or(defaults.calls_per_second),
            bytes_per_second: self.bytes_per_second.map_or(defaults.bytes_per_second, |size| size.as_u64() as f64),
            records_per_call: self.records_per_call.unwrap_or(defaults.records_per_call),
            idle_every: self.idle_every.unwrap_or(defaults.idle_every),
        }
    }
}

impl BatchFile {
    fn check(self) -> BatchLimits {
        let defaults = BatchLimits::default();
        BatchLimits {
            records: self.records.unwrap_or(defaults.records),
            bytes: self.bytes.map_or(defaults.bytes, to_usize),
            window: self.window.unwrap_or(defaults.window),
        }
    }
}

impl CheckpointFile {
    fn check(self) -> CheckpointPolicy {
        let defaults = CheckpointPolicy::default();
        CheckpointPolicy {
            records: self.records.unwrap_or(defaults.records),
            bytes: self.bytes.map_or(defaults.bytes, |size| size.as_u64()),
            age: self.age.unwrap_or(defaults.age),
        }
    }
}

impl RetryFile {
    fn check(self) -> Result<Backoff, Problem> {
        let base = self.base.unwrap_or(Duration::from_millis(100));
        let cap = self.cap.unwrap_or(Duration::from_secs(30).max(base));
        Backoff::new(base, cap).ok_or_else(|| Problem::new("retry.base", "must be above zero and at most retry.cap"))
    }
}

impl LimitsFile {
    fn check(self) -> Result<GuestLimits, Problem> {
        let defaults = GuestLimits::default();
        let limits = GuestLimits {
            memory_bytes: self.memory.map_or(defaults.memory_bytes, to_usize),
            process_deadline: self.process_deadline.unwrap_or(defaults.process_deadline),
            init_deadline: self.init_deadline.unwrap_or(defaults.init_deadline),
            emit_bytes: self.emit_bytes.map_or(defaults.emit_bytes, to_usize),
            log_lines_per_second: self.log_lines_per_second.unwrap_or(defaults.log_lines_per_second),
            ..defaults
        };
        if limits.memory_bytes < 1 << 20 {
            return Err(Problem::new("limits.memory", "must be at least 1MiB: less does not hold any guest"));
        }
        if limits.process_deadline.is_zero() || limits.init_deadline.is_zero() {
            return Err(Problem::new("limits.process-deadline", "deadlines must be above zero"));
        }
        Ok(limits)
    }
}

impl HostFile {
    fn check(self, folder: &Path) -> Result<HostConfig, Problem> {
        let buffer_bytes = self.buffer.map_or(256 << 20, to_usize);
        if buffer_bytes < 20 << 20 {
            return Err(Problem::new("host.buffer", "must be at least 20MiB: one GetRecords reply may hold 10"));
        }
        Ok(HostConfig {
            buffer_bytes,
            drain_limit: self.drain_limit.unwrap_or(Duration::from_secs(20)),
            admin: self.admin,
            is_fan_out_allowed: self.fan_out_allowed,
            cache: self.cache.map(|path| folder.join(path)),
            on_remove: self.on_remove,
            plugin_bytes_max: self.plugin_bytes_max.map_or(32 << 20, |size| size.as_u64()),
            rescan_every: self.rescan_every.unwrap_or(Duration::from_secs(5)),
        })
    }
}

impl SinkFile {
    fn check(self, folder: &Path) -> SinkConfig {
        match self {
            Self::Stdout { format } => SinkConfig::Stdout { format },
            Self::File { path, rotate_bytes, format } => SinkConfig::File {
                path: folder.join(path),
                rotate_bytes: rotate_bytes.map_or(1 << 30, |size| size.as_u64()),
                format,
            },
        }
    }
}

fn to_usize(size: ByteSize) -> usize {
    usize::try_from(size.as_u64()).unwrap_or(usize::MAX)
}
