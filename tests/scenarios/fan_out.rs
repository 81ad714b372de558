//! The known answer through enhanced fan-out: pushed, over a reshard and a hand-over, with a
//! consumer that comes and goes.

use std::collections::BTreeSet;

use harness::flights::{self, Output};
use harness::gate::Gate;
use harness::guests::guest;
use harness::process::{Host, binary, eventually, shardmill};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use tokio::process::Command;

/// Polling at a call in four minutes, about the slowest that is taken: whatever comes out in time
/// was pushed.
const FAN_OUT: &str =
    "[reads]\nretrieval = \"fan-out\"\nderegister-on-exit = true\ncalls-per-second = 0.004";

async fn consumers(setting: &Setting) -> Vec<Value> {
    let output = shardmill(&["consumers", STREAM, "--local", "--json"], setting.path()).await;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Deletes the consumer of `flights` with credentials that may read no table.
async fn delete_without_tables(setting: &Setting) -> String {
    let mut gate = Gate::of(&serde_json::json!({ "Statement": [] }));
    let dynamodb = gate.before(setting.stack().dynamodb_endpoint()).await;
    let kinesis = setting.stack().kinesis_endpoint();
    let settings = format!(
        "stream = {STREAM:?}\n[aws]\nregion = \"us-east-1\"\nkinesis-endpoint = {kinesis:?}\n\
         dynamodb-endpoint = {dynamodb:?}\n"
    );
    std::fs::write(setting.path().join("denied.toml"), settings).unwrap();
    let args = ["consumers", STREAM, "--config", "denied.toml"];
    let output = Command::new(binary())
        .args(args)
        .args(["--delete", "flights"])
        .current_dir(setting.path())
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn until_subscribing(host: &Host) {
    eventually("the host subscribes", || {
        host.log().contains("subscribing with enhanced fan-out")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flight_is_pushed_once_and_in_order_over_a_reshard_and_the_consumer_goes_with_the_last_host()
 {
    let setting = Setting::new(4).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with("a", FAN_OUT);
    until_subscribing(&host).await;
    let last = setting.put(&flights::input()).await;
    assert_eq!(last.len(), 4, "all shards got records");
    setting.until_checkpointed("flights", &last).await;

    let listed = consumers(&setting).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(
        (listed[0]["name"].as_str(), listed[0]["hosts"].as_u64()),
        (Some("flights"), Some(1))
    );
    let refused = shardmill(
        &["consumers", STREAM, "--local", "--delete", "flights"],
        setting.path(),
    )
    .await;
    assert!(
        !refused.status.success(),
        "a consumer in use is not deleted by accident"
    );
    let unreadable = delete_without_tables(&setting).await;
    for word in ["cannot be read", "AccessDenied", "--force"] {
        assert!(unreadable.contains(word), "{word}: {unreadable}");
    }
    assert_eq!(consumers(&setting).await.len(), 1);

    let kinesis = &setting.clients.kinesis;
    let split = kinesis
        .split_shard()
        .stream_name(STREAM)
        .shard_to_split("shardId-000000000000");
    split.new_starting_hash_key("1000").send().await.unwrap();
    let last = setting.put(&flights::input()).await;
    assert!(
        last.iter()
            .any(|(shard, _)| shard.as_str() > "shardId-000000000003"),
        "a child got records: {last:?}"
    );
    setting.until_checkpointed("flights", &last).await;
    let shards: BTreeSet<_> = setting
        .leases("flights")
        .await
        .iter()
        .map(|lease| lease.key.to_string())
        .collect();
    assert!(shards.len() >= 5, "the children have leases: {shards:?}");

    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    let twice = flights::expected()
        .into_iter()
        .map(|(carrier, count)| (carrier, count * 2))
        .collect();
    assert_eq!(output.carriers, twice);
    assert_eq!((output.repeats, output.disorder), (0, 0));
    eventually_no_consumer(&setting).await;
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_hand_over_between_subscribing_hosts_repeats_nothing() {
    let setting = Setting::new(4).await;
    setting.drop_plugin("flights", &guest("flights"));
    let reads =
        "[reads]\nretrieval = \"auto\"\ncalls-per-second = 20.0\n[host]\nfan-out-allowed = true";
    let first = setting.host_with("a", reads);
    until_subscribing(&first).await;
    let last = setting.put(&flights::input()).await;
    let second = setting.host_with("b", reads);
    until_subscribing(&second).await;
    assert!(first.terminate().await.success());
    setting.until_checkpointed("flights", &last).await;
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    assert!(second.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a"), &setting.output_of("b")]);
    let twice = flights::expected()
        .into_iter()
        .map(|(carrier, count)| (carrier, count * 2))
        .collect();
    assert_eq!(output.carriers, twice);
    assert_eq!((output.repeats, output.disorder), (0, 0));

    assert_eq!(
        consumers(&setting).await.len(),
        1,
        "without deregister-on-exit it stays"
    );
    let deleted = shardmill(
        &["consumers", STREAM, "--local", "--delete", "flights"],
        setting.path(),
    )
    .await;
    assert!(
        deleted.status.success(),
        "{}",
        String::from_utf8_lossy(&deleted.stderr)
    );
    eventually_no_consumer(&setting).await;
    setting.stop().await;
}

/// The embedded stack takes half a second to delete one.
async fn eventually_no_consumer(setting: &Setting) {
    for _ in 0..100 {
        if consumers(setting).await.is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the consumer is still there");
}
