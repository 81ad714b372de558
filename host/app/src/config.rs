//! The configuration file: parsed once, into values that cannot be wrong.

mod applications;
mod compile;
mod failure;
mod file;
mod folder;
mod grants;
mod http;
mod integrity;
mod leases;
mod limits;
mod manifest;
mod names;
mod plugin;
mod problem;
mod retrieval;
mod rollout;
mod secrets;
mod sinks;
mod streams;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shardmill_aws::PutTarget;
use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::{CheckpointPolicy, FailurePolicy};
use shardmill_core::plugin::{GuestLimits, PluginName, SecretSource};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::{InitialPosition, StreamName, StreamRef};
use shardmill_wasm::{CompileLimits, IntegrityRules};
use shardmill_worker::{BatchLimits, LeaseOptions, ReadLimits};

pub use folder::Checked;
pub use grants::GrantCeilings;
pub use http::HttpConfig;
pub(crate) use limits::told as limits_told;
pub use manifest::Manifest;
pub use names::NameCeilings;
pub use plugin::PluginConfig;
pub use retrieval::RetrievalMode;
pub use secrets::SecretConfig;
pub use streams::StreamConfig;

use self::applications::Applications;
use self::problem::with_help;
use crate::files;
use crate::sinks::{HttpSinkOptions, KinesisSinkOptions, LineFormat};

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The stream that plugins read which name none.
    pub stream: Option<StreamRef>,
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
    /// What is done about records that fail, unless a plugin has a policy of its own.
    pub failure: FailurePolicy,
    /// What an instance may use.
    pub limits: GuestLimits,
    /// The most that a manifest may ask for.
    pub ceilings: GuestLimits,
    /// What a manifest may be granted.
    pub grant_ceilings: GrantCeilings,
    /// Which streams, applications and sinks a manifest may name.
    pub name_ceilings: NameCeilings,
    /// What compiling one plugin may cost.
    pub compile: CompileLimits,
    /// Requests of plugins.
    pub http: HttpConfig,
    /// Secrets by name; without their values.
    pub secrets: BTreeMap<String, SecretConfig>,
    /// How new versions of plugins are tried.
    pub rollout: RolloutPolicy,
    /// Which components are loaded at all.
    pub integrity: IntegrityRules,
    /// The process.
    pub host: HostConfig,
    /// Sinks by name.
    pub sinks: BTreeMap<String, SinkConfig>,
    /// What differs by plugin, as it stands in the file; [`Config::of_plugin`] is what follows from it.
    pub plugin: BTreeMap<String, toml::Table>,
    /// What these sections name for their plugins, and for nobody else.
    applications: Applications,
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
    /// Whether enhanced fan-out, which costs money, may be used where `auto` leaves the choice.
    pub is_fan_out_allowed: bool,
    /// Where compiled plugins are kept, if anywhere.
    pub cache: Option<PathBuf>,
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
    /// A Kinesis stream.
    Kinesis {
        /// Which.
        target: PutTarget,
        /// Its region, if not the host's or the ARN's.
        region: Option<String>,
        /// Its address, if not the host's.
        endpoint: Option<String>,
        /// How it is written to.
        options: KinesisSinkOptions,
    },
    /// An HTTP endpoint.
    Http(HttpSinkOptions),
}

/// A configuration that cannot be used. Its text names file, line and mend.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no such file.
    #[error("there is no {path}: name another with --config, or make it; one line in it is enough, stream = \"NAME\"")]
    Missing {
        /// Which file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Settings of a plugin do not fit together, or ask for more than the host gives. The text says where.
    #[error("{message}")]
    Plugin {
        /// File and line where they are known, problem, mend.
        message: String,
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

/// Largest configuration. One of a hundred plugins has some tens of kilobytes.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// The sections by plugin, whatever they hold.
#[derive(serde::Deserialize)]
struct Sections {
    #[serde(default)]
    plugin: BTreeMap<String, toml::Table>,
}

impl Config {
    /// Reads and checks `path`. Relative paths in it are relative to its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = files::read_text(path, CONFIG_BYTES_MAX).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => ConfigError::Missing { path: path.to_owned() },
            _ => ConfigError::Read { path: path.to_owned(), source },
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, folder).map_err(|message| ConfigError::Invalid { path: path.to_owned(), message })
    }

    /// Checks `text`. The error names line and mend.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let file: file::ConfigFile = toml::from_str(text).map_err(|error| with_help(&error))?;
        let Sections { plugin } = toml::from_str(text).map_err(|error| with_help(&error))?;
        file.check(folder, plugin).map_err(|problem| problem.with_line(text))
    }

    /// The defaults, reading `stream`, for commands that need no file. They read no stream but captured or made-up ones, so
    /// that a manifest may name any.
    pub fn for_stream(stream: &StreamName) -> Result<Self, String> {
        let mut config = Self::parse(&format!("stream = {:?}", stream.as_str()), Path::new("."))?;
        config.name_ceilings.allow_any_stream();
        Ok(config)
    }

    /// All settings of a plugin: its section, over the manifest beside it, over the general settings, key by key.
    pub fn of_plugin(&self, name: &PluginName, manifest: Option<&Manifest>) -> Result<PluginConfig, String> {
        let settings = self.overlaid(name, manifest)?;
        if settings.streams.is_empty() {
            return Err(format!(
                "it names no stream: set `stream` in {name}.toml beside it, under [plugin.{name}], or for all plugins at \
                 the top of the configuration"
            ));
        }
        Ok(settings)
    }

    /// The settings of each plugin that is configured here or has a manifest in the folder of plugins. One that names no
    /// stream has none.
    pub fn settings_of_plugins(&self) -> Result<BTreeMap<String, PluginConfig>, String> {
        let files = std::fs::read_dir(&self.plugins).into_iter().flatten().flatten().map(|entry| entry.path());
        let manifests = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
        let stems = manifests.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
        let names: BTreeSet<String> = stems.chain(self.plugin.keys().cloned()).collect();
        let mut settings = BTreeMap::new();
        for name in names.iter().filter_map(|name| PluginName::new(name).ok()) {
            let manifest =
                Manifest::read(&Manifest::path_in(&self.plugins, &name)).map_err(|error| error.to_string())?;
            settings.insert(name.as_str().to_owned(), self.overlaid(&name, manifest.as_ref())?);
        }
        Ok(settings)
    }

    fn overlaid(&self, name: &PluginName, manifest: Option<&Manifest>) -> Result<PluginConfig, String> {
        let under = manifest.map_or_else(toml::Table::new, |manifest| manifest.table.clone());
        let section = self.plugin.get(name.as_str()).cloned().unwrap_or_default();
        let file: plugin::PluginFile =
            plugin::overlay(&section, under).try_into().map_err(|error: toml::de::Error| with_help(&error))?;
        // The operator's own word is held against the other sections when they are read.
        let base = (!section.contains_key("application")).then(|| file.application_of(name).to_owned());
        let allowed = match manifest {
            Some(manifest) => file.refuse_beyond_manifest(name, &section, &manifest.table, self),
            None => Ok(()),
        };
        let checked = allowed.and_then(|()| file.check(name, self)).and_then(|checked| {
            let of_streams = checked.streams.iter().map(|stream| stream.application.as_str());
            self.applications.refuse_anothers(name, base.as_deref().into_iter().chain(of_streams))?;
            Ok(checked)
        });
        let checked = checked.map_err(|problem| match manifest {
            Some(manifest) => match problem.line(&manifest.text) {
                Some(line) => format!("{}: line {line}: {problem}", manifest.path.display()),
                None => format!("{problem} ([plugin.{name}] over {})", manifest.path.display()),
            },
            None => problem.under(&format!("plugin.{name}")).to_string(),
        })?;
        // The operator's own word is not held to his ceiling.
        let is_said = section.contains_key("sinks");
        let of_all = self.name_ceilings.sinks.clone().filter(|_| !is_said);
        Ok(PluginConfig { sinks: checked.sinks.or(of_all), ..checked })
    }

    /// The streams that plugins name for themselves.
    pub fn streams_of_plugins(&self) -> BTreeSet<StreamRef> {
        self.stream_configs().into_iter().map(|one| one.stream).collect()
    }

    /// The stream whose leases are kept under `application`, if a section or a manifest says so.
    pub fn stream_of_application(&self, application: &str) -> Option<StreamConfig> {
        self.stream_configs().into_iter().find(|one| one.application == application)
    }

    /// Of all plugins that have a section here, or a manifest that lies there now. What cannot be read is left to the start
    /// of its plugin to tell.
    fn stream_configs(&self) -> Vec<StreamConfig> {
        let entries = std::fs::read_dir(&self.plugins).into_iter().flatten().flatten();
        let beside = entries.filter_map(|entry| {
            let name = entry.file_name();
            Some(name.to_str()?.strip_suffix(".toml")?.to_owned())
        });
        let names: BTreeSet<String> = self.plugin.keys().cloned().chain(beside).collect();
        let streams = names.iter().filter_map(|name| {
            let name = PluginName::new(name).ok()?;
            let manifest = Manifest::read(&Manifest::path_in(&self.plugins, &name)).ok()?;
            Some(self.of_plugin(&name, manifest.as_ref()).ok()?.streams)
        });
        streams.flatten().collect()
    }
}
