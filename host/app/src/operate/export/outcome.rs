//! What an export read, decided and wrote.

use shardmill_core::migration::ShardExport;

/// What was read, decided and written.
pub(super) struct Export {
    /// The library's table.
    pub(super) table: String,
    /// Hosts, and workers of the library, that may be alive.
    pub(super) alive: Vec<String>,
    pub(super) shards: Vec<ShardExport>,
    pub(super) written: usize,
    /// Rows that somebody else wrote meanwhile.
    pub(super) lost: usize,
}
