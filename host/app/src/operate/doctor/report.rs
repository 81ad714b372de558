//! What `doctor` says, for programs.

use std::collections::BTreeMap;

use serde::Serialize;
use shardmill_core::doctor::{
    Census, Companions, Diagnosis, Facts, Finding, LeaseTableFacts, OwnerCensus, StreamFacts,
    TableFacts,
};
use shardmill_core::lease::WorkerId;
use shardmill_core::ports::BadRow;

use crate::cli::DoctorArgs;

/// All of it.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report<'a> {
    application: &'a str,
    mode: &'static str,
    usable: bool,
    leases: LeasesReport<'a>,
    kcl2_leader: Option<&'a str>,
    table: Option<TableReport<'a>>,
    companions: CompanionsReport,
    stream: Option<StreamReport<'a>>,
    findings: Vec<FindingReport<'a>>,
}

#[derive(Serialize)]
struct LeasesReport<'a> {
    rows: usize,
    finished: usize,
    unowned: usize,
    owners: Vec<OwnerReport<'a>>,
}

#[derive(Serialize)]
struct OwnerReport<'a> {
    worker: &'a str,
    leases: usize,
    life: &'static str,
    shardmill: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct TableReport<'a> {
    status: &'a str,
    owner_index: bool,
    bad_rows: Vec<BadRowReport<'a>>,
    other_rows: &'a BTreeMap<String, usize>,
    client_version: Option<&'a str>,
    table_migration: Option<&'a str>,
}

#[derive(Serialize)]
struct BadRowReport<'a> {
    key: &'a str,
    problem: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct CompanionsReport {
    worker_metric_stats: bool,
    coordinator_state: bool,
    coordinator: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct StreamReport<'a> {
    name: &'a str,
    status: Option<&'a str>,
    shards: usize,
    open_shards: usize,
}

#[derive(Serialize)]
struct FindingReport<'a> {
    severity: String,
    topic: &'static str,
    what: &'a str,
    fix: &'a str,
}

impl<'a> Report<'a> {
    pub(super) fn of(args: &'a DoctorArgs, facts: &'a Facts, diagnosis: &'a Diagnosis) -> Self {
        Self {
            application: &args.application,
            mode: diagnosis.mode.code(),
            usable: diagnosis.is_usable(),
            leases: LeasesReport::of(&diagnosis.census),
            kcl2_leader: diagnosis.census.kcl2_leader.as_ref().map(WorkerId::as_str),
            table: lease_table(facts).map(TableReport::of),
            companions: CompanionsReport::of(facts.companions),
            stream: facts.stream.as_ref().map(StreamReport::of),
            findings: diagnosis.findings.iter().map(FindingReport::of).collect(),
        }
    }
}

impl<'a> LeasesReport<'a> {
    fn of(census: &'a Census) -> Self {
        let owner = |owner: &'a OwnerCensus| OwnerReport {
            worker: owner.worker.as_str(),
            leases: owner.leases,
            life: owner.pulse.word(),
            shardmill: owner.is_shardmill,
        };
        Self {
            rows: census.leases,
            finished: census.finished,
            unowned: census.unowned,
            owners: census.owners.iter().map(owner).collect(),
        }
    }
}

impl<'a> TableReport<'a> {
    fn of(table: &'a LeaseTableFacts) -> Self {
        let bad_row = |row: &'a BadRow| BadRowReport {
            key: &row.key,
            problem: &row.problem,
        };
        Self {
            status: &table.status,
            owner_index: table.has_owner_index,
            bad_rows: table.bad_rows.iter().map(bad_row).collect(),
            other_rows: &table.other_rows,
            client_version: table.client_version.as_deref(),
            table_migration: table.table_migration.as_deref(),
        }
    }
}

impl CompanionsReport {
    fn of(found: Companions) -> Self {
        Self {
            worker_metric_stats: found.worker_metrics,
            coordinator_state: found.coordinator_state,
            coordinator: found.own_coordinator,
        }
    }
}

impl<'a> StreamReport<'a> {
    fn of(stream: &'a StreamFacts) -> Self {
        Self {
            name: stream.name.as_str(),
            status: stream.status.as_deref(),
            shards: stream.shards.len(),
            open_shards: open_shards(stream),
        }
    }
}

impl<'a> FindingReport<'a> {
    fn of(finding: &'a Finding) -> Self {
        Self {
            severity: finding.severity.to_string(),
            topic: finding.topic.code(),
            what: &finding.what,
            fix: &finding.fix,
        }
    }
}

pub(super) fn lease_table(facts: &Facts) -> Option<&LeaseTableFacts> {
    match &facts.table {
        TableFacts::Leases(table) => Some(table),
        TableFacts::Missing | TableFacts::OtherKey { .. } => None,
    }
}

pub(super) fn open_shards(stream: &StreamFacts) -> usize {
    stream.shards.iter().filter(|shard| shard.is_open()).count()
}
