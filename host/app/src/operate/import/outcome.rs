//! What an import read, decided and wrote.

use shardmill_core::migration::{ShardImport, WorkerLife};

/// What was read and decided.
pub(super) struct Import {
    /// The library's table.
    pub(super) table: String,
    pub(super) workers: Vec<WorkerLife>,
    /// How many of them may be alive.
    pub(super) alive: usize,
    pub(super) shards: Vec<ShardImport>,
    pub(super) written: Written,
}

/// The results of the writes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    pub(super) rows: usize,
    /// Rows that somebody else wrote meanwhile.
    pub(super) lost: usize,
}
