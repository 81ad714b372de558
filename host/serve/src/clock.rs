//! The host's real clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shardmill_core::ports::Clock;
use shardmill_core::time::Moment;
use tokio::sync::watch;

/// Monotonic time that goes on while the machine is suspended, where the system has such a clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    #[cfg(target_os = "linux")]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Moment::from_origin(Duration::new(seconds, nanos))
    }

    /// Elsewhere the monotonic clock may stop during a suspend; a host that wakes up is then fenced
    /// by the lease counter alone, which is still safe.
    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> Moment {
        use std::sync::LazyLock;
        static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        Moment::from_origin(ORIGIN.elapsed())
    }

    fn wall_ms(&self) -> u64 {
        let since_epoch = wall_now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The real clocks, and as much later as was asked for: for a dry run that lets time pass.
#[derive(Debug, Default)]
pub struct SteppedClock {
    ahead_ms: watch::Sender<u64>,
}

impl SteppedClock {
    /// From now on it is so much later. Less than a millisecond does not count.
    pub fn advance(&self, by: Duration) {
        let by_ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.ahead_ms
            .send_modify(|ahead_ms| *ahead_ms = ahead_ms.saturating_add(by_ms));
    }

    /// Changes with each step.
    pub(crate) fn steps(&self) -> watch::Receiver<u64> {
        self.ahead_ms.subscribe()
    }

    fn ahead(&self) -> Duration {
        Duration::from_millis(*self.ahead_ms.borrow())
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> Moment {
        BootClock.now() + self.ahead()
    }

    fn wall_ms(&self) -> u64 {
        BootClock.wall_ms().saturating_add(*self.ahead_ms.borrow())
    }
}

/// The wall time.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the edge where wall time enters"
)]
pub(crate) fn wall_now() -> SystemTime {
    SystemTime::now()
}
