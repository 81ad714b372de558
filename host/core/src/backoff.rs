//! Exponential back-off with jitter; the random value is an argument.

use std::time::Duration;

/// `base * 2^n` up to a cap; the upper half of it is random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

impl Backoff {
    /// `None` unless `0 < base <= cap`.
    pub const fn new(base: Duration, cap: Duration) -> Option<Self> {
        if base.is_zero() || base.as_nanos() > cap.as_nanos() {
            None
        } else {
            Some(Self { base, cap })
        }
    }

    /// The default: 100 ms doubling up to 30 s, as the KCL-like libraries meant to (one of them
    /// wrote XOR for power).
    pub const fn standard() -> Self {
        Self {
            base: Duration::from_millis(100),
            cap: Duration::from_secs(30),
        }
    }

    /// The longest that the first wait can be.
    pub const fn base(self) -> Duration {
        self.base
    }

    /// The longest that any wait can be.
    pub const fn cap(self) -> Duration {
        self.cap
    }

    /// The longest wait after `failures` failures in a row (1 for the first).
    pub fn ceiling(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }

    /// The wait after `failures` failures in a row; `roll` is uniform in `[0, 1)`.
    pub fn delay(self, failures: u32, roll: f64) -> Duration {
        let ceiling = self.ceiling(failures);
        ceiling / 2 + (ceiling / 2).mul_f64(roll.clamp(0.0, 1.0))
    }
}

/// Whether a failure is worth a line in the log: the first in a row, and then ever fewer, at each
/// doubling. `failures` counts those in a row, 1 for the first.
pub fn is_worth_a_line(failures: impl Into<u64>) -> bool {
    failures.into().is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_logged_ever_more_rarely() {
        assert!(!is_worth_a_line(0_u32) && is_worth_a_line(1_u32));
        let logged: Vec<u64> = (1..=100).filter(|n| is_worth_a_line(*n)).collect();
        assert_eq!(logged, [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn waits_double_to_the_cap_and_are_never_linear() {
        let backoff = Backoff::standard();
        let ceilings: Vec<_> = (1..=6).map(|n| backoff.ceiling(n).as_millis()).collect();
        assert_eq!(ceilings, [100, 200, 400, 800, 1600, 3200]);
        assert_eq!(backoff.ceiling(60), Duration::from_secs(30));
    }

    #[test]
    fn jitter_stays_in_the_upper_half() {
        let backoff = Backoff::standard();
        for failures in 1..80 {
            let ceiling = backoff.ceiling(failures);
            assert_eq!(backoff.delay(failures, 0.0), ceiling / 2);
            assert_eq!(backoff.delay(failures, 1.0), ceiling);
        }
    }

    #[test]
    fn a_backoff_that_cannot_grow_or_wait_is_refused() {
        assert!(Backoff::new(Duration::ZERO, Duration::from_secs(1)).is_none());
        assert!(Backoff::new(Duration::from_secs(2), Duration::from_secs(1)).is_none());
    }
}
