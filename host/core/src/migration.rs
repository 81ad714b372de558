//! Migration from another library and back: what its tables contain, which of its workers are
//! alive, where each shard starts here, and which of our checkpoints its tables can hold.
//!
//! ```text
//!   rows of its tables ──> read() ──> Found ──> plan_import() ──> a step for each shard, and why
//!   repeated looks     ──> FleetWatch ──> which workers of the old fleet are alive
//!   our leases         ──> plan_export() ──> rows as the library writes them, or why it cannot hold them
//! ```
//!
//! Clocks are never compared: a worker is alive if what it writes changes, whatever time it
//! contains.

mod export;
mod found;
mod import;
mod library;
mod row_change;
mod schema;
mod value;
mod watch;

pub use export::{CannotHold, ExportRequest, ShardExport, plan_export};
pub use found::{Found, FoundShard};
pub use import::{
    ImportBlock, ImportReason, ImportRequest, ImportStep, ShardImport, blocks, choose, plan_import,
};
pub use library::Library;
pub use row_change::{RowChange, Target};
pub use schema::{Tables, of_multi_stream, read};
pub use value::{Row, Value};
pub use watch::{FleetWatch, WorkerLife};

#[cfg(test)]
mod tests;
