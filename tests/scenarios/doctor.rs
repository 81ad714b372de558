//! An operator asks what a table holds before pointing a host at it.

use harness::flights;
use harness::guests::guest;
use harness::kcl_peer::{Item, KclPeer, fresh_row, item, number, text};
use harness::process::shardmill;
use harness::setting::Setting;
use serde_json::Value;

/// What `doctor --json` says, and whether it ended with success.
async fn doctor(setting: &Setting, args: &[&str]) -> (bool, Value) {
    let args = [&["doctor", "--local=data", "--json"], args].concat();
    let ended = shardmill(&args, setting.path()).await;
    let report = serde_json::from_slice(&ended.stdout);
    let report = report
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&ended.stderr)));
    (ended.status.success(), report)
}

fn topics(report: &Value) -> Vec<&str> {
    report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["topic"].as_str().unwrap())
        .collect()
}

async fn every_row(kcl: &KclPeer, keys: &[&str]) -> Vec<Option<Item>> {
    let mut rows = Vec::new();
    for key in keys {
        rows.push(kcl.row(key).await);
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_first_run_there_is_no_table_and_none_is_made() {
    let setting = Setting::new(2).await;
    for _ in 0..2 {
        let (is_usable, report) = doctor(&setting, &["flights", "--stream", "flights"]).await;
        assert!(is_usable, "{report}");
        assert_eq!(
            (&report["mode"], topics(&report)),
            (&Value::from("no-table"), vec!["no-table"])
        );
        assert_eq!(report["stream"]["open-shards"], 2);
    }
    let (is_usable, report) = doctor(&setting, &["flights", "--stream", "elsewhere"]).await;
    assert!(!is_usable);
    assert_eq!(topics(&report), ["stream-not-active", "no-table"]);
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_another_key_is_told_apart() {
    let setting = Setting::new(1).await;
    KclPeer::new(setting.clients.dynamodb.clone(), "customers")
        .create_table("id")
        .await;
    let (is_usable, report) = doctor(&setting, &["customers"]).await;
    assert!(!is_usable);
    assert_eq!(
        (&report["mode"], topics(&report)),
        (&Value::from("not-a-lease-table"), vec!["other-key"])
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_table_is_ours_and_its_host_is_seen_to_live() {
    let setting = Setting::new(3).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host("a");
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    // Nothing more comes, so the rows rest: its heartbeat alone shows that the host lives.
    let (is_usable, report) = doctor(
        &setting,
        &["flights", "--stream", "flights", "--watch-for", "3s"],
    )
    .await;
    assert!(is_usable, "{report}");
    // A note says where the application began.
    assert_eq!(
        (&report["mode"], topics(&report)),
        (&Value::from("own"), vec!["start"])
    );
    let owner = &report["leases"]["owners"][0];
    assert_eq!(
        (&owner["worker"], &owner["leases"], &owner["life"]),
        (&"a".into(), &3.into(), &"live".into())
    );
    assert_eq!(
        (&report["kcl2-leader"], &owner["shardmill"]),
        (&"a".into(), &true.into())
    );
    // Between two heartbeats it is silent, which says nothing.
    let (_, report) = doctor(
        &setting,
        &["flights", "--stream", "flights", "--watch-for", "1s"],
    )
    .await;
    let life = report["leases"]["owners"][0]["life"].as_str().unwrap();
    assert!(["live", "unwatched"].contains(&life), "{life}");
    assert!(host.terminate().await.success());

    let (is_usable, report) = doctor(
        &setting,
        &["flights", "--stream", "flights", "--watch-for", "0s"],
    )
    .await;
    assert!(is_usable, "{report}");
    assert_eq!(
        (&report["mode"], &report["leases"]["unowned"]),
        (&"own".into(), &3.into())
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one story")]
async fn a_kcl_3_5_table_is_a_takeover_once_its_fleet_is_stopped_and_nothing_in_it_changes() {
    let setting = Setting::new(1).await;
    let kcl = KclPeer::new(setting.clients.dynamodb.clone(), "orders");
    kcl.create_table("leaseKey").await;
    let shard = "shardId-000000000000";
    let mut lease = fresh_row(shard);
    lease.extend(item([
        ("leaseOwner", text("kcl-b")),
        ("checkpointOwner", text("kcl-a")),
        ("entityType", text("LEASE")),
        ("throughputKBps", number("12.5")),
        ("pendingCheckpoint", text("7")),
        ("startingHashKey", text("0")),
        (
            "endingHashKey",
            text("340282366920938463463374607431768211455"),
        ),
    ]));
    let mut bad = fresh_row("shardId-000000000001");
    bad.remove("leaseCounter");
    let other = |key: &str, kind: &str, name: &str, value: &str| {
        item([
            ("leaseKey", text(key)),
            ("entityType", text(kind)),
            (name, text(value)),
        ])
    };
    let rows = [
        lease,
        other("Leader", "LEADER", "ownerName", "kcl-a"),
        other(
            "Migration3.0",
            "CLIENT_VERSION_MIGRATION",
            "cv",
            "CLIENT_VERSION_3X",
        ),
        other("TableMigration3.5", "TABLE_MIGRATION", "tm", "COMPLETE"),
        other("kcl-a", "WORKER_METRIC_STATS", "note", "x"),
    ];
    for row in &rows {
        kcl.put(row).await;
    }
    KclPeer::new(setting.clients.dynamodb.clone(), "orders-CoordinatorState")
        .create_table("key")
        .await;
    let keys = [
        shard,
        "Leader",
        "Migration3.0",
        "TableMigration3.5",
        "kcl-a",
        "shardId-000000000001",
    ];
    let before = every_row(&kcl, &keys).await;

    let (is_usable, report) = doctor(
        &setting,
        &[
            "orders",
            "--stream",
            "flights",
            "--failover-time",
            "100ms",
            "--watch-for",
            "200ms",
        ],
    )
    .await;
    assert!(is_usable, "{report}");
    assert_eq!(report["mode"], "kcl3-takeover");
    let expected = [
        "pending-checkpoints",
        "hand-offs",
        "silent-owners",
        "kcl3-traces",
        "client-version",
        "table-migration",
    ];
    let mut found = topics(&report);
    found.sort_unstable();
    let mut sorted = expected;
    sorted.sort_unstable();
    assert_eq!(found, sorted, "{report:#}");
    assert_eq!(report["table"]["client-version"], "CLIENT_VERSION_3X");
    assert_eq!(report["table"]["other-rows"]["WORKER_METRIC_STATS"], 1);
    assert_eq!(report["companions"]["coordinator-state"], true);
    assert_eq!(every_row(&kcl, &keys).await, before);

    kcl.put(&bad).await;
    let ended = shardmill(
        &["doctor", "orders", "--local", "--watch-for", "0s"],
        setting.path(),
    )
    .await;
    let page = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{page}");
    for expected in [
        "fix-first: bad-rows: 1 row (shardId-000000000001: leaseCounter is missing)",
        "fix: ",
        "kcl3-takeover",
        "verdict   fix first",
    ] {
        assert!(page.contains(expected), "{expected}:\n{page}");
    }
    setting.stop().await;
}
