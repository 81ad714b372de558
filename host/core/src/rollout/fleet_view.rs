//! What the hosts of a fleet run, as their rows say, and who may start with a new version.

use std::collections::BTreeMap;
use std::time::Duration;

use super::version_row::RolloutState;
use crate::fleet::{FleetRows, WorkerRow};
use crate::hash;
use crate::lease::WorkerId;
use crate::plugin::PluginDigest;

/// The versions that live hosts run, each with its hosts. More than one for a long time means that
/// hosts have different files. A host whose row names no version (an older build, or one that has
/// just started) is left out.
pub fn live_versions(
    rows: &[WorkerRow],
    is_alive: impl Fn(&WorkerId) -> bool,
) -> BTreeMap<&str, Vec<&WorkerId>> {
    let mut versions: BTreeMap<&str, Vec<&WorkerId>> = BTreeMap::new();
    for row in rows
        .iter()
        .filter(|row| !row.is_draining && is_alive(&row.worker))
    {
        if let Some(running) = row.versions.first() {
            versions
                .entry(running.digest.as_str())
                .or_default()
                .push(&row.worker);
        }
    }
    versions
}

/// Whether `me` may start with `digest`, where a `share` of the hosts in `rows` goes first: `me` is
/// one of those, or all of those run it as active. The choice depends on the version, so that the
/// same hosts do not always go first, and otherwise only on the list of hosts, so that all hosts
/// choose alike.
pub fn may_start(me: &WorkerId, digest: &PluginDigest, rows: &[&WorkerRow], share: f64) -> bool {
    let staying = rows.iter().copied().filter(|row| !row.is_draining);
    let mut order: Vec<&WorkerRow> = staying.collect();
    order.sort_by_key(|row| (turn(&row.worker, digest), row.worker.clone()));
    let turns = order.len() as f64 * share;
    // At least one, or no host would ever start.
    let mut first = order
        .iter()
        .enumerate()
        .filter(|(turn, _)| *turn == 0 || (*turn as f64) < turns)
        .map(|(_, row)| *row);
    first.clone().any(|row| row.worker == *me) || first.all(|row| runs_as_active(row, digest))
}

/// The one host that is to take up `artifact` before all others, for its settings: the one that
/// follows it already, or else the first one in the order of turns. Settings are tried by a whole
/// host, so this is never more than one.
pub(super) fn first_of<'a>(
    artifact: &str,
    digest: &PluginDigest,
    rows: &'a [WorkerRow],
) -> Option<&'a WorkerRow> {
    let staying = rows.iter().filter(|row| !row.is_draining);
    staying.min_by_key(|row| {
        let is_later = row.artifact.as_deref() != Some(artifact);
        let order = turn(&row.worker, digest);
        (is_later, order, row.worker.clone())
    })
}

/// The versions that the fleet found bad: quarantined, and run by no host as active, unless a host
/// died of one. The one host that found a version bad does not decide for hosts on which it works.
pub fn versions_found_bad(
    fleet: &FleetRows,
    wall_ms: u64,
    lifetime: Duration,
) -> Vec<PluginDigest> {
    let is_at_work = |digest: &PluginDigest| {
        let mut staying = fleet.workers.iter().filter(|row| !row.is_draining);
        staying.any(|row| runs_as_active(row, digest))
    };
    let entries = fleet.quarantined.iter();
    let bad = entries.filter(|entry| {
        let is_meant = entry.is_deadly() || !is_at_work(&entry.digest);
        is_meant && !entry.is_expired(wall_ms, lifetime)
    });
    bad.map(|entry| entry.digest.clone()).collect()
}

fn runs_as_active(row: &WorkerRow, digest: &PluginDigest) -> bool {
    let running = row.versions.first();
    running.is_some_and(|running| {
        running.digest == *digest && running.state == RolloutState::Active.code()
    })
}

/// A worker's place in the order in which hosts start with a version: the same on every host.
fn turn(worker: &WorkerId, digest: &PluginDigest) -> u64 {
    hash::stable(digest.as_str().bytes().chain(worker.as_str().bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::VersionRow;

    fn digest(version: u64) -> PluginDigest {
        PluginDigest::from_hex(&format!("{version:064x}")).unwrap()
    }

    fn host(name: &str, version: u64, state: &str) -> WorkerRow {
        let running = VersionRow {
            digest: digest(version),
            state: state.to_owned(),
            since_ms: 1,
            reason: None,
        };
        WorkerRow {
            versions: vec![running],
            ..WorkerRow::beating(name)
        }
    }

    #[test]
    fn a_share_of_the_hosts_starts_and_the_others_wait_until_all_of_these_run_it() {
        let mut hosts: Vec<WorkerRow> = (0..10)
            .map(|n| host(&format!("host-{n}"), 1, "active"))
            .collect();
        let new = digest(2);
        let starters = |hosts: &[WorkerRow], share| {
            let rows: Vec<&WorkerRow> = hosts.iter().collect();
            let may = hosts
                .iter()
                .filter(|row| may_start(&row.worker, &new, &rows, share));
            may.map(|row| row.worker.clone()).collect::<Vec<_>>()
        };
        assert_eq!(starters(&hosts, 1.0).len(), 10);
        assert_eq!(starters(&hosts, 0.25).len(), 3, "rounded up");
        assert_eq!(starters(&hosts, 0.2).len(), 2, "and not above that");
        let first = starters(&hosts, 0.01);
        assert_eq!(first.len(), 1, "somebody has to");
        let index = hosts.iter().position(|row| row.worker == first[0]).unwrap();
        hosts[index] = host(first[0].as_str(), 2, "probation");
        assert_eq!(starters(&hosts, 0.01), first, "not proven yet");
        hosts[index] = host(first[0].as_str(), 2, "active");
        assert_eq!(starters(&hosts, 0.01).len(), 10);
    }

    #[test]
    fn settings_are_tried_by_one_host_also_if_another_comes_that_would_be_first() {
        let mut hosts: Vec<WorkerRow> = (0..6)
            .map(|n| host(&format!("host-{n}"), 1, "active"))
            .collect();
        let first = |hosts: &[WorkerRow]| {
            let first = first_of("it", &digest(1), hosts).unwrap();
            first.worker.clone()
        };
        let chosen = first(&hosts);
        let other = hosts.iter_mut().find(|row| row.worker != chosen).unwrap();
        other.artifact = Some("it".to_owned());
        let tries = other.worker.clone();
        assert_eq!(first(&hosts), tries);
        let other = hosts.iter_mut().find(|row| row.worker == tries).unwrap();
        other.is_draining = true;
        assert_eq!(first(&hosts), chosen, "it leaves");
    }

    #[test]
    fn who_starts_changes_from_version_to_version() {
        let hosts: Vec<WorkerRow> = (0..8)
            .map(|n| host(&format!("host-{n}"), 1, "active"))
            .collect();
        let rows: Vec<&WorkerRow> = hosts.iter().collect();
        let first = |version| {
            hosts
                .iter()
                .find(|row| may_start(&row.worker, &digest(version), &rows, 0.1))
                .unwrap()
        };
        let starters: std::collections::BTreeSet<_> = (2..40)
            .map(|version| first(version).worker.clone())
            .collect();
        assert!(starters.len() > 3, "{starters:?}");
    }

    #[test]
    fn a_version_is_bad_that_is_quarantined_and_works_nowhere_or_that_a_host_died_of() {
        use crate::deaths::DIED;
        use crate::rollout::Quarantined;

        let entry = |version, reason: &str| Quarantined {
            digest: digest(version),
            host: WorkerId::new("a").unwrap(),
            reason: reason.to_owned(),
            at_ms: 1_000,
        };
        let deadly = format!("{DIED} 2 times in its calls");
        let fleet = FleetRows {
            workers: vec![
                host("a", 1, "active"),
                host("b", 3, "active"),
                host("c", 4, "active"),
                host("d", 2, "canary(0)"),
            ],
            quarantined: vec![entry(2, "slow"), entry(3, "slow"), entry(4, &deadly)],
            ..FleetRows::default()
        };
        let bad = |wall_ms| versions_found_bad(&fleet, wall_ms, Duration::from_secs(9));
        assert_eq!(bad(2_000), [digest(2), digest(4)]);
        assert_eq!(bad(20_000), [digest(4)], "the quarantine is over");
    }

    #[test]
    fn versions_are_told_of_live_hosts_that_tell_theirs() {
        let mut rows = vec![
            host("a", 1, "active"),
            host("b", 2, "active"),
            host("c", 1, "probation"),
            host("d", 3, "active"),
        ];
        rows[3].versions.clear();
        let versions = live_versions(&rows, |worker| worker.as_str() != "b");
        let told: Vec<Vec<_>> = versions
            .values()
            .map(|hosts| hosts.iter().map(|host| host.as_str()).collect())
            .collect();
        assert_eq!(told, [vec!["a", "c"]]);
        assert_eq!(live_versions(&rows, |_| true).len(), 2);
    }

    #[test]
    fn a_host_that_is_not_listed_waits_as_any_other_unless_it_is_alone() {
        let (me, new) = (WorkerId::new("me").unwrap(), digest(2));
        let may = |rows: &[&WorkerRow]| may_start(&me, &new, rows, 1.0);
        assert!(!may(&[&host("a", 1, "active")]));
        assert!(may(&[&host("a", 2, "active")]));
        assert!(may(&[]));
        let leaving = WorkerRow {
            is_draining: true,
            ..host("a", 1, "active")
        };
        assert!(may(&[&leaving]), "a host on its way out holds up nobody");
    }
}
