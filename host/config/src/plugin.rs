//! What differs by plugin: the section `[plugin.NAME]`, and the manifest `NAME.toml` beside
//! `NAME.wasm`, in one schema.
//!
//! A new key of one of its sections is a field of that section's type and a line in its
//! `laid_over`. A new key outside of them is a field and a line in `laid_over` here, and a field of
//! `PluginConfig` that `of_plugin.rs` fills.

use std::collections::BTreeMap;

use serde::Deserialize;
use shardmill_core::plugin::PluginName;

use super::delivery::{BatchFile, CheckpointFile, RetryFile};
use super::failure::FailureFile;
use super::filter::FilterFile;
use super::grants::GrantsFile;
use super::integrity::IntegrityFile;
use super::limits::LimitsFile;
use super::retrieval::{OwnRetrieval, RetrievalMode};
use super::rollout::RolloutFile;
use super::section;
use super::shadow::ShadowFile;
use super::standalone::StandaloneFile;
use super::streams::{OwnStreams, StreamFile};
use super::tick::TickFile;

/// As written, in either place. What is absent is not set there.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct PluginFile {
    pub(super) stream: Option<String>,
    pub(super) streams: Option<Vec<StreamFile>>,
    pub(super) application: Option<String>,
    pub(super) multi_stream_table: Option<bool>,
    initial_position: Option<String>,
    pub(super) retrieval: Option<RetrievalMode>,
    pub(super) consumer: Option<String>,
    pub(super) sinks: Option<Vec<String>>,
    pub(super) world: Option<String>,
    pub(super) parallelism: Option<u32>,
    #[serde(deserialize_with = "section::optional")]
    pub(super) filter: Option<FilterFile>,
    #[serde(deserialize_with = "section::one")]
    pub(super) batch: BatchFile,
    #[serde(deserialize_with = "section::one")]
    pub(super) checkpoint: CheckpointFile,
    #[serde(deserialize_with = "section::one")]
    pub(super) tick: TickFile,
    #[serde(deserialize_with = "section::one")]
    pub(super) retry: RetryFile,
    #[serde(deserialize_with = "section::optional")]
    pub(super) failure: Option<FailureFile>,
    pub(super) limits: LimitsFile,
    #[serde(deserialize_with = "section::one")]
    pub(super) grants: GrantsFile,
    #[serde(deserialize_with = "section::one")]
    pub(super) rollout: RolloutFile,
    #[serde(deserialize_with = "section::one")]
    pub(super) shadow: ShadowFile,
    #[serde(deserialize_with = "section::optional")]
    pub(super) standalone: Option<StandaloneFile>,
    #[serde(deserialize_with = "section::optional")]
    pub(super) integrity: Option<IntegrityFile>,
    pub(super) config: BTreeMap<String, String>,
}

// === impl PluginFile ===

impl PluginFile {
    /// These keys, and those of `under` that are not set here. A place that names its own `stream`
    /// or `streams` wants neither of the other's: streams that were not meant to be read would be
    /// read from their start.
    pub(super) fn laid_over(self, under: Self) -> Self {
        let (stream, streams) = if self.names_streams() {
            (self.stream, self.streams)
        } else {
            (under.stream, under.streams)
        };
        let mut config = under.config;
        config.extend(self.config);
        Self {
            stream,
            streams,
            application: self.application.or(under.application),
            multi_stream_table: self.multi_stream_table.or(under.multi_stream_table),
            initial_position: self.initial_position.or(under.initial_position),
            retrieval: self.retrieval.or(under.retrieval),
            consumer: self.consumer.or(under.consumer),
            sinks: self.sinks.or(under.sinks),
            world: self.world.or(under.world),
            parallelism: self.parallelism.or(under.parallelism),
            filter: self.filter.or(under.filter),
            batch: self.batch.laid_over(under.batch),
            checkpoint: self.checkpoint.laid_over(under.checkpoint),
            tick: self.tick.laid_over(under.tick),
            retry: self.retry.laid_over(under.retry),
            failure: match (self.failure, under.failure) {
                (Some(own), Some(under)) => Some(own.laid_over(under)),
                (own, under) => own.or(under),
            },
            limits: self.limits.laid_over(&under.limits),
            grants: self.grants.laid_over(under.grants),
            rollout: self.rollout.laid_over(under.rollout),
            shadow: self.shadow.laid_over(under.shadow),
            standalone: self.standalone.or(under.standalone),
            integrity: self.integrity.or(under.integrity),
            config,
        }
    }

    pub(super) fn names_streams(&self) -> bool {
        self.stream.is_some() || self.streams.is_some()
    }

    /// The application that it names, or the plugin's own name.
    pub(super) fn application_of<'a>(&'a self, name: &'a PluginName) -> &'a str {
        self.application.as_deref().unwrap_or(name.as_str())
    }

    /// The streams that it names, and how it reads them.
    pub(super) fn own_streams(&self) -> OwnStreams<'_> {
        OwnStreams {
            stream: self.stream.as_deref(),
            streams: self.streams.as_deref().unwrap_or_default(),
            initial_position: self.initial_position.as_deref(),
            are_in_one_table: self.multi_stream_table.unwrap_or(false),
            retrieval: OwnRetrieval {
                mode: self.retrieval,
                consumer: self.consumer.as_deref(),
            },
        }
    }
}
