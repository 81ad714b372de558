//! What polling remembers between its turns.

use std::time::Duration;

use shardmill_core::pipeline::{ReadPace, ReadRate};
use shardmill_core::time::Moment;

/// See the module's description.
pub(super) struct Poller {
    pace: ReadPace,
    failures: u32,
    /// When the first of them came.
    failing_since: Option<Moment>,
}

impl Poller {
    pub(super) fn new(rate: ReadRate, now: Moment) -> Self {
        Self {
            pace: ReadPace::new(rate, now),
            failures: 0,
            failing_since: None,
        }
    }

    pub(super) fn pace(&mut self) -> &mut ReadPace {
        &mut self.pace
    }

    /// One more call failed. How many have failed in a row now, and for how long.
    pub(super) fn failed(&mut self, now: Moment) -> (u32, Duration) {
        self.failures += 1;
        let since = *self.failing_since.get_or_insert(now);
        (self.failures, now.since(since))
    }

    /// A call was good.
    pub(super) fn recovered(&mut self) {
        self.failing_since = None;
        self.failures = 0;
    }
}
