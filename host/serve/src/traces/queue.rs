//! Spans that wait to be sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shardmill_core::trace::Span;
use tokio::sync::mpsc;

use super::metrics::{Dropped, count_dropped};

/// Spans that wait at most, as in OpenTelemetry's own batch processor.
const SPANS_MAX: usize = 2048;
/// Bytes of them: one with 128 links whose producers send long states takes 70 KiB.
const BYTES_MAX: usize = 4 << 20;

/// Where spans are left.
pub(super) struct Queue {
    spans: mpsc::Sender<Span>,
    bytes: Arc<AtomicUsize>,
}

/// Where they are taken from.
pub(super) struct Waiting {
    spans: mpsc::Receiver<Span>,
    bytes: Arc<AtomicUsize>,
}

/// A queue that holds no more than that.
pub(super) fn bounded() -> (Queue, Waiting) {
    let (sender, receiver) = mpsc::channel(SPANS_MAX);
    let bytes = Arc::<AtomicUsize>::default();
    let queue = Queue {
        spans: sender,
        bytes: Arc::clone(&bytes),
    };
    let waiting = Waiting {
        spans: receiver,
        bytes,
    };
    (queue, waiting)
}

impl Queue {
    /// Takes a span, or counts it as dropped.
    pub(super) fn push(&self, span: Span) {
        let cost = span.cost_bytes();
        let held = self.bytes.fetch_add(cost, Ordering::Relaxed);
        if held + cost > BYTES_MAX || self.spans.try_send(span).is_err() {
            self.bytes.fetch_sub(cost, Ordering::Relaxed);
            count_dropped(Dropped::QueueFull, 1);
        }
    }
}

impl Waiting {
    /// Takes up to `most` spans, once there is one. None if none will come. Cancel-safe.
    pub(super) async fn take(&mut self, spans: &mut Vec<Span>, most: usize) -> usize {
        let before = spans.len();
        let taken = self.spans.recv_many(spans, most).await;
        self.give_back(&spans[before..]);
        taken
    }

    /// Takes up to `most` of the spans that are there.
    pub(super) fn take_ready(&mut self, spans: &mut Vec<Span>, most: usize) {
        let before = spans.len();
        while spans.len() - before < most
            && let Ok(span) = self.spans.try_recv()
        {
            spans.push(span);
        }
        self.give_back(&spans[before..]);
    }

    fn give_back(&self, taken: &[Span]) {
        let cost = taken.iter().map(Span::cost_bytes).sum();
        self.bytes.fetch_sub(cost, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use shardmill_core::plugin::PluginName;
    use shardmill_core::stream::{ShardId, StreamName};
    use shardmill_core::trace::{
        Links, Operation, SpanFailure, SpanId, Subject, TraceContext, TraceId,
    };

    use super::*;

    fn span(message: usize) -> Span {
        let context = TraceContext {
            trace: TraceId::new(1).unwrap(),
            span: SpanId::new(1).unwrap(),
            is_sampled: true,
        };
        Span {
            context,
            parent: None,
            subject: Arc::new(Subject {
                plugin: PluginName::new("orders").unwrap(),
                application: "orders".to_owned(),
                stream: StreamName::new("orders").unwrap(),
                shard: ShardId::new("shardId-0").unwrap(),
            }),
            started_ns: 1,
            ended_ns: 2,
            operation: Operation::Receive { records: 1 },
            links: Links::default(),
            failure: Some(SpanFailure {
                code: Cow::Borrowed("host"),
                message: "x".repeat(message),
            }),
        }
    }

    #[tokio::test]
    async fn the_queue_holds_so_many_spans_and_bytes_and_has_room_again_once_they_are_taken() {
        for (message, most) in [(0, SPANS_MAX), (BYTES_MAX / 8, 7)] {
            let (queue, mut waiting) = bounded();
            for round in 0..2 {
                for _ in 0..SPANS_MAX + 10 {
                    queue.push(span(message));
                }
                let mut spans = Vec::new();
                waiting.take_ready(&mut spans, usize::MAX);
                assert_eq!(spans.len(), most, "round {round}");
            }
            assert_eq!(waiting.bytes.load(Ordering::Relaxed), 0);
            queue.push(span(0));
            let mut spans = Vec::new();
            assert_eq!(waiting.take(&mut spans, 10).await, 1);
            drop(queue);
            assert_eq!(waiting.take(&mut spans, 10).await, 0, "none will come");
        }
    }
}
