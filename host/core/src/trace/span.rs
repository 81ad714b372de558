//! What is said of a span once it has ended.

use std::borrow::Cow;
use std::sync::Arc;

use super::{SpanId, TraceContext};
use crate::plugin::PluginName;
use crate::stream::{Position, ShardId, StreamName};

/// Links of one span; OpenTelemetry's own limit. Further ones are counted.
const LINKS_MAX: usize = 128;

/// Whose work is traced: the same for all batches of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The plugin, as it is called on this stream.
    pub plugin: PluginName,
    /// The name that its leases and checkpoints are kept under.
    pub application: String,
    /// The stream that is read.
    pub stream: StreamName,
    /// The shard of it.
    pub shard: ShardId,
}

/// The trace that a batch belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchTrace {
    /// The span of its call, which is the parent of what follows from it.
    pub context: TraceContext,
    /// Whose batch it is.
    pub subject: Arc<Subject>,
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its own ids, as others name it.
    pub context: TraceContext,
    /// The span above it, in the same trace.
    pub parent: Option<SpanId>,
    /// Whose work it is.
    pub subject: Arc<Subject>,
    /// When it began, in nanoseconds since the Unix epoch.
    pub started_ns: u64,
    /// When it ended, by the same clock.
    pub ended_ns: u64,
    /// What was done, and with how much.
    pub operation: Operation,
    /// The spans in other traces that the records come from.
    pub links: Links,
    /// How it failed, if it did.
    pub failure: Option<SpanFailure>,
}

/// What a span is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Kinesis returned or pushed the reply that holds the first record of the batch.
    Receive {
        /// Records of the reply, or of the part of it that was handed on at once.
        records: usize,
    },
    /// The plugin was called with the batch.
    Process {
        /// Records of the batch.
        records: usize,
        /// 1 for the first delivery.
        attempt: u32,
        /// The first record.
        first: Position,
        /// The last record.
        last: Position,
        /// The version that was called, by its digest.
        digest: String,
    },
    /// What the plugin emitted was stored in one sink.
    Send {
        /// The sink's name.
        sink: String,
        /// Pieces of output.
        pieces: usize,
        /// Whether the target learns of this span.
        is_carried: bool,
    },
    /// A checkpoint was written that covers the batch.
    Settle {
        /// What is written.
        checkpoint: String,
    },
}

/// Why a span failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanFailure {
    /// One of a few words.
    pub code: Cow<'static, str>,
    /// The reason, for people to read.
    pub message: String,
}

/// The spans that the records of a batch come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// At most 128, none of them twice.
    pub links: Vec<Link>,
    /// Records whose spans found no place.
    pub dropped: u32,
}

/// The span that a record comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// What the record carries.
    pub context: TraceContext,
    /// Its `tracestate`, if it has one; passed on unread.
    pub state: Option<String>,
}

impl Span {
    /// What it costs to keep, in bytes.
    pub fn cost_bytes(&self) -> usize {
        let state = |link: &Link| link.state.as_ref().map_or(0, String::len);
        let links = self.links.links.iter();
        let links: usize = links.map(|link| size_of::<Link>() + state(link)).sum();
        let message = self
            .failure
            .as_ref()
            .map_or(0, |failure| failure.message.len());
        let own = match &self.operation {
            Operation::Receive { .. } => 0,
            Operation::Process { digest, .. } => digest.len(),
            Operation::Send { sink, .. } => sink.len(),
            Operation::Settle { checkpoint } => checkpoint.len(),
        };
        size_of::<Self>() + links + message + own
    }
}

impl Links {
    /// Adds the span that one more record comes from. It may be the same as that of another record.
    pub fn add(&mut self, link: Link) {
        if self.links.iter().any(|known| known.context == link.context) {
            return;
        }
        if self.links.len() < LINKS_MAX {
            self.links.push(link);
        } else {
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceId;

    fn link(span: u64) -> Link {
        let context = TraceContext {
            trace: TraceId::new(1).unwrap(),
            span: SpanId::new(span).unwrap(),
            is_sampled: true,
        };
        Link {
            context,
            state: None,
        }
    }

    #[test]
    fn a_span_has_so_many_links_and_counts_the_others() {
        let mut links = Links::default();
        for span in 1..=LINKS_MAX as u64 + 5 {
            links.add(link(span));
            links.add(link(1));
        }
        assert_eq!((links.links.len(), links.dropped), (LINKS_MAX, 5));
    }
}
