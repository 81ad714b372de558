//! Whose table it is, and who lives.

use super::*;

#[test]
fn without_traces_of_kcl_3_owners_that_may_live_decide_the_mode() {
    let missing = Facts { table: TableFacts::Missing, companions: Companions::default(), stream: None };
    let other = TableFacts::OtherKey { problem: "its key is [HASH id N]".to_owned() };
    check(vec![
        ("no table", missing.clone(), Mode::NoTable, vec![(Note, Topic::NoTable)]),
        ("another key", Facts { table: other, ..missing }, Mode::NotALeaseTable, vec![(MendFirst, Topic::OtherKey)]),
        ("an empty table", facts(table(vec![])), Mode::Own, vec![]),
        (
            "an empty table of KCL 3",
            facts(version(table(vec![]), "CLIENT_VERSION_3X")),
            Mode::Kcl3Takeover,
            vec![(Note, Topic::Kcl3Traces), (Note, Topic::ClientVersion)],
        ),
        ("ours, live", facts(watched(of_shardmill(), &["a", "b"])), Mode::Own, vec![]),
        ("ours, idle from the start", facts(watched(registered(of_kcl(), &["kcl"]), &["kcl"])), Mode::Own, vec![]),
        (
            "ours once, now in the hands of a KCL, which keeps our marks",
            facts(watched(table(vec![marked(&low(), "kcl"), marked(&high(), "kcl")]), &["kcl"])),
            Mode::Kcl2Shared,
            vec![(Note, Topic::OtherWorkers)],
        ),
        (
            "ours, crashed and forgotten",
            facts(watched(table(vec![marked(&low(), "a"), marked(&high(), "b")]), &[])),
            Mode::Own,
            vec![],
        ),
        ("ours, not watched", facts(of_shardmill()), Mode::Own, vec![]),
        (
            "ours, released",
            facts(watched(table(vec![lease(&low(), None), lease(&high(), None)]), &[])),
            Mode::Own,
            vec![],
        ),
        ("KCL 2 live", facts(watched(of_kcl(), &["kcl"])), Mode::Kcl2Shared, vec![(Note, Topic::OtherWorkers)]),
        ("KCL 2 silent", facts(watched(of_kcl(), &[])), Mode::Own, vec![(Note, Topic::SilentOwners)]),
        ("KCL 2, not watched", facts(of_kcl()), Mode::Kcl2Shared, vec![(Warning, Topic::NotWatched)]),
        (
            "KCL 2 beside us",
            facts(watched(
                registered(table(vec![marked(&low(), "a"), lease(&high(), Some("kcl"))]), &["a"]),
                &["a", "kcl"],
            )),
            Mode::Kcl2Shared,
            vec![(Note, Topic::OtherWorkers)],
        ),
    ]);
}

#[test]
fn traces_of_kcl_3_are_believed_unless_we_took_over() {
    let companions =
        |worker_metrics, coordinator_state| Companions { worker_metrics, coordinator_state, ..Default::default() };
    let foreign = |mut table: LeaseTableFacts| {
        table.other_rows = [("LEADER".to_owned(), 1), ("WORKER_METRIC_STATS".to_owned(), 2)].into();
        table
    };
    let kcl3_live = vec![(MendFirst, Topic::OtherWorkers), (Note, Topic::Kcl3Traces)];
    let kcl3_silent = vec![(Note, Topic::SilentOwners), (Note, Topic::Kcl3Traces)];
    check(vec![
        (
            "KCL 3 live, by its index",
            facts(watched(LeaseTableFacts { has_owner_index: true, ..of_kcl() }, &["kcl"])),
            Mode::Kcl3Takeover,
            kcl3_live.clone(),
        ),
        ("KCL 3 live, by its rows", facts(watched(foreign(of_kcl()), &["kcl"])), Mode::Kcl3Takeover, kcl3_live.clone()),
        (
            "KCL 3 live, by a metrics table",
            Facts { companions: companions(true, false), ..facts(watched(of_kcl(), &["kcl"])) },
            Mode::Kcl3Takeover,
            kcl3_live.clone(),
        ),
        (
            "KCL 3 live, by a state table",
            Facts { companions: companions(false, true), ..facts(watched(of_kcl(), &["kcl"])) },
            Mode::Kcl3Takeover,
            kcl3_live.clone(),
        ),
        ("KCL 3 stopped", facts(watched(foreign(of_kcl()), &[])), Mode::Kcl3Takeover, kcl3_silent.clone()),
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
    let kcl3_live = vec![(MendFirst, Topic::OtherWorkers), (Note, Topic::Kcl3Traces)];
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
            facts(watched(version(of_kcl(), "CLIENT_VERSION_3X_WITH_ROLLBACK"), &[])),
            Mode::Kcl3Takeover,
            and_version(&kcl3_silent),
        ),
        (
            "between 2 and 3, live",
            facts(watched(version(of_kcl(), upgrade), &["kcl"])),
            Mode::Kcl2Shared,
            vec![(Warning, Topic::ClientVersion), (Note, Topic::OtherWorkers), (Note, Topic::Kcl3Traces)],
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
            vec![(Note, Topic::OtherWorkers), (Note, Topic::Kcl3Traces), (Note, Topic::ClientVersion)],
        ),
    ]);
}
