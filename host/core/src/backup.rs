//! What is kept of an application outside its tables, and how the application goes on from that.
//!
//! ```text
//!   rows and states, read in turns ──> pair()         ──> what belongs together
//!   a backup and another stream    ──> closed_since() ──> what Kinesis is to be asked first
//!   a backup, a stream, the tables ──> plan_restore() ──> a step for each shard, and its reason
//! ```
//!
//! On the same stream a restored application is one that was down since the backup: each shard goes
//! on after its checkpoint, with the state that was saved there. On another stream sequence numbers
//! mean nothing: what is known of a shard's place is when the record arrived that it is at.

mod content;
mod direction;
mod other_stream;
mod place;
mod refusal;
mod restore;
mod step;
#[cfg(test)]
mod tests;

pub use content::{BackedUpShard, BackedUpStream, Backup, pair, torn};
pub use other_stream::closed_since;
pub use place::MARGIN_DEFAULT;
pub use refusal::{RestoreRefusal, ShardRefusal};
pub use restore::{plan_restore, relation};
pub use step::{
    RestorePlan, RestorePolicy, RestoreReason, RestoreRequest, RestoreStep, RestoredRow,
    ShardRestore, StatesKept, StreamNow, StreamRelation, TablesNow,
};
