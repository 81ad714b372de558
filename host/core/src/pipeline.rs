//! One shard's records: how they keep coming, what is settled, what to deliver again, when to write it down.

mod checkpoint_policy;
mod renewal;
mod settle;

pub use checkpoint_policy::{CheckpointPolicy, CheckpointReason, Unwritten};
pub use renewal::{Renewal, Renewals, SubscriptionEnd};
pub use settle::{Settlement, settle};
