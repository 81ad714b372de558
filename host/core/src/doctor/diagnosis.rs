//! From facts to findings and a mode. Pure: the same facts give the same answer.

use std::collections::BTreeSet;
use std::time::Duration;

use super::finding::{Findings, some_of};
use super::mode::traces_of_kcl3;
use super::{
    Census, Companions, Facts, Finding, LeaseTableFacts, Mode, Severity, TableFacts, Topic, keys,
    next, predecessor, schema, stream,
};
use crate::lease::{Checkpoint, Pulse, WorkerId};
use crate::rollout::{WhyNot, untaken};
use crate::stream::LeaseKey;

/// A KCL 3.x leader ends a graceful hand-off after 30 s plus a lease duration of 10 s (KCL
/// defaults).
const HAND_OFF_MAX: Duration = Duration::from_secs(40);

/// The conclusions from the facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// How a host may use the table, once the findings that come first are fixed.
    pub mode: Mode,
    /// The leases, counted; all zero without a lease table.
    pub census: Census,
    /// Which library, in which of its versions, wrote the rows, as far as they show it; empty if
    /// there are none.
    pub writer: String,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// The next command to run.
    pub next: String,
}

impl Diagnosis {
    /// Whether the table may be used without a fix.
    pub fn is_usable(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.severity != Severity::FixFirst)
    }
}

/// Draws the conclusions from what was read.
pub fn diagnose(facts: &Facts) -> Diagnosis {
    let mut findings = Findings::default();
    let (mode, census) = judge_tables(facts, &mut findings);
    if let Some(predecessor) = &facts.predecessor {
        predecessor::judge(predecessor, &facts.application, &mut findings);
    }
    stream::judge(&facts.table, facts.stream.as_ref(), &mut findings);
    let mut findings = findings.0;
    findings.sort_by_key(|finding| (finding.severity, finding.topic));
    let next = next::command(facts, &findings);
    Diagnosis {
        mode,
        census,
        writer: schema::writer(facts),
        findings,
        next,
    }
}

/// How the tables are used, and by whom.
fn judge_tables(facts: &Facts, findings: &mut Findings) -> (Mode, Census) {
    match &facts.table {
        TableFacts::Missing => {
            findings.add(
                Severity::Note,
                Topic::NoTable,
                "there is no table of this name",
                "",
            );
            (Mode::NoTable, Census::default())
        }
        TableFacts::OtherKey { problem } => {
            findings.add(Severity::FixFirst, Topic::OtherKey, problem, "");
            (Mode::NotALeaseTable, Census::default())
        }
        TableFacts::Leases(table) => {
            let census = Census::of(table, facts.failover_time);
            let mode = Mode::of(table, facts.companions, &census);
            judge_table(table, findings);
            judge_kcl3(table, facts.companions, mode, findings);
            judge_workers(&census, mode, findings);
            keys::judge(&facts.application, table, findings);
            judge_start(table, findings);
            judge_versions(facts, table, findings);
            (mode, census)
        }
    }
}

fn judge_status(status: &str, findings: &mut Findings) {
    match status {
        "ACTIVE" | "UPDATING" => {}
        "CREATING" => {
            findings.add(
                Severity::Warning,
                Topic::TableNotActive,
                "the table is being created",
                "wait for it",
            );
        }
        status => findings.add(
            Severity::FixFirst,
            Topic::TableNotActive,
            format!("the table is {status}"),
            "wait until it is ACTIVE or deleted",
        ),
    }
}

fn judge_table(table: &LeaseTableFacts, findings: &mut Findings) {
    judge_status(&table.status, findings);
    if !table.bad_rows.is_empty() {
        let rows = table
            .bad_rows
            .iter()
            .map(|row| format!("{}: {}", row.key, row.problem));
        findings.add(
            Severity::FixFirst,
            Topic::BadRows,
            format!(
                "{} cannot be read; no host touches such a row, so its shard is not read",
                some_of("row", rows)
            ),
            "correct the attribute, and keep the row: it is the only place that knows how far the \
                shard is",
        );
    }
    let pending: Vec<&LeaseKey> = table
        .leases
        .iter()
        .filter(|facts| facts.has_pending_checkpoint)
        .map(|facts| &facts.lease.key)
        .collect();
    if !pending.is_empty() {
        findings.add(
            Severity::Warning,
            Topic::PendingCheckpoints,
            format!(
                "{} with a prepared two-phase checkpoint, which shardmill does not use: it \
                    continues from `checkpoint`, and its first checkpoint removes the prepared \
                    one and its state",
                some_of("lease", pending)
            ),
            "if the application needs the prepared state, let the KCL complete those checkpoints first",
        );
    }
}

fn judge_kcl3(
    table: &LeaseTableFacts,
    companions: Companions,
    mode: Mode,
    findings: &mut Findings,
) {
    let traces = traces_of_kcl3(table, companions);
    if !traces.is_empty() {
        let what = format!(
            "KCL 3.x left traces: {}; shardmill does not touch them",
            traces.join(", ")
        );
        findings.add(Severity::Note, Topic::Kcl3Traces, what, "");
    }
    judge_client_version(table, mode, findings);
    judge_migration(table, findings);
    judge_hand_offs(table, findings);
}

fn judge_client_version(table: &LeaseTableFacts, mode: Mode, findings: &mut Findings) {
    match (table.client_version.as_deref(), mode) {
        (Some(version @ "CLIENT_VERSION_UPGRADE_FROM_2X"), Mode::Kcl2Shared) => findings.add(
            Severity::Warning,
            Topic::ClientVersion,
            format!(
                "the fleet is upgrading to KCL 3.x ({version}), which never completes while \
                    shardmill holds leases"
            ),
            "stop shardmill before the upgrade, or stop the KCL and take over",
        ),
        (Some(version), _) => {
            findings.add(
                Severity::Note,
                Topic::ClientVersion,
                format!("the fleet's client version is {version}"),
                "",
            );
        }
        (None, _) => {}
    }
}

fn judge_migration(table: &LeaseTableFacts, findings: &mut Findings) {
    match table.table_migration.as_deref() {
        None => {}
        Some(state @ "COMPLETE") => {
            findings.add(
                Severity::Note,
                Topic::TableMigration,
                format!("KCL 3.5's single table is {state}"),
                "",
            );
        }
        Some(state) => findings.add(
            Severity::Warning,
            Topic::TableMigration,
            format!("KCL 3.5 has not finished moving its tables into this one ({state})"),
            "let it finish if you may return to the KCL; shardmill does not need it",
        ),
    }
}

/// A hand-off that ended between the looks does not count.
fn judge_hand_offs(table: &LeaseTableFacts, findings: &mut Findings) {
    let ended: BTreeSet<&LeaseKey> = match &table.second_look {
        Some(look) => look
            .leases
            .iter()
            .filter(|l| l.checkpoint_owner.is_none())
            .map(|lease| &lease.key)
            .collect(),
        None => BTreeSet::new(),
    };
    let leases = table.leases.iter().map(|facts| &facts.lease);
    let open: Vec<&LeaseKey> = leases
        .filter(|lease| {
            lease.checkpoint_owner.is_some() && !lease.is_finished() && !ended.contains(&lease.key)
        })
        .map(|lease| &lease.key)
        .collect();
    if open.is_empty() {
        return;
    }
    findings.add(
        Severity::Warning,
        Topic::HandOffs,
        format!(
            "{} between two owners (checkpointOwner); after more than {} s such a hand-off is \
                stuck and the shard is not read",
            some_of("lease", open),
            HAND_OFF_MAX.as_secs()
        ),
        "check again in a minute; if it has not changed, stop the KCL's owner: the next take clears it",
    );
}

/// The first host records where the application begins. Until then, `LATEST` in a row means a
/// moment in the future.
fn judge_start(table: &LeaseTableFacts, findings: &mut Findings) {
    if let Some(start) = &table.fleet.start {
        findings.add(
            Severity::Note,
            Topic::Start,
            format!("the application starts at {start}"),
            "",
        );
        return;
    }
    let leases = table.leases.iter().map(|facts| &facts.lease);
    let at_latest: Vec<&LeaseKey> = leases
        .filter(|lease| lease.checkpoint == Checkpoint::Latest)
        .map(|lease| &lease.key)
        .collect();
    if !at_latest.is_empty() {
        findings.add(
            Severity::Note,
            Topic::Start,
            format!(
                "{} at LATEST, with no checkpoint yet",
                some_of("lease", at_latest)
            ),
            "the first host of shardmill records the time and reads them from there: records that \
                arrive before it starts are skipped",
        );
    }
}

/// Reports versions that hosts have and do not run: the records wait for another version, or an
/// older one handles them.
fn judge_versions(facts: &Facts, table: &LeaseTableFacts, findings: &mut Findings) {
    for version in untaken(&table.fleet) {
        let topic = match version.why {
            WhyNot::Quarantined { .. } => Topic::Quarantined,
            WhyNot::Refused => Topic::RefusedFiles,
        };
        findings.add(
            Severity::Warning,
            topic,
            version.to_string(),
            &version.mend(&facts.application),
        );
    }
}

fn judge_workers(census: &Census, mode: Mode, findings: &mut Findings) {
    if let Some(names) = workers_with(census, |pulse| pulse == Pulse::Beats) {
        judge_live_workers(&names, mode, findings);
    }
    if let Some(names) = workers_with(census, |pulse| pulse.may_live() && pulse != Pulse::Beats) {
        findings.add(
            Severity::Warning,
            Topic::NotWatched,
            format!(
                "{names} may be alive: they were not watched for longer than a known failover time"
            ),
            "if they are stopped, give the KCL's failoverTimeMillis with --failover-time, such as \
                10s, and watch for longer",
        );
    }
    if let Some(names) = workers_with(census, |pulse| !pulse.may_live()) {
        findings.add(
            Severity::Note,
            Topic::SilentOwners,
            format!("{names} wrote nothing for longer than the failover time: dead"),
            "their leases are taken over after one lease duration",
        );
    }
}

/// The names of the other workers whose pulse is one of these; `None` if there are none.
fn workers_with(census: &Census, is_meant: fn(Pulse) -> bool) -> Option<String> {
    let meant = census.other_workers().filter(|owner| is_meant(owner.pulse));
    let workers: Vec<&WorkerId> = meant.map(|owner| &owner.worker).collect();
    (!workers.is_empty()).then(|| some_of("worker", workers))
}

fn judge_live_workers(names: &str, mode: Mode, findings: &mut Findings) {
    match mode {
        Mode::Kcl3Takeover => findings.add(
            Severity::FixFirst,
            Topic::OtherWorkers,
            format!(
                "{names} of a KCL 3.x fleet are alive; its leader assigns shardmill no lease, and \
                    leases are not balanced"
            ),
            "stop the KCL fleet, then start shardmill",
        ),
        _ => findings.add(
            Severity::Note,
            Topic::OtherWorkers,
            format!("{names} are alive that no host of shardmill registered: a KCL fleet's"),
            "set leases.shared-with-kcl, set leases.duration to its failoverTimeMillis, and renew \
                every third of that or faster",
        ),
    }
}
