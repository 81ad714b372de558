//! What comes of a replay.

use std::path::PathBuf;

use serde::Serialize;

/// What came of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ReplaySummary {
    /// Letters processed, their output stored.
    pub(crate) processed: u64,
    /// Letters that failed again.
    pub(crate) failed: u64,
    /// Letters that the plugin held back to the end.
    pub(crate) held_back: u64,
    /// Letters that were not tried, because the replay was stopped.
    pub(crate) not_tried: u64,
    /// Letters of other plugins, left out.
    pub(crate) left_out: u64,
    /// Lines that are meant to be letters and cannot be read, and letters with parts missing.
    pub(crate) damaged: u64,
    /// Lines that are something else.
    pub(crate) other_lines: u64,
    /// Letters that were there more than once.
    pub(crate) repeats: u64,
    /// Where everything that was not processed is; `None` if there is no such thing.
    pub(crate) remainder: Option<PathBuf>,
    /// Why the replay stopped before the end.
    pub(crate) stopped: Option<String>,
}

impl ReplaySummary {
    /// Whether nothing is left.
    #[cfg(test)]
    pub(crate) fn is_complete(&self) -> bool {
        self.remainder.is_none() && self.stopped.is_none()
    }
}
