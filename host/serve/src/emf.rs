//! The KCL's metrics for CloudWatch: what workers gather is written every few seconds, in lines of
//! the embedded metric format, by a thread that no shard waits for.

mod document;
mod metrics;
mod target;
mod writer;

pub(crate) use self::metrics::describe;
pub(crate) use self::writer::Emf;
