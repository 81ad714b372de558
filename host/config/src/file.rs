//! The file as written: every key, every default, every check.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use shardmill_core::backoff::Backoff;
use shardmill_core::lease::WorkerId;
use shardmill_core::pipeline::CheckpointPolicy;
use shardmill_core::plugin::GuestLimits;
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::StreamName;
use shardmill_wasm::IntegrityRules;
use shardmill_worker::BatchLimits;

use super::aws::AwsFile;
use super::ceilings::CeilingsFile;
use super::compile::CompileFile;
use super::config::Config;
use super::console::ConsoleFile;
use super::delivery::{BatchFile, CheckpointFile, RetryFile};
use super::emf::EmfFile;
use super::failure::FailureFile;
use super::host::HostFile;
use super::http::HttpRequestsFile;
use super::integrity::IntegrityFile;
use super::leases::LeasesFile;
use super::limits::HostLimitsFile;
use super::plugin::PluginFile;
use super::problem::{At, Problem};
use super::pull::{Named, PluginsFile, PullFile};
use super::reads::ReadsFile;
use super::recordings::RecordingsFile;
use super::rollout::RolloutFile;
use super::scaling::{self, ScalingFile};
use super::secrets::{SecretFile, check_secrets};
use super::section;
use super::sections::Sections;
use super::sinks::{SinkFile, check_sinks};
use super::streams;
use super::tables::TablesFile;
use super::traces::TracesFile;
use super::written::Written;

/// As written. What is absent is as by default.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ConfigFile {
    stream: Option<String>,
    plugins: PluginsFile,
    worker_id: Option<String>,
    initial_position: Option<String>,
    #[serde(deserialize_with = "section::one")]
    aws: AwsFile,
    #[serde(deserialize_with = "section::one")]
    leases: LeasesFile,
    #[serde(deserialize_with = "section::one")]
    tables: TablesFile,
    #[serde(deserialize_with = "section::one")]
    reads: ReadsFile,
    #[serde(deserialize_with = "section::one")]
    batch: BatchFile,
    #[serde(deserialize_with = "section::one")]
    checkpoint: CheckpointFile,
    #[serde(deserialize_with = "section::one")]
    retry: RetryFile,
    #[serde(deserialize_with = "section::one")]
    failure: FailureFile,
    limits: HostLimitsFile,
    ceilings: CeilingsFile,
    #[serde(deserialize_with = "section::one")]
    http: HttpRequestsFile,
    #[serde(deserialize_with = "section::by_name")]
    secrets: BTreeMap<String, SecretFile>,
    #[serde(deserialize_with = "section::one")]
    compile: CompileFile,
    #[serde(deserialize_with = "section::one")]
    rollout: RolloutFile,
    #[serde(deserialize_with = "section::one")]
    integrity: IntegrityFile,
    #[serde(deserialize_with = "section::one")]
    host: HostFile,
    #[serde(deserialize_with = "section::one")]
    pull: PullFile,
    #[serde(deserialize_with = "section::one")]
    recordings: RecordingsFile,
    #[serde(deserialize_with = "section::optional")]
    scaling: Option<ScalingFile>,
    #[serde(deserialize_with = "section::one")]
    console: ConsoleFile,
    #[serde(deserialize_with = "section::one")]
    emf: EmfFile,
    #[serde(deserialize_with = "section::one")]
    traces: TracesFile,
    #[serde(deserialize_with = "section::by_name")]
    sinks: BTreeMap<String, SinkFile>,
    #[serde(deserialize_with = "section::by_name")]
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
        let of_plugins = std::mem::take(&mut self.plugin);
        let mut config = self.check_general(folder)?;
        config.sections = config.check_sections(of_plugins)?;
        Ok(config)
    }

    /// One line for each section: it knows its own keys, and names the one that is wrong.
    fn check_general(self, folder: &Path) -> Result<Config, Problem> {
        let has_worker_id = self.worker_id.is_some();
        let sinks = check_sinks(self.sinks, folder)?;
        let limits = self.limits.check(GuestLimits::default())?;
        let compile = self.compile.check()?;
        let console = self.console.check(folder, &self.host)?;
        let aws = self.aws.check()?;
        let tables = self.tables.check(aws.region_of_tables())?;
        let retrieval = self.reads.retrieval(&self.host);
        let host = self.host.check(folder, &limits, &compile)?;
        let pull = self.pull.check(folder)?;
        let Named {
            folder: plugins,
            sources,
        } = self.plugins.check(folder, &pull, host.plugins_max)?;
        Ok(Config {
            stream: streams::general(self.stream.as_deref())?,
            plugins,
            sources,
            pull,
            worker_id: worker_id(self.worker_id)?,
            has_worker_id,
            initial_position: streams::initial_position(self.initial_position.as_deref())?,
            aws,
            leases: self.leases.check()?,
            tables,
            retrieval,
            reads: self.reads.check()?,
            batches: self.batch.check(BatchLimits::default())?,
            checkpoints: self.checkpoint.check(CheckpointPolicy::default()),
            retry: self.retry.check(Backoff::standard())?,
            ceilings: self.ceilings.check(&sinks)?,
            compile,
            http: self.http.check()?,
            secrets: check_secrets(self.secrets, folder)?,
            console,
            host,
            limits,
            recordings: self.recordings.check()?,
            emf: self.emf.check(folder, &sinks)?,
            traces: self.traces.check(folder)?,
            scaling: scaling::check(self.scaling)?,
            integrity: self.integrity.check(&IntegrityRules::default())?,
            rollout: self.rollout.check(RolloutPolicy::default())?,
            failure: self.failure.check(&sinks)?,
            sinks,
            environment: Vec::new(),
            sections: Sections::default(),
            written: Written::default(),
        })
    }
}

/// In rows, logs and tables; a KCL's ids are host names and random parts.
const WORKER_ID_BYTES_MAX: usize = 128;

/// The id that was set, or a made-up one.
fn worker_id(set: Option<String>) -> Result<WorkerId, Problem> {
    let id = set.unwrap_or_else(made_up_worker_id);
    usable_worker_id(&id).at("worker-id")
}

/// The id, if it is fit for a row, a log line and a table.
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
