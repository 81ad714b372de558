//! The traces of a shard's batches: begins them, and reports each span once it has ended.
//!
//! One trace holds all attempts at a batch, its halves included. Without a tracer every function
//! here returns at once: no clock is read and nothing is allocated.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::lease::Checkpoint;
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::{Processed, Tracer};
use shardmill_core::stream::{Position, Record};
use shardmill_core::trace::{
    BatchTrace, Links, Operation, Sampler, Span, SpanFailure, SpanId, Subject, TraceContext,
    TraceId,
};

use super::context::ShardContext;
use super::receptions::Received;

/// Traced batches of a shard that wait for their checkpoint, or for another attempt: as many as a
/// busy shard delivers between two checkpoints if all are traced. Beyond that the oldest is
/// forgotten, and its trace has no end; 512 take some 100 KiB.
const OPEN_MAX: usize = 512;
/// Bytes of a message that are kept: a reason, not a report.
const MESSAGE_BYTES_MAX: usize = 1 << 10;
/// Records of a batch failed, but the call did not.
const RECORDS_FAILED: &str = "records_failed";
/// A call did not come back, and its lease is given up for it.
const HUNG: &str = "hung";

/// See the module's description.
pub(super) struct Traces {
    tracer: Option<Arc<dyn Tracer>>,
    subject: Arc<Subject>,
    open: VecDeque<Open>,
}

/// A traced batch that is not covered by a checkpoint yet.
struct Open {
    strand: usize,
    first: Position,
    last: Position,
    receive: Option<SpanId>,
    /// Its newest call.
    call: TraceContext,
}

/// A call of the plugin that is traced.
pub(super) struct TracedCall {
    context: TraceContext,
    parent: Option<SpanId>,
    started_ns: u64,
    links: Links,
    operation: Operation,
}

/// What is known of a batch only if it is traced.
pub(super) trait Batched {
    /// Which attempt this is, from 1.
    fn attempt(&self) -> u32;

    /// The version that is called.
    fn digest(&self) -> &PluginDigest;

    /// When the record at `first` came.
    fn received(&self, first: &Position) -> Option<Received>;
}

impl Open {
    /// Batches of a strand do not overlap, and what is tried again begins within the batch that it
    /// was in at first.
    fn covers(&self, strand: usize, first: &Position) -> bool {
        self.strand == strand && (&self.first..=&self.last).contains(&first)
    }

    fn is_settled_by(&self, checkpoint: &Checkpoint) -> bool {
        match checkpoint {
            Checkpoint::At(position) => self.last <= *position,
            Checkpoint::ShardEnd => true,
            Checkpoint::AtTimestamp
            | Checkpoint::Sought(_)
            | Checkpoint::TrimHorizon
            | Checkpoint::Latest => false,
        }
    }
}

/// `None` if there are no records.
fn process(records: &[Record], batch: &impl Batched) -> Option<Operation> {
    Some(Operation::Process {
        records: records.len(),
        attempt: batch.attempt(),
        first: records.first()?.position.clone(),
        last: records.last()?.position.clone(),
        digest: batch.digest().to_string(),
    })
}

impl TracedCall {
    /// The span of the call.
    pub(super) fn context(&self) -> TraceContext {
        self.context
    }
}

impl Traces {
    pub(super) fn of(context: &ShardContext) -> Self {
        let options = context.options();
        Self {
            tracer: context.ports().tracer.clone(),
            subject: Arc::new(Subject {
                plugin: options.plugin.clone(),
                application: options.application.clone(),
                stream: options.stream.clone(),
                shard: context.shard().clone(),
            }),
            open: VecDeque::new(),
        }
    }

    /// Begins the span of a call with `records`, if they are traced.
    pub(super) fn begin(
        &mut self,
        strand: usize,
        records: &[Record],
        batch: &impl Batched,
    ) -> Option<Box<TracedCall>> {
        let tracer = Arc::clone(self.tracer.as_ref()?);
        let first = &records.first()?.position;
        let last = &records.last()?.position;
        let (trace, receive) = match self.begun(strand, first) {
            Some(begun) => begun,
            None => self.begin_trace(&*tracer, records, batch)?,
        };
        let context = TraceContext {
            trace,
            span: tracer.new_span(),
            is_sampled: true,
        };
        self.remember(strand, first, last, receive, context);
        Some(Box::new(TracedCall {
            context,
            parent: receive,
            links: tracer.producers(records),
            operation: process(records, batch)?,
            started_ns: tracer.now_ns(),
        }))
    }

    /// The trace that an earlier attempt began, and its root, if it has one.
    fn begun(&self, strand: usize, first: &Position) -> Option<(TraceId, Option<SpanId>)> {
        let begun = self.open.iter().find(|open| open.covers(strand, first))?;
        Some((begun.call.trace, begun.receive))
    }

    /// The trace of a batch that is not traced yet, if it is to be, and its root, if it has one.
    fn begin_trace(
        &self,
        tracer: &dyn Tracer,
        records: &[Record],
        batch: &impl Batched,
    ) -> Option<(TraceId, Option<SpanId>)> {
        let first = &records.first()?.position;
        let trace = self.sampled(tracer, records, first)?;
        let received = batch.received(first);
        let receive = received.map(|came| self.report_receive(tracer, trace, came));
        Some((trace, receive))
    }

    /// The trace of a batch whose first record is at `first`, if it is to be traced.
    fn sampled(
        &self,
        tracer: &dyn Tracer,
        records: &[Record],
        first: &Position,
    ) -> Option<TraceId> {
        let Subject {
            application, shard, ..
        } = &*self.subject;
        let trace = TraceId::of_batch(application, shard, first);
        let sampler: Sampler = tracer.sampler();
        (sampler.takes(trace) || tracer.follows(records)).then_some(trace)
    }

    /// The root of a trace.
    fn report_receive(&self, tracer: &dyn Tracer, trace: TraceId, received: Received) -> SpanId {
        let context = TraceContext {
            trace,
            span: tracer.new_span(),
            is_sampled: true,
        };
        tracer.ended(Span {
            context,
            parent: None,
            subject: Arc::clone(&self.subject),
            started_ns: received.started_ns,
            ended_ns: received.ended_ns,
            operation: Operation::Receive {
                records: received.records,
            },
            links: Links::default(),
            failure: None,
        });
        context.span
    }

    fn remember(
        &mut self,
        strand: usize,
        first: &Position,
        last: &Position,
        receive: Option<SpanId>,
        call: TraceContext,
    ) {
        let known = self.open.iter_mut().find(|open| open.covers(strand, first));
        if let Some(open) = known {
            open.call = call;
            return;
        }
        if self.open.len() == OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back(Open {
            strand,
            first: first.clone(),
            last: last.clone(),
            receive,
            call,
        });
    }

    /// The call has ended. What its output belongs to.
    pub(super) fn called(
        &self,
        call: Option<Box<TracedCall>>,
        result: &Result<Processed, ProcessorError>,
        took: Duration,
    ) -> Option<BatchTrace> {
        let call = call?;
        let context = call.context;
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let ended_ns = call.started_ns.saturating_add(took);
        self.report_call(*call, ended_ns, failure_of(result));
        Some(BatchTrace {
            context,
            subject: Arc::clone(&self.subject),
        })
    }

    /// The call did not come back, and nothing is waited for any more.
    pub(super) fn hung(&self, call: Option<Box<TracedCall>>) {
        if let (Some(call), Some(tracer)) = (call, &self.tracer) {
            let failure = SpanFailure {
                code: Cow::Borrowed(HUNG),
                message: "the call did not come back".to_owned(),
            };
            self.report_call(*call, tracer.now_ns(), Some(failure));
        }
    }

    fn report_call(&self, call: TracedCall, ended_ns: u64, failure: Option<SpanFailure>) {
        let Some(tracer) = &self.tracer else { return };
        tracer.ended(Span {
            context: call.context,
            parent: call.parent,
            subject: Arc::clone(&self.subject),
            started_ns: call.started_ns,
            ended_ns,
            operation: call.operation,
            links: call.links,
            failure,
        });
    }

    /// When a checkpoint begins to be written, if a batch is traced that it may cover.
    pub(super) fn settling(&self) -> Option<u64> {
        let tracer = self.tracer.as_ref()?;
        (!self.open.is_empty()).then(|| tracer.now_ns())
    }

    /// The checkpoint is written that was begun then: the traces of the batches that it covers are
    /// complete.
    pub(super) fn settled(&mut self, checkpoint: &Checkpoint, started_ns: Option<u64>) {
        let (Some(tracer), Some(started_ns)) = (&self.tracer, started_ns) else {
            return;
        };
        let ended_ns = tracer.now_ns().max(started_ns);
        let all = std::mem::take(&mut self.open).into_iter();
        let (covered, open): (VecDeque<Open>, _) =
            all.partition(|open| open.is_settled_by(checkpoint));
        self.open = open;
        for one in covered {
            tracer.ended(Span {
                context: TraceContext {
                    span: tracer.new_span(),
                    ..one.call
                },
                parent: Some(one.call.span),
                subject: Arc::clone(&self.subject),
                started_ns,
                ended_ns,
                operation: Operation::Settle {
                    checkpoint: checkpoint.to_string(),
                },
                links: Links::default(),
                failure: None,
            });
        }
    }

    /// The shard goes on at another place: what was begun ends nowhere.
    pub(super) fn forget(&mut self) {
        self.open.clear();
    }
}

fn failure_of(result: &Result<Processed, ProcessorError>) -> Option<SpanFailure> {
    match result {
        Err(error) => Some(SpanFailure {
            code: Cow::Borrowed(error.code()),
            message: cut(error.to_string()),
        }),
        Ok(processed) => {
            let failures = &processed.outcome.failures;
            let first = failures.first()?;
            Some(SpanFailure {
                code: Cow::Borrowed(RECORDS_FAILED),
                message: cut(format!(
                    "{} record(s) failed; the first: {}",
                    failures.len(),
                    first.message
                )),
            })
        }
    }
}

/// The text, up to the bound.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MESSAGE_BYTES_MAX));
    text
}
