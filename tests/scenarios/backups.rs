//! Backups in the middle of the flights, and what comes of them: on the stream itself after its
//! tables were lost, on the stream of another region, and after one table was put back without the
//! other. A plugin with state counts each flight once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use flate2::read::GzDecoder;
use harness::contract::stream::StreamControl;
use harness::embedded::EmbeddedStream;
use harness::flights::{self, ByCarrier, Output};
use harness::guests::guest;
use harness::process::{Host, shardmill};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::{StreamAdmin, delete_table, existing_tables};
use shardmill_core::lease::Checkpoint;
use shardmill_core::stream::{ShardId, StreamName};

const SHARDS: u32 = 4;
const MANIFEST: &str = "[grants]\nstate = true\n[config]\ndestination = \"out\"";
/// Short leases: a host that was killed counts as dead soon.
const LEASES: &str = "duration = \"2s\"\nscan-every = \"100ms\"";
/// Slow enough that the middle of the flights lasts for seconds.
const SLOW: &str = "[host]\ncache = \"off\"\n[reads]\ncalls-per-second = 5.0\nrecords-per-call = 40\n\
    idle-every = \"50ms\"";
/// The stream of another region, with the same flights.
const WEST: &str = "flights-west";

async fn run(setting: &Setting, args: &[&str]) -> (bool, String) {
    let ended = shardmill(&[args, &["--local"]].concat(), setting.path()).await;
    let out = String::from_utf8_lossy(&ended.stdout).into_owned();
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status.success(), format!("{out}{error}"))
}

async fn done(setting: &Setting, args: &[&str]) -> String {
    let (is_done, text) = run(setting, args).await;
    assert!(is_done, "{args:?}: {text}");
    text
}

/// A command with `--json`.
async fn answered(setting: &Setting, args: &[&str]) -> Value {
    let args = [args, &["--local", "--json"]].concat();
    let ended = shardmill(&args, setting.path()).await;
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&ended.stdout).unwrap()
}

const APPLY: [&str; 3] = ["--why", "a test", "--apply"];

/// Everything that the application has in DynamoDB is gone.
pub(super) async fn lose_tables(setting: &Setting, application: &str) {
    let client = &setting.clients.dynamodb;
    for table in existing_tables(client, application).await.unwrap() {
        delete_table(client, &table).await.unwrap();
    }
    assert!(setting.leases(application).await.is_empty());
}

/// Waits until each shard is somewhere between its ends.
async fn until_in_the_middle(setting: &Setting, application: &str) {
    let began = Instant::now();
    loop {
        let leases = setting.leases(application).await;
        let is_begun = |checkpoint: &Checkpoint| matches!(checkpoint, Checkpoint::At(_));
        let begun = leases.iter().filter(|lease| is_begun(&lease.checkpoint));
        if begun.count() == SHARDS as usize {
            return;
        }
        assert!(began.elapsed() < Duration::from_mins(2), "{leases:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Flights by carrier, as the states of all shards count them.
pub(super) async fn counted(setting: &Setting) -> ByCarrier {
    let mut counts = ByCarrier::new();
    for lease in setting.leases("totals").await {
        let args = ["state", "totals", "--shard", lease.key.as_str(), "--local"];
        let ended = shardmill(&args, setting.path()).await;
        let sums: BTreeMap<String, Value> = serde_json::from_slice(&ended.stdout).unwrap();
        for (carrier, sum) in sums {
            *counts.entry(carrier).or_default() += sum["flights"].as_u64().unwrap();
        }
    }
    counts
}

fn totals(setting: &Setting) {
    setting.drop_manifest("totals", MANIFEST);
    setting.drop_plugin("totals", &guest("totals"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_fleet_at_work_restores_its_lost_tables_and_each_flight_counts_once() {
    let setting = Setting::new(SHARDS).await;
    totals(&setting);
    let last = setting.put(&flights::input()).await;
    let host = setting.host_sharing("a", LEASES, SLOW);
    until_in_the_middle(&setting, "totals").await;
    let plugins = setting.path().join("plugins");
    let plugins = plugins.to_str().unwrap();
    let backup = ["backup", "totals", "--to", "totals.backup"];
    let made = answered(&setting, &[&backup[..], &["--plugins", plugins]].concat()).await;
    let shards = made["shards"].as_array().unwrap();
    assert_eq!(shards.len(), SHARDS as usize);
    assert!(
        shards
            .iter()
            .all(|shard| shard["arrived-ms"].is_u64() && shard["state-bytes"].is_u64()),
        "{made:#}"
    );
    assert_eq!(
        made["files"],
        serde_json::json!(["totals.toml", "totals.wasm"])
    );
    let (is_done, text) = run(&setting, &backup).await;
    assert!(
        !is_done && text.contains("name a file that does not exist"),
        "{text}"
    );

    let restore = ["restore", "totals.backup"];
    let now = [&restore[..], &["--overwrite", "--watch-for", "3s"], &APPLY].concat();
    let (is_done, text) = run(&setting, &now).await;
    assert!(
        !is_done && text.contains("somebody may be at work: a"),
        "{text}"
    );
    host.kill();
    lose_tables(&setting, "totals").await;
    let planned = done(&setting, &restore).await;
    assert!(planned.contains("nothing was written"), "{planned}");
    assert!(planned.contains("the backup's own"), "{planned}");
    assert!(setting.leases("totals").await.is_empty());
    let to = [&restore[..], &["--plugins", "again"], &APPLY].concat();
    let text = done(&setting, &to).await;
    assert!(text.contains("4 rows written"), "{text}");
    let text = done(&setting, &to).await;
    assert!(
        text.contains("0 rows written") && text.contains("keep"),
        "{text}"
    );
    let component = std::fs::read(setting.path().join("again/totals.wasm")).unwrap();
    assert_eq!(component, guest("totals"));

    let host = setting.host_sharing("b", LEASES, "");
    setting.until_checkpointed("totals", &last).await;
    assert!(host.terminate().await.success());
    assert_eq!(counted(&setting).await, flights::expected());
    let (is_done, text) = run(&setting, &[&restore[..], &APPLY].concat()).await;
    assert!(
        !is_done && text.contains("--overwrite restores it all the same"),
        "{text}"
    );
    assert_eq!(
        counted(&setting).await,
        flights::expected(),
        "nothing was touched"
    );

    let over = [&restore[..], &["--overwrite"], &APPLY].concat();
    done(&setting, &["backup", "totals", "--to", "later.backup"]).await;
    done(&setting, &over).await;
    goes_forward_only_if_asked(&setting, "later.backup").await;
    assert_eq!(counted(&setting).await, flights::expected());
    done(&setting, &over).await;
    let host = setting.host_sharing("c", LEASES, "");
    setting.until_checkpointed("totals", &last).await;
    assert!(host.terminate().await.success());
    assert_eq!(
        counted(&setting).await,
        flights::expected(),
        "back, and once again"
    );
    let history = done(&setting, &["history", "totals"]).await;
    assert!(
        history.contains("begun: up to 4 row(s), of the backup"),
        "{history}"
    );
    assert!(history.contains("0 row(s), of the backup"), "{history}");
    setting.stop().await;
}

/// A backup that is newer than the rows would leave out what comes again.
async fn goes_forward_only_if_asked(setting: &Setting, backup: &str) {
    let later = ["restore", backup, "--overwrite"];
    let (is_done, text) = run(setting, &[&later[..], &APPLY].concat()).await;
    assert!(
        !is_done && text.contains("never delivered. --forward moves it all the same"),
        "{text}"
    );
    let args = [&later[..], &["--local", "--json"]].concat();
    let ended = shardmill(&args, setting.path()).await;
    let shown: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert!(
        shown["shards"].as_array().unwrap().iter().all(|shard| {
            shard["step"] == "refuse" && shard["now"].is_string() && shard["then"].is_string()
        }),
        "{shown:#}"
    );
    let forward = [&later[..], &["--forward"], &APPLY].concat();
    let text = done(setting, &forward).await;
    assert!(
        text.contains("FORWARD, from NOW to THEN") && !text.contains("delivered again"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_planned_stop_nothing_repeats_though_a_shard_splits_before_the_restore() {
    let setting = Setting::new(SHARDS).await;
    setting.drop_plugin("flights", &guest("flights"));
    let (first, second) = halves(&setting);
    setting.put(&first).await;
    let host = setting.host_sharing("a", LEASES, SLOW);
    until_in_the_middle(&setting, "flights").await;
    assert!(host.terminate().await.success());
    done(&setting, &["backup", "flights", "--to", "flights.backup"]).await;
    lose_tables(&setting, "flights").await;
    let stream = StreamName::new(STREAM).unwrap();
    let stream = EmbeddedStream::new(setting.clients.kinesis.clone(), stream);
    let parent = ShardId::new("shardId-000000000001").unwrap();
    stream.split(&parent, u128::MAX / 8 * 3).await;
    let mut last = setting.put(&second).await;
    let restore = ["restore", "flights.backup"];
    let report = answered(&setting, &restore).await;
    let kinds = |report: &Value| {
        let shards = report["shards"].as_array().unwrap().clone();
        shards
            .into_iter()
            .map(|shard| shard["kind"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        kinds(&report),
        [
            "continues",
            "continues",
            "continues",
            "continues",
            "by-hosts",
            "by-hosts"
        ]
    );
    done(&setting, &[&restore[..], &APPLY].concat()).await;
    let host = setting.host_sharing("b", LEASES, "");
    last.retain(|(shard, _)| shard != parent.as_str());
    setting.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a"), &setting.output_of("b")]);
    assert_eq!(output.carriers, flights::expected());
    assert_eq!((output.repeats, output.disorder), (0, 0));
    setting.stop().await;
}

/// The flights in two files.
fn halves(setting: &Setting) -> (PathBuf, PathBuf) {
    let file = std::fs::File::open(flights::input()).unwrap();
    let lines: Vec<String> = BufReader::new(GzDecoder::new(file))
        .lines()
        .map(Result::unwrap)
        .collect();
    let write = |name: &str, lines: &[String]| {
        let path = setting.path().join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        for line in lines {
            writeln!(file, "{line}").unwrap();
        }
        path
    };
    let (first, second) = lines.split_at(lines.len() / 2);
    (write("first.ndjson", first), write("second.ndjson", second))
}

async fn stream_of(setting: &Setting, name: &str, shards: u32) {
    let stream = StreamName::new(name).unwrap();
    let admin = StreamAdmin::new(setting.clients.kinesis.clone());
    admin.ensure_stream(&stream, shards).await.unwrap();
}

/// A host of the other region.
fn host_in_the_west(setting: &Setting) -> Host {
    let file = setting.configure("west", LEASES, "");
    let path = setting.path().join(&file);
    let config = std::fs::read_to_string(&path).unwrap();
    let config = config.replace(
        &format!("stream = \"{STREAM}\""),
        &format!("stream = \"{WEST}\""),
    );
    std::fs::write(path, config).unwrap();
    Host::start(
        "west",
        &["run", "--config", &file, "--local"],
        setting.path(),
    )
}

async fn put_west_first(setting: &Setting, file: &Path) -> [Vec<(String, String)>; 2] {
    let west = setting.put_into(WEST, file).await;
    // Arrival times are whole seconds here: what comes next arrives in a later one.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    [west, setting.put(file).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_stream_of_another_region_states_are_kept_and_every_flight_after_the_backup_comes() {
    let setting = Setting::new(SHARDS).await;
    totals(&setting);
    stream_of(&setting, WEST, SHARDS).await;
    let host = setting.host_sharing("a", LEASES, "");
    let (first, second) = halves(&setting);
    let [_, last] = put_west_first(&setting, &first).await;
    setting.until_checkpointed("totals", &last).await;
    done(&setting, &["backup", "totals", "--to", "totals.backup"]).await;
    put_west_first(&setting, &second).await;
    host.kill();
    lose_tables(&setting, "totals").await;

    stream_of(&setting, "narrow", 2).await;
    let (is_done, text) = run(
        &setting,
        &["restore", "totals.backup", "--stream", "narrow"],
    )
    .await;
    assert!(
        !is_done && text.contains("4 state(s) fit no shard of this stream"),
        "{text}"
    );
    let fitting = [
        "restore",
        "totals.backup",
        "--stream",
        "narrow",
        "--states",
        "fitting",
    ];
    let text = done(&setting, &fitting).await;
    assert!(
        text.contains("states that are dropped: shardId-000000000000"),
        "{text}"
    );

    // The producer puts each flight there first, so that no margin is needed, and none repeats.
    let restore = [
        "restore",
        "totals.backup",
        "--stream",
        WEST,
        "--margin",
        "0s",
    ];
    let text = done(&setting, &[&restore[..], &APPLY].concat()).await;
    assert!(text.contains("another than the backup's"), "{text}");
    let text = done(&setting, &[&restore[..], &APPLY].concat()).await;
    assert!(
        text.contains("0 rows written"),
        "it can be run again: {text}"
    );
    let host = host_in_the_west(&setting);
    until_counted(&setting).await;
    assert!(host.terminate().await.success());
    assert_eq!(counted(&setting).await, flights::expected());

    // With a margin the flights of the last minute come again: all of them, here.
    lose_tables(&setting, "totals").await;
    let restore = ["restore", "totals.backup", "--stream", WEST];
    done(&setting, &[&restore[..], &APPLY].concat()).await;
    let host = host_in_the_west(&setting);
    let all: u64 = flights::expected().values().sum();
    let half = all / 2;
    until_total(&setting, all + half).await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}

async fn until_counted(setting: &Setting) {
    until_total(setting, flights::expected().values().sum()).await;
}

/// Waits until the states count so many flights, and not one more.
async fn until_total(setting: &Setting, wanted: u64) {
    let began = Instant::now();
    loop {
        let found: u64 = counted(setting).await.values().sum();
        assert!(found <= wanted, "{found} of {wanted}");
        if found == wanted {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_mins(2),
            "{found} of {wanted}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

type Item = std::collections::HashMap<String, AttributeValue>;

async fn items(setting: &Setting, table: &str) -> Vec<Item> {
    let request = setting
        .clients
        .dynamodb
        .scan()
        .table_name(table)
        .consistent_read(true);
    request.send().await.unwrap().items.unwrap()
}

/// As a restore to a point in time would, of one table alone.
async fn put_back(setting: &Setting, table: &str, items: Vec<Item>) {
    for item in items {
        let put = setting.clients.dynamodb.put_item().table_name(table);
        put.set_item(Some(item)).send().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_newer_than_its_lease_stops_its_shard_and_going_to_it_mends_that() {
    let setting = Setting::new(SHARDS).await;
    totals(&setting);
    let last = setting.put(&flights::input()).await;
    let host = setting.host_sharing("a", LEASES, SLOW);
    until_in_the_middle(&setting, "totals").await;
    let earlier = items(&setting, "totals").await;
    setting.until_checkpointed("totals", &last).await;
    assert!(host.terminate().await.success());
    put_back(&setting, "totals", earlier).await;

    let (is_done, text) = run(&setting, &["backup", "totals", "--to", "totals.backup"]).await;
    assert!(
        !is_done && text.contains("was restored without the other"),
        "{text}"
    );
    assert!(!setting.path().join("totals.backup").exists());
    let shown = done(&setting, &["state", "totals"]).await;
    assert_eq!(
        shown.matches("bytes, of checkpoint").count(),
        SHARDS as usize,
        "{shown}"
    );
    let host = setting.host_sharing("b", LEASES, "");
    let stuck = async || {
        let leases = setting.leases("totals").await;
        leases.iter().all(|lease| lease.stuck.is_some())
    };
    let began = Instant::now();
    while !stuck().await {
        assert!(began.elapsed() < Duration::from_mins(1), "{}", host.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    done(&setting, &["state", "export", "totals", "--out", "states"]).await;
    let import = [
        "state",
        "import",
        "totals",
        "states",
        "--go-back",
        "--wait",
        "60s",
    ];
    done(&setting, &[&import[..], &APPLY].concat()).await;
    setting.until_checkpointed("totals", &last).await;
    assert!(host.terminate().await.success());
    assert_eq!(counted(&setting).await, flights::expected());
    setting.stop().await;
}
