//! What a manifest may ask for, and that a secret stays one, on the real binary.

use bytes::Bytes;
use harness::guests::guest;
use harness::process::{Host, eventually, shardmill};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::{PutEntry, StreamWriter};
use shardmill_core::stream::StreamName;

const SECRET: &str = "hush-hush-4711";
const CONFIG: &str = r#"
[reads]
calls-per-second = 50.0
bytes-per-second = "1GiB"
idle-every = "50ms"
[host]
admin = "127.0.0.1:0"
[secrets.api]
file = "api.secret"
plugins = ["asking"]
[ceilings.grants]
http = ["*.example.org"]
[sinks.dead]
type = "file"
path = "dead.ndjson"
[plugin.asking.failure]
attempts = 1
on-exhausted = "dead-letter"
dead-letter = "dead"
"#;

async fn put(setting: &Setting, questions: &[&str]) -> Vec<(String, String)> {
    let writer = StreamWriter::new(
        setting.clients.kinesis.clone(),
        StreamName::new(STREAM).unwrap(),
    );
    let entry = |question: &&str| PutEntry {
        partition_key: "key".to_owned(),
        explicit_hash_key: None,
        data: Bytes::from((*question).to_owned()),
    };
    let report = writer
        .put_all(questions.iter().map(entry), |_, _| {})
        .await
        .unwrap();
    report
        .last_sequence
        .iter()
        .map(|(shard, last)| (shard.to_string(), last.to_string()))
        .collect()
}

/// Waits until the host says `what` in its log.
async fn logged(host: &Host, what: &str) {
    eventually(what, || host.log().contains(what)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_asks_for_too_much_is_refused_until_it_is_mended_and_a_secret_is_shown_to_nobody()
 {
    let setting = Setting::new(1).await;
    std::fs::write(setting.path().join("api.secret"), SECRET).unwrap();
    setting.drop_manifest(
        "asking",
        "world = \"0.1\"\n[grants]\nhttp = [\"*.example.net\"]\nsecrets = [\"api\"]\n",
    );
    setting.drop_plugin("asking", &guest("asking"));
    let host = setting.host_with("a", CONFIG);
    logged(&host, "asking.toml: line 3: grants.http: ").await;
    assert!(
        host.log()
            .contains("add it to http under [ceilings.grants]"),
        "{}",
        host.log()
    );

    setting.drop_manifest(
        "asking",
        "[grants]\nhttp = [\"api.example.org\"]\nsecrets = [\"api\"]\n",
    );
    let elsewhere = "http GET https://api.example.net/";
    let questions = [
        elsewhere,
        "log secret.api",
        "reject secret.api",
        "error secret.api",
        "panic secret.api",
        "get secret.api",
    ];
    let last = put(&setting, &questions).await;
    setting.until_checkpointed("asking", &last).await;
    let dead = std::fs::read_to_string(setting.path().join("dead.ndjson")).unwrap();
    let letters: Vec<Value> = dead
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let reasons: Vec<&str> = letters
        .iter()
        .map(|letter| letter["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(
        reasons
            .iter()
            .all(|reason| reason.contains("could not log in with [secret]")),
        "{reasons:?}"
    );
    assert!(
        host.log().contains("logged in with [secret] today"),
        "{}",
        host.log()
    );

    assert!(
        host.log()
            .contains("a request to https://api.example.net is denied"),
        "{}",
        host.log()
    );
    assert!(
        host.metric("shardmill_plugin_http_requests_total", "denied")
            .await
            >= 1.0
    );

    let status = host.status().await.to_string();
    let manifest = std::fs::read_to_string(setting.path().join("a.toml")).unwrap();
    let log = host.log();
    // The plugin may emit it: that is data, and stands in the log only because the sink is standard
    // output.
    let log: Vec<&str> = log.lines().filter(|line| *line != SECRET).collect();
    for (what, text) in [
        ("status", &status),
        ("log", &log.join("\n")),
        ("dead letters", &dead),
        ("config", &manifest),
    ] {
        assert!(!text.contains(SECRET), "{what}: {text}");
    }
    assert!(host.leaves_no_core(), "a dump would hold it");
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_for_another_contract_than_the_manifest_wants_is_not_started() {
    let setting = Setting::new(1).await;
    setting.drop_manifest("noop", "world = \"0.1.7\"\n");
    setting.drop_plugin("noop", &guest("noop"));
    let host = setting.host_with("a", "");
    logged(&host, "and the component is built for").await;
    setting.drop_manifest("noop", "world = \"0.1\"\n");
    let last = put(&setting, &["anything"]).await;
    setting.until_checkpointed("noop", &last).await;
    setting.drop_manifest("noop", "world = \"0.1.7\"\n");
    logged(&host, "settings refused, the previous ones stay in use").await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_shows_what_is_asked_for_and_whether_the_host_gives_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("asking.wasm"), guest("asking")).unwrap();
    let text = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let checked = shardmill(&["check", "asking.wasm"], folder.path()).await;
    assert!(
        checked.status.success()
            && text(&checked).contains("not requested: its requests are denied"),
        "{}",
        text(&checked)
    );

    std::fs::write(
        at("asking.toml"),
        "[grants]\nhttp = [\"api.example.org\"]\nenv = [\"TZ\"]\n",
    )
    .unwrap();
    std::fs::write(
        at("host.toml"),
        "stream = \"s\"\n[ceilings.grants]\nhttp = [\"*.example.org\"]\n",
    )
    .unwrap();
    let refused = shardmill(
        &["check", "asking.wasm", "--config", "host.toml"],
        folder.path(),
    )
    .await;
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        told.contains("asking.toml: line 3: grants.env: \"TZ\" is more than"),
        "{told}"
    );
    assert!(
        text(&refused).contains("env TZ") && text(&refused).contains("asked, refused"),
        "{}",
        text(&refused)
    );

    std::fs::write(
        at("asking.toml"),
        "[grants]\nhttp = [\"api.example.org\"]\n",
    )
    .unwrap();
    let given = shardmill(
        &["check", "asking.wasm", "--config", "host.toml", "--json"],
        folder.path(),
    )
    .await;
    let report: Value = serde_json::from_slice(&given.stdout).unwrap();
    let settings = &report["settings"];
    assert_eq!(
        settings["grants-asked"],
        serde_json::json!(["http api.example.org"])
    );
    assert_eq!(
        (&settings["grants-given"], &report["sends-http"]),
        (&Value::Bool(true), &Value::Bool(true))
    );
}
