//! Time as a value: the core never reads a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on one host's own monotonic clock, counted from an arbitrary origin.
///
/// Moments of different hosts must never be compared: lease expiry is judged by what *this* host
/// saw and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(Duration);

impl Moment {
    /// The moment `since_origin` after the clock's origin.
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// Time from `earlier` to `self`; zero if `earlier` is in fact later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_move_both_ways_and_stop_at_the_ends_of_the_clock() {
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        assert_eq!(
            (
                at(5) + Duration::from_secs(2),
                at(5) - Duration::from_secs(2)
            ),
            (at(7), at(3))
        );
        assert_eq!(at(5) - Duration::from_secs(6), at(0));
        assert_eq!(at(5) + Duration::MAX, Moment::from_origin(Duration::MAX));
        assert_eq!(
            (at(7).since(at(5)), at(5).since(at(7))),
            (Duration::from_secs(2), Duration::ZERO)
        );
    }
}
