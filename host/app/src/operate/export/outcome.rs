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

impl Export {
    /// Whether the library can hold every checkpoint.
    pub(super) fn can_hold_all(&self) -> bool {
        self.shards.iter().all(|shard| shard.held.is_ok())
    }

    /// Whether all hosts and workers of the library are known to be dead, and nothing would be
    /// lost.
    pub(super) fn may_be_written(&self) -> bool {
        self.alive.is_empty() && self.can_hold_all()
    }
}
