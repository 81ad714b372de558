//! Limits a rate: a number per second, with a burst.

use std::time::Duration;

use crate::time::Moment;

/// A token bucket. Time is an argument.
#[derive(Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    refilled: Moment,
}

impl TokenBucket {
    /// A full bucket: `burst` may be taken at once.
    pub fn new(per_second: u32, burst: u32, now: Moment) -> Self {
        Self::full(per_second.into(), burst, now)
    }

    /// A full bucket for what is rarer than once a second. `period` must be above zero.
    pub fn with_one_every(period: Duration, burst: u32, now: Moment) -> Self {
        Self::full(period.as_secs_f64().recip(), burst, now)
    }

    fn full(per_second: f64, burst: u32, now: Moment) -> Self {
        let burst = f64::from(burst);
        Self {
            per_second,
            burst,
            tokens: burst,
            refilled: now,
        }
    }

    /// Takes one token, if there is one.
    pub fn take(&mut self, now: Moment) -> bool {
        let earned = now.since(self.refilled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + earned).min(self.burst);
        self.refilled = now;
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_without_end_gets_a_burst_and_then_the_rate() {
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let mut bucket = TokenBucket::new(100, 200, at(5));
        let mut given = |seconds| (0..1_000).filter(|_| bucket.take(at(seconds))).count();
        assert_eq!(
            (given(5), given(6), given(60), given(60)),
            (200, 100, 200, 0)
        );
        let mut rare = TokenBucket::with_one_every(Duration::from_mins(1), 3, at(0));
        let mut given = |seconds| (0..9).filter(|_| rare.take(at(seconds))).count();
        assert_eq!((given(0), given(59), given(61), given(999)), (3, 0, 1, 3));
    }
}
