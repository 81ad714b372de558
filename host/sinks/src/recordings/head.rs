//! The first line of a recording: what it is of, how it failed, and what the instance had.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::{GuestLimits, HttpHost, Permissions, PluginDigest, PluginName};
use shardmill_core::ports::{FailureKind, InstanceContext, RecordFailure, StartPosition};
use shardmill_core::recording::{FailureRecord, Recording};
use shardmill_core::stream::{Batch, Position, Record, SequenceNumber, ShardId, StreamName};

use super::error::{RECORDING_VERSION, RecordingError, damaged};

/// What a recording is of, without its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The application whose batch it is.
    pub application: String,
    /// The plugin, with its stream if it reads several.
    pub plugin: PluginName,
    /// The shard that the batch was read from.
    pub shard: ShardId,
    /// The version that failed.
    pub digest: PluginDigest,
    /// The first record of the batch that failed.
    pub first: Position,
    /// The last record of that batch.
    pub last: Position,
    /// How many records it has.
    pub records: usize,
    /// Which delivery of them it was, counted from 1.
    pub attempt: u32,
    /// How it failed: a short, stable word.
    pub code: String,
    /// How it failed, in words.
    pub message: String,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Head {
    #[serde(rename = "shardmill-recording")]
    version: u32,
    application: String,
    plugin: String,
    stream: String,
    shard: String,
    worker: String,
    epoch: u64,
    start: Start,
    digest: String,
    at_ms: u64,
    took_micros: u64,
    first: RecordAt,
    last: RecordAt,
    records: usize,
    attempt: u32,
    failure: Failed,
    missing_batches: u64,
    is_state_missing: bool,
    keeps_state: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state_base64: Option<String>,
    destinations: Vec<String>,
    config: BTreeMap<String, String>,
    secrets: Vec<String>,
    env: Vec<String>,
    http: Vec<String>,
    #[serde(with = "Limits")]
    limits: GuestLimits,
}

/// Only the version: what a later one has besides is not known.
#[derive(Deserialize)]
struct Mark {
    #[serde(rename = "shardmill-recording")]
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RecordAt {
    sequence_number: String,
    #[serde(default)]
    sub_sequence_number: u64,
}

/// Where the records of the instance began.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Start {
    Oldest,
    Time(u64),
    At(String),
    After(RecordAt),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Failed {
    code: String,
    message: String,
    records: Vec<FailedRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FailedRecord {
    index: u32,
    #[serde(with = "Kind")]
    kind: FailureKind,
    message: String,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "FailureKind", rename_all = "kebab-case")]
enum Kind {
    Retry,
    Reject,
    Misconfigured,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "GuestLimits", rename_all = "kebab-case", deny_unknown_fields)]
struct Limits {
    memory_bytes: usize,
    table_elements: usize,
    process_deadline: Duration,
    init_deadline: Duration,
    hostcall_bytes: usize,
    handles: usize,
    emit_bytes: usize,
    emit_count: usize,
    state_bytes: usize,
    log_line_bytes: usize,
    log_lines_per_second: u32,
    log_burst: u32,
}

impl Head {
    pub(super) fn of(recording: &Recording) -> Self {
        let context = &recording.context;
        let permissions = &context.permissions;
        let state = recording.state.as_ref();
        Self {
            version: RECORDING_VERSION,
            application: context.application.clone(),
            plugin: context.plugin.to_string(),
            stream: context.stream.to_string(),
            shard: context.shard.to_string(),
            worker: context.worker.as_str().to_owned(),
            epoch: context.epoch.0,
            digest: recording.digest.as_str().to_owned(),
            at_ms: recording.at_ms,
            took_micros: u64::try_from(recording.took.as_micros()).unwrap_or(u64::MAX),
            start: Start::of(&context.start),
            first: RecordAt::of(recording.batch.records.first()),
            last: RecordAt::of(recording.batch.records.last()),
            records: recording.batch.records.len(),
            attempt: recording.batch.attempt,
            failure: Failed::of(&recording.failure),
            missing_batches: recording.missing_batches,
            is_state_missing: recording.is_state_missing,
            keeps_state: permissions.state,
            state_base64: state.map(|state| STANDARD.encode(state)),
            destinations: context.destinations.clone(),
            config: context.config.iter().cloned().collect(),
            secrets: recording.secrets.clone(),
            env: permissions.env.iter().cloned().collect(),
            http: permissions.http.iter().map(HttpHost::to_string).collect(),
            limits: context.limits.unwrap_or_default(),
        }
    }

    pub(super) fn read(line: &[u8]) -> Result<Self, RecordingError> {
        let mark: Mark = serde_json::from_slice(line).map_err(|_| RecordingError::Other)?;
        if mark.version != RECORDING_VERSION {
            return Err(RecordingError::Version(mark.version));
        }
        serde_json::from_slice(line).map_err(damaged)
    }

    pub(super) fn stream(&self) -> Result<StreamName, RecordingError> {
        StreamName::new(&self.stream).map_err(damaged)
    }

    pub(super) fn shard(&self) -> Result<ShardId, RecordingError> {
        ShardId::new(&self.shard).map_err(damaged)
    }

    fn plugin(&self) -> Result<PluginName, RecordingError> {
        PluginName::of_label(&self.plugin).map_err(damaged)
    }

    fn digest(&self) -> Result<PluginDigest, RecordingError> {
        PluginDigest::from_hex(&self.digest)
            .ok_or_else(|| damaged("digest is not a SHA-256 in hex"))
    }

    pub(super) fn summary(self) -> Result<Summary, RecordingError> {
        Ok(Summary {
            plugin: self.plugin()?,
            shard: self.shard()?,
            digest: self.digest()?,
            first: self.first.position()?,
            last: self.last.position()?,
            application: self.application,
            records: self.records,
            attempt: self.attempt,
            code: self.failure.code,
            message: self.failure.message,
            at_ms: self.at_ms,
        })
    }

    pub(super) fn recording(
        self,
        run_up: Vec<Batch>,
        batch: Batch,
    ) -> Result<Recording, RecordingError> {
        let state = match &self.state_base64 {
            Some(base64) => Some(Bytes::from(STANDARD.decode(base64).map_err(damaged)?)),
            None => None,
        };
        let worker = WorkerId::new(&self.worker).ok_or_else(|| damaged("it names no worker"))?;
        Ok(Recording {
            digest: self.digest()?,
            context: Arc::new(InstanceContext {
                plugin: self.plugin()?,
                stream: self.stream()?,
                shard: self.shard()?,
                permissions: Arc::new(self.permissions()?),
                application: self.application,
                worker,
                epoch: LeaseCounter(self.epoch),
                start: self.start.position()?,
                destinations: self.destinations,
                config: self.config.into_iter().collect(),
                limits: Some(self.limits),
            }),
            secrets: self.secrets,
            state,
            is_state_missing: self.is_state_missing,
            run_up,
            missing_batches: self.missing_batches,
            batch,
            failure: self.failure.record(),
            took: Duration::from_micros(self.took_micros),
            at_ms: self.at_ms,
        })
    }

    /// Without secrets: only their names were written.
    fn permissions(&self) -> Result<Permissions, RecordingError> {
        let hosts = self.http.iter().map(|host| HttpHost::parse(host));
        Ok(Permissions {
            http: hosts.collect::<Result<_, _>>().map_err(damaged)?,
            env: self.env.iter().cloned().collect(),
            secrets: BTreeMap::new(),
            state: self.keeps_state,
        })
    }
}

impl Start {
    fn of(start: &StartPosition) -> Self {
        match start {
            StartPosition::Oldest => Self::Oldest,
            StartPosition::Time(ms) => Self::Time(*ms),
            StartPosition::At(number) => Self::At(number.to_string()),
            StartPosition::After(position) => Self::After(RecordAt {
                sequence_number: position.sequence.to_string(),
                sub_sequence_number: position.sub_sequence,
            }),
        }
    }

    fn position(&self) -> Result<StartPosition, RecordingError> {
        Ok(match self {
            Self::Oldest => StartPosition::Oldest,
            Self::Time(ms) => StartPosition::Time(*ms),
            Self::At(number) => StartPosition::At(SequenceNumber::parse(number).map_err(damaged)?),
            Self::After(place) => StartPosition::After(place.position()?),
        })
    }
}

impl RecordAt {
    fn of(record: Option<&Record>) -> Self {
        let position = record.map(|record| &record.position);
        Self {
            sequence_number: position.map_or_else(String::new, |at| at.sequence.to_string()),
            sub_sequence_number: position.map_or(0, |at| at.sub_sequence),
        }
    }

    fn position(&self) -> Result<Position, RecordingError> {
        Ok(Position {
            sequence: SequenceNumber::parse(&self.sequence_number).map_err(damaged)?,
            sub_sequence: self.sub_sequence_number,
        })
    }
}

impl Failed {
    fn of(failure: &FailureRecord) -> Self {
        let records = failure.records.iter().map(|record| FailedRecord {
            index: record.index,
            kind: record.kind,
            message: record.message.clone(),
        });
        Self {
            code: failure.code.clone(),
            message: failure.message.clone(),
            records: records.collect(),
        }
    }

    fn record(self) -> FailureRecord {
        let records = self.records.into_iter().map(|record| RecordFailure {
            index: record.index,
            kind: record.kind,
            message: record.message,
        });
        FailureRecord {
            code: self.code,
            message: self.message,
            records: records.collect(),
        }
    }
}
