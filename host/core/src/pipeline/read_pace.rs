//! Keeps calls and bytes within a shard's rates: full speed while behind, slower when idle.

use std::time::Duration;

use crate::stream::Record;
use crate::time::Moment;

/// How fast one shard may be read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadRate {
    /// Time between two calls.
    pub call_interval: Duration,
    /// Most bytes a second, on average.
    pub bytes_per_second: f64,
    /// Wait after a reply without records at the shard's tip. Doubles with each further one, up to
    /// `idle_max`.
    pub idle_every: Duration,
    /// The longest such wait.
    pub idle_max: Duration,
}

/// When the next call for a shard may be made.
#[derive(Debug)]
pub struct ReadPace {
    rate: ReadRate,
    next_call: Moment,
    /// When the last call was made.
    called_at: Moment,
    /// Replies in a row that had nothing.
    idle: u32,
}

impl ReadRate {
    /// How long `bytes` use up the rate: five seconds for a reply of 10 MiB, as Kinesis enforces it
    /// by throttling.
    pub fn for_bytes(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second)
    }

    /// The wait after `idle` replies in a row that had nothing.
    pub(crate) fn idle_wait(&self, idle: u32) -> Duration {
        if idle == 0 {
            return Duration::ZERO;
        }
        // 2^16 times any wait is above any maximum.
        let doubled = self.idle_every.saturating_mul(1 << (idle - 1).min(16));
        doubled.min(self.idle_max)
    }
}

impl ReadPace {
    /// The first call may be made at `now`.
    pub fn new(rate: ReadRate, now: Moment) -> Self {
        Self {
            rate,
            next_call: now,
            called_at: now,
            idle: 0,
        }
    }

    /// Whether nothing is there to read. An empty reply from behind the tip does not say so:
    /// Kinesis steps over gaps in empty replies, and more is to be read at once.
    pub fn is_idle(records: &[Record], millis_behind_latest: Option<u64>) -> bool {
        records.is_empty() && millis_behind_latest.unwrap_or(0) == 0
    }

    /// How long to wait before the next call.
    pub fn call_in(&self, now: Moment) -> Duration {
        self.next_call.since(now)
    }

    /// A call is made at `now`. It counts against the rate whatever comes of it, and from now on,
    /// not from when its turn was: in between, it may have waited for memory.
    pub fn calling(&mut self, now: Moment) {
        self.called_at = now;
        self.next_call = now + self.rate.call_interval;
    }

    /// The call brought so many `bytes`; `is_idle` is as [`ReadPace::is_idle`] has it.
    pub fn replied(&mut self, bytes: usize, is_idle: bool) {
        self.idle = if is_idle {
            self.idle.saturating_add(1)
        } else {
            0
        };
        let for_bytes = self.rate.for_bytes(bytes);
        let for_idle = self.rate.idle_wait(self.idle);
        self.next_call = self.called_at + self.rate.call_interval.max(for_bytes).max(for_idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> ReadPace {
        let rate = ReadRate {
            call_interval: Duration::from_millis(200),
            bytes_per_second: 2.0 * 1024.0 * 1024.0,
            idle_every: Duration::from_secs(1),
            idle_max: Duration::from_secs(3),
        };
        ReadPace::new(rate, Moment::from_origin(Duration::from_mins(1)))
    }

    /// Milliseconds from a call to the next, after a reply.
    fn wait_ms(pace: &mut ReadPace, bytes: usize, is_idle: bool) -> u128 {
        let called_at = pace.next_call;
        pace.calling(called_at);
        pace.replied(bytes, is_idle);
        pace.call_in(called_at).as_millis()
    }

    #[test]
    fn calls_are_never_closer_than_the_rate_allows_even_after_a_wait_for_memory() {
        let mut pace = pace();
        let mut calls = Vec::new();
        for wait_for_memory_ms in [0, 0, 900, 0, 0, 0, 0, 50, 0, 0, 0] {
            let now = pace.next_call + Duration::from_millis(wait_for_memory_ms);
            pace.calling(now);
            calls.push(now);
            pace.replied(100, false);
        }
        for window in calls.windows(6) {
            assert!(
                window[5].since(window[0]) >= Duration::from_secs(1),
                "more than 5 calls within a second: {calls:?}"
            );
        }
    }

    #[test]
    fn an_idle_shard_is_asked_less_and_less_and_at_full_speed_once_records_come() {
        let mut pace = pace();
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
        assert_eq!(wait_ms(&mut pace(), 10 << 20, false), 5_000);
    }

    #[test]
    fn an_empty_reply_from_behind_the_tip_is_not_idle() {
        assert!(ReadPace::is_idle(&[], Some(0)) && ReadPace::is_idle(&[], None));
        assert!(!ReadPace::is_idle(&[], Some(1)));
    }
}
