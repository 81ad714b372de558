//! The shell around the core's decisions: owns leases, runs one pipeline a shard, knows only ports.
//!
//! ```text
//! Worker ── pass: list, plan, create, take ──> Grant (one a held lease)
//!                                               ├─ Keeper    renew, checkpoint, end, release: the only writer
//!                                               └─ Pipeline  fetch ─> batch ─> deliver ─> flush ─> settle ─> checkpoint
//! ```
//!
//! A worker serves one application: one plugin on one stream, with a lease table of its own.

mod budget;
mod grant;
pub mod metrics;
mod options;
mod pipeline;
mod status;
mod worker;

pub use budget::{ByteBudget, Reservation};
pub use options::{BatchLimits, InvalidOptions, LeaseOptions, ReadLimits, WorkerOptions};
pub use status::{BlockedStatus, ShardState, ShardStatus, StatusBoard, SwapRefusal, WorkerStatus};
pub use worker::{Ports, Worker, WorkerError};
