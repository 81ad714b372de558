//! A held lease: what was written last, and what that gives.

use std::time::Duration;

use shardmill_core::lease::{Generation, Hold, LeaseToken};
use shardmill_core::ports::Progress;
use shardmill_core::time::Moment;

use crate::options::LeaseOptions;

/// A lease just taken.
pub(crate) struct Taken {
    /// The right to write to its row.
    pub(crate) token: LeaseToken,
    /// When the take was sent.
    pub(crate) sent_at: Moment,
    /// The time of the take as the row has it, in milliseconds since the Unix epoch.
    pub(crate) held_since_ms: u64,
    /// The heart's generation at that moment.
    pub(crate) generation: Generation,
    /// What the row says to people.
    pub(crate) shown: Shown,
}

/// What a row says to people, as far as an outdated value is worth a write.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Why the shard makes no progress.
    pub(crate) stuck: Option<String>,
    /// How far the shard is behind, in milliseconds.
    pub(crate) lag_ms: Option<u64>,
}

impl Shown {
    /// What a row says once this is written.
    pub(crate) fn of(progress: &Progress) -> Self {
        Self {
            stuck: progress.stuck.clone(),
            lag_ms: progress.millis_behind_latest,
        }
    }

    /// Whether the row shows a lag of at least `long`, and it is less by now. A shard that has
    /// caught up and gets no more records settles nothing, so that no other write would say so.
    pub(super) fn lag_is_over(&self, progress: &Progress, long: Duration) -> bool {
        let is_long = |ms: u64| Duration::from_millis(ms) >= long;
        let is_over = progress.millis_behind_latest.is_some_and(|ms| !is_long(ms));
        is_over && self.lag_ms.is_some_and(is_long)
    }
}

/// The lease as the last applied write left it.
pub(super) struct Held {
    pub(super) token: LeaseToken,
    /// When that write was sent.
    pub(super) sent: Sent,
    /// The time of the take as the row has it: another take of this worker id has another.
    pub(super) since_ms: u64,
}

/// The moment when a write was *sent*: from there the deadline counts, not from its answer.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) at: Moment,
    /// The heart's generation at that moment.
    pub(super) generation: Generation,
}

impl Sent {
    /// What a write that was sent then gives its holder.
    pub(super) fn hold(self, options: &LeaseOptions) -> Hold {
        Hold {
            until: self.at + options.hold_for(),
            generation: self.generation,
        }
    }
}
