//! What a lease is: the KCL 2.x row, its checkpoint, and when it has expired.

mod checkpoint;
mod conflict;
mod expiry;
mod heartbeat;
mod kcl_leader;
mod pulse;
mod row;
mod table_deadlines;
mod write_trouble;

pub use checkpoint::{Checkpoint, Sought};
pub use conflict::{ConflictVerdict, LossReason, judge_conflict};
pub use expiry::{Availability, LeaseObserver};
pub use heartbeat::{Generation, Heartbeat, Hold};
pub use kcl_leader::kcl_leader;
pub(crate) use pulse::Seconds;
pub use pulse::{Pulse, Watched};
pub use row::{LEASE_DURATION_MAX, Lease, LeaseCounter, LeaseToken, WorkerId};
pub use table_deadlines::TableDeadlines;
pub use write_trouble::{WriteTrouble, can_others_write};
