//! What `plugins` shows people.

use std::collections::BTreeSet;

use comfy_table::Table;

use super::report::{HostLine, QuarantineLine, Report, VersionLine};
use crate::output::{age_since, short_digest, short_reason, table};

/// Characters that the table shows of a reason; `--json` has all of it.
const REASON_SHOWN: usize = 100;

pub(super) fn as_text(reports: &[Report], wall_ms: u64) -> String {
    if reports.is_empty() {
        return "no shardmill host has served any application here".to_owned();
    }
    let mut rows = Rows {
        table: table(["application", "host", "version", "state", "since", "why"]),
        wall_ms,
    };
    for report in reports {
        rows.add(report);
    }
    let mut text = rows.table.to_string();
    for report in reports.iter().filter(|report| report.is_mixed) {
        text.push_str("\n\n");
        text.push_str(&mixture(report));
    }
    text
}

struct Rows {
    table: Table,
    wall_ms: u64,
}

impl Rows {
    fn add(&mut self, report: &Report) {
        for host in &report.hosts {
            if host.versions.is_empty() {
                let cells = [
                    &report.application,
                    &named(host),
                    "-",
                    "does not report",
                    "-",
                    "-",
                ];
                self.table.add_row(cells);
            }
            for version in &host.versions {
                self.add_version(&report.application, host, version);
            }
        }
        for version in &report.quarantined {
            self.add_quarantined(&report.application, version);
        }
    }

    fn add_version(&mut self, application: &str, host: &HostLine, version: &VersionLine) {
        let why = version.reason.as_deref();
        self.table.add_row([
            application,
            &named(host),
            short_digest(&version.digest),
            &version.state,
            &age_since(version.since_ms, self.wall_ms),
            &why.map_or_else(|| "-".to_owned(), |why| short_reason(why, REASON_SHOWN)),
        ]);
    }

    fn add_quarantined(&mut self, application: &str, version: &QuarantineLine) {
        self.table.add_row([
            application,
            &format!("(found by {})", version.host),
            short_digest(&version.digest),
            "quarantined",
            &age_since(version.at_ms, self.wall_ms),
            &short_reason(&version.reason, REASON_SHOWN),
        ]);
    }
}

/// The host, and what is wrong with it.
fn named(host: &HostLine) -> String {
    match host.life {
        "silent" | "dead" => format!("{} ({})", host.host, host.life),
        _ => host.host.clone(),
    }
}

/// The versions that live hosts of an application run at the same time.
fn mixture(report: &Report) -> String {
    let alive = report.hosts.iter().filter(|host| host.is_alive);
    let running = alive.filter_map(|host| host.versions.first());
    let digests: BTreeSet<&str> = running
        .map(|version| short_digest(&version.digest))
        .collect();
    let (application, digests) = (&report.application, Vec::from_iter(digests).join(", "));
    format!("hosts of {application} run different versions: {digests}")
}
