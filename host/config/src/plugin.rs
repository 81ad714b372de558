//! What differs by plugin: the section `[plugin.NAME]`, and the manifest `NAME.toml` beside
//! `NAME.wasm`, in one schema.
//!
//! A new setting is a field of [`PluginFile`], a field of [`PluginConfig`], and a line in
//! [`PluginFile::check`].

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use shardmill_core::plugin::{GuestLimits, HOST_PREFIX, PluginName, SECRET_PREFIX, WantedContract};
use shardmill_sinks::STDOUT;
use shardmill_worker::BatchLimits;

use super::delivery::{BatchFile, CheckpointFile, RetryFile};
use super::failure::FailureFile;
use super::grants::GrantsFile;
use super::integrity::IntegrityFile;
use super::limits::LimitsFile;
use super::names::Named;
use super::problem::{At, Problem, Under};
use super::retrieval::OwnRetrieval;
use super::rollout::RolloutFile;
use super::settings::{Config, PluginConfig, RetrievalMode};
use super::streams::{OwnStreams, StreamFile, check_own_application};

/// As written, in either place. Keys are laid over each other before this is read, so what is
/// absent is absent in both.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct PluginFile {
    stream: Option<String>,
    #[serde(default)]
    streams: Vec<StreamFile>,
    application: Option<String>,
    initial_position: Option<String>,
    retrieval: Option<RetrievalMode>,
    consumer: Option<String>,
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

/// Lays `over` on `under`, key by key, sections within. A place that names its own `stream` or
/// `streams` wants neither of the other's: streams that were not meant to be read would be read
/// from their start.
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

// === impl PluginFile ===

impl PluginFile {
    /// What it says, or the plugin's own name.
    pub(super) fn application_of<'a>(&'a self, name: &'a PluginName) -> &'a str {
        self.application.as_deref().unwrap_or(name.as_str())
    }

    /// Fills what is absent from the host's general settings. `streams` stays empty if nothing
    /// names one.
    pub(super) fn check(
        self,
        name: &PluginName,
        general: &Config,
    ) -> Result<PluginConfig, Problem> {
        let application = self.application_of(name).to_owned();
        check_own_application("application", &application)?;
        let streams = self.own_streams().check(name, &application, general)?;
        let integrity = self.integrity.clone();
        integrity
            .check(general.integrity.clone())
            .under("integrity")?;
        // A policy is one thought: a plugin's own stands in place of the general one, and is not
        // laid over it.
        let failure = match self.failure {
            Some(own) => own.check(&general.sinks).under("failure")?,
            None => general.failure.clone(),
        };
        check_names(&self.config).under("config")?;
        let sinks = self.sinks.map(|names| check_sinks(names, general));
        let world = self.world.as_deref().map(check_world);
        Ok(PluginConfig {
            sinks: sinks.transpose()?,
            world: world.transpose().at("world")?,
            permissions: self.grants.check(failure.order, general).under("grants")?,
            streams,
            batches: check_batches(self.batch, general)?,
            checkpoints: self.checkpoint.check(general.checkpoints),
            retry: self.retry.check(general.retry)?,
            failure,
            limits: check_limits(&self.limits, general).under("limits")?,
            rollout: self.rollout.check(general.rollout).under("rollout")?,
            config: self.config,
        })
    }

    fn own_streams(&self) -> OwnStreams<'_> {
        OwnStreams {
            stream: self.stream.as_deref(),
            streams: &self.streams,
            initial_position: self.initial_position.as_deref(),
            retrieval: OwnRetrieval {
                mode: self.retrieval,
                consumer: self.consumer.as_deref(),
            },
        }
    }

    /// Refuses what the plugin's author may not decide alone, where the operator's `section` says
    /// nothing of it.
    pub(super) fn refuse_beyond_manifest(
        &self,
        name: &PluginName,
        section: &toml::Table,
        manifest: &toml::Table,
        general: &Config,
    ) -> Result<(), Problem> {
        if manifest.contains_key("integrity") {
            let message = "is for the host to set: a manifest comes with the very component it \
                would vouch for; set it in the host's [integrity] or its section of the plugin";
            return Err(Problem::new("integrity", message));
        }
        if !section.contains_key("retrieval") {
            self.refuse_to_spend(general)?;
        }
        general.name_ceilings.refuse_beyond(
            &self.named(name, section, manifest),
            general.stream.as_ref(),
        )?;
        // The manifest was read as these before.
        let asked = |key| asked_by_manifest(key, section, manifest);
        let limits: LimitsFile = asked("limits").try_into().unwrap_or_default();
        limits
            .refuse_beyond(&general.ceilings, &general.limits)
            .under("limits")?;
        let grants: GrantsFile = asked("grants").try_into().unwrap_or_default();
        grants.refuse_beyond(name, general).under("grants")
    }

    /// What the manifest names that the section does not. Where the section names a stream, the
    /// manifest's are not read.
    fn named<'a>(
        &'a self,
        plugin: &'a PluginName,
        section: &toml::Table,
        manifest: &toml::Table,
    ) -> Named<'a> {
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

    /// A manifest comes with the plugin, and the bill goes to the host's operator: who has to have
    /// allowed it.
    fn refuse_to_spend(&self, general: &Config) -> Result<(), Problem> {
        let is_allowed =
            general.host.is_fan_out_allowed || general.retrieval == RetrievalMode::FanOut;
        if self.retrieval != Some(RetrievalMode::FanOut) || is_allowed {
            return Ok(());
        }
        let message = "a manifest alone may not spend money on fan-out: set host.fan-out-allowed \
            = true, or retrieval in the host's section of the plugin; with \"auto\" the plugin is \
            polled until then";
        Err(Problem::new("retrieval", message))
    }
}

/// What the manifest's section `key` says that the operator's section does not.
fn asked_by_manifest(key: &str, section: &toml::Table, manifest: &toml::Table) -> toml::Table {
    let table = |of: &toml::Table| {
        of.get(key)
            .and_then(toml::Value::as_table)
            .cloned()
            .unwrap_or_default()
    };
    let (mut asked, granted) = (table(manifest), table(section));
    asked.retain(|key, _| !granted.contains_key(key));
    asked
}

fn check_batches(file: BatchFile, general: &Config) -> Result<BatchLimits, Problem> {
    let batches = file.check(general.batches)?;
    if batches.bytes > general.host.buffer_bytes / 2 {
        let message = "must be at most half of host.buffer, or a batch would never fill";
        return Err(Problem::new("batch.bytes", message));
    }
    Ok(batches)
}

fn check_limits(file: &LimitsFile, general: &Config) -> Result<GuestLimits, Problem> {
    let limits = file.over(general.limits)?;
    if limits.memory_bytes > general.host.instances_memory_bytes {
        let message =
            "must be at most host.instances-memory, which all instances of the host share";
        return Err(Problem::new("memory", message));
    }
    Ok(limits)
}

/// Refuses names of a plugin's own settings under which it reads something else.
fn check_names(config: &BTreeMap<String, String>) -> Result<(), Problem> {
    for name in config.keys() {
        let message = if name.starts_with(SECRET_PREFIX) {
            "is where a plugin reads a secret: choose another name, or grant a secret"
        } else if name.starts_with(HOST_PREFIX) {
            "is where a plugin reads what the host sets: choose another name"
        } else {
            continue;
        };
        return Err(Problem::new(name, message));
    }
    Ok(())
}

fn check_world(text: &str) -> Result<WantedContract, String> {
    WantedContract::parse(text)
        .map_err(|error| format!("{error}; build against that, or run another host"))
}

fn check_sinks(names: Vec<String>, general: &Config) -> Result<BTreeSet<String>, Problem> {
    match names
        .iter()
        .find(|name| *name != STDOUT && !general.sinks.contains_key(*name))
    {
        Some(name) => {
            let message =
                format!("no sink is named {name:?}: add [sinks.{name}], or name an existing one");
            Err(Problem::new("sinks", message))
        }
        None => Ok(names.into_iter().collect()),
    }
}
