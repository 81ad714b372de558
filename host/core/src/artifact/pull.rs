use std::time::Duration;

use crate::backoff::Backoff;
use crate::time::Moment;

/// When a host looks whether there is another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullPolicy {
    /// How often it looks at what may change.
    pub every: Duration,
    /// How long it waits after a failure, if that is sooner or later.
    pub backoff: Backoff,
}

/// When one source is looked at next.
#[derive(Debug, Clone)]
pub struct Pull {
    policy: PullPolicy,
    next_at: Moment,
    /// In a row.
    failures: u32,
}

impl Pull {
    /// One that is due at once.
    pub fn new(policy: PullPolicy, now: Moment) -> Self {
        Self {
            policy,
            next_at: now,
            failures: 0,
        }
    }

    /// When it is looked at, unless somebody asks before.
    pub fn next_at(&self) -> Moment {
        self.next_at
    }

    /// Takes in whether a look at `now` succeeded. `roll` is uniform in `[0, 1)`: hosts that began
    /// together do not ask together for ever.
    pub fn ended(&mut self, now: Moment, is_ok: bool, roll: f64) {
        let wait = if is_ok {
            self.failures = 0;
            let every = self.policy.every;
            every.saturating_sub((every / 10).mul_f64(roll.clamp(0.0, 1.0)))
        } else {
            self.failures = self.failures.saturating_add(1);
            self.policy.backoff.delay(self.failures, roll)
        };
        self.next_at = now + wait;
    }

    /// Looks again after `wait` at the latest.
    pub fn within(&mut self, now: Moment, wait: Duration) {
        self.next_at = self.next_at.min(now + wait);
    }

    /// Whether this failure is the first one after a success, which people are to hear of.
    pub fn has_just_failed(&self) -> bool {
        self.failures == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_asked_again_in_time_and_after_failures_ever_more_rarely() {
        let now = Moment::from_origin(Duration::from_secs(100));
        let secs = Duration::from_secs;
        let policy = PullPolicy {
            every: secs(60),
            backoff: Backoff::new(secs(5), secs(300)).unwrap(),
        };
        let mut pull = Pull::new(policy, now);
        assert_eq!(pull.next_at(), now);
        pull.ended(now, true, 0.0);
        assert_eq!(pull.next_at(), now + secs(60));
        pull.ended(now, true, 1.0);
        assert_eq!(pull.next_at(), now + secs(54), "not all hosts at once");
        let mut waits = Vec::new();
        for _ in 0..10 {
            pull.ended(now, false, 1.0);
            waits.push(pull.next_at().since(now).as_secs());
            assert_eq!(pull.has_just_failed(), waits.len() == 1);
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300, 300]);
        pull.ended(now, true, 0.0);
        assert_eq!(pull.next_at(), now + secs(60));
        pull.ended(now, false, 0.0);
        assert_eq!(pull.next_at(), now + Duration::from_millis(2_500));
    }
}
