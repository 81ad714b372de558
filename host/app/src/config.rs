//! The configuration file: parsed once, into values that cannot be wrong.

mod file;
mod leases;
mod retrieval;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::CheckpointPolicy;
use shardmill_core::plugin::GuestLimits;
use shardmill_core::stream::{InitialPosition, StreamName};
use shardmill_worker::{BatchLimits, LeaseOptions, ReadLimits};

use crate::sinks::LineFormat;

pub use retrieval::RetrievalMode;

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The stream that plugins read.
    pub stream: StreamName,
    /// The folder that plugins are dropped in.
    pub plugins: PathBuf,
    /// This host's id; made up from the host's name and a random part unless given.
    pub worker_id: WorkerId,
    /// Where shards start that were never checkpointed.
    pub initial_position: InitialPosition,
    /// How to reach AWS.
    pub aws: AwsConfig,
    /// Leases.
    pub leases: LeaseOptions,
    /// Reads.
    pub reads: ReadLimits,
    /// How records are read.
    pub retrieval: RetrievalMode,
    /// Whether the last host that leaves an application deregisters its fan-out consumer.
    pub deregister_on_exit: bool,
    /// Batches.
    pub batches: BatchLimits,
    /// Checkpoints.
    pub checkpoints: CheckpointPolicy,
    /// Waits between tries.
    pub retry: Backoff,
    /// What an instance may use.
    pub limits: GuestLimits,
    /// The process.
    pub host: HostConfig,
    /// Sinks by name.
    pub sinks: BTreeMap<String, SinkConfig>,
    /// What differs by plugin.
    pub plugin: BTreeMap<String, PluginConfig>,
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
    /// Whether these endpoints are an embedded stack, which takes any credentials.
    pub is_local: bool,
}

/// The process's own settings.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Bytes fetched and not yet settled, over all shards.
    pub buffer_bytes: usize,
    /// How long a planned exit may take.
    pub drain_limit: Duration,
    /// Where `/status` and `/metrics` are served, if anywhere.
    pub admin: Option<SocketAddr>,
    /// Whether enhanced fan-out, which costs money, may be used where `auto` leaves the choice.
    pub is_fan_out_allowed: bool,
    /// Where compiled plugins are kept, if anywhere.
    pub cache: Option<PathBuf>,
    /// What happens when a plugin's file is removed.
    pub on_remove: OnRemove,
    /// Largest plugin file, in bytes.
    pub plugin_bytes_max: u64,
    /// How often the folder is looked through, even if the system reports no change.
    pub rescan_every: Duration,
}

/// What a removed file means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnRemove {
    /// Nothing but a message: a deploy that deletes and copies must not move leases.
    #[default]
    Keep,
    /// Drain, checkpoint, release.
    Stop,
}

/// One sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkConfig {
    /// Standard output.
    Stdout {
        /// How lines look.
        format: LineFormat,
    },
    /// A file.
    File {
        /// Where.
        path: PathBuf,
        /// When it is rotated.
        rotate_bytes: u64,
        /// How lines look.
        format: LineFormat,
    },
}

/// What differs by plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PluginConfig {
    /// The application's name, and so the lease table's; the plugin's name unless given.
    pub application: Option<String>,
    /// How its records are read, if not as all.
    pub retrieval: Option<RetrievalMode>,
    /// The fan-out consumer, by name or ARN; named as the application unless given.
    pub consumer: Option<String>,
    /// Values the plugin reads through `wasi:config/store`.
    pub config: BTreeMap<String, String>,
}

/// A configuration that cannot be used. Its text names file, line and mend.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{path}: {message}")]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// Line, problem, mend.
        message: String,
    },
}

impl Config {
    /// Reads and checks `path`. Relative paths in it are relative to its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, folder).map_err(|message| ConfigError::Invalid { path: path.to_owned(), message })
    }

    /// Checks `text`. The error names line and mend.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let file: file::ConfigFile = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        file.check(folder).map_err(|problem| problem.with_line(text))
    }

    /// The defaults, reading `stream`, for commands that need no file.
    pub fn for_stream(stream: &StreamName) -> Result<Self, String> {
        Self::parse(&format!("stream = {:?}", stream.as_str()), Path::new("."))
    }
}
