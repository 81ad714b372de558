//! Output that goes over a network, and dead letters that come back.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use harness::endpoint::Endpoint;
use harness::flights;
use harness::guests::guest;
use harness::process::{eventually, shardmill};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::{KinesisReader, StreamAdmin};
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::{DeadLetter, StreamReader};
use shardmill_core::stream::{Position, ReadFrom, Record, SequenceNumber, ShardId, StreamName};
use shardmill_sinks::letters::encode;

const READS: &str =
    "[reads]\ncalls-per-second = 50.0\nbytes-per-second = \"1GiB\"\nidle-every = \"50ms\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_endpoint_blocks_its_plugin_visibly_and_no_other_and_loses_nothing() {
    let setting = Setting::new(2).await;
    let endpoint = Endpoint::refusing(503).await;
    setting.drop_plugin("echo", &guest("echo"));
    setting.drop_plugin("flights", &guest("flights"));
    let url = &endpoint.url;
    let config = format!(
        "{READS}[host]\nadmin = \"127.0.0.1:0\"\n[retry]\ncap = \"200ms\"\n[sinks.hook]\ntype = \
            \"http\"\nurl = \"{url}\"\n\
         [plugin.echo.config]\ndestination = \"hook\"\n"
    );
    let host = setting.host_with("a", &config);
    let last = setting.put(&flights::input()).await;
    // The other plugin gets through while the endpoint refuses.
    setting.until_checkpointed("flights", &last).await;
    eventually("some refusals", || endpoint.refused() > 5).await;
    let reason = blocked(&host.status().await, "echo");
    assert!(
        reason.contains("sink hook cannot store output: 503"),
        "{reason}"
    );
    let rows = setting.leases("echo").await;
    assert!(
        rows.iter()
            .all(|row| row.checkpoint == shardmill_core::lease::Checkpoint::TrimHorizon)
    );

    endpoint.take();
    setting.until_checkpointed("echo", &last).await;
    assert!(host.terminate().await.success());
    let mut carriers = BTreeMap::<String, u64>::new();
    for line in endpoint.lines() {
        let flight: Value = serde_json::from_str(&line).unwrap();
        *carriers
            .entry(flight["carrier"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    assert_eq!(carriers, flights::expected(), "each record once");
    setting.stop().await;
}

fn blocked(status: &Value, plugin: &str) -> String {
    let shards = status["plugins"][plugin]["shards"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let reasons = shards
        .values()
        .filter_map(|shard| shard["blocked"]["reason"].as_str());
    reasons.map(str::to_owned).collect::<Vec<_>>().join("; ")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_emits_to_a_stream_is_there_once() {
    let setting = Setting::new(2).await;
    let out = StreamName::new("out").unwrap();
    StreamAdmin::new(setting.clients.kinesis.clone())
        .ensure_stream(&out, 3)
        .await
        .unwrap();
    setting.drop_plugin("echo", &guest("echo"));
    let sink = "[sinks.stream]\ntype = \"kinesis\"\nstream = \"out\"\n";
    let config = format!("{READS}{sink}[plugin.echo.config]\ndestination = \"stream\"\n");
    let host = setting.host_with("a", &config);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("echo", &last).await;
    assert!(host.terminate().await.success());

    let records = read_all(&setting, &out).await;
    // Echo's key is shard and position, so every key is there once.
    let mut keys: Vec<_> = records
        .iter()
        .map(|record| record.partition_key.clone())
        .collect();
    keys.sort_unstable();
    let count = keys.len();
    keys.dedup();
    assert_eq!(
        (count, keys.len() as u64),
        (keys.len(), flights::expected().values().sum())
    );
    setting.stop().await;
}

async fn read_all(setting: &Setting, stream: &StreamName) -> Vec<Record> {
    let reader = KinesisReader::new(setting.clients.kinesis.clone(), stream.clone());
    let mut all = Vec::new();
    for shard in reader.list_shards().await.unwrap() {
        let mut next = Some(
            reader
                .iterator(&shard.id, &ReadFrom::TrimHorizon)
                .await
                .unwrap(),
        );
        while let Some(iterator) = next {
            let fetched = reader.fetch(&iterator, 10_000).await.unwrap();
            next = fetched.next.filter(|_| !fetched.records.is_empty());
            all.extend(fetched.records);
        }
    }
    all
}

pub(crate) fn letter(plugin: &str, sequence: u64, data: &str) -> DeadLetter {
    DeadLetter {
        record: Record {
            data: data.as_bytes().to_vec().into(),
            partition_key: format!("key-{sequence}"),
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse(&sequence.to_string()).unwrap()),
            arrival_ms: 1_700_000_000_000,
        },
        stream: StreamName::new("orders").unwrap(),
        shard: ShardId::new("shardId-000000000007").unwrap(),
        application: "orders-app".into(),
        plugin: PluginName::new(plugin).unwrap(),
        digest: PluginDigest::from_hex(&"0".repeat(64)).unwrap(),
        reason: "it did not work".into(),
        attempts: 3,
        failed_at_ms: 1_700_000_001_000,
    }
}

pub(crate) fn write_letters(path: &Path, letters: &[DeadLetter]) {
    let lines: Vec<u8> = letters
        .iter()
        .flat_map(|letter| [&encode(letter, None)[0][..], b"\n"].concat())
        .collect();
    std::fs::write(path, lines).unwrap();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story")]
async fn dead_letters_go_back_through_a_plugin_and_what_fails_again_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("plugins")).unwrap();
    std::fs::write(at("plugins/echo.wasm"), guest("echo")).unwrap();
    std::fs::write(at("plugins/evil.wasm"), guest("evil")).unwrap();
    let config = "stream = \"orders\"\n[retry]\ncap = \"100ms\"\n[sinks.out]\ntype = \
        \"file\"\npath = \"out.ndjson\"\nformat = \"envelope\"\n\
                  [plugin.echo.config]\ndestination = \"out\"\n[plugin.evil.config]\nmisbehave = \"trap\"\n";
    std::fs::write(at("shardmill.toml"), config).unwrap();
    let letters = [
        letter("echo", 1, "one"),
        letter("evil", 2, "two"),
        letter("echo", 3, "three"),
    ];
    write_letters(&at("dead.ndjson"), &letters);

    let listed = shardmill(&["replay", "--list", "dead.ndjson"], folder.path()).await;
    let table = text(&listed.stdout);
    assert!(
        listed.status.success() && table.contains("it did not work") && table.contains("3 letters"),
        "{table}"
    );
    let listed = shardmill(
        &["replay", "--list", "--json", "--of", "echo", "dead.ndjson"],
        folder.path(),
    )
    .await;
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(
        (&listed["letters"], &listed["problems"]),
        (&2.into(), &0.into()),
        "{listed}"
    );
    assert_eq!(
        listed["first-letters"][1]["shard"], "shardId-000000000007",
        "{listed}"
    );

    let args = [
        "replay",
        "--config",
        "shardmill.toml",
        "--attempts",
        "2",
        "--json",
        "dead.ndjson",
    ];
    let replayed = shardmill(&args, folder.path()).await;
    assert_eq!(
        replayed.status.code(),
        Some(1),
        "{}",
        text(&replayed.stderr)
    );
    let summary: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!(
        (&summary["processed"], &summary["failed"]),
        (&2.into(), &1.into()),
        "{summary}"
    );
    assert!(
        text(&replayed.stderr).contains("some letters are left, in dead.ndjson.left"),
        "{}",
        text(&replayed.stderr)
    );
    let output = std::fs::read_to_string(at("out.ndjson")).unwrap();
    let keys: Vec<_> = output
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["key"].clone())
        .collect();
    assert_eq!(
        keys,
        ["shardId-000000000007/1/0", "shardId-000000000007/3/0"],
        "the letter's shard and position"
    );
    let left: Value =
        serde_json::from_str(&std::fs::read_to_string(at("dead.ndjson.left")).unwrap()).unwrap();
    assert_eq!(
        (&left["data"], &left["attempts"]),
        (&"two".into(), &5.into())
    );
    assert!(
        left["reason"]
            .as_str()
            .unwrap()
            .contains("process panics as asked"),
        "{left}"
    );

    // The mended plugin gets what was left.
    let noop = at("noop.wasm");
    std::fs::write(&noop, guest("noop")).unwrap();
    let mended = shardmill(
        &["replay", "--plugin", "noop.wasm", "dead.ndjson.left"],
        folder.path(),
    )
    .await;
    assert!(mended.status.success(), "{}", text(&mended.stderr));
    assert_eq!(text(&mended.stdout), "1 letters processed\n");
    assert!(!at("dead.ndjson.left.left").exists());

    let mixed = shardmill(
        &[
            "replay",
            "--plugin",
            "noop.wasm",
            "--failed",
            "l.ndjson",
            "dead.ndjson",
        ],
        folder.path(),
    )
    .await;
    assert_eq!(mixed.status.code(), Some(1));
    assert!(
        text(&mixed.stderr).contains("say with --of"),
        "{}",
        text(&mixed.stderr)
    );
    assert_eq!(
        std::fs::read_to_string(at("l.ndjson"))
            .unwrap()
            .lines()
            .count(),
        2,
        "what was not tried"
    );

    let bad = shardmill(
        &[
            "replay",
            "--config",
            "nowhere.toml",
            "--failed",
            "m.ndjson",
            "dead.ndjson",
        ],
        folder.path(),
    )
    .await;
    assert_eq!(bad.status.code(), Some(64));
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_not_replayed_through_a_component_that_no_host_would_load() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("plugins")).unwrap();
    std::fs::write(at("plugins/echo.wasm"), guest("echo")).unwrap();
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let config = format!(
        "stream = \"orders\"\n[integrity]\nrequire-signature = true\nkeys = [{key:?}]\n\
         [sinks.out]\ntype = \"file\"\npath = \"out.ndjson\"\n\
         [plugin.echo.config]\ndestination = \"out\"\n"
    );
    std::fs::write(at("shardmill.toml"), config).unwrap();
    write_letters(&at("dead.ndjson"), &[letter("echo", 1, "one")]);

    let args = ["replay", "--config", "shardmill.toml", "dead.ndjson"];
    let refused = shardmill(&args, folder.path()).await;
    let told = text(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("it is not signed"),
        "{told}"
    );
    let output = std::fs::read_to_string(at("out.ndjson")).unwrap_or_default();
    assert!(output.is_empty(), "it ran: {output}");
    let left = std::fs::read_to_string(at("dead.ndjson.left")).unwrap();
    assert_eq!(left.lines().count(), 1, "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_go_back_into_a_stream_as_they_were_put() {
    let setting = Setting::new(1).await;
    let letters = [letter("echo", 1, "one"), letter("echo", 2, "two")];
    write_letters(&setting.path().join("dead.ndjson"), &letters);
    let args = ["replay", "--local", "--to-stream", STREAM, "dead.ndjson"];
    let put = shardmill(&args, setting.path()).await;
    assert!(put.status.success(), "{}", text(&put.stderr));
    let records = read_all(&setting, &StreamName::new(STREAM).unwrap()).await;
    let found: Vec<_> = records
        .iter()
        .map(|record| (record.partition_key.as_str(), &record.data[..]))
        .collect();
    assert_eq!(found, [("key-1", &b"one"[..]), ("key-2", &b"two"[..])]);
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_is_interrupted_leaves_what_was_not_tried() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let endpoint = Endpoint::refusing(500).await;
    std::fs::write(at("echo.wasm"), guest("echo")).unwrap();
    let url = &endpoint.url;
    let config = format!(
        "stream = \"orders\"\n[batch]\nrecords = 1\n[sinks.hook]\ntype = \"http\"\nurl = \
            \"{url}\"\n\
         [plugin.echo.config]\ndestination = \"hook\"\n"
    );
    std::fs::write(at("shardmill.toml"), config).unwrap();
    write_letters(
        &at("dead.ndjson"),
        &[letter("echo", 1, "one"), letter("echo", 2, "two")],
    );
    let args = [
        "replay",
        "--config",
        "shardmill.toml",
        "--plugin",
        "echo.wasm",
        "dead.ndjson",
    ];
    let host = harness::process::Host::start("replay", &args, folder.path());
    eventually("the endpoint refuses", || endpoint.refused() > 1).await;
    let status = tokio::time::timeout(Duration::from_mins(1), host.terminate())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(
        std::fs::read_to_string(at("dead.ndjson.left")).unwrap(),
        std::fs::read_to_string(at("dead.ndjson")).unwrap()
    );
}
