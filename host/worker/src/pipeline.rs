//! One shard's pipeline: fetch, batch, deliver, flush, settle, checkpoint, until the shard ends or
//! the lease goes.
//!
//! ```text
//!   ShardPipeline ── selects what is next, and applies what came of it
//!    ├─ Intake    the reader and its buffer: what is free to deliver
//!    ├─ Deliveries  one, or with parallel keys several, side by side
//!    │   └─ Delivery  an instance, and what failed: calls, judges, tries again
//!    ├─ Saving    output, checkpoint, state: what is settled, and written
//!    ├─ Traces    which batches are traced, and the spans of their calls and checkpoints
//!    ├─ Versions  which version of the plugin the shard is to run
//!    └─ Trouble   what is in the shard's way, as the status and the row show it
//! ```
//!
//! Its course (`ShardPipeline::run`):
//!
//! | a pipeline is | event | then it is |
//! |---|---|---|
//! | starting | its instance runs | serving |
//! | serving | the failure policy halts the shard | halted |
//! | halted | a directive or another version ends the halt | serving |
//! | serving | all of the shard is read, settled and written | ended, with `SHARD_END` in the row |
//! | any of these | its host or plugin goes, or another host claims the lease | draining |
//! | draining | deliveries under way end, their checkpoint is written | over, the lease released |
//! | any of these | no progress for too long | giving up: over, with the reason in the row |
//! | any of these | the lease is lost | over: nothing more is written or emitted |

mod buffer;
mod call;
mod context;
mod deliveries;
mod delivery;
mod directions;
mod fetch;
mod filtered;
mod fullness;
mod give_up;
mod history;
mod instance;
mod intake;
mod log_allowance;
mod opening;
mod output;
mod ports;
mod receptions;
mod saving;
mod shadowing;
mod shard;
mod terms;
mod traces;
mod trouble;
mod versions;

pub(crate) use context::{ShardContext, ShardReports};
pub(crate) use log_allowance::LogAllowance;
pub(crate) use ports::PipelinePorts;
pub(crate) use shard::{PipelineEnd, ShardPipeline};
