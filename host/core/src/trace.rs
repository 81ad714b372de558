//! Traces: which batches are traced, what their spans are called by, and what is said of them. What
//! a span looks like on the wire is the business of whoever implements
//! [`Tracer`](crate::ports::Tracer).

mod context;
mod ids;
mod sampler;
mod span;

pub use context::TraceContext;
pub use ids::{SpanId, TraceId};
pub use sampler::{BadRatio, Sampler};
pub use span::{BatchTrace, Link, Links, Operation, Span, SpanFailure, Subject};
