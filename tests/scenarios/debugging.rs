//! From a record that failed in production to the same failure on the desk, in two steps: the dead
//! letter names the command, and the command shows the trap.

use std::path::PathBuf;
use std::process::Output;

use bytes::Bytes;
use harness::guests::{guest, mended_brittle};
use harness::process::{eventually, shardmill};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::{PutEntry, StreamAdmin, StreamWriter};
use shardmill_core::stream::StreamName;

/// What the record may not pass, and how many came before it.
const LIMIT: u64 = 25;
const POLICY: &str = r#"
[reads]
calls-per-second = 50.0
idle-every = "50ms"
[host]
admin = "127.0.0.1:0"
[retry]
cap = "200ms"
[plugin.brittle]
config = { destination = "out" }
[plugin.brittle.failure]
attempts = 2
on-exhausted = "dead-letter"
dead-letter = "dead"
[sinks.dead]
type = "file"
path = "dead.ndjson"
"#;
const MANIFEST: &str = "[grants]\nstate = true\n";

async fn put(setting: &Setting, data: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    put_into(setting, STREAM, data).await
}

async fn put_into(
    setting: &Setting,
    stream: &str,
    data: impl IntoIterator<Item = String>,
) -> Vec<(String, String)> {
    let stream = StreamName::new(stream).unwrap();
    let writer = StreamWriter::new(setting.clients.kinesis.clone(), stream);
    let entries = data.into_iter().map(|data| PutEntry {
        partition_key: "k".to_owned(),
        explicit_hash_key: None,
        data: Bytes::from(data),
    });
    let report = writer.put_all(entries, |_, _| {}).await.unwrap();
    let last = report.last_sequence.into_iter();
    last.map(|(shard, last)| (shard.to_string(), last.to_string()))
        .collect()
}

fn plain(count: u64) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!(r#"{{"n":{number}}}"#))
}

fn letters(setting: &Setting) -> Vec<Value> {
    let text = std::fs::read_to_string(setting.path().join("dead.ndjson")).unwrap_or_default();
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A setting in which the host has crashed after it gave up a record that fails only because of what
/// came before it; and its dead letter.
async fn after_a_crash() -> (Setting, Value) {
    let setting = Setting::new(1).await;
    setting.drop_plugin("brittle", &guest("brittle"));
    setting.drop_manifest("brittle", MANIFEST);
    let host = setting.host_with("a", POLICY);
    let last = put(&setting, plain(20)).await;
    setting.until_checkpointed("brittle", &last).await;
    let failing = format!(r#"{{"limit":{LIMIT}}}"#);
    put(&setting, plain(10).chain([failing]).chain(plain(3))).await;
    eventually("the record is given up", || !letters(&setting).is_empty()).await;
    eventually("it is recorded", || !recordings(&setting).is_empty()).await;
    // As `kill -9` does.
    drop(host);
    let letter = letters(&setting).remove(0);
    (setting, letter)
}

fn recordings(setting: &Setting) -> Vec<PathBuf> {
    let state = setting.path().join("state/shardmill");
    let hosts = std::fs::read_dir(state).into_iter().flatten().flatten();
    let folders = hosts.map(|host| host.path().join("cache.recordings"));
    let files = folders.filter_map(|folder| std::fs::read_dir(folder).ok());
    let files = files.flatten().flatten().map(|file| file.path());
    files
        .filter(|path| path.extension().is_some_and(|ending| ending == "recording"))
        .collect()
}

/// Runs the command that the letter names, with `more` arguments.
async fn debug(setting: &Setting, letter: &Value, more: &[&str]) -> Output {
    let command = letter["debug"].as_str().unwrap();
    let mut args: Vec<&str> = command.split(' ').skip(1).collect();
    args.extend(["--config", "a.toml"]);
    args.extend(more);
    shardmill(&args, setting.path()).await
}

fn text(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    format!(
        "{}\n{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(error)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_failed_before_a_crash_fails_again_on_the_desk_one_step_from_its_dead_letter()
{
    let (setting, letter) = after_a_crash().await;
    let output = debug(&setting, &letter, &[]).await;
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    for expected in [
        "the batch fails as it did",
        "record 31 is beyond the limit of 25",
        "called by",
        "a state of 2 bytes",
        "INFO record 31 is beyond 25",
        "fuel",
    ] {
        assert!(told.contains(expected), "no {expected:?} in {told}");
    }
    let again = text(&debug(&setting, &letter, &[]).await);
    assert_eq!(told, again, "it is the same each time");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mended_version_is_seen_to_handle_the_very_batch_that_failed() {
    let (setting, letter) = after_a_crash().await;
    std::fs::write(setting.path().join("mended.wasm"), mended_brittle()).unwrap();
    let output = debug(&setting, &letter, &["--compare", "mended.wasm"]).await;
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("the batch does not fail"), "{told}");
    assert!(told.contains("difference + out k: 31"), "{told}");
    let output = debug(
        &setting,
        &letter,
        &["--compare", "plugins/brittle.wasm", "--json"],
    )
    .await;
    assert!(!output.status.success(), "the same mistake is in it");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["compared"]["likeness"], "same");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_becomes_a_fixture_that_a_test_accepts() {
    let (setting, letter) = after_a_crash().await;
    let output = debug(&setting, &letter, &["--save", "failing.ndjson"]).await;
    assert!(output.status.success(), "{}", text(&output));
    let test = [
        "test",
        "plugins/brittle.wasm",
        "--captured",
        "failing.ndjson",
        "--config",
        "a.toml",
    ];
    let output = shardmill(&test, setting.path()).await;
    let told = text(&output);
    assert!(
        output.status.success(),
        "its state is not in the file: {told}"
    );
    assert!(told.contains("records"), "{told}");
    let twice = debug(&setting, &letter, &["--save", "failing.ndjson"]).await;
    assert!(text(&twice).contains("cannot write failing.ndjson"));
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recordings_are_listed_and_a_copy_of_one_or_a_dead_letter_is_run_elsewhere() {
    let (setting, letter) = after_a_crash().await;
    let listed = shardmill(&["debug", "brittle", "--config", "a.toml"], setting.path()).await;
    let told = text(&listed);
    assert!(told.contains("the plugin trapped"), "{told}");
    let newest = newest(&setting);
    std::fs::copy(&newest, setting.path().join("copy")).unwrap();
    std::fs::remove_file(&newest).unwrap();
    let alone = ["debug", "copy", "--plugin", "plugins/brittle.wasm"];
    let told = text(&shardmill(&alone, setting.path()).await);
    assert!(told.contains("the batch fails as it did"), "{told}");
    for file in recordings(&setting) {
        std::fs::remove_file(file).unwrap();
    }
    let missing = text(&debug(&setting, &letter, &[]).await);
    assert!(missing.contains("there is no recording of"), "{missing}");
    let letter = ["debug", "dead.ndjson", "--config", "a.toml"];
    let output = shardmill(&letter, setting.path()).await;
    let told = text(&output);
    assert!(told.contains("the state is not known"), "{told}");
    assert!(told.contains("the batch does not fail"), "{told}");
    setting.stop().await;
}

fn newest(setting: &Setting) -> PathBuf {
    let modified = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    recordings(setting)
        .into_iter()
        .max_by_key(modified)
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_on_one_of_several_streams_is_reproduced_and_its_letter_read_too() {
    const OTHER: &str = "departures";
    let setting = Setting::new(1).await;
    StreamAdmin::new(setting.clients.kinesis.clone())
        .ensure_stream(&StreamName::new(OTHER).unwrap(), 1)
        .await
        .unwrap();
    setting.drop_plugin("brittle", &guest("brittle"));
    let streams = format!("stream = \"{STREAM}\"\nstreams = [\"{OTHER}\"]\n");
    setting.drop_manifest("brittle", &format!("{streams}{MANIFEST}"));
    let ceilings = format!("[ceilings]\nstreams = [\"{OTHER}\"]\n");
    let host = setting.host_with("a", &format!("{POLICY}{ceilings}"));
    let failing = format!(r#"{{"limit":{LIMIT}}}"#);
    put_into(&setting, OTHER, plain(30).chain([failing])).await;
    eventually("the record is given up", || !letters(&setting).is_empty()).await;
    eventually("it is recorded", || !recordings(&setting).is_empty()).await;
    assert!(host.terminate().await.success());
    let letter = letters(&setting).remove(0);
    assert_eq!(letter["plugin"], format!("brittle.{OTHER}"));
    let told = text(&debug(&setting, &letter, &[]).await);
    assert!(told.contains("the batch fails as it did"), "{told}");
    let args = [
        "replay",
        "--list",
        "--json",
        "--of",
        "brittle",
        "dead.ndjson",
    ];
    let listed = shardmill(&args, setting.path()).await;
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(
        (&listed["letters"], &listed["problems"]),
        (&1.into(), &0.into()),
        "{listed}"
    );
    setting.stop().await;
}
