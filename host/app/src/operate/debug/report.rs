//! What `debug` shows programs.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{FailureKind, Outcome};
use shardmill_core::recording::{Likeness, Recording};
use shardmill_core::stream::Emitted;

use super::rerun::{Call, Ran};

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report<'a> {
    recorded: Recorded<'a>,
    again: Again,
    #[serde(skip_serializing_if = "Option::is_none")]
    compared: Option<Again>,
}

/// What was recorded.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Recorded<'a> {
    application: &'a str,
    plugin: &'a str,
    stream: &'a str,
    shard: &'a str,
    worker: &'a str,
    digest: &'a str,
    at_ms: u64,
    first: String,
    last: String,
    records: usize,
    attempt: u32,
    code: &'a str,
    message: &'a str,
    state_bytes: Option<usize>,
    run_up_batches: usize,
    is_whole: bool,
}

/// What came of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Again {
    digest: String,
    call: &'static str,
    likeness: &'static str,
    /// How the call failed as a whole, if it did.
    error: Option<String>,
    failures: Vec<Failure>,
    output: Vec<Output>,
    log: Vec<String>,
    fuel: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Failure {
    index: u32,
    kind: &'static str,
    message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Output {
    destination: String,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

impl<'a> Report<'a> {
    pub(super) fn of(recording: &'a Recording, again: &Ran, other: Option<&Ran>) -> Self {
        Self {
            recorded: Recorded::of(recording),
            again: Again::of(recording, again),
            compared: other.map(|other| Again::of(recording, other)),
        }
    }

    /// Whether the batch fails as it did.
    pub(super) fn is_reproduced(&self) -> bool {
        self.again.likeness == Likeness::Same.code()
    }

    /// Whether another version was run, and fails on the batch.
    pub(super) fn is_other_failing(&self) -> bool {
        let other = self.compared.as_ref();
        other.is_some_and(|other| other.likeness != Likeness::DoesNotFail.code())
    }
}

impl<'a> Recorded<'a> {
    fn of(recording: &'a Recording) -> Self {
        let context = &recording.context;
        let records = &recording.batch.records;
        let place = |record: Option<&shardmill_core::stream::Record>| {
            record.map_or_else(String::new, |record| record.position.to_string())
        };
        Self {
            application: &context.application,
            plugin: context.plugin.as_str(),
            stream: context.stream.as_str(),
            shard: context.shard.as_str(),
            worker: context.worker.as_str(),
            digest: recording.digest.as_str(),
            at_ms: recording.at_ms,
            first: place(records.first()),
            last: place(records.last()),
            records: records.len(),
            attempt: recording.batch.attempt,
            code: &recording.failure.code,
            message: &recording.failure.message,
            state_bytes: recording.state.as_ref().map(bytes::Bytes::len),
            run_up_batches: recording.run_up.len(),
            is_whole: recording.is_whole(),
        }
    }
}

impl Again {
    fn of(recording: &Recording, ran: &Ran) -> Self {
        let failures = ran.result.as_ref().map(|outcome| &outcome.failures[..]);
        Self {
            digest: ran.digest.as_str().to_owned(),
            call: call_code(ran.call),
            likeness: likeness(recording, ran).code(),
            error: ran.result.as_ref().err().map(ProcessorError::to_string),
            failures: failures
                .unwrap_or_default()
                .iter()
                .map(|failure| Failure {
                    index: failure.index,
                    kind: kind_code(failure.kind),
                    message: failure.message.clone(),
                })
                .collect(),
            output: ran.emitted.iter().map(Output::of).collect(),
            log: ran.lines.clone(),
            fuel: ran.fuel,
        }
    }
}

impl Output {
    fn of(emitted: &Emitted) -> Self {
        let text = std::str::from_utf8(&emitted.data).ok();
        Self {
            destination: emitted.destination.clone(),
            key: emitted.key.clone(),
            data: text.map(str::to_owned),
            data_base64: text
                .is_none()
                .then(|| BASE64_STANDARD.encode(&emitted.data)),
        }
    }
}

/// How a run is like what was recorded. If the batch was not reached, it is not.
pub(super) fn likeness(recording: &Recording, ran: &Ran) -> Likeness {
    if ran.call != Call::Batch {
        return Likeness::FailsOtherwise;
    }
    let result: Result<&Outcome, &ProcessorError> = ran.result.as_ref();
    Likeness::of(&recording.failure, result)
}

pub(super) fn kind_code(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Retry => "retry",
        FailureKind::Reject => "reject",
        FailureKind::Misconfigured => "misconfigured",
    }
}

fn call_code(call: Call) -> &'static str {
    match call {
        Call::Start => "start",
        Call::RunUp(_) => "run-up",
        Call::Batch => "batch",
    }
}
