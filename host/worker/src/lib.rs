//! The shell around the core's decisions: owns leases, runs one pipeline a shard, knows only ports.
//!
//! ```text
//! Heart  ── one heartbeat that holds all leases of the host
//! Worker ── pass: look, lead, plan, act ──────> Holding (one a held lease)
//!                                               ├─ Keeper    renew, checkpoint, end, release: the
//! only writer                                               └─ Pipeline  fetch ─> batch ─> deliver
//! ─> flush ─> settle ─> checkpoint
//! ```
//!
//! A worker serves one application: one plugin on one stream, with its own lease table.

mod budget;
mod chronicle;
mod fan_out;
mod freezer;
mod gone;
mod heart;
mod holding;
mod host_bell;
mod load;
mod meters;
pub mod metrics;
mod options;
mod pipeline;
mod recordings;
mod retrieval;
mod rollout;
mod shadow;
mod shared_read;
mod signs;
mod status;
mod tap;
mod tick_clock;
mod timed;
mod timer;
mod worker;

pub use budget::{ByteBudget, ByteShare, Reservation, TooManyPlugins};
pub use freezer::Freezer;
pub use gone::confirm_gone;
pub use host_bell::{HostBell, Outcome, Ring, Wish};
pub use load::{ProcessLoad, Scaling};
pub use meters::{Gathered, Meters};
pub use options::{InvalidOptions, LeaseOptions, ReadLimits, WorkerOptions};
pub use recordings::{RecordingLimits, Recordings};
pub use retrieval::{FanOut, Retrieval};
pub use rollout::SharedRollout;
pub use shadow::{ShadowReport, SharedShadow};
pub use shardmill_core::pipeline::BatchLimits;
pub use shared_read::{RingBudget, SharedReader, SharedStream};
pub use status::{
    BlockedStatus, FanOutStatus, Gaps, GivenUp, HostsWantedStatus, Parking, ShardRetrieval,
    ShardState, ShardStatus, StageStatus, StatusBoard, SwapRefusal, TimeSpent, VersionStatus, Why,
    WorkerStatus,
};
pub use tap::{Sample, SampleKind, Tap, TooManyWatchers, Wanted, Watch};
pub use tick_clock::TickClock;
pub use worker::{Ports, Standalone, Worker, WorkerError, refuse_other_stream};
