//! The result of a replay, for people and programs.

use std::fmt;
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
        write!(f, "{} letters processed", HumanCount(self.processed))?;
        for (count, what) in [
            (self.failed, "failed again"),
            (self.held_back, "held back by the plugin"),
            (self.not_tried, "not tried"),
            (self.damaged, "damaged"),
            (self.left_out, "of other plugins skipped"),
            (self.repeats, "repeats dropped"),
            (self.other_lines, "other lines skipped"),
        ] {
            if count > 0 {
                write!(f, ", {} {what}", HumanCount(count))?;
            }
        }
        Ok(())
    }
}
