//! A tracer in memory, whose clock moves by one nanosecond with each look at it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use shardmill_core::ports::Tracer;
use shardmill_core::stream::Record;
use shardmill_core::trace::{Links, Operation, Sampler, Span, SpanId, TraceContext};

/// The fake.
pub struct FakeTracer {
    sampler: Sampler,
    clock_ns: AtomicU64,
    ids: AtomicU64,
    searches: AtomicU64,
    spans: Mutex<Vec<Span>>,
}

impl FakeTracer {
    /// Takes the batches that `sampler` takes.
    pub fn new(sampler: Sampler) -> Self {
        Self {
            sampler,
            clock_ns: AtomicU64::new(1),
            ids: AtomicU64::new(1),
            searches: AtomicU64::new(0),
            spans: Mutex::default(),
        }
    }

    /// The spans that have ended so far.
    pub fn spans(&self) -> Vec<Span> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.clone()
    }

    /// Those of them that are calls of a plugin.
    pub fn calls(&self) -> Vec<Span> {
        self.of(|operation| matches!(operation, Operation::Process { .. }))
    }

    /// Those of them that are checkpoints.
    pub fn settled(&self) -> Vec<Span> {
        self.of(|operation| matches!(operation, Operation::Settle { .. }))
    }

    /// Those of them that are replies of Kinesis.
    pub fn received(&self) -> Vec<Span> {
        self.of(|operation| matches!(operation, Operation::Receive { .. }))
    }

    /// How often it was asked for the time.
    pub fn clock_reads(&self) -> u64 {
        self.clock_ns.load(Ordering::Relaxed) - 1
    }

    /// How often the data of a batch was searched.
    pub fn searches(&self) -> u64 {
        self.searches.load(Ordering::Relaxed)
    }

    fn of(&self, is_wanted: impl Fn(&Operation) -> bool) -> Vec<Span> {
        let mut spans = self.spans();
        spans.retain(|span| is_wanted(&span.operation));
        spans
    }
}

impl Tracer for FakeTracer {
    fn sampler(&self) -> Sampler {
        self.sampler
    }

    fn now_ns(&self) -> u64 {
        self.clock_ns.fetch_add(1, Ordering::Relaxed)
    }

    fn new_span(&self) -> SpanId {
        SpanId::of_random(self.ids.fetch_add(1, Ordering::Relaxed))
    }

    fn producers(&self, _: &[Record]) -> Links {
        self.searches.fetch_add(1, Ordering::Relaxed);
        Links::default()
    }

    fn follows(&self, _: &[Record]) -> bool {
        false
    }

    fn carrying(&self, _: &[u8], _: TraceContext) -> Option<Bytes> {
        None
    }

    fn ended(&self, span: Span) {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.push(span);
    }
}
