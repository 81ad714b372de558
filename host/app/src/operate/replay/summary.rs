//! The result of a replay, for people and programs.

use std::fmt::{self, Write};
use std::path::PathBuf;

use indicatif::HumanCount;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// The result of a replay.
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
    /// Records of a past time that the plugin's filter kept out.
    pub(crate) filtered: u64,
    /// Letters of other plugins, left out.
    pub(crate) left_out: u64,
    /// Lines that are meant to be letters and cannot be read, and letters with parts missing.
    pub(crate) damaged: u64,
    /// Lines that are not letters.
    pub(crate) other_lines: u64,
    /// Copies of letters that were there more than once.
    pub(crate) repeats: u64,
    /// The file of everything that was not processed; `None` if nothing is left.
    pub(crate) remainder: Option<PathBuf>,
    /// Why the replay stopped before the end.
    pub(crate) stopped: Option<String>,
}

impl ReplaySummary {
    /// Notes why the replay stops. The first reason counts.
    pub(super) fn stop(&mut self, why: impl Into<String>) {
        self.stopped.get_or_insert_with(|| why.into());
    }

    /// Notes that a signal stops the replay, if one came.
    pub(super) fn stop_if(&mut self, signal: &CancellationToken) {
        if signal.is_cancelled() {
            self.stop("by a signal");
        }
    }

    /// Whether nothing is left.
    #[cfg(test)]
    pub(crate) fn is_complete(&self) -> bool {
        self.remainder.is_none() && self.stopped.is_none()
    }
}

impl fmt::Display for ReplaySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.of("letters"))
    }
}

impl ReplaySummary {
    /// For people, of what was replayed.
    pub(super) fn of(&self, what: &str) -> String {
        let mut text = format!("{} {what} processed", HumanCount(self.processed));
        for (count, what) in [
            (self.failed, "failed again"),
            (self.held_back, "held back by the plugin"),
            (self.not_tried, "not tried"),
            (self.damaged, "damaged"),
            (self.filtered, "filtered"),
            (self.left_out, "of other plugins skipped"),
            (self.repeats, "repeats dropped"),
            (self.other_lines, "other lines skipped"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {} {what}", HumanCount(count));
            }
        }
        text
    }
}
