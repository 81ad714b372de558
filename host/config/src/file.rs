//! The file as written: every key, every default, every check.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::CheckpointPolicy;
use shardmill_core::plugin::{GuestLimits, PluginName};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::StreamName;
use shardmill_wasm::IntegrityRules;
use shardmill_worker::BatchLimits;

use super::aws::AwsFile;
use super::compile::CompileFile;
use super::config::Config;
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
use super::settings::{Applications, shared_applications};
use super::sinks::{SinkFile, check_sinks};
use super::streams;

/// The folder of plugins, unless the file names another.
const DEFAULT_PLUGINS: &str = "plugins";

/// As written. What is absent is as by default.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ConfigFile {
    stream: Option<String>,
    plugins: Option<PathBuf>,
    worker_id: Option<String>,
    initial_position: Option<String>,
    aws: AwsFile,
    leases: LeasesFile,
    reads: ReadsFile,
    batch: BatchFile,
    checkpoint: CheckpointFile,
    retry: RetryFile,
    failure: FailureFile,
    limits: HostLimitsFile,
    ceilings: CeilingsFile,
    http: HttpRequestsFile,
    secrets: BTreeMap<String, SecretFile>,
    compile: CompileFile,
    rollout: RolloutFile,
    integrity: IntegrityFile,
    host: HostFile,
    sinks: BTreeMap<String, SinkFile>,
    plugin: BTreeMap<String, PluginFile>,
}

// === impl ConfigFile ===

impl ConfigFile {
    /// A file that says nothing but which stream to read.
    pub(super) fn reading(stream: &StreamName) -> Self {
        Self {
            stream: Some(stream.to_string()),
            ..Self::default()
        }
    }

    /// Relative paths are relative to `folder`.
    pub(super) fn check(mut self, folder: &Path) -> Result<Config, Problem> {
        let sections = std::mem::take(&mut self.plugin);
        let mut config = self.check_general(folder)?;
        check_sections(&sections, &mut config)?;
        config.sections = sections;
        Ok(config)
    }

    fn check_general(self, folder: &Path) -> Result<Config, Problem> {
        let worker_id = self.worker_id.unwrap_or_else(made_up_worker_id);
        let sinks = check_sinks(self.sinks, folder)?;
        let limits = self.limits.check(GuestLimits::default()).under("limits")?;
        let ceilings = self.ceilings;
        Ok(Config {
            stream: self.stream.as_deref().map(streams::stream).transpose()?,
            plugins: folder.join(self.plugins.unwrap_or_else(|| DEFAULT_PLUGINS.into())),
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
            permission_ceilings: ceilings.check_permissions().under("ceilings")?,
            name_ceilings: ceilings.names.check(&sinks).under("ceilings")?,
            ceilings: ceilings.limits.over(default_ceilings()).under("ceilings")?,
            compile: self.compile.check().under("compile")?,
            http: self.http.check().under("http")?,
            secrets: check_secrets(self.secrets, folder)?,
            host: self.host.check(folder, &limits)?,
            limits,
            integrity: self
                .integrity
                .check(&IntegrityRules::default())
                .under("integrity")?,
            rollout: self
                .rollout
                .check(RolloutPolicy::default())
                .under("rollout")?,
            failure: self.failure.check(&sinks).under("failure")?,
            sinks,
            environment: Vec::new(),
            sections: BTreeMap::new(),
            integrity_of_plugins: BTreeMap::new(),
            applications: Applications::default(),
        })
    }
}

/// Checks the sections of plugins against the general settings, and against each other. `config`
/// takes over what they say of applications and components.
fn check_sections(
    sections: &BTreeMap<String, PluginFile>,
    config: &mut Config,
) -> Result<(), Problem> {
    let mut by_key = BTreeMap::new();
    let mut by_name = BTreeMap::new();
    for (name, file) in sections {
        let key = format!("plugin.{name}");
        let name = PluginName::new(name).at(&key)?;
        let plugin = config.check_plugin(&name, file.clone()).under(&key)?;
        if let Some(own) = &file.integrity {
            let rules = own
                .check(&config.integrity)
                .under("integrity")
                .under(&key)?;
            config.integrity_of_plugins.insert(name.to_string(), rules);
        }
        config
            .applications
            .add(&name, file.application_of(&name), &plugin);
        by_name.insert(name.to_string(), plugin.clone());
        by_key.insert(key, plugin);
    }
    refuse_shared_consumers(&by_key)?;
    if let Some(shared) = shared_applications(&by_name).pop() {
        let key = format!("plugin.{}.application", shared.plugin);
        return Err(Problem::new(key, shared.told));
    }
    Ok(())
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
