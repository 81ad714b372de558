//! Which host leads: decided from a fenced record and this host's own observation of it, never by
//! comparing clocks.

use std::time::Duration;

use super::{Incarnation, Role, Service};
use crate::lease::WorkerId;
use crate::time::Moment;

/// A leader is replaced if its record did not move for this many lease durations. One: a leader's
/// work can wait as long as a lease can.
pub(crate) const LEADER_SILENCE_LEASES: u32 = 1;

/// Who leads the fleet: the row that every leader writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderRow {
    /// The leader; `None` after it resigned.
    pub holder: Option<(WorkerId, Incarnation)>,
    /// Raised by one with every write; every write is conditional on it.
    pub version: u64,
    /// How the leader serves the fleet, as it reports; `None` from a leader of an older version.
    pub service: Option<Service>,
}

/// What to do about the leadership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderStep {
    /// Write the record, if it is still as seen: there is no leader, or the leader does not move.
    Acquire,
    /// Write the record again: this host leads.
    Refresh,
    /// This host leads, and renewed its record recently enough.
    Lead,
    /// Another host leads.
    Follow,
}

/// One host's memory of the leader's record.
#[derive(Debug, Default)]
pub struct Leadership {
    seen: Option<(LeaderRow, Moment)>,
    refreshed_at: Option<Moment>,
}

impl Leadership {
    /// Takes in the record as read at `read_at`.
    ///
    /// A record seen for the first time counts as moved now, as with leases.
    pub fn observe(&mut self, row: Option<&LeaderRow>, read_at: Moment) {
        let moved_at = match (&self.seen, row) {
            (Some((seen, moved_at)), Some(row)) if seen == row => *moved_at,
            _ => read_at,
        };
        self.seen = row.map(|row| (row.clone(), moved_at));
    }

    /// What to do now. A leader writes its record only after its duties succeeded, so that a leader
    /// whose duties fail is replaced.
    pub fn decide(
        &self,
        me: &WorkerId,
        incarnation: &Incarnation,
        lease_duration: Duration,
        now: Moment,
    ) -> LeaderStep {
        let Some((row, moved_at)) = &self.seen else {
            return LeaderStep::Acquire;
        };
        match &row.holder {
            None => LeaderStep::Acquire,
            Some((worker, run)) if worker == me && run == incarnation => {
                let is_fresh = self
                    .refreshed_at
                    .is_some_and(|at| now.since(at) < lease_duration / 3);
                if is_fresh {
                    LeaderStep::Lead
                } else {
                    LeaderStep::Refresh
                }
            }
            // An earlier run of this same worker no longer leads.
            Some((worker, _)) if worker == me => LeaderStep::Acquire,
            Some(_) if now.since(*moved_at) > self.patience(me, lease_duration) => {
                LeaderStep::Acquire
            }
            Some(_) => LeaderStep::Follow,
        }
    }

    /// How long a leader may be silent. A deputy goes first: it knows more, and a thousand hosts
    /// must not try at once.
    fn patience(&self, me: &WorkerId, lease_duration: Duration) -> Duration {
        let watches = lease_duration * LEADER_SILENCE_LEASES;
        match self.role(me) {
            Role::Watch => watches,
            Role::Heed => watches + lease_duration / 3,
        }
    }

    /// How `me` learns what to do: by watching, unless a leader with enough deputies leaves errands
    /// for it.
    pub fn role(&self, me: &WorkerId) -> Role {
        let Some(row) = self.seen() else {
            return Role::Watch;
        };
        let leads = row.holder.as_ref().is_some_and(|(worker, _)| worker == me);
        match &row.service {
            Some(service) if !leads => service.role(me),
            Some(_) | None => Role::Watch,
        }
    }

    /// How the leader last reported that it serves the fleet.
    pub fn service(&self) -> Option<&Service> {
        self.seen()?.service.as_ref()
    }

    /// The record that a write is conditional on.
    pub fn seen(&self) -> Option<&LeaderRow> {
        self.seen.as_ref().map(|(row, _)| row)
    }

    /// The record to write.
    pub fn next(
        &self,
        holder: Option<(WorkerId, Incarnation)>,
        service: Option<Service>,
    ) -> LeaderRow {
        LeaderRow {
            holder,
            version: self.seen().map_or(0, |row| row.version) + 1,
            service,
        }
    }

    /// A write of `row` that was sent at `sent_at` was applied.
    pub fn written(&mut self, row: LeaderRow, sent_at: Moment) {
        self.seen = Some((row, sent_at));
        self.refreshed_at = Some(sent_at);
    }

    /// Whether this host leads, as far as it knows.
    pub fn is_mine(&self, me: &WorkerId, incarnation: &Incarnation) -> bool {
        let holder = self.seen().and_then(|row| row.holder.as_ref());
        holder.is_some_and(|(worker, run)| worker == me && run == incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(9);

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    fn worker(name: &str) -> (WorkerId, Incarnation) {
        (
            WorkerId::new(name).unwrap(),
            Incarnation::new("run").unwrap(),
        )
    }

    fn step(leadership: &Leadership, seconds: u64) -> LeaderStep {
        let (me, run) = worker("me");
        leadership.decide(&me, &run, LEASE, at(seconds))
    }

    #[test]
    fn the_first_host_leads_at_once_and_a_released_office_is_taken_at_once() {
        let mut leadership = Leadership::default();
        assert_eq!(step(&leadership, 0), LeaderStep::Acquire);
        leadership.observe(
            Some(&LeaderRow {
                holder: None,
                version: 7,
                service: None,
            }),
            at(0),
        );
        assert_eq!(step(&leadership, 0), LeaderStep::Acquire);
        assert_eq!(leadership.next(Some(worker("me")), None).version, 8);
    }

    #[test]
    fn a_leader_that_stands_still_is_replaced_after_a_lease_duration_on_our_own_clock() {
        let mut leadership = Leadership::default();
        let mut row = LeaderRow {
            holder: Some(worker("other")),
            version: 1,
            service: None,
        };
        leadership.observe(Some(&row), at(100));
        assert_eq!(step(&leadership, 109), LeaderStep::Follow);
        leadership.observe(Some(&row), at(109));
        assert_eq!(step(&leadership, 110), LeaderStep::Acquire);
        row.version = 2;
        leadership.observe(Some(&row), at(110));
        assert_eq!(step(&leadership, 119), LeaderStep::Follow);
    }

    #[test]
    fn a_leader_refreshes_three_times_a_lease_and_an_earlier_run_of_it_leads_no_more() {
        let mut leadership = Leadership::default();
        let row = leadership.next(Some(worker("me")), None);
        leadership.written(row.clone(), at(10));
        assert_eq!(step(&leadership, 12), LeaderStep::Lead);
        assert_eq!(step(&leadership, 13), LeaderStep::Refresh);
        let (me, _) = worker("me");
        let later = Incarnation::new("later").unwrap();
        assert_eq!(
            leadership.decide(&me, &later, LEASE, at(10)),
            LeaderStep::Acquire
        );
        assert!(
            leadership.is_mine(&worker("me").0, &worker("me").1)
                && !leadership.is_mine(&me, &later)
        );
    }

    #[test]
    fn a_silent_leader_is_replaced_by_a_deputy_before_hosts_that_heed_try_and_who_heeds_is_the_leaders_word()
     {
        let deputies = vec![worker("deputy").0, worker("other deputy").0];
        let service = Service {
            deputies,
            hosts: 9,
            leases: 9,
            is_beside_kcl: false,
            hosts_wanted: None,
        };
        let mut leadership = Leadership::default();
        assert_eq!(
            leadership.role(&worker("me").0),
            Role::Watch,
            "nobody leads"
        );
        let mut row = LeaderRow {
            holder: Some(worker("other")),
            version: 1,
            service: None,
        };
        leadership.observe(Some(&row), at(100));
        assert_eq!(
            leadership.role(&worker("me").0),
            Role::Watch,
            "a leader of an older version leaves no errands"
        );
        row = LeaderRow {
            version: 2,
            service: Some(service),
            ..row
        };
        leadership.observe(Some(&row), at(100));
        let role = |name: &str| leadership.role(&worker(name).0);
        assert_eq!(
            [role("me"), role("deputy"), role("other")],
            [Role::Heed, Role::Watch, Role::Watch]
        );
        let decide = |name: &str, seconds| {
            let (id, run) = worker(name);
            leadership.decide(&id, &run, LEASE, at(seconds))
        };
        assert_eq!(
            [decide("deputy", 110), decide("me", 110)],
            [LeaderStep::Acquire, LeaderStep::Follow]
        );
        assert_eq!(
            [decide("me", 112), decide("me", 113)],
            [LeaderStep::Follow, LeaderStep::Acquire]
        );
    }
}
