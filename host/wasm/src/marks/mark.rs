//! A mark that this process holds.

use std::fs::File;
use std::path::PathBuf;

use shardmill_core::deaths::Stage;

/// A mark that this process holds.
pub(super) struct Mark {
    pub(super) path: PathBuf,
    /// Locked for as long as it is open.
    pub(super) file: File,
    pub(super) stage: Stage,
}

impl Drop for Mark {
    fn drop(&mut self) {
        // In this order: unlocked, it would count as a death.
        let _ = std::fs::remove_file(&self.path);
    }
}
