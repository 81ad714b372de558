//! Write a shardmill record processor in Rust: implement [`Processor`], name the type in
//! [`plugin!`], and build a `cdylib` with `--target wasm32-wasip2`. The result is a component to
//! drop into the host's `plugins/` folder.
//!
//! ```
//! use shardmill_processor::{Batch, Context, Error, Outcome, Processor, emit};
//!
//! struct Copy;
//!
//! impl Processor for Copy {
//!     fn init(_context: Context) -> Result<Self, Error> {
//!         Ok(Self)
//!     }
//!
//!     fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
//!         for record in &batch.records {
//!             emit("stdout", record.partition_key, record.data)?;
//!         }
//!         Ok(Outcome::default())
//!     }
//! }
//!
//! shardmill_processor::plugin!(Copy);
//! ```

#[doc(hidden)]
pub mod bindings;
pub mod config;
mod context;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod delivery;
mod emit;
pub mod log;
pub mod metrics;
mod plugin;
pub mod testing;
mod values;
#[cfg(feature = "windows")]
pub mod windows;

pub use bindings::shardmill::processor::context::{Place, StartPosition};
pub use bindings::shardmill::processor::emit::EmitError;
pub use bindings::shardmill::processor::types::{
    CloseReason, Commit, Context, Error, Failure, FailureKind, Outcome,
};
pub use bindings::ticker::exports::shardmill::processor::ticker::HeldBack;
pub use context::start;
pub use emit::emit;
pub use shardmill_layout::{Batch, Record};

/// A record processor. It serves one shard under one holding of that shard's lease, and its calls
/// never overlap.
pub trait Processor: Sized {
    /// Creates the processor for one shard. Check the configuration here: a new version whose
    /// `init` fails never replaces one that works.
    fn init(context: Context) -> Result<Self, Error>;

    /// Processes one batch, in order. `Ok(Outcome::default())` means that all of it was processed.
    /// An error, or a panic, means that none of it was: what was emitted is dropped and the batch
    /// is delivered again. Records are borrowed from the batch: copy what is to outlive the call.
    fn process(&mut self, batch: Batch<'_>) -> Result<Outcome, Error>;

    /// Called once, last. For [`CloseReason::ShardEnded`], emit what is still held back.
    fn close(&mut self, reason: CloseReason) -> Result<(), Error> {
        let _ = reason;
        Ok(())
    }
}

/// A processor that keeps state of its shard: name it as `plugin!(Type, state)`, and ask for state
/// in its manifest.
///
/// The host stores the state in one transaction with the checkpoint, so that each record counts
/// once in it.
pub trait Stateful: Processor {
    /// The state after everything processed so far. Called before each checkpoint: keep it quick
    /// and small.
    fn save(&mut self) -> Result<Vec<u8>, Error>;

    /// Restores what an earlier instance saved, perhaps of another version. Called right after
    /// `init`. An error refuses the state: a new version that does so never replaces the one whose
    /// state it refused.
    fn load(&mut self, state: Vec<u8>) -> Result<(), Error>;
}

/// A processor that is called when time has passed: name it as `plugin!(Type, ticks)`, or as
/// `plugin!(Type, state, ticks)`.
pub trait Ticking: Processor {
    /// Time has passed: the interval `tick.every` of the manifest, 10 seconds by default. Also
    /// called on a shard without records, and never while the shard is paused. May emit, as
    /// [`process`](Processor::process) may. After an error what was emitted is dropped, and the
    /// host calls again later.
    fn tick(&mut self, tick: Tick) -> Result<HeldBack, Error>;
}

/// What a tick says of time, by the host's wall clock, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    /// Now. Never less than at the tick before, while the host holds the shard's lease.
    pub now_ms: u64,
    /// When the host last read that the shard has nothing more, if everything before that was
    /// delivered and nothing of it waits to be tried again; `None` if there is more.
    pub delivered_until_ms: Option<u64>,
}
