//! Standalone hosts: each reads all shards by itself, as a cache must. What it has in the tables is
//! its own, and is removed once it is gone for long.

use std::time::Duration;

use crate::lease::WorkerId;

/// What is being removed since so long was left by a host that died over it. Removing the rows of a
/// few thousand shards takes a minute.
const ABANDONED_AFTER: Duration = Duration::from_mins(10);
/// The list is written and read at least once an hour, so that rows do not outlive
/// [`StandalonePolicy::forget_after`] by much.
const SIGN_EVERY_MAX: Duration = Duration::from_hours(1);
const SIGN_EVERY_MIN: Duration = Duration::from_mins(1);
/// A host signs so often within the time after which it would be forgotten.
const SIGNS_WITHIN: u32 = 24;

/// An entry of the list of standalone hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandaloneHost {
    /// The worker id, as in its leases.
    pub id: WorkerId,
    /// Raised by each write.
    pub beat: u64,
    /// When it last signed, in milliseconds since the Unix epoch; if it is being removed, since
    /// when.
    pub seen_ms: u64,
    /// Whether what it has in the tables is being removed.
    pub is_going: bool,
    /// For how long it must be gone until others remove it: its own setting.
    pub forget_after: Duration,
    /// Whether it may have rows of state, which only hosts remove that keep state too.
    pub keeps_state: bool,
}

/// What a standalone host does when it starts and its id has been here before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Restart {
    /// It goes on where it stopped.
    #[default]
    Resume,
    /// It begins as a new host does, at the initial position.
    StartOver,
}

/// How a plugin is read by standalone hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandalonePolicy {
    /// What happens at a restart.
    pub restart: Restart,
    /// For how long a host must be gone, in [`Self::FORGET_AFTER_MIN`] to
    /// [`Self::FORGET_AFTER_MAX`], until the others remove its rows.
    pub forget_after: Duration,
    /// Whether the plugin keeps state here.
    pub keeps_state: bool,
}

/// What a host does before it reads anything of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// It writes this entry, and goes on with what it has, if there is anything.
    Sign(StandaloneHost),
    /// It writes this mark, so that nobody else goes on with a removal; then it removes what it
    /// has, then the mark, and begins again.
    StartOver(StandaloneHost),
}

// === impl StandalonePolicy ===

impl StandalonePolicy {
    /// Hosts sign each minute at most.
    pub const FORGET_AFTER_MIN: Duration = Duration::from_mins(10);
    /// Kinesis keeps records for a year at most (AWS limit).
    pub const FORGET_AFTER_MAX: Duration = Duration::from_hours(365 * 24);
    /// Long enough for a night in which nobody repairs a host.
    pub const FORGET_AFTER_DEFAULT: Duration = Duration::from_hours(24);

    /// How often a host signs, and looks for others that are gone.
    pub fn sign_every(&self) -> Duration {
        (self.forget_after / SIGNS_WITHIN).clamp(SIGN_EVERY_MIN, SIGN_EVERY_MAX)
    }

    /// What a host that starts does, given its entry. `is_first` unless this process served the
    /// plugin before: then it always goes on.
    pub fn begin(
        &self,
        me: &WorkerId,
        entry: Option<&StandaloneHost>,
        is_first: bool,
        wall_ms: u64,
    ) -> Beginning {
        let next = self.sign(me, entry, wall_ms);
        // Rows without an entry may be there too.
        let starts_over = is_first && self.restart == Restart::StartOver;
        if starts_over || entry.is_some_and(|entry| entry.is_going) {
            Beginning::StartOver(next.going(wall_ms))
        } else {
            Beginning::Sign(next)
        }
    }

    /// The next entry of a living host.
    pub fn sign(
        &self,
        me: &WorkerId,
        entry: Option<&StandaloneHost>,
        wall_ms: u64,
    ) -> StandaloneHost {
        StandaloneHost {
            id: me.clone(),
            beat: entry.map_or(0, |entry| entry.beat).saturating_add(1),
            seen_ms: wall_ms,
            is_going: false,
            forget_after: self.forget_after,
            // What was saved once is there until it is removed.
            keeps_state: self.keeps_state || entry.is_some_and(|entry| entry.keeps_state),
        }
    }

    /// The entries of hosts that are gone by their own sign; whether they live is to be watched
    /// before anything is removed, since clocks may differ. Never `me`.
    pub fn overdue<'a>(
        &self,
        me: &WorkerId,
        entries: &'a [StandaloneHost],
        wall_ms: u64,
    ) -> Vec<&'a StandaloneHost> {
        let is_overdue = |entry: &&StandaloneHost| {
            let age = Duration::from_millis(wall_ms.saturating_sub(entry.seen_ms));
            let limit = if entry.is_going {
                ABANDONED_AFTER
            } else {
                entry.forget_after
            };
            let may_remove_all = self.keeps_state || !entry.keeps_state;
            entry.id != *me && age > limit && may_remove_all
        };
        entries.iter().filter(is_overdue).collect()
    }
}

impl Default for StandalonePolicy {
    fn default() -> Self {
        Self {
            restart: Restart::default(),
            forget_after: Self::FORGET_AFTER_DEFAULT,
            keeps_state: false,
        }
    }
}

// === impl StandaloneHost ===

impl StandaloneHost {
    /// The mark under which the host's rows are removed. It differs from any mark before, so that
    /// of two removals only the later one goes on.
    #[must_use]
    pub fn going(&self, wall_ms: u64) -> Self {
        Self {
            beat: self.beat.saturating_add(1),
            seen_ms: wall_ms,
            is_going: true,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 24 * 3_600 * 1_000;

    fn host(name: &str) -> WorkerId {
        WorkerId::new(name).unwrap()
    }

    fn entry(name: &str, seen_ms: u64) -> StandaloneHost {
        StandaloneHost {
            id: host(name),
            beat: 7,
            seen_ms,
            is_going: false,
            forget_after: StandalonePolicy::FORGET_AFTER_DEFAULT,
            keeps_state: false,
        }
    }

    fn policy(restart: Restart) -> StandalonePolicy {
        StandalonePolicy {
            restart,
            ..StandalonePolicy::default()
        }
    }

    fn begin(restart: Restart, entry: Option<&StandaloneHost>, is_first: bool) -> Beginning {
        policy(restart).begin(&host("a"), entry, is_first, 500)
    }

    #[test]
    fn a_host_goes_on_at_a_restart_or_starts_over_once_a_process() {
        let seen = entry("a", 100);
        let signed = policy(Restart::Resume).sign(&host("a"), Some(&seen), 500);
        assert_eq!((signed.beat, signed.seen_ms), (8, 500));
        let goes_on = Beginning::Sign(signed.clone());
        assert_eq!(begin(Restart::Resume, Some(&seen), true), goes_on);
        assert_eq!(
            begin(Restart::StartOver, Some(&seen), true),
            Beginning::StartOver(signed.going(500))
        );
        assert_eq!(
            begin(Restart::StartOver, Some(&seen), false),
            goes_on,
            "a plugin that is put back is no restart of the host"
        );
    }

    #[test]
    fn rows_without_an_entry_are_removed_by_a_host_that_starts_over() {
        let is_over = |beginning| matches!(beginning, Beginning::StartOver(mark) if mark.is_going);
        assert!(is_over(begin(Restart::StartOver, None, true)));
        for (restart, is_first) in [(Restart::Resume, true), (Restart::StartOver, false)] {
            let Beginning::Sign(new) = begin(restart, None, is_first) else {
                panic!("it goes on with what there is");
            };
            assert_eq!((new.id.as_str(), new.beat, new.is_going), ("a", 1, false));
        }
    }

    #[test]
    fn a_host_that_is_being_forgotten_takes_the_removal_over_and_starts_over() {
        let going = entry("a", 100).going(200);
        for restart in [Restart::Resume, Restart::StartOver] {
            let Beginning::StartOver(mark) = begin(restart, Some(&going), false) else {
                panic!("some of its rows may be gone");
            };
            assert!(mark.beat > going.beat, "the other removal ends");
        }
    }

    #[test]
    fn hosts_are_forgotten_by_their_own_setting_and_those_with_state_by_hosts_with_state() {
        let mut kept = entry("b", 0);
        kept.forget_after = Duration::from_hours(365 * 24);
        let mut stateful = entry("c", 0);
        stateful.keeps_state = true;
        let entries = [kept, stateful];
        let overdue = |keeps_state: bool| -> usize {
            let policy = StandalonePolicy {
                keeps_state,
                ..StandalonePolicy::default()
            };
            policy.overdue(&host("a"), &entries, 2 * DAY_MS).len()
        };
        assert_eq!((overdue(false), overdue(true)), (0, 1));
        let plain = policy(Restart::Resume);
        let signed = plain.sign(&host("c"), Some(&entries[1]), 5);
        assert!(signed.keeps_state, "its rows of state are still there");
    }

    #[test]
    fn a_host_is_overdue_only_after_the_whole_time_and_nobody_judges_itself() {
        let policy = StandalonePolicy::default();
        let entries = [entry("a", 0), entry("b", 0), entry("c", 1)];
        let overdue = |at: u64| -> Vec<_> {
            let found = policy.overdue(&host("a"), &entries, at);
            found.iter().map(|one| one.id.as_str()).collect()
        };
        assert!(overdue(DAY_MS).is_empty());
        assert_eq!(overdue(DAY_MS + 1), ["b"]);
        assert_eq!(overdue(DAY_MS + 2), ["b", "c"]);
    }

    #[test]
    fn what_another_host_is_removing_is_left_to_it_unless_it_died() {
        let policy = StandalonePolicy::default();
        let entries = [entry("b", 0).going(0)];
        let minutes = |minutes: u64| minutes * 60_000;
        assert!(policy.overdue(&host("a"), &entries, minutes(10)).is_empty());
        assert_eq!(
            policy.overdue(&host("a"), &entries, minutes(10) + 1).len(),
            1
        );
    }

    #[test]
    fn a_clock_that_is_behind_makes_nobody_overdue() {
        let policy = StandalonePolicy::default();
        assert!(
            policy
                .overdue(&host("a"), &[entry("b", DAY_MS)], 0)
                .is_empty()
        );
    }

    #[test]
    fn hosts_sign_often_enough_and_not_more_than_each_minute() {
        let every = |forget_after| {
            StandalonePolicy {
                forget_after,
                ..StandalonePolicy::default()
            }
            .sign_every()
        };
        assert_eq!(every(StandalonePolicy::FORGET_AFTER_MIN), SIGN_EVERY_MIN);
        assert_eq!(every(Duration::from_hours(12)), Duration::from_mins(30));
        assert_eq!(every(StandalonePolicy::FORGET_AFTER_MAX), SIGN_EVERY_MAX);
    }
}
