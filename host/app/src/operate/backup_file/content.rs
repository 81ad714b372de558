//! What is in a backup's file.

use shardmill_core::backup::Backup;

/// The most that a backup has: a thousand shards with the largest states take half of it. All of it
/// is in memory at once.
pub(super) const BYTES_MAX: usize = 1 << 30;

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) backup: Backup,
    /// Files of the plugins folder.
    pub(crate) files: Vec<PluginFile>,
}

/// A file of the plugins folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginFile {
    /// Without a folder.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}
