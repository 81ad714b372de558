//! Whether an owner is alive: one rule, for hosts that judge each other and for people who ask.

use std::fmt;
use std::time::Duration;

/// An owner counts as late if it was silent for this part of its lease duration: a host's heart
/// beats every 0.36 of it, a KCL renews every third of it, and a write is noticed only at the next
/// look.
const LATE_AFTER: f64 = 0.47;

/// What was observed of an owner, or of one of its leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// How long it may be silent before others take its leases. [`Duration::MAX`] if unknown.
    pub lease_duration: Duration,
    /// How long ago it was last seen to write, or was first seen.
    pub silent: Duration,
    /// Whether it was ever seen to write, and not only seen.
    pub has_written: bool,
}

/// Whether an owner is alive. Only [`Pulse::Expired`] allows a host to treat the owner as dead.
///
/// | silent for | ever seen to write | pulse |
/// |---|---|---|
/// | more than the lease duration | any | expired |
/// | more than 0.47 of it | any | silent |
/// | less | yes | beats |
/// | less | no | unwatched |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    /// It was seen to write, and its next write is not overdue.
    Beats,
    /// It was not watched for long enough to judge: it may simply write this rarely.
    Unwatched {
        /// The time until it counts as dead, if it does not write before.
        expires_in: Duration,
    },
    /// It should have written by now, and did not.
    Silent {
        /// How long it has been silent.
        silent: Duration,
        /// The time until it counts as dead, if it does not write before.
        expires_in: Duration,
    },
    /// It did not write for longer than its lease duration.
    Expired {
        /// How long, at least.
        silent: Duration,
    },
}

impl Pulse {
    /// Judges an owner by what was observed.
    pub fn of(watched: &Watched) -> Self {
        let Watched {
            lease_duration,
            silent,
            has_written,
        } = *watched;
        let expires_in = lease_duration.saturating_sub(silent);
        if silent > lease_duration {
            Self::Expired { silent }
        } else if silent > lease_duration.mul_f64(LATE_AFTER) {
            Self::Silent { silent, expires_in }
        } else if has_written {
            Self::Beats
        } else {
            Self::Unwatched { expires_in }
        }
    }

    /// Whether the owner may be alive: an owner is dead only after it was watched for longer than
    /// its lease duration.
    pub fn may_live(self) -> bool {
        !matches!(self, Self::Expired { .. })
    }

    /// Whether it should have written by now, and did not.
    pub fn is_late(self) -> bool {
        matches!(self, Self::Silent { .. } | Self::Expired { .. })
    }

    /// The stable name for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Beats => "live",
            Self::Unwatched { .. } => "unwatched",
            Self::Silent { .. } => "silent",
            Self::Expired { .. } => "dead",
        }
    }

    /// The pulse that speaks more for the owner being alive, of two that its leases show.
    #[must_use]
    pub(crate) fn or_livelier(self, other: Self) -> Self {
        if other.rank() < self.rank() {
            other
        } else {
            self
        }
    }

    /// The livelier, the smaller.
    fn rank(self) -> u8 {
        match self {
            Self::Beats => 0,
            Self::Unwatched { .. } => 1,
            Self::Silent { .. } => 2,
            Self::Expired { .. } => 3,
        }
    }
}

impl fmt::Display for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beats => f.write_str("alive"),
            Self::Unwatched { .. } => {
                f.write_str("not watched for long enough to know whether it is alive")
            }
            Self::Silent { silent, .. } => write!(f, "silent for {}", Seconds(*silent)),
            Self::Expired { silent } => write!(f, "dead: silent for {} or more", Seconds(*silent)),
        }
    }
}

/// Whole seconds, or milliseconds below one second, for people to read.
pub(crate) struct Seconds(pub(crate) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < Duration::from_secs(1) {
            write!(f, "{}ms", self.0.as_millis())
        } else {
            write!(f, "{}s", self.0.as_secs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(9);

    fn pulse(silent_ms: u64, has_written: bool) -> Pulse {
        Pulse::of(&Watched {
            lease_duration: LEASE,
            silent: Duration::from_millis(silent_ms),
            has_written,
        })
    }

    #[test]
    fn silence_means_nothing_before_the_next_write_is_due_and_death_only_after_a_lease_duration() {
        for (silent_ms, when_written, when_only_seen) in [
            (0, "live", "unwatched"),
            (4_230, "live", "unwatched"),
            (4_231, "silent", "silent"),
            (9_000, "silent", "silent"),
            (9_001, "dead", "dead"),
        ] {
            assert_eq!(
                pulse(silent_ms, true).code(),
                when_written,
                "{silent_ms} ms after a write"
            );
            assert_eq!(
                pulse(silent_ms, false).code(),
                when_only_seen,
                "{silent_ms} ms after the first look"
            );
            assert_eq!(pulse(silent_ms, false).may_live(), silent_ms <= 9_000);
            assert_eq!(pulse(silent_ms, true).is_late(), silent_ms > 4_230);
        }
        assert_eq!(
            pulse(5_000, true),
            Pulse::Silent {
                silent: secs(5),
                expires_in: secs(4)
            }
        );
    }

    #[test]
    fn nobody_dies_whose_lease_duration_is_not_known() {
        let watched = Watched {
            lease_duration: Duration::MAX,
            silent: secs(100_000),
            has_written: false,
        };
        assert_eq!(Pulse::of(&watched).code(), "unwatched");
    }

    #[test]
    fn an_owner_lives_as_long_as_one_of_its_leases_shows_it() {
        let all = [
            pulse(0, true),
            pulse(1_000, false),
            pulse(5_000, true),
            pulse(10_000, true),
        ];
        for (at, livelier) in all.iter().enumerate() {
            for other in &all[at..] {
                assert_eq!(
                    (livelier.or_livelier(*other), other.or_livelier(*livelier)),
                    (*livelier, *livelier)
                );
            }
        }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}
