//! What `plugins --json` prints.

use std::collections::BTreeMap;

use serde::Serialize;
use shardmill_core::fleet::{FleetRows, WorkerRow};
use shardmill_core::lease::{LeaseObserver, Pulse};
use shardmill_core::rollout::{Quarantined, VersionRow, live_versions};
use shardmill_core::time::Moment;

use super::fleets::Fleets;

/// What `plugins` shows of one application.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    pub(super) application: String,
    /// Whether its live hosts run more than one version.
    pub(super) is_mixed: bool,
    pub(super) hosts: Vec<HostLine>,
    pub(super) quarantined: Vec<QuarantineLine>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct HostLine {
    pub(super) host: String,
    /// Whether it may live: always, if it was not watched for longer than its lease duration.
    pub(super) is_alive: bool,
    /// What watching its heartbeat showed.
    pub(super) life: &'static str,
    /// The version that runs is the first.
    pub(super) versions: Vec<VersionLine>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct VersionLine {
    pub(super) digest: String,
    pub(super) state: String,
    pub(super) since_ms: u64,
    pub(super) reason: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct QuarantineLine {
    pub(super) digest: String,
    pub(super) host: String,
    pub(super) at_ms: u64,
    pub(super) reason: String,
}

/// What was seen of the hosts of each application.
#[derive(Default)]
pub(super) struct Watch {
    observers: BTreeMap<String, LeaseObserver>,
    now: Moment,
}

impl Watch {
    /// Notes the rows as they are at `now`.
    pub(super) fn observe(&mut self, fleets: &Fleets, now: Moment) {
        self.now = now;
        for (application, fleet) in fleets {
            let observer = self.observers.entry(application.clone()).or_default();
            observer.observe_workers(&fleet.workers, now);
        }
    }

    /// What an application's hosts run.
    pub(super) fn report(&self, application: &str, fleet: &FleetRows) -> Report {
        let unwatched = LeaseObserver::default();
        let observer = self.observers.get(application).unwrap_or(&unwatched);
        let pulse = |row: &WorkerRow| observer.worker_pulse(&row.worker, self.now);
        let hosts = fleet.workers.iter();
        let mut hosts: Vec<HostLine> = hosts.map(|row| HostLine::of(row, pulse(row))).collect();
        hosts.sort_by(|a, b| a.host.cmp(&b.host));
        let live = live_versions(&fleet.workers, |worker| {
            let pulse = observer.worker_pulse(worker, self.now);
            pulse.is_none_or(Pulse::may_live)
        });
        Report {
            application: application.to_owned(),
            is_mixed: live.len() > 1,
            hosts,
            quarantined: fleet.quarantined.iter().map(QuarantineLine::of).collect(),
        }
    }
}

impl HostLine {
    fn of(row: &WorkerRow, pulse: Option<Pulse>) -> Self {
        Self {
            host: row.worker.to_string(),
            is_alive: pulse.is_none_or(Pulse::may_live),
            life: pulse.map_or("unwatched", Pulse::code),
            versions: row.versions.iter().map(VersionLine::of).collect(),
        }
    }
}

impl QuarantineLine {
    fn of(entry: &Quarantined) -> Self {
        Self {
            digest: entry.digest.as_str().to_owned(),
            host: entry.host.to_string(),
            at_ms: entry.at_ms,
            reason: entry.reason.clone(),
        }
    }
}

impl VersionLine {
    fn of(row: &VersionRow) -> Self {
        Self {
            digest: row.digest.as_str().to_owned(),
            state: row.state.clone(),
            since_ms: row.since_ms,
            reason: row.reason.clone(),
        }
    }
}
