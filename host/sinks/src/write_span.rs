//! The span of one write to one sink, within the trace of the batch that emitted the output.

use std::borrow::Cow;
use std::sync::Arc;

use shardmill_core::ports::{Origin, Sink, SinkError, Tracer};
use shardmill_core::stream::Emitted;
use shardmill_core::trace::{BatchTrace, Links, Operation, Span, SpanFailure, TraceContext};

/// What a write failed with: its message says why.
const NOT_STORED: &str = "not_stored";

/// A write that is traced.
pub(super) struct WriteSpan {
    tracer: Arc<dyn Tracer>,
    batch: BatchTrace,
    context: TraceContext,
    started_ns: u64,
    is_carried: bool,
}

impl WriteSpan {
    pub(super) fn begin(tracer: &Arc<dyn Tracer>, batch: &BatchTrace, is_carried: bool) -> Self {
        Self {
            context: TraceContext {
                span: tracer.new_span(),
                ..batch.context
            },
            started_ns: tracer.now_ns(),
            tracer: Arc::clone(tracer),
            batch: batch.clone(),
            is_carried,
        }
    }

    /// Writes, and reports the span. The sink sees the span of the write in place of the batch's.
    pub(super) async fn write(
        self,
        sink: &dyn Sink,
        origin: &Origin,
        part: &Arc<Vec<Emitted>>,
    ) -> Result<(), SinkError> {
        let origin = Arc::new(Origin {
            trace: Some(BatchTrace {
                context: self.context,
                ..self.batch.clone()
            }),
            ..origin.clone()
        });
        let written = sink.write(origin, Arc::clone(part)).await;
        self.end(part, written.as_ref().err());
        written
    }

    fn end(self, part: &[Emitted], error: Option<&SinkError>) {
        let sink = part.first().map(|piece| piece.destination.clone());
        self.tracer.ended(Span {
            context: self.context,
            parent: Some(self.batch.context.span),
            subject: self.batch.subject,
            started_ns: self.started_ns,
            ended_ns: self.tracer.now_ns().max(self.started_ns),
            operation: Operation::Send {
                sink: sink.unwrap_or_default(),
                pieces: part.len(),
                is_carried: self.is_carried,
            },
            links: Links::default(),
            failure: error.map(|error| SpanFailure {
                code: Cow::Borrowed(NOT_STORED),
                message: error.message.clone(),
            }),
        });
    }
}
