//! The metrics of recordings. Described by [`describe`].

use metrics::{Counter, Unit, describe_counter};

/// Recordings of batches that failed. Labels: outcome.
const RECORDINGS: &str = "shardmill_recordings_total";

/// What became of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is on the disk.
    Written,
    /// Others came too fast for the disk.
    Dropped,
    /// The disk refused it.
    Failed,
}

impl Outcome {
    pub(super) fn count(self) {
        self.counter().increment(1);
    }

    fn counter(self) -> Counter {
        let outcome = match self {
            Self::Written => "written",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        };
        metrics::counter!(RECORDINGS, "outcome" => outcome)
    }
}

/// Gives it its unit and help text, and counts from zero, so that the first one that fails is seen
/// to rise.
pub(crate) fn describe() {
    describe_counter!(
        RECORDINGS,
        Unit::Count,
        "recordings of batches that failed, by what became of them"
    );
    for outcome in [Outcome::Written, Outcome::Dropped, Outcome::Failed] {
        outcome.counter().increment(0);
    }
}
