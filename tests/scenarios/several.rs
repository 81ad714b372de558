//! Several plugins on one stream, several streams into one plugin, and settings that come and
//! change beside a component.

use std::path::PathBuf;
use std::time::Duration;

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::{Host, eventually};
use harness::setting::Setting;
use shardmill_aws::StreamAdmin;
use shardmill_core::stream::StreamName;

/// A sink of its own for each of three plugins, and pages to ask.
const THREE_SINKS: &str = r#"
[reads]
calls-per-second = 50.0
bytes-per-second = "1GiB"
records-per-call = 500
idle-every = "50ms"
[host]
admin = "127.0.0.1:0"
[sinks.two]
type = "file"
path = "two.ndjson"
[sinks.three]
type = "file"
path = "three.ndjson"
"#;

fn file(setting: &Setting, name: &str) -> PathBuf {
    setting.path().join(name)
}

/// Waits until `plugin` serves `shards` shards.
async fn serving(host: &Host, plugin: &str, shards: usize) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(2);
    loop {
        let status = host.status().await;
        let of_plugin = status["plugins"][plugin]["shards"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        if of_plugin.len() == shards && of_plugin.values().all(|shard| shard["is-at-tip"] == true) {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{plugin} serves not: {status:#}\n{}",
            host.log()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_plugins_on_one_stream_each_get_every_flight_for_the_reads_of_one() {
    let setting = Setting::new(4).await;
    for (plugin, sink) in [("flights-two", "two"), ("flights-three", "three")] {
        setting.drop_manifest(plugin, &format!("[config]\ndestination = \"{sink}\"\n"));
    }
    for plugin in ["flights", "flights-two", "flights-three"] {
        setting.drop_plugin(plugin, &guest("flights"));
    }
    let host = setting.host_with("a", THREE_SINKS);
    eventually("the pages are served", || host.log().contains("http://")).await;
    for plugin in ["flights", "flights-two", "flights-three"] {
        serving(&host, plugin, 4).await;
    }
    let reads = async |outcome| host.metric("shardmill_shared_reads_total", outcome).await;
    let before = (reads("called").await, reads("shared").await);
    let last = setting.put(&flights::input()).await;
    for plugin in ["flights", "flights-two", "flights-three"] {
        setting.until_checkpointed(plugin, &last).await;
    }
    let (called, shared) = (
        reads("called").await - before.0,
        reads("shared").await - before.1,
    );
    eprintln!("{called} reads cost a call, {shared} did not");
    assert!(
        called > 0.0 && shared >= 1.5 * called,
        "of three reads one costs a call: {called} and {shared}"
    );
    assert!(host.terminate().await.success());
    for output in [
        setting.output_of("a"),
        file(&setting, "two.ndjson"),
        file(&setting, "three.ndjson"),
    ] {
        let output = Output::read(&[&output]);
        assert_eq!(
            (output.carriers, output.repeats, output.disorder),
            (flights::expected(), 0, 0)
        );
    }
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_streams_into_one_plugin_have_leases_of_their_own_and_lose_nothing() {
    const OTHER: &str = "departures";
    let setting = Setting::new(2).await;
    let other = StreamName::new(OTHER).unwrap();
    StreamAdmin::new(setting.clients.kinesis.clone())
        .ensure_stream(&other, 3)
        .await
        .unwrap();
    setting.drop_manifest(
        "flights",
        "stream = \"flights\"\nstreams = [\"departures\"]\n",
    );
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with(
        "a",
        &format!("{THREE_SINKS}\n[ceilings]\nstreams = [\"departures\"]\n"),
    );
    let (first, second) = (
        setting.put(&flights::input()).await,
        setting.put_into(OTHER, &flights::input()).await,
    );
    setting.until_checkpointed("flights", &first).await;
    setting
        .until_checkpointed("flights.departures", &second)
        .await;
    assert_eq!(
        (
            setting.leases("flights").await.len(),
            setting.leases("flights.departures").await.len()
        ),
        (2, 3)
    );
    let status = host.status().await;
    assert_eq!(status["plugins"]["flights.departures"]["stream"], OTHER);
    assert_eq!(
        status["plugins"]["flights.departures"]["application"],
        "flights.departures"
    );
    let told = harness::process::shardmill(&["leases", "flights", "--local"], setting.path()).await;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("flights.departures"), "{told}");
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    // Shards of both have the same names, and the two streams may give out the same sequence
    // numbers: what looks like a repeat is the other stream's record. Each flight comes once of
    // each.
    let lines: u64 = output.carriers.values().sum::<u64>() + output.repeats;
    assert_eq!(lines, 2 * flights::expected().values().sum::<u64>());
    commands_name_the_other_stream_where_the_first_has_no_tables(&setting).await;
    setting.stop().await;
}

async fn commands_name_the_other_stream_where_the_first_has_no_tables(setting: &Setting) {
    for table in ["flights", "flights-coordinator"] {
        let delete = setting.clients.dynamodb.delete_table().table_name(table);
        delete.send().await.unwrap();
    }
    for command in [
        &["leases", "flights"][..],
        &["status", "flights"],
        &["explain", "flights", "0", "--watch-for", "0s"],
        &["state", "flights"],
        &["pause", "flights", "--why", "a try"],
    ] {
        let command = [command, &["--local"]].concat();
        let told = harness::process::shardmill(&command, setting.path()).await;
        let told = [told.stdout, told.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(told.contains("flights.departures"), "{command:?}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_manifest_stops_its_plugin_only_and_a_mended_one_starts_it() {
    let setting = Setting::new(2).await;
    setting.drop_manifest(
        "flights-two",
        "[config]\ndestination = \"two\"\n[batch]\nrecords = 0\n",
    );
    for plugin in ["flights", "flights-two"] {
        setting.drop_plugin(plugin, &guest("flights"));
    }
    let host = setting.host_with("a", THREE_SINKS);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    // It is loaded after the other, which may be done by then.
    host.until_status("refused", |status| {
        let refused = status["plugins"]["flights-two"]["refused-settings"].as_str();
        refused.is_some_and(|refused| refused.contains("line 4: batch.records"))
    })
    .await;
    setting.drop_manifest("flights-two", "[config]\ndestination = \"two\"\n");
    setting.until_checkpointed("flights-two", &last).await;
    // New settings while it runs: drained, and started anew where it was.
    setting.drop_manifest("flights-two", "[config]\ndestination = \"three\"\n");
    eventually("the change is taken up", || {
        host.log().contains("settings changed, draining")
    })
    .await;
    let again = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights-two", &again).await;
    // A bad one changes nothing but a message.
    setting.drop_manifest("flights-two", "straem = \"x\"\n");
    eventually("it is refused", || host.log().contains("settings refused")).await;
    assert!(host.terminate().await.success());
    let outputs = [file(&setting, "two.ndjson"), file(&setting, "three.ndjson")];
    let output = Output::read(&[&outputs[0], &outputs[1]]);
    let total = 2 * flights::expected().values().sum::<u64>();
    assert_eq!(
        (output.lines, output.repeats),
        (total, 0),
        "each flight once, from either version of the settings"
    );
    assert!(Output::read(&[&outputs[1]]).lines > 0);
    setting.stop().await;
}

/// Each restart asks the account's shared services a dozen questions.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_changes_all_the_time_restarts_its_plugin_seldom_and_the_last_one_counts() {
    let setting = Setting::new(1).await;
    let to = |sink: &str| format!("[config]\ndestination = \"{sink}\"\n");
    setting.drop_manifest("flights-two", &to("two"));
    setting.drop_plugin("flights-two", &guest("flights"));
    let host = setting.host_with("a", THREE_SINKS);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights-two", &last).await;
    for _ in 0..15 {
        for sink in ["three", "two"] {
            setting.drop_manifest("flights-two", &to(sink));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    setting.drop_manifest("flights-two", &to("three"));
    eventually("the last one is followed", || {
        let log = host.log();
        let put_off = log.rfind("restarts with the new settings in some seconds");
        put_off.is_some_and(|at| log[at..].contains("settings changed, draining"))
    })
    .await;
    // What the old workers were about to deliver may go the old way.
    for _ in 0..3 {
        let last = setting.put(&flights::input()).await;
        setting.until_checkpointed("flights-two", &last).await;
    }
    assert!(Output::read(&[&file(&setting, "three.ndjson")]).lines > 0);
    let restarts = host.log().matches("settings changed, draining").count();
    assert!(
        (1..=3).contains(&restarts),
        "{restarts} restarts in some seconds"
    );
    assert!(host.terminate().await.success());
    setting.stop().await;
}

/// The version before would fail under the new settings, or the new one under those before.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_comes_with_a_manifest_is_not_tried_with_the_one_before() {
    let setting = Setting::new(1).await;
    let misbehaving = |how: &str| format!("[config]\nmisbehave = \"{how}\"\n");
    setting.drop_manifest("evil", &misbehaving("error-in-init"));
    setting.drop_plugin("evil", &guest("noop"));
    let host = setting.host_with("a", "[host]\nadmin = \"127.0.0.1:0\"\n");
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("evil", &last).await;
    // Soon after the start the manifest is followed some seconds later, and later at once.
    for (settings, component) in [("", guest("evil")), ("error-in-init", guest("noop"))] {
        setting.drop_manifest("evil", &misbehaving(settings));
        setting.drop_plugin("evil", &component);
        let digest = shardmill_wasm::digest_of(&component);
        host.until_status("the version runs with its manifest", |status| {
            status["plugins"]["evil"]["versions"][0]["digest"] == digest.as_str()
        })
        .await;
        tokio::time::sleep(Duration::from_secs(6)).await;
    }
    let log = host.log();
    assert!(!log.contains("quarantined"), "{log}");
    assert!(host.terminate().await.success());
    setting.stop().await;
}
