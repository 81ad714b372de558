//! Decisions, and nothing else: no tokio, no AWS SDK, no wasmtime, no clock, no randomness, no I/O.
//!
//! ```text
//!   lease rows + shard list + time ──> FleetView ──> plan() ──> steps, each with its reason
//!   records + outcome of a batch   ──> settle()  ──> what is settled, what to deliver again
//!   progress since the last write  ──> CheckpointPolicy ──> write now, or wait
//! ```
//!
//! The world enters as arguments (time included) and leaves as values; `worker` acts on them through [`ports`].

pub mod backoff;
pub mod doctor;
pub mod explain;
pub mod fleet;
pub mod kpl;
pub mod lease;
pub mod pipeline;
pub mod plan;
pub mod plugin;
pub mod ports;
pub mod seeded_bug;
pub mod stream;
pub mod time;
