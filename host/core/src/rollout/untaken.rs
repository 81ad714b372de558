use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::quarantine::Quarantined;
use super::version_row::{RolloutState, VersionRow};
use crate::fleet::FleetRows;
use crate::lease::WorkerId;
use crate::plugin::PluginDigest;
use crate::stream::Utc;

/// A version that the hosts of an application were given, and that is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untaken {
    /// The digest of the version.
    pub digest: PluginDigest,
    /// Why it is not run.
    pub why: WhyNot,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// The reason, from the host that found it out.
    pub reason: String,
    /// The hosts that report to have its file.
    pub hosts: BTreeSet<WorkerId>,
    /// The short digests of what these hosts run instead.
    pub instead: BTreeSet<String>,
}

/// Why a version is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyNot {
    /// No host takes it until an operator releases it, or the mark expires.
    Quarantined {
        /// The host that quarantined it.
        by: WorkerId,
    },
    /// It cannot be loaded, or must not be, by the hosts that have it.
    Refused,
}

/// The versions of an application that are not run, the quarantined ones first.
pub fn untaken(fleet: &FleetRows) -> Vec<Untaken> {
    let mut found: Vec<Untaken> = fleet.quarantined.iter().map(Untaken::quarantined).collect();
    let known: BTreeSet<String> = found
        .iter()
        .map(|entry| entry.digest.as_str().to_owned())
        .collect();
    let mut refused: BTreeMap<String, Untaken> = BTreeMap::new();
    for row in fleet.workers.iter().flat_map(|worker| &worker.versions) {
        let digest = row.digest.as_str();
        if row.state == RolloutState::Refused.code() && !known.contains(digest) {
            refused
                .entry(digest.to_owned())
                .or_insert_with(|| Untaken::refused(row));
        }
    }
    found.extend(refused.into_values());
    for entry in &mut found {
        entry.find_hosts(fleet);
    }
    found
}

impl Untaken {
    fn quarantined(entry: &Quarantined) -> Self {
        Self {
            digest: entry.digest.clone(),
            why: WhyNot::Quarantined {
                by: entry.host.clone(),
            },
            since_ms: entry.at_ms,
            reason: entry.reason.clone(),
            hosts: BTreeSet::new(),
            instead: BTreeSet::new(),
        }
    }

    fn refused(row: &VersionRow) -> Self {
        Self {
            digest: row.digest.clone(),
            why: WhyNot::Refused,
            since_ms: row.since_ms,
            reason: row.reason.clone().unwrap_or_default(),
            hosts: BTreeSet::new(),
            instead: BTreeSet::new(),
        }
    }

    fn find_hosts(&mut self, fleet: &FleetRows) {
        let not_taken = [
            RolloutState::Refused.code(),
            RolloutState::Quarantined.code(),
        ];
        for worker in &fleet.workers {
            let mut rows = worker.versions.iter();
            if !rows.any(|row| row.digest == self.digest && not_taken.contains(&row.state.as_str()))
            {
                continue;
            }
            self.hosts.insert(worker.worker.clone());
            let runs = worker
                .versions
                .first()
                .filter(|row| !not_taken.contains(&row.state.as_str()));
            self.instead
                .extend(runs.map(|row| row.digest.short().to_owned()));
        }
    }

    /// What the operator can do about it.
    pub fn mend(&self, application: &str) -> String {
        match self.why {
            WhyNot::Quarantined { .. } => format!(
                "put a fixed file in place, or let this one run again: shardmill plugins \
                    {application} --release {}",
                self.digest
            ),
            WhyNot::Refused => "fix what it reports, or put another file in place".to_owned(),
        }
    }
}

impl fmt::Display for Untaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            digest,
            since_ms,
            reason,
            ..
        } = self;
        match &self.why {
            WhyNot::Quarantined { by } => {
                write!(
                    f,
                    "version {digest} has been quarantined since {} (found by {by}): {reason}",
                    Utc(*since_ms)
                )?;
            }
            WhyNot::Refused => write!(
                f,
                "version {digest} has been refused since {}: {reason}",
                Utc(*since_ms)
            )?,
        }
        self.write_hosts(f)
    }
}

impl Untaken {
    /// Which hosts have its file, and what they do without it.
    fn write_hosts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.hosts.is_empty() {
            return Ok(());
        }
        let hosts: Vec<&str> = self.hosts.iter().map(WorkerId::as_str).collect();
        write!(f, "; {} with its file", hosts.join(", "))?;
        if self.instead.is_empty() {
            return f.write_str(" serve nothing instead");
        }
        let instead: Vec<&str> = self.instead.iter().map(String::as_str).collect();
        write!(f, " run {} instead", instead.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::WorkerRow;

    fn digest(version: u64) -> PluginDigest {
        PluginDigest::from_hex(&format!("{version:012x}{:052}", 0)).unwrap()
    }

    fn row(version: u64, state: &str) -> VersionRow {
        let reason = (state == "refused").then(|| "it is cut off".to_owned());
        VersionRow {
            digest: digest(version),
            state: state.to_owned(),
            since_ms: 2_000,
            reason,
        }
    }

    fn host(name: &str, versions: Vec<VersionRow>) -> WorkerRow {
        WorkerRow {
            versions,
            ..WorkerRow::beating(name)
        }
    }

    #[test]
    fn what_is_not_run_is_reported_with_why_since_when_by_whom_and_what_runs_instead() {
        let by = WorkerId::new("a").unwrap();
        let entry = Quarantined {
            digest: digest(2),
            host: by,
            reason: "it traps".to_owned(),
            at_ms: 1_000,
        };
        let workers = vec![
            host("a", vec![row(1, "active"), row(2, "quarantined")]),
            host("b", vec![row(1, "active"), row(3, "refused")]),
            host("c", vec![row(3, "refused")]),
            host("d", vec![row(4, "active")]),
        ];
        let fleet = FleetRows {
            workers,
            quarantined: vec![entry],
            ..FleetRows::default()
        };
        let told: Vec<String> = untaken(&fleet).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "version 000000000002 has been quarantined since 1970-01-01T00:00:01Z (found by \
                    a): it traps; a with its file run 000000000001 instead",
                "version 000000000003 has been refused since 1970-01-01T00:00:02Z: it is cut off; \
                    b, c with its file run 000000000001 instead",
            ]
        );
        let mends: Vec<String> = untaken(&fleet)
            .iter()
            .map(|entry| entry.mend("orders"))
            .collect();
        assert!(
            mends[0].ends_with("shardmill plugins orders --release 000000000002")
                && mends[1].contains("another file")
        );
        assert!(untaken(&FleetRows::default()).is_empty());
    }
}
