//! When a plugin is called because time has passed, and which time it is told.

use std::fmt;
use std::time::Duration;

use crate::time::Moment;

/// How often a plugin is called because time has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TickInterval(Duration);

/// The ticks of one shard under one holding of its lease.
///
/// The next one is due an interval after the last one has ended, so ticks never pile up: a host
/// that was suspended for an hour ticks once. A tick that took longer than the interval is followed
/// by as much time for records, and one that failed by a wait that doubles.
#[derive(Debug, Clone)]
pub struct Ticks {
    every: Duration,
    due_at: Moment,
    /// In a row.
    failures: u32,
    /// The time that the last tick was told, in milliseconds since the Unix epoch.
    shown_ms: u64,
}

impl TickInterval {
    /// The shortest: each tick may cost a write to the table, and a call between two batches.
    pub const MIN: Duration = Duration::from_secs(1);
    /// The longest: the interval begins again with each holding of a lease, so on a fleet that is
    /// deployed every few hours a longer one might never end.
    pub const MAX: Duration = Duration::from_hours(1);
    /// What a plugin gets that does not say otherwise.
    pub const STANDARD: Self = Self(Duration::from_secs(10));

    /// An interval of `every`; `None` if that is not between [`TickInterval::MIN`] and
    /// [`TickInterval::MAX`].
    pub fn new(every: Duration) -> Option<Self> {
        let is_within = (Self::MIN..=Self::MAX).contains(&every);
        is_within.then_some(Self(every))
    }

    /// The time between two ticks, at least.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl Default for TickInterval {
    fn default() -> Self {
        Self::STANDARD
    }
}

impl fmt::Display for TickInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Ticks {
    /// Doublings of the interval after failures. Six make 64 intervals: ten minutes of the standard
    /// one.
    const DOUBLINGS_MAX: u32 = 6;

    /// The first tick is due an interval from `now` on.
    pub fn new(every: TickInterval, now: Moment) -> Self {
        Self {
            every: every.get(),
            due_at: now + every.get(),
            failures: 0,
            shown_ms: 0,
        }
    }

    /// How long until the next one is due; zero if it is.
    pub fn due_in(&self, now: Moment) -> Duration {
        self.due_at.since(now)
    }

    /// The time to say at a tick, where the wall clock shows `wall_ms`: never less than at the tick
    /// before, also if the clock was set back.
    pub fn now_ms(&mut self, wall_ms: u64) -> u64 {
        self.shown_ms = self.shown_ms.max(wall_ms);
        self.shown_ms
    }

    /// A tick that took this long has worked. Whether the one before had failed.
    pub fn worked(&mut self, took: Duration, now: Moment) -> bool {
        self.due_at = now + self.every.max(took);
        std::mem::take(&mut self.failures) > 0
    }

    /// A tick that took this long has failed. How often that was in a row.
    pub fn failed(&mut self, took: Duration, now: Moment) -> u32 {
        self.failures = self.failures.saturating_add(1);
        let doublings = (self.failures - 1).min(Self::DOUBLINGS_MAX);
        let wait = self.every.saturating_mul(1 << doublings);
        self.due_at = now + wait.max(took);
        self.failures
    }

    /// Another version is at work: what the one before failed at says nothing of it.
    pub fn start_over(&mut self, now: Moment) {
        self.failures = 0;
        self.due_at = self.due_at.min(now + self.every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn every_ten() -> Ticks {
        Ticks::new(TickInterval::STANDARD, at(100))
    }

    #[test]
    fn an_interval_is_between_a_second_and_an_hour() {
        assert_eq!(TickInterval::new(Duration::from_millis(999)), None);
        assert_eq!(TickInterval::new(seconds(3_601)), None);
        for bound in [TickInterval::MIN, TickInterval::MAX] {
            assert_eq!(TickInterval::new(bound).map(TickInterval::get), Some(bound));
        }
        assert_eq!(TickInterval::default().to_string(), "10s");
    }

    #[test]
    fn a_tick_is_due_an_interval_after_the_last_one_and_once_after_a_long_sleep() {
        let mut ticks = every_ten();
        assert_eq!(ticks.due_in(at(103)), seconds(7));
        assert_eq!(ticks.due_in(at(3_700)), Duration::ZERO);
        assert!(!ticks.worked(seconds(1), at(3_700)));
        assert_eq!(ticks.due_in(at(3_700)), seconds(10), "one, not 360");
    }

    #[test]
    fn a_slow_tick_leaves_records_as_much_time_as_it_took() {
        let mut ticks = every_ten();
        ticks.worked(seconds(25), at(135));
        assert_eq!(ticks.due_in(at(135)), seconds(25));
        ticks.failed(seconds(15), at(200));
        assert_eq!(ticks.due_in(at(200)), seconds(15));
    }

    #[test]
    fn a_failing_tick_is_tried_again_after_waits_that_double_up_to_64_intervals() {
        let mut ticks = every_ten();
        let wait_after = |ticks: &mut Ticks| {
            let failures = ticks.failed(Duration::ZERO, at(100));
            (failures, ticks.due_in(at(100)).as_secs())
        };
        let waits: Vec<_> = (0..9).map(|_| wait_after(&mut ticks)).collect();
        let doubled = [10, 20, 40, 80, 160, 320, 640, 640, 640];
        assert_eq!(waits, (1..).zip(doubled).collect::<Vec<_>>());
        assert!(
            ticks.worked(Duration::ZERO, at(100)),
            "that it works again is news"
        );
        assert_eq!(wait_after(&mut ticks), (1, 10));
    }

    #[test]
    fn another_version_gets_its_tick_an_interval_later_whatever_the_one_before_failed_at() {
        let mut ticks = every_ten();
        for _ in 0..5 {
            ticks.failed(Duration::ZERO, at(100));
        }
        ticks.start_over(at(110));
        assert_eq!(ticks.due_in(at(110)), seconds(10));
        ticks.start_over(at(115));
        assert_eq!(ticks.due_in(at(115)), seconds(5), "swaps put no tick off");
    }

    #[test]
    fn the_time_of_a_tick_never_goes_back() {
        let mut ticks = every_ten();
        assert_eq!(ticks.now_ms(5_000), 5_000);
        assert_eq!(ticks.now_ms(4_000), 5_000, "the clock was set back");
        assert_eq!(ticks.now_ms(6_000), 6_000);
    }
}
