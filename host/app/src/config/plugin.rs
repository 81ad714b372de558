//! What differs by plugin: the section `[plugin.NAME]`, and the manifest `NAME.toml` beside `NAME.wasm`, in one schema.
//!
//! A new setting is a field of [`PluginFile`], a field of [`PluginConfig`], and a line in [`PluginFile::check`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use bytesize::ByteSize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};
use shardmill_core::backoff::Backoff;
use shardmill_core::pipeline::{CheckpointPolicy, FailurePolicy, Order};
use shardmill_core::plugin::{GuestLimits, PluginName};
use shardmill_core::stream::{InitialPosition, StreamRef};
use shardmill_worker::{BatchLimits, Retrieval};

use super::Config;
use super::failure::FailureFile;
use super::file::to_usize;
use super::limits::LimitsFile;
use super::problem::Problem;
use super::retrieval::{OwnRetrieval, RetrievalMode};

/// Streams of one plugin. Each is a worker with two tables of its own.
const STREAMS_MAX: usize = 32;
/// Longest application name: a DynamoDB table's name has 255 characters at most, and `-coordinator` is put behind it.
const APPLICATION_MAX: usize = 243;

/// One plugin's settings, all of them, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Whether its state is kept with each checkpoint.
    pub keeps_state: bool,
    /// Values the plugin reads through `wasi:config/store`.
    pub config: BTreeMap<String, String>,
}

/// One stream of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConfig {
    /// Which.
    pub stream: StreamRef,
    /// What its leases and checkpoints are kept under: the lease table's name.
    pub application: String,
    /// What the plugin is called where it serves this stream, in metrics and on the status page.
    pub label: PluginName,
    /// Where shards start that were never checkpointed.
    pub initial_position: InitialPosition,
    /// How its records are read.
    pub retrieval: Retrieval,
}

/// As written, in either place. Keys are laid over each other before this is read, so what is absent is absent in both.
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
    grants: GrantsFile,
    #[serde(default)]
    config: BTreeMap<String, String>,
}

/// What a plugin is given beyond its records.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct GrantsFile {
    #[serde(default)]
    state: bool,
}

/// An entry of `streams`: a name or an ARN, or one with settings of its own.
#[derive(Debug)]
struct StreamFile {
    stream: String,
    initial_position: Option<String>,
}

/// An entry of `streams` with settings of its own.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct StreamTable {
    stream: String,
    initial_position: Option<String>,
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
                let help = r#"use "trim-horizon", "latest" or a time such as "2026-01-31T00:00:00Z""#;
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
    /// Fills what is absent from the host's general settings. `streams` stays empty if nothing names one.
    pub(super) fn check(self, name: &PluginName, general: &Config) -> Result<PluginConfig, Problem> {
        let application = self.application.clone().unwrap_or_else(|| name.as_str().to_owned());
        check_application("application", &application)?;
        let streams = self.check_streams(name, &application, general)?;
        let batches = self.batch.check(general.batches)?;
        if batches.bytes > general.host.buffer_bytes / 2 {
            let message = "must be at most half of host.buffer, or a batch would never fill";
            return Err(Problem::new("batch.bytes", message));
        }
        // A policy is one thought: a plugin's own stands in place of the general one, and is not laid over it.
        let failure = self.failure.map(|own| own.check(&general.sinks).map_err(|problem| problem.under("failure")));
        let failure = failure.transpose()?.unwrap_or_else(|| general.failure.clone());
        if self.grants.state && failure.order == Order::Key {
            let message = "cannot be kept with failure.order = \"key\": later records would be counted before earlier ones \
                           that wait, so set failure.order = \"shard\"";
            return Err(Problem::new("grants.state", message));
        }
        let limits = self.limits.over(general.limits).map_err(|problem| problem.under("limits"))?;
        if limits.memory_bytes > general.host.instances_memory_bytes {
            let message = "must be at most host.instances-memory, which all instances of the host share";
            return Err(Problem::new("limits.memory", message));
        }
        Ok(PluginConfig {
            streams,
            batches,
            checkpoints: self.checkpoint.check(general.checkpoints),
            retry: self.retry.check(general.retry)?,
            failure,
            keeps_state: self.grants.state,
            limits,
            config: self.config,
        })
    }

    /// Refuses what the plugin's author may not decide alone, where the operator's `section` says nothing of it.
    pub(super) fn refuse_beyond_manifest(
        &self,
        section: &toml::Table,
        manifest: &toml::Table,
        general: &Config,
    ) -> Result<(), Problem> {
        if !section.contains_key("retrieval") {
            self.refuse_to_spend(general)?;
        }
        let table = |of: &toml::Table| of.get("limits").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        let (mut asked, granted) = (table(manifest), table(section));
        asked.retain(|key, _| !granted.contains_key(key));
        // The manifest was read as this before.
        let asked: LimitsFile = asked.try_into().unwrap_or_default();
        asked.refuse_beyond(&general.ceilings, &general.limits).map_err(|problem| problem.under("limits"))
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

    /// The stream under `stream` has the application's own table, as it always had; each one under `streams` has a table
    /// of its own, so that adding one changes nothing for the others.
    fn check_streams(
        &self,
        name: &PluginName,
        application: &str,
        general: &Config,
    ) -> Result<Vec<StreamConfig>, Problem> {
        if self.streams.len() > STREAMS_MAX {
            return Err(Problem::new("streams", format!("must be at most {STREAMS_MAX}: use another plugin for more")));
        }
        let own_position = match &self.initial_position {
            Some(text) => initial_position(Some(text))?,
            None => general.initial_position,
        };
        let single = match &self.stream {
            Some(text) => Some(stream(text)?),
            None if self.streams.is_empty() => general.stream.clone(),
            None => None,
        };
        let retrieval = OwnRetrieval { mode: self.retrieval, consumer: self.consumer.as_deref() };
        let is_only = self.streams.len() + usize::from(single.is_some()) == 1;
        let mut streams = Vec::new();
        if let Some(stream) = single {
            let retrieval = retrieval.check(application, is_only, general)?;
            let (application, label) = (application.to_owned(), name.clone());
            streams.push(StreamConfig { stream, application, label, initial_position: own_position, retrieval });
        }
        for entry in &self.streams {
            let stream = StreamRef::parse(&entry.stream).map_err(|error| Problem::new("streams", error.to_string()))?;
            let suffix = suffix_of(&stream);
            let application = format!("{application}.{suffix}");
            check_application("streams", &application)?;
            let initial_position = match &entry.initial_position {
                Some(text) => initial_position(Some(text)).map_err(|problem| problem.under("streams"))?,
                None => own_position,
            };
            let retrieval = retrieval.check(&application, is_only, general)?;
            let label = name.on_stream(&suffix);
            streams.push(StreamConfig { stream, application, label, initial_position, retrieval });
        }
        let mut seen = BTreeSet::new();
        match streams.iter().find(|one| !seen.insert(&one.stream)) {
            Some(twice) => Err(Problem::new("streams", format!("{} is named twice; name it once", twice.stream))),
            None => Ok(streams),
        }
    }
}

/// What tells a stream's leases from those of the application's others. Depends on nothing but how the stream itself is
/// written, so that it never moves.
fn suffix_of(stream: &StreamRef) -> String {
    match stream.account() {
        Some(account) => format!("{account}.{}", stream.name()),
        None => stream.name().to_string(),
    }
}

fn check_application(key: &'static str, application: &str) -> Result<(), Problem> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if (3..=APPLICATION_MAX).contains(&application.len()) && application.chars().all(is_allowed) {
        return Ok(());
    }
    let rule = format!("it names a DynamoDB table: use 3 to {APPLICATION_MAX} letters, digits, '_', '.' or '-'");
    Err(Problem::new(key, format!("{application:?}: {rule}")))
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

// === impl StreamFile ===

impl<'de> Deserialize<'de> for StreamFile {
    /// By hand, since the error of an untagged enum says neither what was wrong nor what would be right.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = StreamFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a stream's name or ARN, or { stream = "...", initial-position = "..." }"#)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<StreamFile, E> {
                Ok(StreamFile { stream: text.to_owned(), initial_position: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StreamFile, A::Error> {
                let StreamTable { stream, initial_position } =
                    StreamTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(StreamFile { stream, initial_position })
            }
        }

        deserializer.deserialize_any(Entry)
    }
}
