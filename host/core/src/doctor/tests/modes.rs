//! Which fleet a table belongs to, and which workers are alive.

use super::*;

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn without_traces_of_kcl_3_owners_that_may_live_decide_the_mode() {
    let missing = Facts {
        table: TableFacts::Missing,
        ..facts(table(vec![]))
    };
    let other = TableFacts::OtherKey {
        problem: "its key is [HASH id N]".to_owned(),
    };
    check(vec![
        (
            "no table",
            missing.clone(),
            Mode::NoTable,
            vec![(Note, Topic::NoTable)],
        ),
        (
            "a kinsumer's name",
            Facts {
                predecessor: Some(PredecessorFacts {
                    library: Library::Kinsumer,
                    places: Vec::new(),
                    workers: Vec::new(),
                }),
                ..missing.clone()
            },
            Mode::NoTable,
            vec![(Warning, Topic::OtherLibrary), (Note, Topic::NoTable)],
        ),
        (
            "another key",
            Facts {
                table: other,
                ..missing
            },
            Mode::NotALeaseTable,
            vec![(FixFirst, Topic::OtherKey)],
        ),
        ("an empty table", facts(table(vec![])), Mode::Own, vec![]),
        (
            "an empty table of KCL 3",
            facts(version(table(vec![]), "CLIENT_VERSION_3X")),
            Mode::Kcl3Takeover,
            vec![(Note, Topic::Kcl3Traces), (Note, Topic::ClientVersion)],
        ),
        (
            "ours, live",
            facts(watched(of_shardmill(), &["a", "b"])),
            Mode::Own,
            vec![],
        ),
        (
            "ours, idle from the start",
            facts(watched(registered(of_kcl(), &["kcl"]), &["kcl"])),
            Mode::Own,
            vec![],
        ),
        (
            "ours once, now in the hands of a KCL, which keeps our marks",
            facts(watched(
                table(vec![marked(&low(), "kcl"), marked(&high(), "kcl")]),
                &["kcl"],
            )),
            Mode::Kcl2Shared,
            vec![(Note, Topic::OtherWorkers)],
        ),
        (
            "ours, crashed and forgotten",
            facts(watched(
                table(vec![marked(&low(), "a"), marked(&high(), "b")]),
                &[],
            )),
            Mode::Own,
            vec![],
        ),
        (
            "ours, not watched",
            facts(of_shardmill()),
            Mode::Own,
            vec![],
        ),
        (
            "ours, released",
            facts(watched(
                table(vec![lease(&low(), None), lease(&high(), None)]),
                &[],
            )),
            Mode::Own,
            vec![],
        ),
        (
            "KCL 2 live",
            facts(watched(of_kcl(), &["kcl"])),
            Mode::Kcl2Shared,
            vec![(Note, Topic::OtherWorkers)],
        ),
        (
            "KCL 2 silent",
            facts(watched(of_kcl(), &[])),
            Mode::Own,
            vec![(Note, Topic::SilentOwners)],
        ),
        (
            "KCL 2, not watched",
            facts(of_kcl()),
            Mode::Kcl2Shared,
            vec![(Warning, Topic::NotWatched)],
        ),
        (
            "KCL 2 beside us",
            facts(watched(
                registered(
                    table(vec![marked(&low(), "a"), lease(&high(), Some("kcl"))]),
                    &["a"],
                ),
                &["a", "kcl"],
            )),
            Mode::Kcl2Shared,
            vec![(Note, Topic::OtherWorkers)],
        ),
    ]);
}

#[test]
fn a_kcl_that_was_not_watched_for_longer_than_its_failover_time_is_never_taken_for_dead() {
    let secs = Duration::from_secs;
    let may_live = vec![(Warning, Topic::NotWatched)];
    let dead = vec![(Note, Topic::SilentOwners)];
    let with_our_marks = || table(vec![marked(&low(), "kcl"), marked(&high(), "kcl")]);
    for (failover, watched, mode, findings) in [
        // The KCL renews after a third of it: with 36 s and more, a worker can be silent throughout
        // the 12 s that are watched by default.
        (None, 12, Mode::Kcl2Shared, may_live.clone()),
        (None, 600, Mode::Kcl2Shared, may_live.clone()),
        (Some(secs(60)), 12, Mode::Kcl2Shared, may_live.clone()),
        (Some(secs(60)), 60, Mode::Kcl2Shared, may_live),
        (Some(secs(60)), 61, Mode::Own, dead),
    ] {
        let quiet = Facts {
            failover_time: failover,
            ..facts(watched_for(secs(watched), of_kcl(), &[]))
        };
        let name = format!("{failover:?} and {watched} s");
        let diagnosis = diagnose(&quiet);
        assert_eq!(
            (diagnosis.mode, found(&diagnosis)),
            (mode, findings),
            "{name}"
        );
        // A worker that took leases from us leaves our marks on them.
        let marked = Facts {
            failover_time: failover,
            ..facts(watched_for(secs(watched), with_our_marks(), &[]))
        };
        assert_eq!(diagnose(&marked).mode, mode, "{name}, with our marks");
    }
}

#[test]
fn a_host_is_not_called_silent_before_its_next_heartbeat_is_due() {
    let life = |watched_ms: u64, live: &[&str]| {
        let seen = watched_for(Duration::from_millis(watched_ms), of_shardmill(), live);
        let diagnosis = diagnose(&facts(seen));
        assert_eq!(diagnosis.mode, Mode::Own);
        diagnosis.census.owners[0].pulse.code()
    };
    assert_eq!([life(1_000, &[]), life(3_000, &[])], ["unwatched"; 2]);
    assert_eq!(life(1_000, &["a"]), "live");
    assert_eq!([life(5_000, &[]), life(11_000, &[])], ["silent", "dead"]);
}

#[test]
fn traces_of_kcl_3_are_believed_unless_we_took_over() {
    let companions = |worker_metrics, coordinator_state| Companions {
        worker_metrics,
        coordinator_state,
        ..Default::default()
    };
    let foreign = |mut table: LeaseTableFacts| {
        table.other_rows = [
            ("LEADER".to_owned(), 1),
            ("WORKER_METRIC_STATS".to_owned(), 2),
        ]
        .into();
        table
    };
    let kcl3_live = vec![(FixFirst, Topic::OtherWorkers), (Note, Topic::Kcl3Traces)];
    let kcl3_silent = vec![(Note, Topic::SilentOwners), (Note, Topic::Kcl3Traces)];
    check(vec![
        (
            "KCL 3 live, by its index",
            facts(watched(
                LeaseTableFacts {
                    has_owner_index: true,
                    ..of_kcl()
                },
                &["kcl"],
            )),
            Mode::Kcl3Takeover,
            kcl3_live.clone(),
        ),
        (
            "KCL 3 live, by its rows",
            facts(watched(foreign(of_kcl()), &["kcl"])),
            Mode::Kcl3Takeover,
            kcl3_live.clone(),
        ),
        (
            "KCL 3 live, by a metrics table",
            Facts {
                companions: companions(true, false),
                ..facts(watched(of_kcl(), &["kcl"]))
            },
            Mode::Kcl3Takeover,
            kcl3_live.clone(),
        ),
        (
            "KCL 3 live, by a state table",
            Facts {
                companions: companions(false, true),
                ..facts(watched(of_kcl(), &["kcl"]))
            },
            Mode::Kcl3Takeover,
            kcl3_live.clone(),
        ),
        (
            "KCL 3 stopped",
            facts(watched(foreign(of_kcl()), &[])),
            Mode::Kcl3Takeover,
            kcl3_silent.clone(),
        ),
        (
            "KCL 3, not watched",
            facts(foreign(of_kcl())),
            Mode::Kcl3Takeover,
            vec![(Warning, Topic::NotWatched), (Note, Topic::Kcl3Traces)],
        ),
        (
            "KCL 3 taken over",
            facts(watched(foreign(of_shardmill()), &["a", "b"])),
            Mode::Own,
            vec![(Note, Topic::Kcl3Traces)],
        ),
        (
            "taken over, then both stopped",
            facts(watched(foreign(of_shardmill()), &[])),
            Mode::Kcl3Takeover,
            vec![(Note, Topic::Kcl3Traces)],
        ),
    ]);
}

#[test]
fn a_client_version_says_whose_rules_a_fleet_goes_by() {
    let kcl3_live = vec![(FixFirst, Topic::OtherWorkers), (Note, Topic::Kcl3Traces)];
    let kcl3_silent = vec![(Note, Topic::SilentOwners), (Note, Topic::Kcl3Traces)];
    let and_version = |findings: &[_]| [findings, &[(Note, Topic::ClientVersion)]].concat();
    let upgrade = "CLIENT_VERSION_UPGRADE_FROM_2X";
    check(vec![
        (
            "KCL 3 by its version, live",
            facts(watched(version(of_kcl(), "CLIENT_VERSION_3X"), &["kcl"])),
            Mode::Kcl3Takeover,
            and_version(&kcl3_live),
        ),
        (
            "KCL 3 with the way back, stopped",
            facts(watched(
                version(of_kcl(), "CLIENT_VERSION_3X_WITH_ROLLBACK"),
                &[],
            )),
            Mode::Kcl3Takeover,
            and_version(&kcl3_silent),
        ),
        (
            "between 2 and 3, live",
            facts(watched(version(of_kcl(), upgrade), &["kcl"])),
            Mode::Kcl2Shared,
            vec![
                (Warning, Topic::ClientVersion),
                (Note, Topic::OtherWorkers),
                (Note, Topic::Kcl3Traces),
            ],
        ),
        (
            "between 2 and 3, stopped",
            facts(watched(version(of_kcl(), upgrade), &[])),
            Mode::Kcl3Takeover,
            and_version(&kcl3_silent),
        ),
        (
            "back from 3 to 2, live",
            facts(watched(version(of_kcl(), "CLIENT_VERSION_2X"), &["kcl"])),
            Mode::Kcl2Shared,
            vec![
                (Note, Topic::OtherWorkers),
                (Note, Topic::Kcl3Traces),
                (Note, Topic::ClientVersion),
            ],
        ),
    ]);
}

#[test]
fn the_command_that_comes_next_is_one_that_a_person_may_paste_whatever_a_table_says() {
    let of_lifion = |group: &str, stream: &str| {
        let item = [
            ("consumerGroup", Value::text(group)),
            ("streamName", Value::text(stream)),
        ];
        let item = item.map(|(name, value)| (name.to_owned(), value));
        let tables = Tables {
            checkpoints: vec![item.into_iter().collect()],
            workers: Vec::new(),
        };
        let predecessor = PredecessorFacts {
            library: Library::Lifion,
            places: read(Library::Lifion, &tables),
            workers: vec![Vec::new()],
        };
        let facts = Facts {
            table: TableFacts::Missing,
            predecessor: Some(predecessor),
            ..facts(table(vec![]))
        };
        diagnose(&facts).next
    };
    assert_eq!(
        of_lifion("billing", "clicks"),
        "shardmill import orders --group billing --stream clicks --to PLUGIN"
    );
    assert_eq!(
        of_lifion("x; rm -rf ~", "$(reboot)"),
        "shardmill import orders --group GROUP --stream STREAM --to PLUGIN"
    );
}

#[test]
fn what_comes_next_follows_from_the_table() {
    let multi = change(lease(&low(), None), |lease| {
        lease.key = LeaseKey::new("123456789012:clicks:17:s-0").unwrap();
    });
    for (facts, next) in [
        (
            facts(table(vec![multi])),
            "shardmill run --config shardmill.toml, once the KCL has stopped, with application = \
                \"orders\", streams = [\"clicks\"] and multi-stream-table = true for the plugin",
        ),
        (
            facts(of_kcl()),
            "shardmill doctor orders --failover-time 10s",
        ),
        (facts(watched(of_shardmill(), &["a", "b"])), "shardmill run"),
        (
            facts(watched(version(of_kcl(), "CLIENT_VERSION_3X"), &["kcl"])),
            "shardmill doctor orders, once that is fixed",
        ),
    ] {
        let found = diagnose(&facts).next;
        assert!(found.starts_with(next), "{found}, not {next}");
    }
}
