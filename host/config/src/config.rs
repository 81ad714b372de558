//! A whole configuration, checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shardmill_aws::TableOptions;
use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::{CheckpointPolicy, FailurePolicy};
use shardmill_core::plugin::{GuestLimits, PluginName};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::{InitialPosition, StreamName, StreamRef};
use shardmill_sinks::SinkOptions;
use shardmill_wasm::{CompileLimits, Integrity, IntegrityRules};
use shardmill_worker::{BatchLimits, LeaseOptions, ReadLimits};

use super::cache::{CacheSetting, of_commands, of_system};
use super::ceilings::Ceilings;
use super::retrieval::{RetrievalDefaults, RetrievalMode};
use super::sections::Sections;
use super::settings::{
    AwsConfig, ConsoleConfig, EmfConfig, HostConfig, HttpConfig, PullConfig, RecordingsConfig,
    ScalingConfig, SecretConfig, SourceConfig, TracesConfig,
};
use super::written::Written;

/// Every setting of a host, checked; those of single plugins are laid over it by
/// [`Config::of_plugin`].
#[derive(Debug, Clone)]
pub struct Config {
    /// The stream of plugins that name none.
    pub stream: Option<StreamRef>,
    /// The folder that plugins are dropped in, by people or by this host.
    pub plugins: PathBuf,
    /// Where this host pulls versions from that it drops there; one for each plugin at most.
    pub sources: Vec<SourceConfig>,
    /// The section `[pull]`: how it does that.
    pub pull: PullConfig,
    /// This host's id. Unless the file sets it, it is the host's name and a random part.
    pub worker_id: WorkerId,
    /// Whether the configuration names that id, so that a restart keeps it.
    pub(crate) has_worker_id: bool,
    /// Where shards without a checkpoint start.
    pub initial_position: InitialPosition,
    /// The section `[aws]`: region and endpoints of the one AWS account that this host uses.
    pub aws: AwsConfig,
    /// The section `[leases]`: how long a lease lasts, and how often it is renewed and looked at.
    pub leases: LeaseOptions,
    /// The section `[tables]`: how hosts make the tables that are missing.
    pub tables: TableOptions,
    /// The section `[reads]`: how much is fetched, and how often.
    pub reads: ReadLimits,
    /// How records are read, unless a plugin has its own setting.
    pub(crate) retrieval: RetrievalDefaults,
    /// The section `[batch]`, for plugins that set none of it.
    pub batches: BatchLimits,
    /// The section `[checkpoint]`, for plugins that set none of it.
    pub checkpoints: CheckpointPolicy,
    /// How long to wait between attempts, for plugins that do not set it.
    pub retry: Backoff,
    /// What happens to records that fail, unless a plugin has its own policy.
    pub(crate) failure: FailurePolicy,
    /// What an instance may use.
    pub limits: GuestLimits,
    /// What a manifest may ask for.
    pub(crate) ceilings: Ceilings,
    /// What compiling one plugin may cost.
    pub compile: CompileLimits,
    /// The section `[http]`: limits on the requests that plugins make.
    pub http: HttpConfig,
    /// Secrets by name; without their values.
    pub(crate) secrets: BTreeMap<String, SecretConfig>,
    /// How new versions of plugins are tried.
    pub(crate) rollout: RolloutPolicy,
    /// Which components are loaded at all.
    pub integrity: IntegrityRules,
    /// The section `[host]`: what all plugins of the process share.
    pub host: HostConfig,
    /// The section `[recordings]`: the batches that failed, kept to be run again.
    pub recordings: RecordingsConfig,
    /// The section `[traces]`: whether batches are traced, and where the traces go.
    pub traces: TracesConfig,
    /// The section `[scaling]`: how many hosts are wanted; `None` if nobody asks.
    pub scaling: Option<ScalingConfig>,
    /// The section `[console]`: who may see and change what in the console.
    pub console: ConsoleConfig,
    /// The section `[emf]`: where the KCL's metrics go, for CloudWatch; `None` for nowhere.
    pub emf: Option<EmfConfig>,
    /// The sections `[sinks.NAME]` by name; the sink `stdout` needs none.
    pub sinks: BTreeMap<String, SinkOptions>,
    /// Names of the environment variables that set something here.
    pub environment: Vec<String>,
    /// The sections `[plugin.NAME]`.
    pub(crate) sections: Sections,
    /// What was set, to find out later what has changed.
    pub(crate) written: Written,
}

/// What a command sets for a plugin in place of what its section and its manifest say.
#[derive(Debug, Clone)]
pub struct SectionOverrides {
    /// Replaces `batch.window`, wherever that is set.
    pub batch_window: Duration,
    /// `batch.records`; `None` leaves it as it is.
    pub batch_records: Option<usize>,
    /// Replaces `checkpoint.age`, wherever that is set.
    pub checkpoint_age: Duration,
    /// The section `[failure]`; `None` leaves it as it is.
    pub failure: Option<FailurePolicy>,
}

impl Config {
    /// Which components a host with this configuration loads.
    pub fn integrity(&self) -> Integrity {
        Integrity::new(self.integrity.clone(), self.sections.integrity.clone())
    }

    /// Drops all rules: every component is loaded.
    pub fn trust_every_component(&mut self) {
        self.integrity = IntegrityRules::default();
        self.sections.integrity.clear();
    }

    /// Where a host whose configuration was read from `file` keeps what outlives it: the folder in
    /// `host.cache`, or else the usual one of the service manager or the user. Creates nothing.
    ///
    /// # Errors
    /// There is no such folder; the text says why.
    pub fn cache_of_host(&self, file: &Path) -> Result<PathBuf, String> {
        match &self.host.cache {
            CacheSetting::Unset => of_system(file, &self.plugins, |name| std::env::var_os(name)),
            said => said.folder().map(Path::to_owned).map_err(str::to_owned),
        }
    }

    /// Where commands that are no host keep the code that they compile, unless the configuration
    /// names a folder. Creates nothing.
    ///
    /// # Errors
    /// There is no such folder; the text says why.
    pub fn cache_of_commands() -> Result<PathBuf, String> {
        of_commands(|name| std::env::var_os(name))
    }

    /// Makes `plugin` read `stream`, unless its section names a stream.
    pub fn read_by_default(&mut self, plugin: &PluginName, stream: &StreamName) {
        let section = self
            .sections
            .by_plugin
            .entry(plugin.to_string())
            .or_default();
        section.stream.get_or_insert_with(|| stream.to_string());
    }

    /// Makes `plugin` read only `stream`, by polling. Overrides its section and its manifest.
    pub fn read_only(&mut self, plugin: &PluginName, stream: &StreamName) {
        let section = self
            .sections
            .by_plugin
            .entry(plugin.to_string())
            .or_default();
        section.streams = None;
        section.stream = Some(stream.to_string());
        section.retrieval = Some(RetrievalMode::Polling);
    }

    /// Sets these in the section of `plugin`. Overrides the section and the manifest.
    pub fn override_section(&mut self, plugin: &PluginName, overrides: SectionOverrides) {
        let section = self
            .sections
            .by_plugin
            .entry(plugin.to_string())
            .or_default();
        section.batch.window = Some(overrides.batch_window);
        section.checkpoint.age = Some(overrides.checkpoint_age);
        if let Some(records) = overrides.batch_records {
            section.batch.records = Some(records);
        }
        if let Some(policy) = overrides.failure {
            section.failure = Some(policy.into());
        }
    }
}
