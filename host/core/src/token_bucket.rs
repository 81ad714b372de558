//! Limits a rate: a number per second, with a burst.

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
        let burst = f64::from(burst);
        Self {
            per_second: per_second.into(),
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
    use std::time::Duration;

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
    }
}
