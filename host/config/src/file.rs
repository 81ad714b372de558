//! The file as written: every key, every default, every check.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::CheckpointPolicy;
use shardmill_core::plugin::{GuestLimits, PluginName};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_wasm::IntegrityRules;
use shardmill_worker::BatchLimits;

use super::aws::AwsFile;
use super::compile::CompileFile;
use super::delivery::{BatchFile, CheckpointFile, RetryFile};
use super::failure::FailureFile;
use super::grants::CeilingsFile;
use super::host::HostFile;
use super::http::HttpRequestsFile;
use super::integrity::IntegrityFile;
use super::leases::LeasesFile;
use super::limits::{HostLimitsFile, default_ceilings};
use super::plugin::PluginFile;
use super::problem::{At, Problem, Under};
use super::reads::ReadsFile;
use super::retrieval::refuse_shared_consumers;
use super::rollout::RolloutFile;
use super::secrets::{SecretFile, check_secrets};
use super::settings::{Applications, Config, shared_applications};
use super::sinks::{SinkFile, check_sinks};
use super::streams;

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

fn default_plugins() -> PathBuf {
    "plugins".into()
}

// === impl ConfigFile ===

impl ConfigFile {
    /// `sections` is the same file's `[plugin]`, as it stands there.
    pub(super) fn check(
        mut self,
        folder: &Path,
        sections: BTreeMap<String, toml::Table>,
    ) -> Result<Config, Problem> {
        let plugins = std::mem::take(&mut self.plugin);
        let mut config = self.check_general(folder, sections)?;
        config.applications = check_plugins(plugins, &config)?;
        Ok(config)
    }

    fn check_general(
        self,
        folder: &Path,
        sections: BTreeMap<String, toml::Table>,
    ) -> Result<Config, Problem> {
        let worker_id = self.worker_id.unwrap_or_else(made_up_worker_id);
        let sinks = check_sinks(self.sinks, folder)?;
        let limits = self.limits.check(GuestLimits::default()).under("limits")?;
        let ceilings = self.ceilings;
        Ok(Config {
            stream: self.stream.as_deref().map(streams::stream).transpose()?,
            plugins: folder.join(self.plugins),
            worker_id: usable_worker_id(&worker_id).at("worker-id")?,
            initial_position: streams::initial_position(self.initial_position.as_deref())?,
            aws: self.aws.check().under("aws")?,
            leases: self.leases.check()?,
            retrieval: self.reads.retrieval,
            deregister_on_exit: self.reads.deregister_on_exit,
            reads: self.reads.check()?,
            batches: self.batch.check(BatchLimits::default())?,
            checkpoints: self.checkpoint.check(CheckpointPolicy::default()),
            retry: self.retry.check(Backoff::standard())?,
            grant_ceilings: ceilings.check_grants().under("ceilings")?,
            name_ceilings: ceilings.names.check(&sinks).under("ceilings")?,
            ceilings: ceilings.limits.over(default_ceilings()).under("ceilings")?,
            compile: self.compile.check().under("compile")?,
            http: self.http.check().under("http")?,
            secrets: check_secrets(self.secrets, folder)?,
            host: self.host.check(folder, &limits)?,
            limits,
            integrity: self
                .integrity
                .check(IntegrityRules::default())
                .under("integrity")?,
            rollout: self
                .rollout
                .check(RolloutPolicy::default())
                .under("rollout")?,
            failure: self.failure.check(&sinks).under("failure")?,
            sinks,
            plugin: sections,
            environment: Vec::new(),
            applications: Applications::default(),
        })
    }
}

/// Checks the sections of plugins against the general settings, and against each other. Returns the
/// applications that they name.
fn check_plugins(
    files: BTreeMap<String, PluginFile>,
    general: &Config,
) -> Result<Applications, Problem> {
    let (mut by_section, mut by_name) = (BTreeMap::new(), BTreeMap::new());
    let mut applications = Applications::default();
    for (name, file) in files {
        let section = format!("plugin.{name}");
        let name = PluginName::new(&name).at(&section)?;
        let base = file.application_of(&name).to_owned();
        let plugin = file.check(&name, general).under(&section)?;
        applications.add(&name, &base, &plugin);
        by_name.insert(name.to_string(), plugin.clone());
        by_section.insert(section, plugin);
    }
    refuse_shared_consumers(&by_section)?;
    if let Some(shared) = shared_applications(&by_name).pop() {
        let key = format!("plugin.{}.application", shared.plugin);
        return Err(Problem::new(key, shared.told));
    }
    Ok(applications)
}

/// In rows, logs and tables; a KCL's ids are host names and random parts.
const WORKER_ID_BYTES_MAX: usize = 128;

/// The id, if it can stand in a row, a log line and a table.
fn usable_worker_id(id: &str) -> Result<WorkerId, String> {
    let example = "such as \"host-1\", or leave it out to have one generated";
    if let Some(variable) = id.strip_prefix("env:") {
        return Err(format!(
            "is taken as it stands here, and {id:?} would be every host's: leave it out and set \
                the variable SHARDMILL_WORKER_ID to what {variable} holds"
        ));
    }
    if id.len() > WORKER_ID_BYTES_MAX {
        return Err(format!(
            "is {} bytes long, at most are {WORKER_ID_BYTES_MAX}: write a shorter one, {example}",
            id.len()
        ));
    }
    if id
        .chars()
        .any(|character| character.is_control() || character.is_whitespace())
    {
        return Err(format!(
            "contains white space or a control character: write one word, {example}"
        ));
    }
    WorkerId::new(id).ok_or_else(|| format!("must not be empty: write one, {example}"))
}

/// Unlike a fixed id, a made-up one never meets a twin; the price is that a restart waits for the
/// old leases to expire.
fn made_up_worker_id() -> String {
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    format!("{host}-{:08x}", fastrand::u32(..))
}
