//! What polling remembers between its turns.

use std::time::Duration;

use tokio::time::Instant;

use crate::options::ReadLimits;
use crate::pace::Pace;

/// See the module's description.
pub(super) struct Poller {
    pace: Pace,
    failures: u32,
    /// When the first of them came.
    failing_since: Option<Instant>,
}

impl Poller {
    pub(super) fn new(reads: &ReadLimits) -> Self {
        Self {
            pace: Pace::new(reads),
            failures: 0,
            failing_since: None,
        }
    }

    pub(super) fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }

    /// One more call failed. How many have failed in a row now, and for how long.
    pub(super) fn failed(&mut self) -> (u32, Duration) {
        self.failures += 1;
        let since = self.failing_since.get_or_insert_with(Instant::now);
        (self.failures, since.elapsed())
    }

    /// A call was good. Whether the one before failed.
    pub(super) fn recovered(&mut self) -> bool {
        self.failing_since = None;
        std::mem::take(&mut self.failures) > 0
    }
}
