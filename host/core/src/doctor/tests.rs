//! Facts in, mode and findings out: one case for each kind of table.

mod deletion;
mod modes;
mod rows;
mod shards;

use std::time::Duration;

use super::Severity::{FixFirst, Note, Warning};
use super::*;
use crate::fleet::{ApplicationStart, StreamIdentity, StreamRow, WorkerRow};
use crate::lease::{Checkpoint, Lease, LeaseCounter, WorkerId};
use crate::migration::{Library, Tables, Value, read};
use crate::plugin::PluginDigest;
use crate::ports::BadRow;
use crate::stream::{
    HashKeyRange, InitialPosition, LeaseKey, SequenceNumber, Shard, ShardId, StreamName,
};

const HALF: u128 = 1 << 127;

fn shard(id: &str, parents: &[&str], start: u128, end: u128) -> Shard {
    Shard {
        id: ShardId::new(id).unwrap(),
        parents: parents.iter().map(|id| ShardId::new(id).unwrap()).collect(),
        hash_range: HashKeyRange::new(start, end).unwrap(),
        ending_sequence: None,
    }
}

fn closed(shard: Shard) -> Shard {
    Shard {
        ending_sequence: SequenceNumber::parse("100").ok(),
        ..shard
    }
}

fn low() -> Shard {
    shard("s-0", &[], 0, HALF - 1)
}

fn high() -> Shard {
    shard("s-1", &[], HALF, u128::MAX)
}

fn lease(shard: &Shard, owner: Option<&str>) -> LeaseFacts {
    let mut lease = Lease::fresh(shard, Checkpoint::TrimHorizon);
    lease.owner = owner.and_then(WorkerId::new);
    lease.counter = LeaseCounter(7);
    LeaseFacts {
        lease,
        has_pending_checkpoint: false,
        has_entity_type: false,
    }
}

/// A shardmill host's lease.
fn marked(shard: &Shard, owner: &str) -> LeaseFacts {
    let mut facts = lease(shard, Some(owner));
    facts.lease.plugin_digest = PluginDigest::from_hex(&"ab".repeat(32));
    facts
}

fn change(mut facts: LeaseFacts, change: impl Fn(&mut Lease)) -> LeaseFacts {
    change(&mut facts.lease);
    facts
}

fn table(leases: Vec<LeaseFacts>) -> LeaseTableFacts {
    LeaseTableFacts {
        status: "ACTIVE".to_owned(),
        leases,
        ..LeaseTableFacts::default()
    }
}

/// Two leases of a KCL worker, which cover everything.
fn of_kcl() -> LeaseTableFacts {
    table(vec![
        lease(&low(), Some("kcl")),
        lease(&high(), Some("kcl")),
    ])
}

fn of_shardmill() -> LeaseTableFacts {
    registered(
        table(vec![marked(&low(), "a"), marked(&high(), "b")]),
        &["a", "b"],
    )
}

/// Registers these hosts in the coordinator table.
fn registered(mut table: LeaseTableFacts, workers: &[&str]) -> LeaseTableFacts {
    table.fleet.workers = workers
        .iter()
        .map(|worker| WorkerRow {
            beat: 7,
            ..WorkerRow::beating(worker)
        })
        .collect();
    table
}

/// 12 s later: these workers have written to their rows or, if they are ours, sent a heartbeat.
fn watched(table: LeaseTableFacts, live: &[&str]) -> LeaseTableFacts {
    watched_for(Duration::from_secs(12), table, live)
}

fn watched_for(after: Duration, mut table: LeaseTableFacts, live: &[&str]) -> LeaseTableFacts {
    let mut fleet = table.fleet.clone();
    for row in &mut fleet.workers {
        row.beat += u64::from(live.contains(&row.worker.as_str()));
    }
    let is_live = |owner: &WorkerId| {
        live.contains(&owner.as_str()) && fleet.workers.iter().all(|row| row.worker != *owner)
    };
    let mut leases: Vec<Lease> = table
        .leases
        .iter()
        .map(|facts| facts.lease.clone())
        .collect();
    for lease in leases
        .iter_mut()
        .filter(|lease| lease.owner.as_ref().is_some_and(is_live))
    {
        lease.counter = lease.counter.next();
    }
    table.second_look = Some(SecondLook {
        after,
        leases,
        fleet,
    });
    table
}

fn version(mut table: LeaseTableFacts, version: &str) -> LeaseTableFacts {
    table.client_version = Some(version.to_owned());
    table.has_owner_index = true;
    table
}

fn facts(table: LeaseTableFacts) -> Facts {
    let failover_time = Some(Duration::from_secs(10));
    let table = TableFacts::Leases(Box::new(table));
    let application = "orders".to_owned();
    Facts {
        predecessor: None,
        application,
        table,
        companions: Companions::default(),
        stream: None,
        failover_time,
    }
}

fn with_stream(table: LeaseTableFacts, shards: Vec<Shard>) -> Facts {
    let stream = StreamFacts {
        name: StreamName::new("s").unwrap(),
        status: Some("ACTIVE".to_owned()),
        identity: Some(StreamIdentity {
            created_at_ms: 5_000,
        }),
        shards,
    };
    Facts {
        stream: Some(stream),
        ..facts(table)
    }
}

fn found(diagnosis: &Diagnosis) -> Vec<(Severity, Topic)> {
    diagnosis
        .findings
        .iter()
        .map(|finding| (finding.severity, finding.topic))
        .collect()
}

type Expected = (&'static str, Facts, Mode, Vec<(Severity, Topic)>);

fn check(cases: Vec<Expected>) {
    for (name, facts, mode, findings) in cases {
        let diagnosis = diagnose(&facts);
        assert_eq!(
            (diagnosis.mode, found(&diagnosis)),
            (mode, findings.clone()),
            "{name}: {:#?}",
            diagnosis.findings
        );
        assert_eq!(
            diagnosis.is_usable(),
            findings.iter().all(|(severity, _)| *severity != FixFirst),
            "{name}"
        );
        for finding in &diagnosis.findings {
            assert!(!finding.what.is_empty(), "{name}: {finding:?}");
            let must_tell = finding.severity != Note && finding.topic != Topic::OtherKey;
            assert!(!must_tell || !finding.fix.is_empty(), "{name}: {finding:?}");
        }
    }
}

#[test]
fn the_census_counts_leases_and_owners_and_names_the_leader() {
    let mut leases = vec![
        lease(&low(), None),
        change(lease(&high(), Some("w0")), |lease| {
            lease.checkpoint = Checkpoint::ShardEnd;
        }),
    ];
    leases.extend((1..10).map(|index| {
        lease(
            &shard(&format!("t-{index}"), &[], 0, 9),
            Some(&format!("w{index}")),
        )
    }));
    leases.push(marked(&shard("t-x", &[], 0, 9), "w3"));
    let census = diagnose(&facts(watched(table(leases), &["w3"]))).census;
    assert_eq!(
        (
            census.leases,
            census.finished,
            census.unowned,
            census.owners.len()
        ),
        (12, 1, 1, 10)
    );
    assert_eq!(census.kcl2_leader, WorkerId::new("w8"));
    let of = |name: &str| {
        census
            .owners
            .iter()
            .find(|owner| owner.worker.as_str() == name)
            .unwrap()
    };
    assert_eq!(
        (
            of("w0").leases,
            of("w0").pulse.code(),
            of("w0").is_shardmill
        ),
        (0, "dead", false)
    );
    assert_eq!(
        (
            of("w3").leases,
            of("w3").pulse.code(),
            of("w3").is_shardmill
        ),
        (2, "live", false)
    );
}

#[test]
fn any_attribute_that_only_a_host_writes_marks_a_dead_owner_as_a_host() {
    let row = |n: u32| lease(&shard(&format!("t-{n}"), &[], 0, 9), Some(&format!("w{n}")));
    let rows = vec![
        marked(&shard("t-0", &[], 0, 9), "w0"),
        change(row(1), |lease| lease.millis_behind_latest = Some(1)),
        change(row(2), |lease| lease.held_since_ms = Some(1)),
        row(3),
    ];
    let census = diagnose(&facts(watched(table(rows), &[]))).census;
    let hosts: Vec<bool> = census
        .owners
        .iter()
        .map(|owner| owner.is_shardmill)
        .collect();
    assert_eq!(hosts, [true, true, true, false]);
}

#[test]
fn a_dead_owner_of_nothing_but_finished_rows_is_no_worker_beside_us() {
    let finished = |lease: &mut Lease| lease.checkpoint = Checkpoint::ShardEnd;
    let rows = vec![
        change(lease(&low(), Some("ended")), finished),
        lease(&high(), Some("holding")),
    ];
    let census = diagnose(&facts(watched(table(rows), &[]))).census;
    let others: Vec<&str> = census
        .other_workers()
        .map(|owner| owner.worker.as_str())
        .collect();
    assert_eq!(others, ["holding"]);
}

#[test]
fn an_owner_that_comes_while_we_watch_lives_though_it_took_its_lease_from_another() {
    let mut seen = watched(of_kcl(), &[]);
    let later = &mut seen.second_look.as_mut().unwrap().leases[0];
    (later.owner, later.counter) = (WorkerId::new("fresh"), later.counter.next());
    let diagnosis = diagnose(&facts(seen));
    assert_eq!(diagnosis.mode, Mode::Kcl2Shared);
    assert!(
        diagnosis
            .findings
            .iter()
            .any(|finding| finding.what.contains("fresh")),
        "{diagnosis:#?}"
    );
}

#[test]
fn long_lists_are_cut_and_say_by_how_much() {
    assert_eq!(finding::some_of("row", ["a"]), "1 row (a)");
    assert_eq!(finding::some_of("row", 1..=3), "3 rows (1, 2, 3)");
    assert_eq!(
        finding::some_of("row", 1..=9),
        "9 rows (1, 2, 3 and 6 more)"
    );
}
