//! `shardmill plugins`: what each host of a fleet runs, what it tries, and what is quarantined.

mod pin;
mod prefix;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::bail;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;
use shardmill_aws::{AwsClients, CoordinatorTable, applications_of_streams, served_applications};
use shardmill_core::fleet::{FleetRows, WorkerRow};
use shardmill_core::lease::{LeaseObserver, Pulse, WorkerId};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::{Clock, Coordinator};
use shardmill_core::rollout::{Quarantined, VersionRow, live_versions};
use shardmill_core::time::Moment;
use shardmill_serve::BootClock;

use self::prefix::{PREFIX_MIN, is_prefix};
use super::reading::age;
use crate::cli::PluginsArgs;
use crate::output::{print, print_json};

/// Signs of a reason that the table shows; `--json` has all of it.
const REASON_SHOWN: usize = 100;

/// One application.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    application: String,
    /// Whether its live hosts run more than one version.
    is_mixed: bool,
    hosts: Vec<HostLine>,
    quarantined: Vec<QuarantineLine>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct HostLine {
    host: String,
    /// Whether it may live: always, if it was not watched for longer than its lease duration.
    is_alive: bool,
    /// What watching it showed.
    life: &'static str,
    /// What runs, first.
    versions: Vec<VersionLine>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct VersionLine {
    digest: String,
    state: String,
    since_ms: u64,
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct QuarantineLine {
    digest: String,
    host: String,
    at_ms: u64,
    reason: String,
}

pub(crate) async fn execute(args: &PluginsArgs) -> anyhow::Result<()> {
    if pin::execute(args)? {
        return Ok(());
    }
    let clients = crate::aws::connect_to(&args.place).await?;
    if let (Some(application), Some(digest)) = (&args.application, &args.release) {
        return release(application, digest, &clients).await;
    }
    let applications = match &args.application {
        Some(application) => {
            let table = CoordinatorTable::new(clients.dynamodb.clone(), application);
            if !table.exists().await? {
                bail!(
                    "there is no table {}: no shardmill host has served application \
                        {application}; without a name, this command lists the served applications",
                    table.name()
                );
            }
            let mut all = vec![application.clone()];
            all.extend(applications_of_streams(&clients.dynamodb, application).await);
            all
        }
        None => served_applications(&clients.dynamodb).await?,
    };
    let mut watch = Watch::default();
    let mut rows = look(&applications, &clients).await?;
    watch.observe(&rows, BootClock.now());
    let watch_for = args.watch.watch_for.unwrap_or_default();
    if !watch_for.is_zero() {
        tokio::time::sleep(watch_for).await;
        rows = look(&applications, &clients).await?;
        watch.observe(&rows, BootClock.now());
    }
    let reports: Vec<Report> = rows
        .iter()
        .map(|(name, fleet)| watch.report(name, fleet))
        .collect();
    if args.output.json {
        print_json(&reports)?;
    } else {
        print(&as_text(&reports, BootClock.wall_ms()));
    }
    let mixed: Vec<&str> = reports
        .iter()
        .filter(|report| report.is_mixed)
        .map(|report| report.application.as_str())
        .collect();
    if mixed.is_empty() {
        return Ok(());
    }
    bail!(
        "hosts run different versions of {}: wait for a rollout to end, or copy the same file to all",
        mixed.join(", ")
    )
}

async fn look(
    applications: &[String],
    clients: &AwsClients,
) -> anyhow::Result<BTreeMap<String, FleetRows>> {
    let mut rows = BTreeMap::new();
    for name in applications {
        rows.insert(
            name.clone(),
            CoordinatorTable::new(clients.dynamodb.clone(), name)
                .fleet()
                .await?,
        );
    }
    Ok(rows)
}

/// What was seen of the hosts of each application.
#[derive(Default)]
struct Watch {
    observers: BTreeMap<String, LeaseObserver>,
    now: Moment,
}

impl Watch {
    fn observe(&mut self, rows: &BTreeMap<String, FleetRows>, now: Moment) {
        self.now = now;
        for (application, fleet) in rows {
            let observer = self.observers.entry(application.clone()).or_default();
            observer.observe_workers(&fleet.workers, now);
        }
    }

    fn report(&self, application: &str, fleet: &FleetRows) -> Report {
        let pulse_of = |worker: &WorkerId| {
            let observer = self.observers.get(application);
            observer.and_then(|observer| observer.worker_pulse(worker, self.now))
        };
        let is_alive = |worker: &WorkerId| pulse_of(worker).is_none_or(Pulse::may_live);
        let host = |row: &WorkerRow| HostLine {
            host: row.worker.to_string(),
            is_alive: is_alive(&row.worker),
            life: pulse_of(&row.worker).map_or("unwatched", Pulse::word),
            versions: row.versions.iter().map(VersionLine::of).collect(),
        };
        let mut hosts: Vec<HostLine> = fleet.workers.iter().map(host).collect();
        hosts.sort_by(|a, b| a.host.cmp(&b.host));
        Report {
            application: application.to_owned(),
            is_mixed: live_versions(&fleet.workers, is_alive).len() > 1,
            hosts,
            quarantined: fleet.quarantined.iter().map(QuarantineLine::of).collect(),
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
        let VersionRow {
            digest,
            state,
            since_ms,
            reason,
        } = row.clone();
        Self {
            digest: digest.as_str().to_owned(),
            state,
            since_ms,
            reason,
        }
    }
}

fn as_text(reports: &[Report], wall_ms: u64) -> String {
    if reports.is_empty() {
        return "no shardmill host has served any application here".to_owned();
    }
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["application", "host", "version", "state", "since", "why"]);
    for report in reports {
        for host in &report.hosts {
            table.add_rows(rows_of(host, &report.application, wall_ms));
        }
        for version in &report.quarantined {
            table.add_row(row_of_quarantined(version, &report.application, wall_ms));
        }
    }
    let mut text = table.to_string();
    for report in reports.iter().filter(|report| report.is_mixed) {
        text.push_str("\n\n");
        text.push_str(&mixture(report));
    }
    text
}

/// A row for each version that the host reports.
fn rows_of(line: &HostLine, application: &str, wall_ms: u64) -> Vec<[String; 6]> {
    let host = match line.life {
        "silent" | "dead" => format!("{} ({})", line.host, line.life),
        _ => line.host.clone(),
    };
    if line.versions.is_empty() {
        let cells = [application, host.as_str(), "-", "does not report", "-", "-"];
        return vec![cells.map(str::to_owned)];
    }
    let row_of = |version: &VersionLine| {
        let why = version.reason.as_deref();
        [
            application.to_owned(),
            host.clone(),
            version.digest[..12].to_owned(),
            version.state.clone(),
            ago(version.since_ms, wall_ms),
            why.map_or_else(|| "-".to_owned(), shortened),
        ]
    };
    line.versions.iter().map(row_of).collect()
}

fn row_of_quarantined(line: &QuarantineLine, application: &str, wall_ms: u64) -> [String; 6] {
    [
        application.to_owned(),
        format!("(found by {})", line.host),
        line.digest[..12].to_owned(),
        "quarantined".to_owned(),
        ago(line.at_ms, wall_ms),
        shortened(&line.reason),
    ]
}

fn ago(ms: u64, wall_ms: u64) -> String {
    age(Duration::from_millis(wall_ms.saturating_sub(ms)))
}

/// Which versions live hosts of an application run at once.
fn mixture(report: &Report) -> String {
    let alive = report.hosts.iter().filter(|host| host.is_alive);
    let running = alive.filter_map(|host| host.versions.first());
    let digests: BTreeSet<&str> = running.map(|version| &version.digest[..12]).collect();
    let digests: Vec<&str> = digests.into_iter().collect();
    let (application, digests) = (&report.application, digests.join(", "));
    format!("hosts of {application} run different versions: {digests}")
}

/// In one line, and not too long a one.
fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= REASON_SHOWN {
        return line.to_owned();
    }
    line.chars().take(REASON_SHOWN).chain(['…']).collect()
}

async fn release(application: &str, digest: &str, clients: &AwsClients) -> anyhow::Result<()> {
    let wanted = digest.to_ascii_lowercase();
    if !is_prefix(&wanted) {
        bail!(
            "{digest:?} is not a version: give its digest, or the first {PREFIX_MIN} digits or more"
        );
    }
    let mut applications = vec![application.to_owned()];
    applications.extend(applications_of_streams(&clients.dynamodb, application).await);
    let rows = look(&applications, clients).await?;
    let entries = rows.values().flat_map(|fleet| &fleet.quarantined);
    let found: BTreeSet<&str> = entries
        .map(|entry| entry.digest.as_str())
        .filter(|digest| digest.starts_with(&wanted))
        .collect();
    let Some(found) = found
        .first()
        .filter(|_| found.len() == 1)
        .and_then(|digest| PluginDigest::from_hex(digest))
    else {
        let how_many = if found.is_empty() {
            "no"
        } else {
            "more than one"
        };
        bail!(
            "{how_many} quarantined version of {application} begins with {wanted}; `shardmill \
                plugins {application}` lists them"
        );
    };
    for (name, fleet) in &rows {
        if fleet.quarantined.iter().any(|entry| entry.digest == found) {
            CoordinatorTable::new(clients.dynamodb.clone(), name)
                .release_version(&found)
                .await?;
            print(&format!(
                "released {} of {name}; hosts that have its file try it again within seconds",
                found.as_str()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use shardmill_core::fleet::Incarnation;

    use super::*;

    fn host(name: &str, digit: &str, beat: u64) -> WorkerRow {
        let digest = PluginDigest::from_hex(&digit.repeat(64)).unwrap();
        let running = VersionRow {
            digest,
            state: "active".into(),
            since_ms: 1_000,
            reason: None,
        };
        WorkerRow {
            worker: WorkerId::new(name).unwrap(),
            incarnation: Incarnation::new("run").unwrap(),
            beat,
            lease_duration: Duration::from_secs(10),
            is_draining: false,
            max_leases: usize::MAX,
            versions: vec![running],
            cannot_write: None,
            cannot_look: None,
        }
    }

    #[test]
    fn a_mixed_fleet_is_said_and_dead_hosts_do_not_count() {
        let rows = |beat| FleetRows {
            workers: vec![host("a", "1", beat), host("b", "2", 7)],
            ..FleetRows::default()
        };
        let report = |looks: &[(u64, u64)]| {
            let mut watch = Watch::default();
            for (at, beat) in looks {
                let seen = BTreeMap::from([("orders".to_owned(), rows(*beat))]);
                watch.observe(&seen, Moment::from_origin(Duration::from_secs(*at)));
            }
            watch.report("orders", &rows(looks.last().unwrap().1))
        };
        let once = report(&[(0, 2)]);
        assert!(once.is_mixed);
        let text = as_text(&[once], 61_000);
        assert!(
            text.contains("hosts of orders run different versions: 111111111111, 222222222222"),
            "{text}"
        );
        assert!(text.contains("1m"), "{text}");
        let short = report(&[(0, 2), (3, 3)]);
        assert!(
            short.is_mixed,
            "a host that was not due to beat is not silent"
        );
        let watched = report(&[(0, 2), (11, 3)]);
        assert!(
            !watched.is_mixed,
            "b did not beat for longer than its lease duration"
        );
        assert!(as_text(&[watched], 61_000).contains("b (dead)"));
    }
}
