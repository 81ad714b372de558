//! A version in the shadow sees what the version at work sees, and what it emits is nowhere; then it
//! is promoted or dropped.

use std::time::Duration;

use harness::flights::{self, Output};
use harness::guests::{guest, marked, versioned};
use harness::process::{eventually, shardmill};
use harness::setting::Setting;
use serde_json::Value;

const SLOW: &str = "[batch]\nrecords = 20\n[reads]\ncalls-per-second = 20.0\nrecords-per-call = \
    100\nidle-every = \"50ms\"";

const MANIFEST: &str = "[grants]\nstate = true\n[config]\ndestination = \"out\"";

/// What each host found, by its name.
async fn found(setting: &Setting, application: &str) -> Vec<(String, String)> {
    let args = ["shadow", application, "--local", "--json"];
    let ended = shardmill(&args, setting.path()).await;
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    if told.contains("there is no lease table") || told.contains("there is no table") {
        // No host has got so far.
        return Vec::new();
    }
    assert!(ended.status.success(), "{told}");
    let shown: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let text = |host: &Value, key: &str| host[key].as_str().unwrap().to_owned();
    let hosts = shown["hosts"].as_array().unwrap();
    hosts
        .iter()
        .map(|host| (text(host, "host"), text(host, "found")))
        .collect()
}

/// Waits until so many hosts have compared records, and returns what they found.
async fn until_compared(setting: &Setting, application: &str, hosts: usize) -> Vec<String> {
    for _ in 0..600 {
        let found = found(setting, application).await;
        let texts: Vec<String> = found.into_iter().map(|(_, text)| text).collect();
        let has_compared =
            |text: &&String| text.contains(" records compared") && !text.starts_with("0 records");
        if texts.iter().filter(has_compared).count() >= hosts {
            return texts;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("nothing is compared");
}

/// Waits until the host says, with its next heartbeat, that nothing is in the shadow.
async fn until_nothing_is_found(setting: &Setting, application: &str, of: &str) {
    for _ in 0..600 {
        let found = found(setting, application).await;
        if found.iter().all(|(host, _)| host != of) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("a version is still in the shadow on {of}");
}

fn exists(setting: &Setting, file: &str) -> bool {
    setting.path().join("plugins").join(file).exists()
}

fn of_version(output: &Output, version: usize) -> u64 {
    let name = format!("VERSION-{version:06}");
    output.versions.get(&name).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_does_the_same_is_promoted_while_all_flights_run_and_a_host_dies() {
    let setting = Setting::new(4).await;
    setting.drop_plugin("versioned", &versioned(0));
    setting.drop_plugin("versioned.shadow", &marked(&versioned(0), 1));
    let a = setting.host_with("a", SLOW);
    let b = setting.host_with("b", SLOW);
    setting.put(&flights::input()).await;
    for text in until_compared(&setting, "versioned", 2).await {
        assert!(text.contains(" 0 differences"), "{text}");
    }
    let args = [
        "shadow",
        "versioned",
        "--local",
        "--promote",
        "--why",
        "the same",
        "--apply",
        "--json",
        "--wait",
        "60s",
    ];
    let dry = shardmill(&args[..4], setting.path()).await;
    assert!(
        dry.status.success(),
        "{}",
        String::from_utf8_lossy(&dry.stderr)
    );
    assert!(
        exists(&setting, "versioned.shadow.wasm"),
        "it was only shown"
    );
    let ended = shardmill(&args, setting.path()).await;
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{told}\n{}\n{}", a.log(), b.log());
    assert_eq!(told.matches("promoted").count(), 2, "{told}");
    assert!(!exists(&setting, "versioned.shadow.wasm"));
    // In the middle of the trial, which wants records.
    b.kill();
    let last = setting.put(&flights::input()).await;
    let b = setting.host_with("b", SLOW);
    eventually("the version is promoted to all shards", || {
        a.log().contains("version promoted to all shards")
    })
    .await;
    until_nothing_is_found(&setting, "versioned", "a").await;
    setting.until_checkpointed("versioned", &last).await;
    let outputs = [setting.output_of("a"), setting.output_of("b")];
    let output = Output::read(&[&outputs[0], &outputs[1]]);
    let expected = 2 * flights::expected().values().sum::<u64>();
    assert_eq!(output.seen.len() as u64, expected);
    for host in [a, b] {
        assert!(host.terminate().await.success());
    }
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_differs_is_dropped_by_rule_and_what_it_emitted_is_nowhere() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("versioned", &versioned(0));
    let rule = "[plugin.versioned.shadow]\npromote-after = 100\ndrop-after = 50";
    let host = setting.host_with("a", &format!("{SLOW}\n{rule}"));
    setting.drop_plugin("versioned.shadow", &versioned(7));
    let last = setting.put(&flights::input()).await;
    eventually("it is dropped", || {
        exists(&setting, "versioned.shadow.wasm.dropped")
    })
    .await;
    setting.until_checkpointed("versioned", &last).await;
    assert!(
        exists(&setting, "versioned.wasm"),
        "the version at work stays"
    );
    let output = Output::read(&[&setting.output_of("a")]);
    let expected = flights::expected().values().sum::<u64>();
    assert_eq!(
        (of_version(&output, 0), of_version(&output, 7)),
        (expected, 0)
    );
    assert_eq!((output.repeats, output.disorder), (0, 0));
    let args = ["history", "versioned", "--local"];
    let history = shardmill(&args, setting.path()).await;
    let history = String::from_utf8_lossy(&history.stdout).into_owned();
    assert!(
        history.contains("shadow-by-rule") && history.contains("(shadow.drop-"),
        "{history}"
    );
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_of_a_plugin_with_state_starts_from_it_and_leaves_it_alone() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("totals", &guest("totals"));
    setting.drop_manifest("totals", MANIFEST);
    let host = setting.host_with("a", SLOW);
    setting.put(&flights::input()).await;
    setting.drop_plugin("totals.shadow", &marked(&guest("totals"), 1));
    let last = setting.put(&flights::input()).await;
    for text in until_compared(&setting, "totals", 1).await {
        assert!(text.contains(" 0 differences"), "{text}");
    }
    setting.until_checkpointed("totals", &last).await;
    for (_, text) in found(&setting, "totals").await {
        assert!(text.contains(" 0 differences"), "{text}");
    }
    std::fs::remove_file(setting.path().join("plugins/totals.shadow.wasm")).unwrap();
    eventually("it is gone", || {
        host.log().contains("the file for the shadow is gone")
    })
    .await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_for_the_shadow_is_shown_and_is_no_trouble_of_the_plugin() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("versioned", &versioned(0));
    let host = setting.host_with("a", SLOW);
    let last = setting.put(&flights::input()).await;
    eventually("it runs", || host.log().contains("lease taken")).await;
    setting.drop_plugin("versioned.shadow", b"this is not a component");
    setting.until_checkpointed("versioned", &last).await;
    eventually("it is refused", || {
        host.log()
            .contains("a file for the shadow of a plugin was refused")
    })
    .await;
    let mut told = Vec::new();
    for _ in 0..100 {
        told = found(&setting, "versioned").await;
        if !told.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(told[0].1.starts_with("refused: "), "{told:?}");
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!((output.repeats, output.disorder), (0, 0));
    setting.stop().await;
}
