//! The runtime's clock: for timers, and for how long something takes. Nothing is decided about
//! leases or records by it: that is what [`Clock`](shardmill_core::ports::Clock) is for. Only how
//! long a finished row stays is measured by both: requests on their way wait while machines do.

use std::time::Duration;

use tokio::time::Instant;

/// Now, as timers see it.
#[expect(
    clippy::disallowed_methods,
    reason = "timers run on the runtime's clock, which is read here and nowhere else"
)]
pub(crate) fn timer_now() -> Instant {
    Instant::now()
}

/// Measures how long something takes. It stops while the machine is suspended, as timers do, so
/// that a call is not slow for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(timer_now())
    }

    /// When it was started.
    pub(crate) fn started_at(self) -> Instant {
        self.0
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
