//! A row that cannot be written while the host's heartbeat still holds its lease: reported at once,
//! and given up in bounded time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::WorkerId;
use crate::fleet::WorkerRow;
use crate::time::Moment;

/// A write that keeps failing, since its first failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteTrouble {
    /// When it was first sent.
    pub since: Moment,
    /// Failures in a row.
    pub attempts: u32,
    /// The reason of the last failure.
    pub reason: String,
}

impl WriteTrouble {
    /// Fewer failures are an ordinary hiccup, over within half a second.
    pub(crate) const SHOWN_FROM_ATTEMPTS: u32 = 3;
    /// After this many lease durations, a row that cannot be written is left to another host. A
    /// holder whose heartbeats fail too lets go after one.
    pub const GIVEN_UP_AFTER_LEASES: u32 = 3;

    /// Whether it has lasted long enough to be reported.
    pub fn is_shown(&self) -> bool {
        self.attempts >= Self::SHOWN_FROM_ATTEMPTS
    }

    /// Whether to give the lease up, so that another host can make progress.
    ///
    /// Not while no other host would do better: if the table is out for all of them, giving up
    /// helps no host, and every holder continues where it was once the table is back.
    pub fn is_to_be_given_up(
        &self,
        now: Moment,
        lease_duration: Duration,
        can_others_write: bool,
    ) -> bool {
        can_others_write && now.since(self.since) >= lease_duration * Self::GIVEN_UP_AFTER_LEASES
    }
}

/// Whether a host other than `me` can write lease rows as far as it knows, among those that are
/// `alive` and not shutting down.
pub fn can_others_write(me: &WorkerId, workers: &[WorkerRow], alive: &BTreeSet<WorkerId>) -> bool {
    workers
        .iter()
        .any(|row| row.worker != *me && alive.contains(&row.worker) && row.cannot_write.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    fn row(name: &str, cannot_write: Option<&str>) -> WorkerRow {
        WorkerRow {
            cannot_write: cannot_write.map(str::to_owned),
            ..WorkerRow::beating(name)
        }
    }

    #[test]
    fn a_row_that_cannot_be_written_is_shown_at_once_and_given_up_after_three_lease_durations() {
        let lease = Duration::from_secs(10);
        let trouble = |attempts| WriteTrouble {
            since: at(100),
            attempts,
            reason: "denied".to_owned(),
        };
        assert!(!trouble(2).is_shown() && trouble(3).is_shown());
        assert!(!trouble(99).is_to_be_given_up(at(129), lease, true));
        assert!(trouble(99).is_to_be_given_up(at(130), lease, true));
        assert!(
            !trouble(99).is_to_be_given_up(at(9_999), lease, false),
            "nobody would fare better"
        );
    }

    #[test]
    fn others_can_write_if_one_lives_that_does_not_say_that_it_cannot() {
        let me = WorkerId::new("me").unwrap();
        let alive: BTreeSet<WorkerId> = ["me", "a"].into_iter().filter_map(WorkerId::new).collect();
        assert!(
            !can_others_write(&me, &[row("me", None)], &alive),
            "it is alone"
        );
        assert!(can_others_write(
            &me,
            &[row("me", Some("denied")), row("a", None)],
            &alive
        ));
        assert!(
            !can_others_write(&me, &[row("a", Some("denied"))], &alive),
            "it cannot either"
        );
        assert!(!can_others_write(
            &me,
            &[row("a", Some("denied")), row("dead", None)],
            &alive
        ));
    }
}
