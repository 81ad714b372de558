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
    /// When it last signed, in milliseconds since the Unix epoch; if it is being removed, since when.
    pub seen_ms: u64,
    /// Whether what it has in the tables is being removed.
    pub is_going: bool,
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
    /// For how long a host must be gone, in [`Self::FORGET_AFTER_MIN`] to [`Self::FORGET_AFTER_MAX`],
    /// until the others remove its rows.
    pub forget_after: Duration,
}

/// What a host does before it reads anything of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// It writes this entry, and goes on with what it has, if there is anything.
    Sign(StandaloneHost),
    /// It removes what it has: first it writes this entry, if there is one, then it removes all
    /// rows, then its entry.
    StartOver(Option<StandaloneHost>),
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
        let Some(entry) = entry else {
            return Beginning::Sign(StandaloneHost::new(me.clone(), wall_ms));
        };
        if entry.is_going {
            return Beginning::StartOver(None);
        }
        if is_first && self.restart == Restart::StartOver {
            return Beginning::StartOver(Some(entry.going(wall_ms)));
        }
        Beginning::Sign(entry.signed(wall_ms))
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
                self.forget_after
            };
            entry.id != *me && age > limit
        };
        entries.iter().filter(is_overdue).collect()
    }
}

impl Default for StandalonePolicy {
    fn default() -> Self {
        Self {
            restart: Restart::default(),
            forget_after: Self::FORGET_AFTER_DEFAULT,
        }
    }
}

// === impl StandaloneHost ===

impl StandaloneHost {
    /// The first entry of a host.
    pub fn new(id: WorkerId, wall_ms: u64) -> Self {
        Self {
            id,
            beat: 1,
            seen_ms: wall_ms,
            is_going: false,
        }
    }

    /// The entry as a living host writes it next.
    #[must_use]
    pub fn signed(&self, wall_ms: u64) -> Self {
        Self {
            id: self.id.clone(),
            beat: self.beat.saturating_add(1),
            seen_ms: wall_ms,
            is_going: false,
        }
    }

    /// The entry while the host's rows are being removed.
    #[must_use]
    pub fn going(&self, wall_ms: u64) -> Self {
        Self {
            is_going: true,
            ..self.signed(wall_ms)
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
        }
    }

    fn begin(restart: Restart, entry: Option<&StandaloneHost>, is_first: bool) -> Beginning {
        let policy = StandalonePolicy {
            restart,
            ..StandalonePolicy::default()
        };
        policy.begin(&host("a"), entry, is_first, 500)
    }

    #[test]
    fn a_host_goes_on_at_a_restart_or_starts_over_once_a_process() {
        let seen = entry("a", 100);
        let signed = Beginning::Sign(seen.signed(500));
        assert_eq!(begin(Restart::Resume, Some(&seen), true), signed);
        assert_eq!(
            begin(Restart::StartOver, Some(&seen), true),
            Beginning::StartOver(Some(seen.going(500)))
        );
        assert_eq!(
            begin(Restart::StartOver, Some(&seen), false),
            signed,
            "a plugin that is put back is no restart of the host"
        );
    }

    #[test]
    fn a_new_host_signs_and_one_that_was_being_forgotten_starts_over() {
        for restart in [Restart::Resume, Restart::StartOver] {
            let Beginning::Sign(new) = begin(restart, None, true) else {
                panic!("it has nothing to remove");
            };
            assert_eq!((new.id.as_str(), new.is_going), ("a", false));
            let going = entry("a", 100).going(200);
            assert_eq!(
                begin(restart, Some(&going), false),
                Beginning::StartOver(None),
                "some of its rows may be gone"
            );
        }
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
                restart: Restart::Resume,
                forget_after,
            }
            .sign_every()
        };
        assert_eq!(every(StandalonePolicy::FORGET_AFTER_MIN), SIGN_EVERY_MIN);
        assert_eq!(every(Duration::from_hours(12)), Duration::from_mins(30));
        assert_eq!(every(StandalonePolicy::FORGET_AFTER_MAX), SIGN_EVERY_MAX);
    }
}
