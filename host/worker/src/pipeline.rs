//! One shard's pipeline: fetch, batch, deliver, flush, settle, checkpoint, until the shard ends or
//! the lease goes.

mod buffer;
mod consumer;
mod deliver;
mod fetch;
mod give_up;
mod instance;
mod leave;
mod log_allowance;
mod opening;
mod output;
mod reading;
mod shard_end;
mod state;
mod swap;
mod trial;
mod trouble;

pub(crate) use consumer::{Consumer, ConsumerPorts, PipelineEnd};
pub(crate) use log_allowance::LogAllowance;
