//! Applications start over, end, and get another state, with real hosts and exact counts; the host
//! that was told is killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::contract::stream::StreamControl;
use harness::embedded::EmbeddedStream;
use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::{eventually, shardmill};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_core::lease::Checkpoint;
use shardmill_core::stream::{ShardId, StreamName};

const MANIFEST: &str = "[grants]\nstate = true\n[config]\ndestination = \"out\"";
/// Short leases: a host that was killed counts as dead soon.
const LEASES: &str = "duration = \"2s\"\nscan-every = \"100ms\"";

async fn run(setting: &Setting, args: &[&str]) -> (bool, String) {
    let ended = shardmill(args, setting.path()).await;
    let (out, error) = (
        String::from_utf8_lossy(&ended.stdout).into_owned(),
        String::from_utf8_lossy(&ended.stderr).into_owned(),
    );
    (ended.status.success(), format!("{out}{error}"))
}

/// Runs a command that changes something.
async fn change(setting: &Setting, args: &[&str]) -> String {
    let mut all = args.to_vec();
    all.extend(["--local", "--why", "a test", "--apply"]);
    let (is_done, text) = run(setting, &all).await;
    assert!(is_done, "{args:?}: {text}");
    text
}

fn output(setting: &Setting) -> Output {
    Output::read(&[&setting.output_of("a"), &setting.output_of("b")])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_starts_over_with_its_finished_shards_though_the_host_that_was_told_is_killed()
 {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_sharing("a", LEASES, "");
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    let parent = ShardId::new("shardId-000000000000").unwrap();
    let stream = StreamName::new(STREAM).unwrap();
    let stream = EmbeddedStream::new(setting.clients.kinesis.clone(), stream);
    stream.split(&parent, u128::MAX / 2).await;
    let has_ended = async || {
        let leases = setting.leases("flights").await;
        let parent = leases.iter().find(|lease| lease.key.shard_id() == parent);
        leases.len() == 3 && parent.is_some_and(|lease| lease.checkpoint == Checkpoint::ShardEnd)
    };
    let began = Instant::now();
    while !has_ended().await {
        assert!(began.elapsed() < Duration::from_mins(1), "never ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let all: u64 = flights::expected().values().sum();
    assert_eq!(output(&setting).lines, all);
    let (is_planned, plan) = run(&setting, &["reset", "flights", "--local"]).await;
    assert!(is_planned && plan.contains("SHARD_END"), "{plan}");
    assert!(plan.contains("nothing was changed"), "{plan}");
    change(&setting, &["reset", "flights", "--wait", "0s"]).await;
    host.kill();
    let host = setting.host_sharing("b", LEASES, "");
    eventually("everything again", || output(&setting).lines >= 2 * all).await;
    assert!(host.terminate().await.success());
    let output = output(&setting);
    assert_eq!(
        (output.lines, output.carriers),
        (2 * all, flights::expected())
    );
    assert!(output.seen.values().all(|count| *count == 2));
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_of_an_application_are_deleted_once_nobody_lives_and_never_before() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_sharing("a", LEASES, "");
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    let delete = ["delete", "flights", "--local"];
    let confirmed = ["--confirm", "flights", "--why", "a test", "--apply"];
    let with = |more: &[&'static str]| [&delete[..], more].concat();
    let (is_possible, text) = run(&setting, &with(&["--watch-for", "3s"])).await;
    assert!(
        !is_possible && text.contains("somebody may be at work: a"),
        "{text}"
    );
    let (is_done, text) = run(&setting, &with(&confirmed)).await;
    assert!(
        !is_done && text.contains("somebody may be at work"),
        "{text}"
    );
    assert_eq!(setting.leases("flights").await.len(), 2, "nothing is lost");
    host.kill();
    let unwatched = [&confirmed[..], &["--watch-for", "0s"]].concat();
    let (is_done, text) = run(&setting, &with(&unwatched)).await;
    assert!(!is_done, "one look proves no death: {text}");
    let other = ["--confirm", "flight", "--why", "a test", "--apply"];
    let (is_done, text) = run(&setting, &with(&other)).await;
    assert!(!is_done && text.contains("nothing is deleted"), "{text}");
    let (is_done, text) = run(&setting, &with(&confirmed)).await;
    assert!(
        is_done && text.contains("these tables are deleted"),
        "{text}"
    );
    let (is_known, text) = run(&setting, &["leases", "flights", "--local"]).await;
    assert!(
        !is_known && text.contains("there is no lease table"),
        "{text}"
    );
    let (is_done, text) = run(&setting, &with(&confirmed)).await;
    assert!(!is_done && text.contains("there are no tables"), "{text}");
    let host = setting.host_sharing("b", LEASES, "");
    setting.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success());
    let output = output(&setting);
    assert!(output.seen.values().all(|count| *count == 2), "all anew");
    setting.stop().await;
}

/// How many flights the states of a file, or of the table, count.
fn counted(lines: &str) -> u64 {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    let mut count = 0;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let state = BASE64_STANDARD.decode(line["state"].as_str().unwrap());
        let sums: BTreeMap<String, Value> = serde_json::from_slice(&state.unwrap()).unwrap();
        count += sums
            .values()
            .filter_map(|sum| sum["flights"].as_u64())
            .sum::<u64>();
    }
    count
}

async fn export(setting: &Setting, file: &str) -> String {
    let args = ["state", "export", "totals", "--local", "--out", file];
    let (is_done, text) = run(setting, &args).await;
    assert!(is_done, "{text}");
    std::fs::read_to_string(setting.path().join(file)).unwrap()
}

async fn import(setting: &Setting, file: &str, more: &[&str]) -> (bool, String) {
    let args = ["state", "import", "totals", file, "--local"];
    run(setting, &[&args[..], more].concat()).await
}

fn half(path: &Path) -> String {
    let input = flights::input();
    let file = std::fs::File::open(input).unwrap();
    let lines = std::io::read_to_string(flate2::read::GzDecoder::new(file)).unwrap();
    let lines: Vec<&str> = lines.lines().take(1_000).collect();
    let half = path.join("half.ndjson");
    std::fs::write(&half, lines.join("\n")).unwrap();
    half.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_saved_and_restored_so_that_each_flight_counts_once_though_hosts_are_killed() {
    let setting = Setting::new(2).await;
    setting.drop_manifest("totals", MANIFEST);
    setting.drop_plugin("totals", &guest("totals"));
    let host = setting.host_sharing("a", LEASES, "");
    let half = half(setting.path());
    let last = setting.put(Path::new(&half)).await;
    setting.until_checkpointed("totals", &last).await;
    let saved = export(&setting, "saved.ndjson").await;
    assert_eq!(counted(&saved), 1_000);
    let again = [
        "state",
        "export",
        "totals",
        "--local",
        "--out",
        "saved.ndjson",
    ];
    let (is_done, text) = run(&setting, &again).await;
    assert!(!is_done && text.contains("does not exist"), "{text}");
    let last = setting.put(Path::new(&half)).await;
    setting.until_checkpointed("totals", &last).await;
    let apply = ["--why", "a test", "--apply"];
    let (is_done, text) = import(&setting, "saved.ndjson", &apply).await;
    assert!(!is_done && text.contains("--go-back"), "{text}");
    let go_back = [&apply[..], &["--go-back", "--wait", "0s"]].concat();
    let (is_done, text) = import(&setting, "saved.ndjson", &go_back).await;
    assert!(is_done, "{text}");
    host.kill();
    let host = setting.host_sharing("b", LEASES, "");
    let is_obeyed = async || {
        let leases = setting.leases("totals").await;
        leases.iter().all(|lease| lease.directives.state.is_none())
    };
    let began = Instant::now();
    while !is_obeyed().await {
        assert!(began.elapsed() < Duration::from_mins(1), "never obeyed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    setting.until_checkpointed("totals", &last).await;
    let restored = export(&setting, "restored.ndjson").await;
    assert_eq!(counted(&restored), 2_000, "each of them once");
    change(&setting, &["pause", "totals"]).await;
    change(&setting, &["state", "reset", "totals"]).await;
    let dropped = export(&setting, "dropped.ndjson").await;
    assert_eq!(dropped, "");
    let restored = ["state", "import", "totals", "restored.ndjson"];
    change(&setting, &restored).await;
    change(&setting, &["resume", "totals"]).await;
    let last = setting.put(Path::new(&half)).await;
    setting.until_checkpointed("totals", &last).await;
    assert!(host.terminate().await.success());
    let end = export(&setting, "end.ndjson").await;
    assert_eq!(counted(&end), 3_000);
    let history = run(&setting, &["history", "totals", "--local"]).await.1;
    for deed in ["import-state", "reset-state", "edited-state"] {
        assert!(history.contains(deed), "{history}");
    }
    setting.stop().await;
}
