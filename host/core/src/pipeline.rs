//! One shard's records: what is settled, what to deliver again, when to write it down.

mod checkpoint_policy;
mod settle;

pub use checkpoint_policy::{CheckpointPolicy, CheckpointReason, Unwritten};
pub use settle::{Settlement, settle};
