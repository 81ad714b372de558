//! Compares leases with hash keys and shards: which shards no host reads, and which no longer
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::finding::{Findings, some_of};
use super::{LeaseTableFacts, Severity, StreamFacts, TableFacts, Topic};
use crate::fleet::{StreamRow, StreamVerdict};
use crate::lease::{Lease, LeaseObserver, WorkerId};
use crate::plan::{Balance, FleetView, GoneShards, Outlook, PlanLimits, ShardList, missing_rows};
use crate::stream::{HashKeyRange, InitialPosition, Shard, ShardId, holes};
use crate::time::Moment;

/// The fix of [`Topic::OtherStream`].
const OTHER_STREAM: &str = "name the stream that the application reads; if the stream was deleted \
    and created again, name another application, which starts at initial-position";

/// Limits for a plan in which only the created rows matter, not where they start or how leases are
/// shared out.
const ANY_LIMITS: PlanLimits = PlanLimits {
    initial_position: InitialPosition::TrimHorizon,
    max_leases: usize::MAX,
    balance: Balance::Count,
    shared_with_kcl: false,
    overdue_after: Duration::ZERO,
    finished_rows_stay: Duration::ZERO,
};

pub(super) fn judge(table: &TableFacts, stream: Option<&StreamFacts>, findings: &mut Findings) {
    let is_readable = stream.is_none_or(|stream| judge_status(stream, findings));
    let TableFacts::Leases(table) = table else {
        return;
    };
    if table.leases.is_empty() {
        return;
    }
    let shards: Option<BTreeMap<&ShardId, &Shard>> = match stream {
        Some(stream) if is_readable => {
            let shards = stream.shards.iter();
            Some(shards.map(|shard| (&shard.id, shard)).collect())
        }
        Some(_) | None => None,
    };
    if let (Some(stream), Some(shards)) = (stream, &shards)
        && is_as_written_down(table, stream, findings)
        && is_of_stream(table, stream, shards, findings)
    {
        judge_unlisted(table, shards, findings);
        judge_without_lease(table, stream, findings);
    }
    judge_holes(table, shards.as_ref(), findings);
}

/// Whether the stream can be read.
fn judge_status(stream: &StreamFacts, findings: &mut Findings) -> bool {
    let name = &stream.name;
    let (severity, what, fix) = match stream.status.as_deref() {
        Some("ACTIVE" | "UPDATING") => return true,
        Some("CREATING") => (
            Severity::Warning,
            format!("stream {name} is being created"),
            "wait for it",
        ),
        Some(status) => (
            Severity::FixFirst,
            format!("stream {name} is {status}"),
            "name a stream that is not being deleted",
        ),
        None => (
            Severity::FixFirst,
            format!("there is no stream {name} in this account and region"),
            "name another with --stream, or another --region",
        ),
    };
    findings.add(severity, Topic::StreamNotActive, what, fix);
    false
}

/// Compares the stream with the one that hosts of shardmill recorded for these checkpoints.
fn is_as_written_down(
    table: &LeaseTableFacts,
    stream: &StreamFacts,
    findings: &mut Findings,
) -> bool {
    let (Some(row), Some(identity)) = (&table.fleet.stream, stream.identity) else {
        return true;
    };
    let what = match StreamRow::judge(Some(row), &stream.name, identity) {
        StreamVerdict::Same | StreamVerdict::Unknown => return true,
        StreamVerdict::OtherName => format!("the checkpoints belong to stream {}", row.name),
        StreamVerdict::Recreated => {
            format!("stream {} has been deleted and created again", row.name)
        }
    };
    findings.add(Severity::FixFirst, Topic::OtherStream, what, OTHER_STREAM);
    false
}

/// Compares by hash keys and sequence numbers: shard ids are the same in all streams.
fn is_of_stream(
    table: &LeaseTableFacts,
    stream: &StreamFacts,
    shards: &BTreeMap<&ShardId, &Shard>,
    findings: &mut Findings,
) -> bool {
    let leases = || table.leases.iter().map(|facts| &facts.lease);
    let strange: Vec<&Lease> = leases()
        .filter(|lease| {
            shards
                .get(&lease.key.shard_id())
                .is_some_and(|shard| !stands_for(lease, shard))
        })
        .collect();
    let has_one = leases().any(|lease| shards.contains_key(&lease.key.shard_id()));
    let name = &stream.name;
    let what = if !strange.is_empty() {
        let keys = some_of("lease", strange.iter().map(|lease| &lease.key));
        format!(
            "{keys} with hash keys or a checkpoint that the shard with that id in stream {name} cannot have"
        )
    } else if !has_one {
        format!(
            "none of the {} leases is for a shard of stream {name}",
            table.leases.len()
        )
    } else {
        return true;
    };
    findings.add(Severity::FixFirst, Topic::OtherStream, what, OTHER_STREAM);
    false
}

fn stands_for(lease: &Lease, shard: &Shard) -> bool {
    let has_other_keys = lease
        .hash_range
        .is_some_and(|range| range != shard.hash_range);
    let is_past_end = match (lease.checkpoint.position(), &shard.ending_sequence) {
        (Some(position), Some(end)) => position.sequence > *end,
        _ => false,
    };
    !has_other_keys && !is_past_end
}

/// Reports leases whose shard is not listed. One listing does not prove that a shard is gone; the
/// leader finds that out ([`crate::plan::MissingShards`]).
fn judge_unlisted(
    table: &LeaseTableFacts,
    shards: &BTreeMap<&ShardId, &Shard>,
    findings: &mut Findings,
) {
    let leases = table.leases.iter().map(|facts| &facts.lease);
    let unlisted = leases.filter(|lease| !shards.contains_key(&lease.key.shard_id()));
    let (finished, unfinished): (Vec<&Lease>, Vec<&Lease>) =
        unlisted.partition(|lease| lease.is_finished());
    if !unfinished.is_empty() {
        findings.add(
            Severity::Warning,
            Topic::ShardsGone,
            format!(
                "{} unfinished, and not in the stream's shard list: most likely they expired with \
                    their records",
                some_of("lease", unfinished.iter().map(|lease| &lease.key))
            ),
            "the leader removes such rows once it is certain, so that they do not block the \
                shards after them",
        );
    }
    if !finished.is_empty() {
        let what = format!(
            "{} finished, and not in the stream's shard list",
            some_of("lease", finished.iter().map(|lease| &lease.key))
        );
        findings.add(Severity::Note, Topic::ShardsGone, what, "");
    }
}

/// Reports open shards without a row that the next leader would create one for.
fn judge_without_lease(table: &LeaseTableFacts, stream: &StreamFacts, findings: &mut Findings) {
    let without = open_without_lease(table, stream);
    if !without.is_empty() {
        findings.add(
            Severity::Warning,
            Topic::ShardsWithoutLease,
            format!(
                "{} open without a lease, not read now",
                some_of("shard", without)
            ),
            "the next host that lists the shards creates the rows",
        );
    }
}

fn open_without_lease(table: &LeaseTableFacts, stream: &StreamFacts) -> Vec<ShardId> {
    let Some(asker) = WorkerId::new("doctor") else {
        return Vec::new();
    };
    let outlook = Outlook {
        me: &asker,
        observer: &LeaseObserver::default(),
        alive: &BTreeSet::new(),
        lease_duration: Duration::ZERO,
        now: Moment::default(),
    };
    let leases = outlook.leases_if_running(table.leases.iter().map(|facts| &facts.lease));
    let view = FleetView {
        me: &asker,
        leases: &leases,
        workers: &[],
        shards: None,
        is_bootstrapped: table.fleet.is_bootstrapped_given(!leases.is_empty()),
    };
    let list = ShardList {
        shards: &stream.shards,
        gone: &GoneShards::default(),
        before_start: None,
    };
    missing_rows(&view, &list, &ANY_LIMITS)
        .into_iter()
        .filter(|(shard, start)| shard.is_open() && start.is_ok())
        .map(|(shard, _)| shard.id.clone())
        .collect()
}

/// A lease's part of the hash keys, from its row or from the listing of the stream.
fn hash_range(lease: &Lease, shards: Option<&BTreeMap<&ShardId, &Shard>>) -> Option<HashKeyRange> {
    if lease.hash_range.is_some() {
        return lease.hash_range;
    }
    let listed = shards?.get(&lease.key.shard_id())?;
    Some(listed.hash_range)
}

fn judge_holes(
    table: &LeaseTableFacts,
    shards: Option<&BTreeMap<&ShardId, &Shard>>,
    findings: &mut Findings,
) {
    let leases = table.leases.iter().map(|facts| &facts.lease);
    let (mut ranges, mut unknown) = (Vec::new(), Vec::new());
    for lease in leases.filter(|lease| !lease.is_finished()) {
        match hash_range(lease, shards) {
            Some(range) => ranges.push(range),
            None => unknown.push(&lease.key),
        }
    }
    if !unknown.is_empty() {
        findings.add(
            Severity::Note,
            Topic::UnknownHashKeys,
            format!(
                "{} without hash keys, so holes cannot be detected",
                some_of("lease", unknown)
            ),
            "name the stream with --stream: it has them",
        );
        return;
    }
    let holes = holes(ranges);
    if !holes.is_empty() {
        add_holes(&holes, findings);
    }
}

fn add_holes(holes: &[HashKeyRange], findings: &mut Findings) {
    findings.add(
        Severity::Warning,
        Topic::Holes,
        format!(
            "no unfinished lease covers {} of hash keys: no host reads the records put there now",
            some_of("range", holes)
        ),
        "the next host that lists the shards creates the missing rows; --stream shows which shards \
            they are",
    );
}
