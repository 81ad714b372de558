//! When a reader subscribes again after a subscription ended, and what it does until then.
//!
//! | the subscription | then |
//! |---|---|
//! | was taken over | rest for five seconds or a little more: another host reads the shard |
//! | did not bring what was there | poll for five minutes |
//! | is refused, since another is too young | poll for five seconds or a little more |
//! | was let go of for want of room | poll until it may be renewed |
//! | expired, was cut or stalled, after it had brought something | poll until it may be renewed |
//! | ended in any other way | poll for the back-off, and until it may be renewed |
//!
//! It may be renewed at once, unless it is younger than five seconds.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::time::Moment;

/// A subscription made sooner after a successful one is refused, later it takes over (AWS).
const TAKES_OVER_AFTER: Duration = Duration::from_secs(5);
/// How long a shard is polled whose subscription did not bring what was there: its next one may be
/// no better, and is found out only after a quiet minute.
const POLLS_INCOMPLETE_FOR: Duration = Duration::from_mins(5);

/// How an attempt to read by subscription ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionEnd {
    /// Kinesis ended it, as it does after five minutes.
    Expired,
    /// The connection was cut: GOAWAY, a reset, or an event that cannot be read.
    Cut,
    /// Nothing came for so long that nothing will.
    Stalled,
    /// It did not bring records that are there.
    Incomplete,
    /// The reader let go of it, because the host had no room for too long.
    HeldBack,
    /// Another subscription with the same consumer took it over.
    TakenOver,
    /// It was refused, because another one is too young.
    InUse,
    /// It was refused or cut, because the fan-out consumer is not registered.
    ConsumerGone,
    /// It was refused for another reason.
    Failed,
}

/// What the reader does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Subscribe again now.
    AtOnce,
    /// Poll for this long, then subscribe again: the shard must not rest because it is too early
    /// for a subscription.
    AfterPolling(Duration),
    /// Do nothing for this long, then subscribe again: another host reads the shard now.
    AfterResting(Duration),
}

/// What one reader remembers of its subscriptions to one shard.
#[derive(Debug, Clone, Copy, Default)]
pub struct Renewals {
    /// When the last one was made.
    subscribed_at: Option<Moment>,
    /// Attempts in a row that brought nothing.
    fruitless: u32,
}

impl SubscriptionEnd {
    /// The reason's stable name for metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Cut => "cut",
            Self::Stalled => "stalled",
            Self::Incomplete => "incomplete",
            Self::HeldBack => "held_back",
            Self::TakenOver => "taken_over",
            Self::InUse => "in_use",
            Self::ConsumerGone => "consumer_gone",
            Self::Failed => "failed",
        }
    }
}

impl Renewals {
    /// Notes that a subscription was made.
    pub fn subscribed(&mut self, now: Moment) {
        self.subscribed_at = Some(now);
    }

    /// Notes that an event came.
    pub fn heard(&mut self) {
        self.fruitless = 0;
    }

    /// Attempts in a row that brought nothing.
    pub fn fruitless(&self) -> u32 {
        self.fruitless
    }

    /// What comes after `end`; `roll` is uniform in `[0, 1)`.
    pub fn after(
        &mut self,
        end: SubscriptionEnd,
        now: Moment,
        backoff: Backoff,
        roll: f64,
    ) -> Renewal {
        // Hosts that contend for a shard must not do so in step.
        let polite = TAKES_OVER_AFTER + TAKES_OVER_AFTER.mul_f64(roll.clamp(0.0, 1.0) / 2.0);
        let was_fruitful = self.fruitless == 0;
        if !matches!(
            end,
            SubscriptionEnd::TakenOver | SubscriptionEnd::Incomplete
        ) {
            self.fruitless = self.fruitless.saturating_add(1);
        }
        match end {
            SubscriptionEnd::TakenOver => Renewal::AfterResting(polite),
            SubscriptionEnd::Incomplete => Renewal::AfterPolling(POLLS_INCOMPLETE_FOR),
            SubscriptionEnd::InUse => Renewal::AfterPolling(polite),
            SubscriptionEnd::HeldBack => self.renew_after(Duration::ZERO, polite, now),
            SubscriptionEnd::Expired | SubscriptionEnd::Cut | SubscriptionEnd::Stalled
                if was_fruitful =>
            {
                self.renew_after(Duration::ZERO, polite, now)
            }
            SubscriptionEnd::Expired
            | SubscriptionEnd::Cut
            | SubscriptionEnd::Stalled
            | SubscriptionEnd::ConsumerGone
            | SubscriptionEnd::Failed => {
                self.renew_after(backoff.delay(self.fruitless, roll), polite, now)
            }
        }
    }

    /// Not before `wait`, and not before Kinesis lets a subscription take over the last one.
    fn renew_after(self, wait: Duration, polite: Duration, now: Moment) -> Renewal {
        let age = self.subscribed_at.map(|at| now.since(at));
        let for_youth = match age {
            Some(age) if age < TAKES_OVER_AFTER => polite.saturating_sub(age),
            Some(_) | None => Duration::ZERO,
        };
        match wait.max(for_youth) {
            Duration::ZERO => Renewal::AtOnce,
            wait => Renewal::AfterPolling(wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLLS: [f64; 3] = [0.0, 0.5, 0.999];

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    fn subscribed(seconds: u64) -> Renewals {
        let mut renewals = Renewals::default();
        renewals.subscribed(at(seconds));
        renewals.heard();
        renewals
    }

    #[test]
    fn a_subscription_that_ran_its_time_is_renewed_without_a_pause() {
        for end in [
            SubscriptionEnd::Expired,
            SubscriptionEnd::Cut,
            SubscriptionEnd::Stalled,
            SubscriptionEnd::HeldBack,
        ] {
            let next = subscribed(100).after(end, at(400), Backoff::standard(), 0.3);
            assert_eq!(next, Renewal::AtOnce, "{end:?}");
        }
    }

    #[test]
    fn after_a_young_one_the_shard_is_polled_until_kinesis_takes_another() {
        for roll in ROLLS {
            let next =
                subscribed(100).after(SubscriptionEnd::Cut, at(102), Backoff::standard(), roll);
            let Renewal::AfterPolling(wait) = next else {
                panic!("{next:?}")
            };
            assert!(
                wait >= Duration::from_secs(3) && wait <= Duration::from_millis(5_500),
                "{wait:?}"
            );
            let next =
                subscribed(100).after(SubscriptionEnd::Cut, at(105), Backoff::standard(), roll);
            assert_eq!(next, Renewal::AtOnce, "five seconds old, it is taken over");
        }
    }

    #[test]
    fn who_is_taken_over_rests_for_at_least_five_seconds_and_who_comes_too_early_polls_as_long() {
        for roll in ROLLS {
            let (mut loser, mut early) = (subscribed(100), subscribed(100));
            let rest = loser.after(
                SubscriptionEnd::TakenOver,
                at(200),
                Backoff::standard(),
                roll,
            );
            let Renewal::AfterResting(rest) = rest else {
                panic!("{rest:?}")
            };
            let wait = early.after(SubscriptionEnd::InUse, at(101), Backoff::standard(), roll);
            let Renewal::AfterPolling(wait) = wait else {
                panic!("{wait:?}")
            };
            for wait in [rest, wait] {
                assert!(
                    wait >= Duration::from_secs(5) && wait < Duration::from_millis(7_501),
                    "{wait:?}"
                );
            }
        }
    }

    #[test]
    fn what_fails_again_and_again_is_tried_ever_less_until_an_event_comes() {
        let mut renewals = Renewals::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            match renewals.after(SubscriptionEnd::Failed, at(100), Backoff::standard(), 0.0) {
                Renewal::AfterPolling(wait) => waits.push(wait),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(renewals.fruitless(), 12);
        assert!(
            waits.is_sorted()
                && waits[0] == Duration::from_millis(50)
                && waits[11] == Duration::from_secs(15)
        );
        renewals.heard();
        assert_eq!(renewals.fruitless(), 0);
        assert_eq!(
            renewals.after(SubscriptionEnd::Cut, at(100), Backoff::standard(), 0.0),
            Renewal::AtOnce
        );
    }

    #[test]
    fn subscriptions_that_end_without_an_event_are_not_made_in_a_tight_loop() {
        let mut renewals = Renewals::default();
        for round in 0..5_u64 {
            let now = 100 + round * 400;
            renewals.subscribed(at(now));
            let next = renewals.after(
                SubscriptionEnd::Expired,
                at(now + 300),
                Backoff::standard(),
                0.0,
            );
            assert_eq!(next == Renewal::AtOnce, round == 0, "{next:?}");
        }
    }

    #[test]
    fn each_end_of_a_subscription_is_a_word_of_its_own_in_the_metric() {
        let told: Vec<_> = [
            SubscriptionEnd::Expired,
            SubscriptionEnd::Cut,
            SubscriptionEnd::Stalled,
            SubscriptionEnd::HeldBack,
            SubscriptionEnd::TakenOver,
            SubscriptionEnd::InUse,
            SubscriptionEnd::ConsumerGone,
            SubscriptionEnd::Failed,
        ]
        .map(SubscriptionEnd::code)
        .into();
        let documented = [
            "expired",
            "cut",
            "stalled",
            "held_back",
            "taken_over",
            "in_use",
            "consumer_gone",
            "failed",
        ];
        assert_eq!(told, documented);
    }
}
