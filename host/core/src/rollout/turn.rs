//! Whose turn it is to take up other settings before all other hosts, as one host sees it over
//! time.

use std::time::Duration;

use super::fleet_view::first_of;
use crate::fleet::WorkerRow;
use crate::lease::WorkerId;
use crate::plugin::PluginDigest;
use crate::time::Moment;

/// How long the host that goes first may have no row before another one takes its turn. A host that
/// restarts the plugin with other settings leaves the fleet and joins it again, for which it has
/// half a minute before the settings count as bad; this is twice as long.
const ABSENCE_MAX: Duration = Duration::from_mins(1);

/// A version that comes with other settings, and the host that takes it up first.
#[derive(Debug, Clone)]
pub struct Turn {
    reference: String,
    since: Moment,
    first: Option<WorkerId>,
    absent_since: Option<Moment>,
}

impl Turn {
    /// The version that `reference` names was deployed, as this host has heard `now`.
    pub fn new(reference: String, now: Moment) -> Self {
        Self {
            reference,
            since: now,
            first: None,
            absent_since: None,
        }
    }

    /// Whether it is about this version.
    pub fn is_about(&self, reference: &str) -> bool {
        self.reference == reference
    }

    /// How long this host has known of the version.
    pub fn lasts(&self, now: Moment) -> Duration {
        now.since(self.since)
    }

    /// Looks at the hosts. The one that goes first is the one that follows `artifact`, or else the
    /// one that was first when this host looked first, until it has been away for a minute: a host
    /// that joins meanwhile takes no turn, whatever its name.
    pub fn look(&mut self, artifact: &str, digest: &PluginDigest, rows: &[WorkerRow], now: Moment) {
        let next = first_of(artifact, digest, rows);
        let follows = next.is_some_and(|row| row.artifact.as_deref() == Some(artifact));
        let is_there = rows
            .iter()
            .any(|row| !row.is_draining && self.first.as_ref() == Some(&row.worker));
        if self.first.is_some() && is_there {
            self.absent_since = None;
        } else if self.first.is_some() {
            self.absent_since.get_or_insert(now);
        }
        let is_gone = self
            .absent_since
            .is_some_and(|since| now.since(since) >= ABSENCE_MAX);
        if self.first.is_none() || follows || is_gone {
            self.first = next.map(|row| row.worker.clone());
            self.absent_since = None;
        }
    }

    /// Whether `me` takes it up before all others.
    pub fn is_of(&self, me: &WorkerId) -> bool {
        self.first.as_ref() == Some(me)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn digest() -> PluginDigest {
        PluginDigest::from_hex(&"1".repeat(64)).unwrap()
    }

    fn hosts(names: &[&str]) -> Vec<WorkerRow> {
        names.iter().map(|name| WorkerRow::beating(name)).collect()
    }

    fn first(turn: &Turn, rows: &[WorkerRow]) -> Option<String> {
        let mut workers = rows.iter().map(|row| &row.worker);
        workers.find(|me| turn.is_of(me)).map(ToString::to_string)
    }

    /// The hosts in the order of their turns.
    fn in_order(names: &[&str]) -> Vec<WorkerRow> {
        let (mut left, mut order) = (hosts(names), Vec::new());
        while let Some(first) = first_of("it", &digest(), &left).cloned() {
            left.retain(|row| row.worker != first.worker);
            order.push(first);
        }
        order
    }

    #[test]
    fn a_host_that_restarts_with_the_settings_keeps_its_turn_and_one_that_is_gone_does_not() {
        let all = in_order(&["a", "b", "c"]);
        let (tries, next) = (all[0].worker.to_string(), all[1].worker.to_string());
        let mut turn = Turn::new("1".to_owned(), Moment::default());
        let mut look = |rows: &[WorkerRow], at: Duration| {
            turn.look("it", &digest(), rows, Moment::default() + at);
            first(&turn, &all)
        };
        assert_eq!(look(&all, Duration::ZERO), Some(tries.clone()));
        let mut drains = all.clone();
        drains[0].is_draining = true;
        assert_eq!(look(&drains, SECOND), Some(tries.clone()));
        assert_eq!(look(&all[1..], 2 * SECOND), Some(tries.clone()));
        assert_eq!(look(&all, 30 * SECOND), Some(tries.clone()), "it is back");
        assert_eq!(look(&all[1..], 60 * SECOND), Some(tries.clone()));
        assert_eq!(look(&all[1..], 59 * SECOND + ABSENCE_MAX), Some(tries));
        assert_eq!(look(&all[1..], 60 * SECOND + ABSENCE_MAX), Some(next));
    }

    #[test]
    fn a_host_that_joins_takes_no_turn_and_one_that_follows_the_version_has_it() {
        let all = in_order(&["a", "b", "c"]);
        let mut turn = Turn::new("1".to_owned(), Moment::default());
        turn.look("it", &digest(), &all[1..], Moment::default());
        turn.look("it", &digest(), &all, Moment::default());
        assert!(turn.is_of(&all[1].worker), "the one that was there before");
        let mut followed = all.clone();
        followed[2].artifact = Some("it".to_owned());
        turn.look("it", &digest(), &followed, Moment::default());
        assert!(turn.is_of(&all[2].worker));
        assert!(!turn.is_of(&all[0].worker));
    }

    #[test]
    fn nobody_goes_first_where_nobody_is() {
        let mut turn = Turn::new("1".to_owned(), Moment::default());
        turn.look("it", &digest(), &[], Moment::default());
        assert!(!turn.is_of(&hosts(&["a"])[0].worker));
        turn.look("it", &digest(), &hosts(&["a"]), Moment::default());
        assert!(turn.is_of(&hosts(&["a"])[0].worker));
    }
}
