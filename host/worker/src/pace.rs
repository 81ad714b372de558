//! Keeps calls and bytes within a shard's rates: full speed while behind, slower when idle.

use std::time::Duration;

use shardmill_core::stream::Record;
use tokio::time::Instant;

use crate::options::ReadLimits;

/// One shard's rates, and when the next call may be made.
#[derive(Debug)]
pub(crate) struct Pace {
    limits: ReadLimits,
    next_call: Instant,
    /// When the last call was made.
    called_at: Instant,
    /// Replies in a row that had nothing.
    idle: u32,
}

impl Pace {
    pub(crate) fn new(limits: &ReadLimits) -> Self {
        let now = Instant::now();
        Self {
            limits: *limits,
            next_call: now,
            called_at: now,
            idle: 0,
        }
    }

    /// Whether nothing is there to read. An empty reply from behind the tip is none: Kinesis steps
    /// over gaps in empty replies, and more is to be read at once.
    pub(crate) fn is_idle(records: &[Record], millis_behind_latest: Option<u64>) -> bool {
        records.is_empty() && millis_behind_latest.unwrap_or(0) == 0
    }

    pub(crate) async fn wait(&self) {
        tokio::time::sleep_until(self.next_call).await;
    }

    /// A call is made now. It counts against the rate whatever comes of it, and from now on, not
    /// from when its turn was: in between, it may have waited for memory.
    pub(crate) fn calling(&mut self, now: Instant) {
        self.called_at = now;
        self.next_call = self.called_at + self.call_interval();
    }

    pub(crate) fn replied(&mut self, bytes: usize, is_idle: bool) {
        self.idle = if is_idle {
            self.idle.saturating_add(1)
        } else {
            0
        };
        let for_bytes = for_bytes(&self.limits, bytes);
        let for_idle = idle_wait(&self.limits, self.idle);
        self.next_call = self.called_at + self.call_interval().max(for_bytes).max(for_idle);
    }

    fn call_interval(&self) -> Duration {
        call_interval(&self.limits)
    }
}

/// Time between two calls.
pub(crate) fn call_interval(limits: &ReadLimits) -> Duration {
    Duration::from_secs_f64(1.0 / limits.calls_per_second)
}

/// How long `bytes` use up a shard's rate: five seconds for a reply of 10 MiB, as Kinesis enforces
/// it by throttling.
pub(crate) fn for_bytes(limits: &ReadLimits, bytes: usize) -> Duration {
    Duration::from_secs_f64(bytes as f64 / limits.bytes_per_second)
}

/// The wait after `idle` replies in a row that had nothing.
pub(crate) fn idle_wait(limits: &ReadLimits, idle: u32) -> Duration {
    if idle == 0 {
        return Duration::ZERO;
    }
    // 2^16 times any wait is above any maximum.
    limits
        .idle_every
        .saturating_mul(1 << (idle - 1).min(16))
        .min(limits.idle_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> ReadLimits {
        let idle = (Duration::from_secs(1), Duration::from_secs(3));
        ReadLimits {
            idle_every: idle.0,
            idle_max: idle.1,
            ..ReadLimits::default()
        }
    }

    /// Milliseconds from a call to the next, after a reply.
    fn wait_ms(pace: &mut Pace, bytes: usize, is_idle: bool) -> u128 {
        let called_at = pace.next_call;
        pace.calling(called_at);
        pace.replied(bytes, is_idle);
        (pace.next_call - called_at).as_millis()
    }

    #[test]
    fn calls_are_never_closer_than_the_rate_allows_even_after_a_wait_for_memory() {
        let mut pace = Pace::new(&limits());
        let mut calls = Vec::new();
        for wait_for_memory_ms in [0, 0, 900, 0, 0, 0, 0, 50, 0, 0, 0] {
            let now = pace.next_call + Duration::from_millis(wait_for_memory_ms);
            pace.calling(now);
            calls.push(now);
            pace.replied(100, false);
        }
        for window in calls.windows(6) {
            assert!(
                window[5] - window[0] >= Duration::from_secs(1),
                "more than 5 calls within a second: {calls:?}"
            );
        }
    }

    #[test]
    fn an_idle_shard_is_asked_less_and_less_and_at_full_speed_once_records_come() {
        let mut pace = Pace::new(&limits());
        let waits =
            [true, true, true, true, false, true].map(|is_idle| wait_ms(&mut pace, 0, is_idle));
        assert_eq!(waits, [1_000, 2_000, 3_000, 3_000, 200, 1_000]);
        pace.idle = u32::MAX;
        assert_eq!(
            wait_ms(&mut pace, 0, true),
            3_000,
            "however long it was idle"
        );
    }

    #[test]
    fn a_reply_of_10_mib_is_followed_by_a_pause_of_five_seconds() {
        assert_eq!(wait_ms(&mut Pace::new(&limits()), 10 << 20, false), 5_000);
    }

    #[test]
    fn an_empty_reply_from_behind_the_tip_is_not_idle() {
        assert!(Pace::is_idle(&[], Some(0)) && Pace::is_idle(&[], None));
        assert!(!Pace::is_idle(&[], Some(1)));
    }
}
