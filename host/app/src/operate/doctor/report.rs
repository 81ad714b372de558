//! What `doctor --json` prints.

use std::collections::BTreeMap;

use serde::Serialize;
use shardmill_core::doctor::{
    Census, Companions, Diagnosis, Facts, Finding, LeaseFacts, LeaseTableFacts, OwnerCensus,
    PredecessorFacts, StreamFacts, TableFacts,
};
use shardmill_core::lease::WorkerId;
use shardmill_core::migration::{Found, FoundShard, WorkerLife};
use shardmill_core::ports::BadRow;

use super::super::worker_report::WorkerReport;
use crate::cli::DoctorArgs;

/// The whole report.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report<'a> {
    application: &'a str,
    mode: &'static str,
    usable: bool,
    leases: LeasesReport<'a>,
    kcl2_leader: Option<&'a str>,
    writer: &'a str,
    shards: Vec<ShardReport<'a>>,
    table: Option<TableReport<'a>>,
    predecessor: Option<PredecessorReport<'a>>,
    companions: CompanionsReport,
    stream: Option<StreamReport<'a>>,
    findings: Vec<FindingReport<'a>>,
    next: &'a str,
}

#[derive(Serialize)]
struct PredecessorReport<'a> {
    library: &'static str,
    versions: &'static str,
    places: Vec<FoundReport<'a>>,
}

#[derive(Serialize)]
struct FoundReport<'a> {
    group: Option<&'a str>,
    stream: Option<&'a str>,
    workers: Vec<WorkerReport<'a>>,
    shards: Vec<ShardReport<'a>>,
}

/// How far a shard is.
#[derive(Serialize)]
struct ShardReport<'a> {
    /// Its id, or the key of its row if that says more.
    shard: &'a str,
    checkpoint: Option<String>,
    owner: Option<&'a str>,
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
            writer: &diagnosis.writer,
            shards: lease_table(facts).map_or_else(Vec::new, ShardReport::of_leases),
            table: lease_table(facts).map(TableReport::of),
            predecessor: facts.predecessor.as_ref().map(PredecessorReport::of),
            companions: CompanionsReport::of(facts.companions),
            stream: facts.stream.as_ref().map(StreamReport::of),
            findings: diagnosis.findings.iter().map(FindingReport::of).collect(),
            next: &diagnosis.next,
        }
    }
}

impl<'a> PredecessorReport<'a> {
    fn of(facts: &'a PredecessorFacts) -> Self {
        let places = facts.places.iter().zip(&facts.workers);
        Self {
            library: facts.library.code(),
            versions: facts.library.versions(),
            places: places
                .map(|(place, workers)| FoundReport::of(place, workers))
                .collect(),
        }
    }
}

impl<'a> FoundReport<'a> {
    fn of(place: &'a Found, workers: &'a [WorkerLife]) -> Self {
        Self {
            group: place.group.as_deref(),
            stream: place.stream.as_deref(),
            workers: workers.iter().map(WorkerReport::of).collect(),
            shards: place.shards.iter().map(ShardReport::of_found).collect(),
        }
    }
}

impl<'a> ShardReport<'a> {
    fn of_found(found: &'a FoundShard) -> Self {
        Self {
            shard: found.shard.as_str(),
            checkpoint: found.checkpoint.as_ref().map(ToString::to_string),
            owner: found.owner.as_deref(),
        }
    }

    fn of_leases(table: &'a LeaseTableFacts) -> Vec<Self> {
        table.leases.iter().map(Self::of_lease).collect()
    }

    fn of_lease(facts: &'a LeaseFacts) -> Self {
        Self {
            shard: facts.lease.key.as_str(),
            checkpoint: Some(facts.lease.checkpoint.to_string()),
            owner: facts.lease.owner.as_ref().map(WorkerId::as_str),
        }
    }
}

impl<'a> LeasesReport<'a> {
    fn of(census: &'a Census) -> Self {
        Self {
            rows: census.leases,
            finished: census.finished,
            unowned: census.unowned,
            owners: census.owners.iter().map(OwnerReport::of).collect(),
        }
    }
}

impl<'a> OwnerReport<'a> {
    fn of(owner: &'a OwnerCensus) -> Self {
        Self {
            worker: owner.worker.as_str(),
            leases: owner.leases,
            life: owner.pulse.code(),
            shardmill: owner.is_shardmill,
        }
    }
}

impl<'a> TableReport<'a> {
    fn of(table: &'a LeaseTableFacts) -> Self {
        Self {
            status: &table.status,
            owner_index: table.has_owner_index,
            bad_rows: table.bad_rows.iter().map(BadRowReport::of).collect(),
            other_rows: &table.other_rows,
            client_version: table.client_version.as_deref(),
            table_migration: table.table_migration.as_deref(),
        }
    }
}

impl<'a> BadRowReport<'a> {
    fn of(row: &'a BadRow) -> Self {
        Self {
            key: &row.key,
            problem: &row.problem,
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
