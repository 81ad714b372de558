//! A running host: its parts put together, plugins started, swapped and stopped, and what it shows
//! of itself.

mod admin;
mod assembly;
mod clock;
pub mod component;
mod emf;
pub mod engine;
pub mod hardening;
mod host_status;
mod hosts_wanted;
pub mod kept;
mod measurements;
mod memory_sum;
mod metrics;
pub mod open_files;
mod own_cache;
mod parts;
mod process;
mod pulls;
mod readiness;
pub mod recordings;
mod shutdown;
mod supervisor;
pub mod telemetry;
mod traces;

pub use admin::{Peer, Token};
pub use assembly::{Host, Substitutes};
pub use clock::{BootClock, SteppedClock};
pub use host_status::{HostSnapshot, HostStatus, PluginSnapshot};
pub use measurements::Measurements;
pub use memory_sum::MemorySum;
pub use metrics::COMMIT;
pub use own_cache::{cache_of_command, own_cache};
pub use parts::{Outputs, Sinks};
pub use pulls::{SourceSnapshot, note_files, sources_of};
pub use shutdown::Signals;
pub use supervisor::NothingLeft;
pub use traces::{Sending, Traces};
