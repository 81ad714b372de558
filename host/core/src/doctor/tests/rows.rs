//! Rows and tables with something to report.

use super::*;
use crate::fleet::FleetRows;

#[test]
fn rows_that_need_a_word_get_one() {
    let own = |leases| facts(table(leases));
    let keyed = |key: &str, shard: &Shard| {
        change(lease(shard, None), |lease| {
            lease.key = LeaseKey::new(key).unwrap();
        })
    };
    let pending = LeaseFacts {
        has_pending_checkpoint: true,
        ..lease(&shard("s-0", &[], 0, u128::MAX), None)
    };
    let bad = BadRow {
        key: "s-9".to_owned(),
        problem: "leaseCounter is missing".to_owned(),
    };
    let handed = || {
        let full = shard("s-0", &[], 0, u128::MAX);
        change(lease(&full, Some("b")), |lease| {
            lease.checkpoint_owner = WorkerId::new("a");
        })
    };
    let mut settled = watched(table(vec![handed()]), &["b"]);
    settled.second_look.as_mut().unwrap().leases[0].checkpoint_owner = None;
    check(vec![
        (
            "a bad row",
            facts(LeaseTableFacts {
                bad_rows: vec![bad],
                ..table(vec![])
            }),
            Mode::Own,
            vec![(FixFirst, Topic::BadRows)],
        ),
        (
            "a prepared checkpoint",
            own(vec![pending]),
            Mode::Own,
            vec![(Warning, Topic::PendingCheckpoints)],
        ),
        (
            "one stream of a multi-stream KCL",
            own(vec![
                keyed("1:s:2:s-0", &low()),
                keyed("1:s:2:s-1", &high()),
            ]),
            Mode::Own,
            vec![(FixFirst, Topic::MultiStreamKeys)],
        ),
        (
            "two streams in one table",
            own(vec![
                keyed("1:s:2:s-0", &low()),
                keyed("1:t:3:s-1", &high()),
            ]),
            Mode::Own,
            vec![(FixFirst, Topic::MultiStreamKeys)],
        ),
        (
            "single-stream, then multi-stream",
            own(vec![
                keyed("1:s:2:s-0", &low()),
                lease(&low(), None),
                lease(&high(), None),
            ]),
            Mode::Own,
            vec![
                (FixFirst, Topic::MultiStreamKeys),
                (FixFirst, Topic::SameShardTwice),
            ],
        ),
        (
            "a stuck hand-off",
            facts(watched(table(vec![handed()]), &[])),
            Mode::Kcl3Takeover,
            vec![
                (Warning, Topic::HandOffs),
                (Note, Topic::SilentOwners),
                (Note, Topic::Kcl3Traces),
            ],
        ),
        (
            "a hand-off that ended while we watched",
            facts(settled),
            Mode::Kcl3Takeover,
            vec![(FixFirst, Topic::OtherWorkers), (Note, Topic::Kcl3Traces)],
        ),
    ]);
}

#[test]
fn two_streams_may_have_a_shard_of_the_same_id_and_hosts_may_use_their_table_in_parts() {
    let of_two_streams = || {
        let keyed = |key: &str| {
            change(lease(&shard("s-0", &[], 0, u128::MAX), None), |lease| {
                lease.key = LeaseKey::new(key).unwrap();
            })
        };
        table(vec![keyed("1:s:2:s-0"), keyed("1:t:3:s-0")])
    };
    let fleet = FleetRows {
        streams: vec!["s".to_owned()],
        ..FleetRows::default()
    };
    check(vec![
        (
            "before a host used it",
            facts(of_two_streams()),
            Mode::Own,
            vec![(FixFirst, Topic::MultiStreamKeys)],
        ),
        (
            "in use",
            facts(LeaseTableFacts {
                fleet,
                ..of_two_streams()
            }),
            Mode::Own,
            vec![(Note, Topic::MultiStreamKeys)],
        ),
    ]);
}

#[test]
fn tables_that_cannot_be_used_now_and_holes_are_reported() {
    let own = |leases| facts(table(leases));
    let migrating = |state: &str| {
        facts(LeaseTableFacts {
            table_migration: Some(state.to_owned()),
            ..table(vec![])
        })
    };
    let with_status = |status: &str| {
        facts(LeaseTableFacts {
            status: status.to_owned(),
            ..table(vec![])
        })
    };
    let handed = || {
        let full = shard("s-0", &[], 0, u128::MAX);
        change(lease(&full, Some("b")), |lease| {
            lease.checkpoint_owner = WorkerId::new("a");
        })
    };
    let mut settled = watched(table(vec![handed()]), &["b"]);
    settled.second_look.as_mut().unwrap().leases[0].checkpoint_owner = None;
    let no_range = change(lease(&low(), None), |lease| lease.hash_range = None);
    check(vec![
        (
            "tables moved into one",
            migrating("COMPLETE"),
            Mode::Own,
            vec![(Note, Topic::TableMigration)],
        ),
        (
            "tables being moved",
            migrating("PENDING"),
            Mode::Own,
            vec![(Warning, Topic::TableMigration)],
        ),
        (
            "a table being made",
            with_status("CREATING"),
            Mode::Own,
            vec![(Warning, Topic::TableNotActive)],
        ),
        (
            "a table being deleted",
            with_status("DELETING"),
            Mode::Own,
            vec![(FixFirst, Topic::TableNotActive)],
        ),
        (
            "a table being changed",
            with_status("UPDATING"),
            Mode::Own,
            vec![],
        ),
        (
            "a hole",
            own(vec![lease(&low(), None)]),
            Mode::Own,
            vec![(Warning, Topic::Holes)],
        ),
        (
            "a finished lease covers nothing",
            own(vec![
                change(lease(&low(), None), |lease| {
                    lease.checkpoint = Checkpoint::ShardEnd;
                }),
                lease(&high(), None),
            ]),
            Mode::Own,
            vec![(Warning, Topic::Holes)],
        ),
        (
            "leases without hash keys",
            own(vec![no_range.clone()]),
            Mode::Own,
            vec![(Note, Topic::UnknownHashKeys)],
        ),
        (
            "leases whose hash keys the stream knows",
            with_stream(
                table(vec![no_range, lease(&high(), None)]),
                vec![low(), high()],
            ),
            Mode::Own,
            vec![],
        ),
    ]);
}

#[test]
fn where_the_application_starts_is_reported_and_what_latest_means_before_it_has_begun() {
    let at_latest = || {
        change(lease(&shard("s-0", &[], 0, u128::MAX), None), |lease| {
            lease.checkpoint = Checkpoint::Latest;
        })
    };
    let mut begun = table(vec![at_latest()]);
    begun.fleet.start = Some(ApplicationStart {
        position: InitialPosition::Latest,
        looked_at_ms: 1_000,
        found_leases: false,
    });
    let told = |table| diagnose(&facts(table)).findings.pop().unwrap();
    let (before, after) = (told(table(vec![at_latest()])), told(begun));
    assert_eq!((before.severity, before.topic), (Note, Topic::Start));
    assert_eq!(
        before.what,
        "1 lease (s-0) at LATEST, with no checkpoint yet"
    );
    assert_eq!(
        after.what,
        "the application starts at 1970-01-01T00:00:01Z (latest when the application started)"
    );
}

#[test]
fn a_version_that_is_quarantined_is_named_with_the_command_that_releases_it() {
    let mut table = table(vec![]);
    let digest = crate::plugin::PluginDigest::from_hex(&"5".repeat(64)).unwrap();
    let (host, reason) = (WorkerId::new("a").unwrap(), "it traps".to_owned());
    table.fleet.quarantined = vec![crate::rollout::Quarantined {
        digest,
        host,
        reason,
        at_ms: 1_000,
    }];
    let found = diagnose(&facts(table));
    let told = found
        .findings
        .iter()
        .find(|finding| finding.topic == Topic::Quarantined)
        .unwrap();
    assert!(
        told.what
            .contains("555555555555 has been quarantined since")
            && told.what.contains("found by a"),
        "{}",
        told.what
    );
    assert!(
        told.fix
            .ends_with("shardmill plugins orders --release 555555555555"),
        "{}",
        told.fix
    );
    assert!(found.is_usable());
}
