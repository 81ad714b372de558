//! One shard's records: how they are fetched, which are settled, what happens to those that fail,
//! when to checkpoint.

mod arrivals;
mod batch;
mod checkpoint_policy;
mod failure_policy;
mod headway;
mod held_back;
mod judge;
mod lanes;
mod ledger;
mod outcome;
mod parked;
mod queue;
mod read_cursor;
mod read_pace;
mod read_watch;
mod reading;
mod renewal;
mod retries;
mod skipping;
mod strands;
mod ticks;

pub use batch::{BatchLimits, OpenBatch};
pub use checkpoint_policy::{CheckpointPolicy, CheckpointReason};
pub use failure_policy::{FailurePolicy, GiveUp, Order, PolicyProblem};
pub use headway::Headway;
pub use judge::{Blame, Cause, Failure, Fate, Ruling, Tried, Verdict, judge};
pub use lanes::{LaneKey, Others, Turn, Turns};
pub use ledger::Ledger;
pub(crate) use outcome::RETRY_AFTER_MAX;
pub use outcome::{check_outcome, committed};
pub use parked::Parked;
pub use queue::Queue;
pub use read_cursor::{Accepted, ReadCursor, Resume};
pub use read_pace::{ReadPace, ReadRate};
pub use read_watch::{ReadStall, ReadWatch};
pub use reading::{is_lasting, is_told_to_all, is_trouble, read_again_after};
pub use renewal::{Renewal, Renewals, SubscriptionEnd};
pub use retries::{Halt, Retries};
pub use skipping::skip_records;
pub use strands::{Beyond, Parallelism, Spread, Strand};
pub use ticks::{TickInterval, Ticks};
