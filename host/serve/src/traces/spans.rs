//! From a span that has ended to its message.

use shardmill_core::trace::{Link, Operation, Span, Subject, TraceContext};

use super::message::{KeyValue, LinkMessage, SpanKind, SpanMessage, Status, StatusCode};
use super::names;

/// Bits of `flags` above those of W3C: whether the context came from elsewhere is known
/// (`SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK`), and that it did
/// (`SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`).
const REMOTE_IS_KNOWN: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// What the conventions say of an operation.
struct Convention<'a> {
    /// What this system calls it.
    name: &'static str,
    /// One of the types that the conventions know.
    of_type: &'static str,
    kind: SpanKind,
    system: &'static str,
    destination: &'a str,
    messages: Option<usize>,
}

impl<'a> Convention<'a> {
    fn of(span: &'a Span) -> Self {
        let stream = span.subject.stream.as_str();
        let of_kinesis = |name, of_type, kind, messages| Self {
            name,
            of_type,
            kind,
            system: names::KINESIS,
            destination: stream,
            messages,
        };
        match &span.operation {
            Operation::Receive { records } => {
                of_kinesis("receive", "receive", SpanKind::Client, Some(*records))
            }
            Operation::Process { records, .. } => {
                of_kinesis("process", "process", SpanKind::Consumer, Some(*records))
            }
            Operation::Settle { .. } => of_kinesis("checkpoint", "settle", SpanKind::Client, None),
            Operation::Send {
                sink,
                pieces,
                is_carried,
            } => Self {
                name: "send",
                of_type: "send",
                kind: if *is_carried {
                    SpanKind::Producer
                } else {
                    SpanKind::Client
                },
                system: names::SHARDMILL,
                destination: sink,
                messages: Some(*pieces),
            },
        }
    }

    fn is_of_kinesis(&self) -> bool {
        self.system == names::KINESIS
    }
}

/// The span's message.
pub(super) fn message_of(span: &Span) -> SpanMessage {
    let convention = Convention::of(span);
    SpanMessage {
        trace_id: span.context.trace.to_bytes().into(),
        span_id: span.context.span.to_bytes().into(),
        parent_span_id: span
            .parent
            .map(|parent| parent.to_bytes().into())
            .unwrap_or_default(),
        name: format!("{} {}", convention.name, convention.destination),
        kind: convention.kind.into(),
        start_time_unix_nano: span.started_ns,
        end_time_unix_nano: span.ended_ns,
        attributes: attributes(span, &convention),
        links: span.links.links.iter().map(link).collect(),
        dropped_links_count: span.links.dropped,
        status: span.failure.as_ref().map(|failure| Status {
            message: failure.message.clone(),
            code: StatusCode::Error.into(),
        }),
        flags: w3c_flags(span.context) | REMOTE_IS_KNOWN,
    }
}

fn attributes(span: &Span, convention: &Convention<'_>) -> Vec<KeyValue> {
    let mut all = attributes_by(convention, &span.subject);
    let messages = convention.messages;
    all.extend(messages.map(|count| KeyValue::number(names::MESSAGES, count)));
    let failure = span.failure.as_ref();
    all.extend(failure.map(|failure| KeyValue::text(names::ERROR, &*failure.code)));
    all.extend(attributes_of(&span.operation));
    all
}

/// What is called, and where.
fn attributes_by(convention: &Convention<'_>, subject: &Subject) -> Vec<KeyValue> {
    let mut all = vec![
        KeyValue::text(names::SYSTEM, convention.system),
        KeyValue::text(names::OPERATION_NAME, convention.name),
        KeyValue::text(names::OPERATION_TYPE, convention.of_type),
        KeyValue::text(names::DESTINATION, convention.destination),
        KeyValue::text(names::PLUGIN, subject.plugin.as_str()),
    ];
    if convention.is_of_kinesis() {
        all.extend([
            KeyValue::text(names::PARTITION, subject.shard.as_str()),
            KeyValue::text(names::GROUP, &*subject.application),
            KeyValue::text(names::KINESIS_STREAM, subject.stream.as_str()),
        ]);
    }
    all
}

fn attributes_of(operation: &Operation) -> Vec<KeyValue> {
    match operation {
        Operation::Receive { .. } | Operation::Send { .. } => Vec::new(),
        Operation::Process {
            attempt,
            first,
            last,
            digest,
            ..
        } => vec![
            KeyValue::number(names::ATTEMPT, *attempt as usize),
            KeyValue::text(names::FIRST, first.to_string()),
            KeyValue::text(names::LAST, last.to_string()),
            KeyValue::text(names::DIGEST, digest),
        ],
        Operation::Settle { checkpoint } => vec![KeyValue::text(names::CHECKPOINT, checkpoint)],
    }
}

fn link(link: &Link) -> LinkMessage {
    LinkMessage {
        trace_id: link.context.trace.to_bytes().into(),
        span_id: link.context.span.to_bytes().into(),
        trace_state: link.state.clone().unwrap_or_default(),
        flags: w3c_flags(link.context) | REMOTE_IS_KNOWN | IS_REMOTE,
    }
}

fn w3c_flags(context: TraceContext) -> u32 {
    context.is_sampled.into()
}
