//! The host's real clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shardmill_core::ports::Clock;
use shardmill_core::time::Moment;

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

/// The wall time.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the edge where wall time enters"
)]
pub(crate) fn wall_now() -> SystemTime {
    SystemTime::now()
}
