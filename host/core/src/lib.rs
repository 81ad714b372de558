//! Decisions only: no tokio, no AWS SDK, no wasmtime, no clock, no randomness, no I/O.
//!
//! ```text
//!   lease rows + shard list + time ──> FleetView ──> plan() ──> steps, each with its reason
//!   records + how a delivery ended ──> judge()   ──> what becomes of each record, and why
//!   what came of deliveries        ──> Ledger    ──> how far everything is settled
//!   progress since the last write  ──> CheckpointPolicy ──> write now, or wait
//!   what plugins hold and ask for  ──> Shares    ──> who gets it, and who waits
//!   what two versions did          ──> judge_trial() ──> promote, roll back, or go on
//!   what hosts measured of a load  ──> assess(), Damper ──> hosts wanted, and why
//! ```
//!
//! The world enters as arguments (time included) and leaves as values; `worker` acts on them
//! through [`ports`].

pub mod artifact;
pub mod backoff;
pub mod backup;
pub mod control;
pub mod cost;
pub mod deaths;
pub mod doctor;
pub mod explain;
pub mod fleet;
pub mod hash;
pub mod kcl_metrics;
pub mod kpl;
pub mod lease;
pub mod load_test;
pub mod migration;
pub mod pipeline;
pub mod plan;
pub mod plugin;
pub mod ports;
pub mod recording;
pub mod rollout;
pub mod scaling;
pub mod seeded_bug;
pub mod shadow;
pub mod shared_read;
pub mod shares;
pub mod stream;
pub mod text;
pub mod time;
pub mod token_bucket;
pub mod trace;
pub mod turns;
pub mod verdict;
