//! How many log lines a plugin may write, and a count of what did not fit.

use std::time::Duration;

use shardmill_core::time::Moment;
use shardmill_core::token_bucket::TokenBucket;

/// How often drops are reported while a flood lasts.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A token bucket that counts what it rejects. Time is an argument.
#[derive(Debug)]
pub(crate) struct LogBudget {
    lines: TokenBucket,
    dropped: u64,
    reported: Option<Moment>,
}

/// What to do with a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Write it.
    Write,
    /// Drop it; it has been counted.
    Drop,
}

impl LogBudget {
    pub(crate) fn new(per_second: u32, burst: u32, now: Moment) -> Self {
        Self {
            lines: TokenBucket::new(per_second, burst, now),
            dropped: 0,
            reported: None,
        }
    }

    pub(crate) fn admit(&mut self, now: Moment) -> Admission {
        if self.lines.take(now) {
            return Admission::Write;
        }
        self.dropped += 1;
        Admission::Drop
    }

    /// Lines dropped since the last report; 0 when there is nothing to report, or it is too early
    /// to report again.
    pub(crate) fn take_dropped(&mut self, now: Moment) -> u64 {
        let is_due = self
            .reported
            .is_none_or(|at| now.since(at) >= REPORT_INTERVAL);
        if self.dropped == 0 || !is_due {
            return 0;
        }
        self.reported = Some(now);
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_the_burst_then_to_the_rate_and_every_drop_is_reported_once() {
        let start = Moment::default();
        let mut budget = LogBudget::new(10, 100, start);
        let mut written = |seconds: u64, lines: usize| {
            let now = start + Duration::from_secs(seconds);
            (0..lines)
                .filter(|_| budget.admit(now) == Admission::Write)
                .count()
        };
        assert_eq!(written(0, 1_000), 100);
        assert_eq!(written(1, 1_000), 10);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(budget.take_dropped(at(1)), 900 + 990);
        budget.admit(at(1));
        assert_eq!(budget.take_dropped(at(1)), 0, "one report a second");
        assert_eq!(budget.take_dropped(at(2)), 1);
    }
}
