use bytes::Bytes;

use crate::stream::Record;
use crate::trace::{Links, Sampler, Span, SpanId, TraceContext};

/// Takes traces over. There is none if nothing is traced; then nobody asks a clock for a span.
pub trait Tracer: Send + Sync {
    /// Which batches are traced.
    fn sampler(&self) -> Sampler;

    /// The wall time, in nanoseconds since the Unix epoch. Only for spans.
    fn now_ns(&self) -> u64;

    /// The id of a span that begins.
    fn new_span(&self) -> SpanId;

    /// The spans that these records come from, as far as the records carry them. Only asked for
    /// batches that are traced: the data of every record is searched.
    fn producers(&self, records: &[Record]) -> Links;

    /// Whether one of the records comes from a span that is recorded, and batches with such records
    /// are to be traced. Asked for each batch that is not traced anyway.
    fn follows(&self, records: &[Record]) -> bool;

    /// A piece of output with the context written into it. `None` if it cannot carry one, or is to
    /// go as it is.
    fn carrying(&self, data: &[u8], context: TraceContext) -> Option<Bytes>;

    /// Takes a span over, and returns at once: what cannot be kept is dropped, and counted.
    fn ended(&self, span: Span);
}
