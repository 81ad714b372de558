//! What differs by plugin: the section `[plugin.NAME]`, and the manifest `NAME.toml` beside `NAME.wasm`, in one schema.
//!
//! A new setting is a field of [`PluginFile`], a field of [`PluginConfig`], and a line in [`PluginFile::check`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_core::backoff::Backoff;
use shardmill_core::pipeline::{CheckpointPolicy, FailurePolicy};
use shardmill_core::plugin::{
    GuestLimits, HOST_PREFIX, PluginGrants, PluginName, SECRET_PREFIX, WantedContract, tables_of,
};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::stream::{InitialPosition, StreamRef};
use shardmill_worker::BatchLimits;

use super::Config;
use super::failure::FailureFile;
use super::file::to_usize;
use super::grants::GrantsFile;
use super::integrity::IntegrityFile;
use super::limits::LimitsFile;
use super::names::Named;
use super::problem::Problem;
use super::retrieval::RetrievalMode;
use super::rollout::RolloutFile;
use super::streams::{StreamConfig, StreamFile, check_own_application};
use crate::sinks::STDOUT;

/// One plugin's settings, all of them, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginConfig {
    /// The streams it reads; one at least.
    pub streams: Vec<StreamConfig>,
    /// Batches.
    pub batches: BatchLimits,
    /// Checkpoints.
    pub checkpoints: CheckpointPolicy,
    /// Waits between tries.
    pub retry: Backoff,
    /// What is done about records that fail.
    pub failure: FailurePolicy,
    /// What an instance may use.
    pub limits: GuestLimits,
    /// How new versions are tried.
    pub rollout: RolloutPolicy,
    /// Values the plugin reads through `wasi:config/store`.
    pub config: BTreeMap<String, String>,
    /// The sinks that it may emit to; `None` is all of them.
    pub sinks: Option<BTreeSet<String>>,
    /// The version of the contract that its component must be built for.
    pub world: Option<WantedContract>,
    /// What it is given beyond computing.
    pub grants: PluginGrants,
}

/// As written, in either place. Keys are laid over each other before this is read, so what is absent is absent in both.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct PluginFile {
    pub(super) stream: Option<String>,
    #[serde(default)]
    pub(super) streams: Vec<StreamFile>,
    application: Option<String>,
    pub(super) initial_position: Option<String>,
    pub(super) retrieval: Option<RetrievalMode>,
    pub(super) consumer: Option<String>,
    sinks: Option<Vec<String>>,
    world: Option<String>,
    #[serde(default)]
    batch: BatchFile,
    #[serde(default)]
    checkpoint: CheckpointFile,
    #[serde(default)]
    retry: RetryFile,
    failure: Option<FailureFile>,
    #[serde(default)]
    limits: LimitsFile,
    #[serde(default)]
    pub(super) grants: GrantsFile,
    #[serde(default)]
    rollout: RolloutFile,
    #[serde(default)]
    integrity: IntegrityFile,
    #[serde(default)]
    config: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct BatchFile {
    records: Option<usize>,
    bytes: Option<ByteSize>,
    #[serde(default, with = "humantime_serde")]
    window: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct CheckpointFile {
    records: Option<u64>,
    bytes: Option<ByteSize>,
    #[serde(default, with = "humantime_serde")]
    age: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RetryFile {
    #[serde(default, with = "humantime_serde")]
    base: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    cap: Option<Duration>,
}

/// Lays `over` on `under`, key by key, sections within. A place that names its own `stream` or `streams` wants neither
/// of the other's: streams that were not meant to be read would be read from their start.
pub(super) fn overlay(over: &toml::Table, mut under: toml::Table) -> toml::Table {
    if over.contains_key("stream") || over.contains_key("streams") {
        under.remove("stream");
        under.remove("streams");
    }
    lay(over, &mut under);
    under
}

fn lay(over: &toml::Table, under: &mut toml::Table) {
    for (key, value) in over {
        match (value, under.get_mut(key)) {
            (toml::Value::Table(over), Some(toml::Value::Table(under))) => lay(over, under),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

/// `None` is the oldest record, the default.
pub(super) fn initial_position(text: Option<&str>) -> Result<InitialPosition, Problem> {
    match text {
        None | Some("trim-horizon") => Ok(InitialPosition::TrimHorizon),
        Some("latest") => Ok(InitialPosition::Latest),
        Some(time) => {
            let time = humantime::parse_rfc3339_weak(time).map_err(|_| {
                let help = r#"use "trim-horizon", "latest" or a time from 1970 on, such as "2026-01-31T00:00:00Z""#;
                Problem::new("initial-position", format!("{time:?} is none of these: {help}"))
            })?;
            let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok(InitialPosition::AtTimestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)))
        }
    }
}

pub(super) fn stream(text: &str) -> Result<StreamRef, Problem> {
    StreamRef::parse(text).map_err(|error| Problem::new("stream", error.to_string()))
}

// === impl PluginFile ===

impl PluginFile {
    /// What it says, or the plugin's own name.
    pub(super) fn application_of<'a>(&'a self, name: &'a PluginName) -> &'a str {
        self.application.as_deref().unwrap_or(name.as_str())
    }

    /// Fills what is absent from the host's general settings. `streams` stays empty if nothing names one.
    pub(super) fn check(self, name: &PluginName, general: &Config) -> Result<PluginConfig, Problem> {
        let application = self.application_of(name).to_owned();
        check_own_application("application", &application)?;
        let streams = self.check_streams(name, &application, general)?;
        let batches = self.batch.check(general.batches)?;
        if batches.bytes > general.host.buffer_bytes / 2 {
            let message = "must be at most half of host.buffer, or a batch would never fill";
            return Err(Problem::new("batch.bytes", message));
        }
        self.integrity.clone().check(general.integrity.clone()).map_err(|problem| problem.under("integrity"))?;
        // A policy is one thought: a plugin's own stands in place of the general one, and is not laid over it.
        let failure = self.failure.map(|own| own.check(&general.sinks).map_err(|problem| problem.under("failure")));
        let failure = failure.transpose()?.unwrap_or_else(|| general.failure.clone());
        if let Some(key) = self.config.keys().find(|key| key.starts_with(SECRET_PREFIX)) {
            let message = "is where a plugin reads a secret: name it otherwise, or grant a secret";
            return Err(Problem::new(format!("config.{key}"), message));
        }
        if let Some(key) = self.config.keys().find(|key| key.starts_with(HOST_PREFIX)) {
            let message = "is where a plugin reads what the host tells it: name it otherwise";
            return Err(Problem::new(format!("config.{key}"), message));
        }
        let limits = self.limits.over(general.limits).map_err(|problem| problem.under("limits"))?;
        if limits.memory_bytes > general.host.instances_memory_bytes {
            let message = "must be at most host.instances-memory, which all instances of the host share";
            return Err(Problem::new("limits.memory", message));
        }
        let world = self.world.as_deref().map(WantedContract::parse).transpose();
        Ok(PluginConfig {
            sinks: self.sinks.map(|names| check_sinks(names, general)).transpose()?,
            world: world
                .map_err(|error| Problem::new("world", format!("{error}; build against that, or run another host")))?,
            grants: self.grants.check(failure.order, general).map_err(|problem| problem.under("grants"))?,
            streams,
            batches,
            checkpoints: self.checkpoint.check(general.checkpoints),
            retry: self.retry.check(general.retry)?,
            failure,
            limits,
            rollout: self.rollout.check(general.rollout).map_err(|problem| problem.under("rollout"))?,
            config: self.config,
        })
    }

    /// Refuses what the plugin's author may not decide alone, where the operator's `section` says nothing of it.
    pub(super) fn refuse_beyond_manifest(
        &self,
        name: &PluginName,
        section: &toml::Table,
        manifest: &toml::Table,
        general: &Config,
    ) -> Result<(), Problem> {
        if manifest.contains_key("integrity") {
            let message = "is the host's to say: a manifest comes with the component that it would speak for; set it in \
                           the host's [integrity] or its section of the plugin";
            return Err(Problem::new("integrity", message));
        }
        if !section.contains_key("retrieval") {
            self.refuse_to_spend(general)?;
        }
        general.name_ceilings.refuse_beyond(&self.named(name, section, manifest), general)?;
        // The manifest was read as these before.
        let asked = |key| asked_by_manifest(key, section, manifest);
        let limits: LimitsFile = asked("limits").try_into().unwrap_or_default();
        limits.refuse_beyond(&general.ceilings, &general.limits).map_err(|problem| problem.under("limits"))?;
        let grants: GrantsFile = asked("grants").try_into().unwrap_or_default();
        grants.refuse_beyond(name, general).map_err(|problem| problem.under("grants"))
    }

    /// What the manifest names that the section does not. Where the section names a stream, the manifest's are not read.
    fn named<'a>(&'a self, plugin: &'a PluginName, section: &toml::Table, manifest: &toml::Table) -> Named<'a> {
        let mut named = Named::nothing(plugin);
        if !section.contains_key("application") {
            named.application = self.application.as_deref();
        }
        if !section.contains_key("consumer") {
            named.consumer = self.consumer.as_deref();
        }
        if !section.contains_key("stream") && !section.contains_key("streams") {
            named.stream = self.stream.as_deref();
            named.streams = self.streams.iter().map(StreamFile::named).collect();
        }
        if !section.contains_key("sinks") {
            named.sinks = self.sinks.as_deref().unwrap_or_default();
        }
        let failure = asked_by_manifest("failure", section, manifest);
        if failure.contains_key("dead-letter") {
            named.dead_letter = self.failure.as_ref().and_then(FailureFile::dead_letter);
        }
        named.has_failure = !failure.is_empty();
        named.has_rollout = !asked_by_manifest("rollout", section, manifest).is_empty();
        named
    }

    /// A manifest comes with the plugin, and the bill goes to the host's operator: who has to have allowed it.
    fn refuse_to_spend(&self, general: &Config) -> Result<(), Problem> {
        let is_allowed = general.host.is_fan_out_allowed || general.retrieval == RetrievalMode::FanOut;
        if self.retrieval != Some(RetrievalMode::FanOut) || is_allowed {
            return Ok(());
        }
        let message = "a manifest alone may not spend money on fan-out: set host.fan-out-allowed = true, or retrieval in \
                       the host's section of the plugin; with \"auto\" the plugin is polled until then";
        Err(Problem::new("retrieval", message))
    }
}

impl PluginConfig {
    /// An application of which the other plugin has a table too, if there is one.
    pub(crate) fn shares_a_table_with(&self, other: &Self) -> Option<&str> {
        let theirs: BTreeSet<String> = other.streams.iter().flat_map(|one| tables_of(&one.application)).collect();
        let shared =
            self.streams.iter().find(|one| tables_of(&one.application).iter().any(|table| theirs.contains(table)));
        shared.map(|one| one.application.as_str())
    }

    /// Refuses a version that was built for another contract than the settings want.
    pub(crate) fn refuse_other_contract(&self, exported: Option<&str>) -> Result<(), String> {
        match (&self.world, exported) {
            (Some(wanted), Some(exported)) if !wanted.is_met_by(exported) => Err(format!(
                "world is {wanted:?}, and the component is built for {exported:?} of the contract: build it for that \
                 version, or change world",
                wanted = wanted.to_string(),
            )),
            _ => Ok(()),
        }
    }
}

/// What the manifest's section `key` says that the operator's section does not.
fn asked_by_manifest(key: &str, section: &toml::Table, manifest: &toml::Table) -> toml::Table {
    let table = |of: &toml::Table| of.get(key).and_then(toml::Value::as_table).cloned().unwrap_or_default();
    let (mut asked, granted) = (table(manifest), table(section));
    asked.retain(|key, _| !granted.contains_key(key));
    asked
}

fn check_sinks(names: Vec<String>, general: &Config) -> Result<BTreeSet<String>, Problem> {
    match names.iter().find(|name| *name != STDOUT && !general.sinks.contains_key(*name)) {
        Some(name) => {
            let message = format!("no sink is named {name:?}: add [sinks.{name}], or name one that there is");
            Err(Problem::new("sinks", message))
        }
        None => Ok(names.into_iter().collect()),
    }
}

impl BatchFile {
    pub(super) fn check(self, defaults: BatchLimits) -> Result<BatchLimits, Problem> {
        /// A shard iterator lives for five minutes (AWS).
        const WINDOW_MAX: Duration = Duration::from_mins(5);
        let limits = BatchLimits {
            records: self.records.unwrap_or(defaults.records),
            bytes: self.bytes.map_or(defaults.bytes, to_usize),
            window: self.window.unwrap_or(defaults.window),
        };
        if limits.records == 0 {
            return Err(Problem::new("batch.records", "must be at least 1"));
        }
        if limits.bytes == 0 {
            return Err(Problem::new("batch.bytes", "must be above zero"));
        }
        if limits.window > WINDOW_MAX {
            return Err(Problem::new("batch.window", "must be at most 5m, as long as a shard iterator lives"));
        }
        Ok(limits)
    }
}

impl CheckpointFile {
    pub(super) fn check(self, defaults: CheckpointPolicy) -> CheckpointPolicy {
        CheckpointPolicy {
            records: self.records.unwrap_or(defaults.records),
            bytes: self.bytes.map_or(defaults.bytes, |size| size.as_u64()),
            age: self.age.unwrap_or(defaults.age),
        }
    }
}

impl RetryFile {
    pub(super) fn check(self, defaults: Backoff) -> Result<Backoff, Problem> {
        let base = self.base.unwrap_or(defaults.base());
        let cap = self.cap.unwrap_or(defaults.cap().max(base));
        Backoff::new(base, cap).ok_or_else(|| Problem::new("retry.base", "must be above zero and at most retry.cap"))
    }
}
