//! What `plan`, `explain` and `leases` tell of an application, on the real tables.

use harness::contract::stream::StreamControl;
use harness::embedded::EmbeddedStream;
use harness::flights;
use harness::guests::guest;
use harness::kcl_peer::{KclPeer, fresh_row};
use harness::process::shardmill;
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::CoordinatorTable;
use shardmill_core::fleet::{FleetRows, Incarnation, WorkerRow};
use shardmill_core::lease::{Lease, WorkerId};
use shardmill_core::ports::Coordinator;
use shardmill_core::stream::{ShardId, StreamName};

const EVIL: &str = "[reads]\nidle-every = \"50ms\"\ncalls-per-second = 50.0\n[retry]\ncap = \
    \"200ms\"\n\
                    [plugin.evil.config]\nmisbehave = \"error\"\n";

fn shard(n: u32) -> String {
    format!("shardId-{n:012}")
}

/// Standard output of a command that must succeed.
async fn output_of(setting: &Setting, args: &[&str]) -> String {
    let ended = shardmill(args, setting.path()).await;
    assert!(
        ended.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// Asks with two looks half a second apart.
async fn explained(setting: &Setting, application: &str, shard: &str) -> Value {
    let args = [
        "explain",
        application,
        shard,
        "--local",
        "--watch-for",
        "500ms",
        "--json",
    ];
    serde_json::from_str(&output_of(setting, &args).await).unwrap()
}

fn whys(place: &Value) -> Vec<&str> {
    place["why"]
        .as_array()
        .unwrap()
        .iter()
        .map(|why| why["kind"].as_str().unwrap())
        .collect()
}

async fn until(what: &str, setting: &Setting, application: &str, is_so: impl Fn(&[Lease]) -> bool) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(2);
    loop {
        let leases = setting.leases(application).await;
        if is_so(&leases) {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "never happened: {what}\n{leases:#?}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn tables(setting: &Setting, application: &str) -> (Vec<Lease>, Option<FleetRows>) {
    let mut leases = setting.leases(application).await;
    leases.sort_by(|a, b| a.key.cmp(&b.key));
    let coordinator = CoordinatorTable::new(setting.clients.dynamodb.clone(), application);
    (leases, coordinator.fleet().await.ok())
}

async fn split(setting: &Setting, n: u32) {
    let stream = EmbeddedStream::new(
        setting.clients.kinesis.clone(),
        StreamName::new(STREAM).unwrap(),
    );
    stream
        .split(&ShardId::new(shard(n)).unwrap(), u128::MAX / 2)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_an_application_that_is_not_there_yet_shows_all_and_makes_nothing() {
    let setting = Setting::new(3).await;
    let text = output_of(
        &setting,
        &["plan", "flights", "--stream", STREAM, "--local"],
    )
    .await;
    assert!(
        text.contains("there is no lease table flights yet"),
        "{text}"
    );
    assert_eq!(text.matches("  create ").count(), 3, "{text}");
    assert_eq!(
        text.matches("the shard has no lease yet").count(),
        3,
        "{text}"
    );
    assert_eq!(text.matches("  take ").count(), 3, "{text}");
    assert_eq!(
        text.matches("free, and below the fair share of 3").count(),
        3,
        "{text}"
    );
    let tables = setting.clients.dynamodb.list_tables().send().await.unwrap();
    assert_eq!(tables.table_names(), [] as [String; 0], "nothing was made");

    let unnamed = shardmill(&["plan", "flights", "--local"], setting.path()).await;
    let log = String::from_utf8_lossy(&unnamed.stderr).into_owned();
    assert!(
        !unnamed.status.success() && log.contains("--stream"),
        "{log}"
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_and_explain_of_a_fleet_that_is_gone_change_nothing_and_judge_by_movement() {
    let setting = Setting::new(3).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host("a");
    let is_held =
        |leases: &[Lease]| leases.iter().filter(|lease| lease.owner.is_some()).count() == 3;
    until("all are held", &setting, "flights", is_held).await;
    let leases = output_of(&setting, &["leases", "flights", "--local"]).await;
    assert!(
        leases.contains("since") && leases.contains("leader"),
        "{leases}"
    );
    // Alive: a second host would ask for some.
    let plan = output_of(
        &setting,
        &["plan", "flights", "--local", "--watch-for", "1500ms"],
    )
    .await;
    assert!(
        plan.contains("  claim ") && plan.contains("a holds 3 more than this host"),
        "{plan}"
    );
    let owned = explained(&setting, "flights", "0").await;
    assert_eq!(owned["place"]["owner"]["worker"], "a", "{owned}");
    assert!(
        owned["place"]["held-for-ms"].as_u64().unwrap() < 120_000,
        "{owned}"
    );
    assert_eq!(owned["place"]["standing"], "held", "{owned}");
    host.kill();

    let before = tables(&setting, "flights").await;
    // Without watching, nobody counts as dead; with it, its leases are there to be taken.
    let one_look = output_of(
        &setting,
        &["plan", "flights", "--local", "--watch-for", "0s"],
    )
    .await;
    assert!(!one_look.contains("  take "), "{one_look}");
    // Its own id takes them back at once, another one needs to see it stand still for its lease
    // duration.
    let watched = output_of(
        &setting,
        &["plan", "flights", "--as", "b", "--local", "--json"],
    )
    .await;
    let plan: Value = serde_json::from_str(&watched).unwrap();
    let steps = plan["now"].as_array().unwrap();
    assert_eq!(
        steps.iter().filter(|step| step["step"] == "take").count(),
        3,
        "{plan}"
    );
    assert!(
        steps[0]["reason"]
            .as_str()
            .unwrap()
            .contains("a stopped renewing it"),
        "{plan}"
    );
    assert_eq!(plan["leads"], true, "{plan}");
    let own = output_of(&setting, &["plan", "flights", "--as", "a", "--local"]).await;
    assert!(own.contains("the row already names this worker"), "{own}");
    let text = output_of(&setting, &["explain", "flights", "1", "--local"]).await;
    assert!(
        text.contains("longer than its lease duration") && text.contains("no live worker"),
        "{text}"
    );
    let quick = explained(&setting, "flights", &shard(1)).await;
    assert!(
        whys(&quick).is_empty(),
        "a look shorter than a heartbeat's interval says nothing of its owner: {quick}"
    );
    assert_eq!(
        tables(&setting, "flights").await,
        before,
        "nothing was written"
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_whose_shard_kinesis_does_not_know_is_not_said_to_be_removed_after_one_listing() {
    let setting = Setting::new(1).await;
    let kcl = KclPeer::new(setting.clients.dynamodb.clone(), "orders");
    kcl.create_table("leaseKey").await;
    for n in [0, 77] {
        kcl.put(&fresh_row(&shard(n))).await;
    }
    // The first listing of whoever leads: it does nothing yet.
    let plan = output_of(
        &setting,
        &[
            "plan",
            "orders",
            "--stream",
            STREAM,
            "--local",
            "--watch-for",
            "0s",
            "--json",
        ],
    )
    .await;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let steps = plan["now"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["step"] != "delete"), "{plan}");
    let left: Vec<_> = plan["held-back"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (&line["shard"], &line["kind"]))
        .collect();
    assert_eq!(
        left,
        [(
            &Value::from(shard(77)),
            &Value::from("gone-after-next-listing")
        )],
        "{plan}"
    );
    let args = [
        "explain",
        "orders",
        "77",
        "--stream",
        STREAM,
        "--local",
        "--watch-for",
        "0s",
    ];
    let text = output_of(&setting, &args).await;
    assert!(
        text.contains("if the leader's next listing does not show it either"),
        "{text}"
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_whose_plugin_fails_and_the_children_that_wait_for_it_are_explained() {
    let setting = Setting::new(1).await;
    setting.put(&flights::input()).await;
    split(&setting, 0).await;
    setting.drop_plugin("evil", &guest("evil"));
    let host = setting.host_with("a", EVIL);
    let is_stuck =
        |leases: &[Lease]| leases.len() == 3 && leases.iter().any(|lease| lease.stuck.is_some());
    until("the row says that it is stuck", &setting, "evil", is_stuck).await;

    let parent = explained(&setting, "evil", "0").await;
    assert_eq!(whys(&parent)[0], "stuck", "{parent}");
    let why = parent["why"][0]["text"].as_str().unwrap();
    assert!(why.contains("process fails as asked"), "{why}");
    assert_eq!(parent["listed"], "closed", "{parent}");

    let child = explained(&setting, "evil", "1").await;
    assert_eq!(whys(&child), ["waits-for-parents"], "{child}");
    assert_eq!(child["waits-for"][0]["shard"], shard(0), "{child}");
    assert_eq!(whys(&child["waits-for"][0]["place"])[0], "stuck", "{child}");
    let args = ["explain", "evil", "2", "--local", "--watch-for", "0s"];
    let text = output_of(&setting, &args).await;
    assert!(
        text.contains(&format!("why         waits for parent {} to end", shard(0))),
        "{text}"
    );
    assert!(text.contains("process fails as asked"), "{text}");
    let leases = output_of(&setting, &["leases", "evil", "--local"]).await;
    assert!(
        leases.contains("stuck") && leases.contains("attempt"),
        "{leases}"
    );
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_shard_or_application_is_an_error_that_says_where_it_was_looked_for() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host("a");
    let is_held =
        |leases: &[Lease]| leases.iter().filter(|lease| lease.owner.is_some()).count() == 2;
    until("all are held", &setting, "flights", is_held).await;
    for (shard, application, expected) in [
        ("77", "flights", format!("no shard {}", shard(77))),
        (
            "77",
            "flights",
            format!(
                "it is none of the 2 shards of stream {STREAM} ({} to {})",
                shard(0),
                shard(1)
            ),
        ),
        (
            "no shard",
            "flights",
            "shard id \"no shard\" is not valid".to_owned(),
        ),
        ("0", "nothing", "there is no lease table nothing".to_owned()),
    ] {
        let args = [
            "explain",
            application,
            shard,
            "--local",
            "--watch-for",
            "0s",
        ];
        let ended = shardmill(&args, setting.path()).await;
        let log = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && log.contains(&expected), "{log}");
    }
    let other = shardmill(
        &[
            "plan",
            "flights",
            "--stream",
            "other",
            "--local",
            "--watch-for",
            "0s",
        ],
        setting.path(),
    )
    .await;
    assert!(
        other.status.success(),
        "a stream that is not there is told, not refused"
    );
    let text = String::from_utf8_lossy(&other.stdout).into_owned();
    assert!(text.contains("there is no stream other"), "{text}");
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_at_its_most_leases_says_why_a_free_shard_rests() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with("a", "max = 1\n[reads]\nidle-every = \"50ms\"");
    until("one is held", &setting, "flights", |leases| {
        leases.iter().any(|lease| lease.owner.is_some())
    })
    .await;
    // A worker that registered and died is asked nothing.
    let coordinator = CoordinatorTable::new(setting.clients.dynamodb.clone(), "flights");
    let dead = WorkerRow {
        worker: WorkerId::new("dead").unwrap(),
        incarnation: Incarnation::from_random(7),
        beat: 3,
        lease_duration: std::time::Duration::from_secs(1),
        is_draining: false,
        max_leases: usize::MAX,
        versions: Vec::new(),
        cannot_write: None,
        cannot_look: None,
        artifact: None,
        load: None,
    };
    coordinator.register(None, &dead).await.unwrap();
    let leases = setting.leases("flights").await;
    let free = leases
        .iter()
        .find(|lease| lease.owner.is_none())
        .unwrap()
        .key
        .shard_id()
        .to_string();
    let args = ["explain", "flights", &free, "--local", "--watch-for", "2s"];
    let text = output_of(&setting, &args).await;
    assert!(text.contains("it has no owner"), "{text}");
    assert!(
        text.contains("a would leave it: this host holds the most leases it may (leases.max)"),
        "{text}"
    );
    assert!(!text.contains("dead would"), "{text}");
    assert!(host.terminate().await.success());
    setting.stop().await;
}
