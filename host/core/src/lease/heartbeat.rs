//! What a host's heartbeat holds: all leases whose rows were written since the host last had to
//! prove that it still holds them.
//!
//! A heartbeat does not move the counter of a lease, so it cannot show a host that its leases were
//! taken in its absence. A write to the row can: if it is applied, no other worker took the lease
//! before it. Heartbeats are therefore counted in generations, and each lease belongs to the one
//! that was under way when its last applied write was *sent*.

use crate::seeded_bug::SeededBug;
use crate::time::Moment;

/// A run of heartbeats without a missed deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Generation(u64);

/// What the last write to a lease's own row gives its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The moment until which the row alone holds it.
    pub until: Moment,
    /// The heart's generation when that write was sent.
    pub generation: Generation,
}

/// How long one host's heart holds its leases, on that host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    generation: Generation,
    until: Moment,
    /// The deadline of leases of the previous generation, which may not have passed yet.
    until_before: Moment,
    /// Whether the host's row was found gone since the last heartbeat that was applied.
    is_row_gone: bool,
}

impl Heartbeat {
    /// The heart of a host that registered with a request that holds until `until`. It holds no
    /// lease yet.
    pub fn new(until: Moment) -> Self {
        Self {
            generation: Generation::default(),
            until,
            until_before: Moment::default(),
            is_row_gone: false,
        }
    }

    /// A heartbeat that holds until `until` was applied, or the registration of a host whose row
    /// was gone, which is known at `now`.
    ///
    /// A heartbeat after the deadline revives nothing: it begins a new generation.
    pub fn beaten(&mut self, until: Moment, now: Moment) {
        if now >= self.until && !SeededBug::LateHeartbeatRevives.is_on() {
            self.begin_generation();
        }
        self.until = self.until.max(until);
        self.is_row_gone = false;
    }

    /// The host's row is gone, and is to be written again.
    ///
    /// While it is gone, others may judge the host by its lease rows alone, so each lease has to be
    /// proven by a write. What earlier heartbeats hold, they hold until their deadline: a host
    /// whose row vanishes counts as silent from that moment. That does not depend on the answer to
    /// the registration, which may be lost, or come only to the second one.
    pub fn row_gone(&mut self) {
        if !self.is_row_gone && !SeededBug::VanishedHeartHolds.is_on() {
            self.begin_generation();
        }
        self.is_row_gone = true;
    }

    /// Whether others may still consider the host alive: its last heartbeat holds at `now`. After
    /// that, only the take itself holds a lease that the host takes, and to others, who may have
    /// removed its row by then, the take is a move by an unknown owner.
    pub fn is_alive(&self, now: Moment) -> bool {
        now < self.until
    }

    /// The generation that a lease written now belongs to.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The moment until which a lease is held: the later of its own deadline and the heart's.
    pub fn deadline(&self, hold: Hold) -> Moment {
        let missed = self.generation.0.saturating_sub(hold.generation.0);
        match missed {
            0 => hold.until.max(self.until),
            1 => hold.until.max(self.until_before),
            _ => hold.until,
        }
    }

    fn begin_generation(&mut self) {
        self.generation = Generation(self.generation.0 + 1);
        self.until_before = self.until;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_host_is_alive_until_the_deadline_of_its_last_heartbeat_and_again_from_the_next_one_on() {
        let mut heartbeat = Heartbeat::new(at(10));
        assert!(heartbeat.is_alive(at(9)) && !heartbeat.is_alive(at(10)));
        heartbeat.beaten(at(25), at(16));
        assert!(heartbeat.is_alive(at(24)) && !heartbeat.is_alive(at(25)));
        heartbeat.row_gone();
        assert!(!heartbeat.is_alive(at(25)));
        heartbeat.beaten(at(50), at(40));
        assert!(heartbeat.is_alive(at(49)));
    }

    fn row(until: u64, generation: Generation) -> Hold {
        Hold {
            until: at(until),
            generation,
        }
    }

    #[test]
    fn a_heartbeat_in_time_holds_every_lease_of_its_generation() {
        let mut heart = Heartbeat::new(at(9));
        let lease = row(5, heart.generation());
        assert_eq!(heart.deadline(lease), at(9));
        heart.beaten(at(12), at(4));
        assert_eq!(heart.deadline(lease), at(12));
        assert_eq!(
            heart.deadline(row(20, heart.generation())),
            at(20),
            "a row written later holds longer"
        );
    }

    #[test]
    fn a_heartbeat_after_the_deadline_revives_nothing_and_holds_what_is_written_after_it() {
        let mut heart = Heartbeat::new(at(9));
        let before = row(5, heart.generation());
        heart.beaten(at(19), at(9));
        assert_eq!(heart.deadline(before), at(9), "that deadline has passed");
        let after = row(14, heart.generation());
        assert_eq!(
            heart.deadline(after),
            at(19),
            "its write proved that nobody had taken it"
        );
        heart.beaten(at(29), at(19));
        assert_eq!(heart.deadline(before), at(5), "two generations ago");
    }

    #[test]
    fn a_write_belongs_to_the_generation_it_was_sent_in_however_late_its_answer_is() {
        let mut heart = Heartbeat::new(at(9));
        let sent_in = heart.generation();
        heart.beaten(at(30), at(20));
        assert_eq!(
            heart.deadline(row(9, sent_in)),
            at(9),
            "others may have taken it since it was sent"
        );
    }

    #[test]
    fn a_host_registered_again_holds_until_the_deadline_it_had_what_is_not_written_since() {
        let mut heart = Heartbeat::new(at(9));
        let idle = row(3, heart.generation());
        heart.row_gone();
        heart.beaten(at(13), at(4));
        assert_eq!(
            heart.deadline(idle),
            at(9),
            "no longer than its last heartbeat, and no shorter"
        );
        assert_eq!(heart.deadline(row(8, heart.generation())), at(13));
        heart.beaten(at(16), at(8));
        assert_eq!(
            heart.deadline(idle),
            at(9),
            "a later heartbeat does not prolong it"
        );
    }

    #[test]
    fn a_registration_without_an_answer_holds_nothing_and_takes_nothing() {
        let mut heart = Heartbeat::new(at(9));
        let idle = row(3, heart.generation());
        heart.row_gone();
        heart.row_gone();
        assert_eq!(heart.deadline(idle), at(9), "it is still the first time");
        heart.beaten(at(16), at(6));
        assert_eq!(heart.deadline(idle), at(9), "the row was gone in between");
        heart.row_gone();
        assert_eq!(heart.deadline(idle), at(3), "two generations ago");
    }
}
