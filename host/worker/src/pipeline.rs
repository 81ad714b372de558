//! One shard's pipeline: fetch, batch, deliver, flush, settle, checkpoint, until the shard ends or the lease goes.

mod arrivals;
mod buffer;
mod consumer;
mod deliver;
mod fetch;
mod instance;
mod opening;
mod output;
mod shard_end;
mod swap;

pub(crate) use consumer::{Consumer, ConsumerPorts, PipelineEnd};
pub(crate) use swap::LastGood;
