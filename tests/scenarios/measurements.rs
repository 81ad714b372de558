//! What a host measures, and a plugin's own metrics as the host shows them.

use std::time::Duration;

use harness::flights;
use harness::guests::guest;
use harness::process::Host;
use harness::setting::Setting;

/// Far more than anything takes.
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn each_shard_has_its_own_series_of_a_plugins_gauge_until_its_instance_ends() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("evil", &guest("evil"));
    let config = "[reads]\ncalls-per-second = 50.0\nidle-every = \"50ms\"\n\
        [host]\nadmin = \"127.0.0.1:0\"\non-remove = \"stop\"\n\
        [plugin.evil.config]\nmisbehave = \"metric-values\"";
    let host = setting.host_with("a", config);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("evil", &last).await;
    for shard in ["shardId-000000000000", "shardId-000000000001"] {
        // What it sets, after values that are no numbers.
        let value = host.metric("shardmill_guest_value{", shard).await;
        assert!((value - f64::MIN).abs() < f64::EPSILON, "{shard}: {value}");
    }
    std::fs::remove_file(setting.path().join("plugins/evil.wasm")).unwrap();
    let are_gone = async {
        while host.metric("shardmill_guest_value{", "").await < 0.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, are_gone).await;
    assert!(ended.is_ok(), "the series outlive their instances");
    assert!(host.terminate().await.success());
    setting.stop().await;
}

/// How a figure is related to what happened.
enum Is {
    Exactly(f64),
    Above(f64),
}

/// Figures of a host that handled the flights on two shards and has nothing left to do.
const FIGURES: [(&str, &str, Is); 27] = [
    ("shardmill_ready{", "flights", Is::Exactly(1.0)),
    ("shardmill_build_info{", "", Is::Exactly(1.0)),
    ("shardmill_leases_held{", "flights", Is::Exactly(2.0)),
    ("shardmill_leases_taken_total{", "flights", Is::Exactly(2.0)),
    ("shardmill_leases_lost_total{", "flights", Is::Exactly(0.0)),
    (
        "shardmill_lease_take_failures_total{",
        "flights",
        Is::Exactly(0.0),
    ),
    ("shardmill_coverage_holes{", "flights", Is::Exactly(0.0)),
    ("shardmill_bytes_settled_total{", "flights", Is::Above(0.0)),
    ("shardmill_batches_total{", "flights", Is::Above(0.0)),
    (
        "shardmill_process_seconds_count{",
        "flights",
        Is::Above(0.0),
    ),
    (
        "shardmill_end_to_end_seconds_count{",
        "flights",
        Is::Above(0.0),
    ),
    ("shardmill_reads_total{", "flights", Is::Above(1.0)),
    ("shardmill_read_seconds_count{", "flights", Is::Above(0.0)),
    ("shardmill_checkpoints_total{", "flights", Is::Above(1.0)),
    (
        "shardmill_checkpoint_seconds_count{",
        "flights",
        Is::Above(1.0),
    ),
    (
        "shardmill_heartbeat_seconds_count{",
        "flights",
        Is::Above(0.0),
    ),
    (
        "shardmill_oldest_unsettled_age_seconds{",
        "flights",
        Is::Exactly(0.0),
    ),
    ("shardmill_held_back_records{", "flights", Is::Exactly(0.0)),
    ("shardmill_parked_records{", "flights", Is::Exactly(0.0)),
    ("shardmill_shard_blocked{", "flights", Is::Exactly(0.0)),
    ("shardmill_buffer_bytes{", "flights", Is::Exactly(0.0)),
    ("shardmill_buffer_limit_bytes ", "", Is::Above(0.0)),
    ("shardmill_instances_memory_bytes ", "", Is::Above(0.0)),
    ("shardmill_code_memory_bytes ", "", Is::Above(0.0)),
    (
        "shardmill_table_requests_total{",
        "operation=\"UpdateItem\"",
        Is::Above(3.0),
    ),
    (
        "shardmill_table_requests_total{",
        "table=\"flights-coordinator\"",
        Is::Above(0.0),
    ),
    (
        "shardmill_table_capacity_units_total{",
        "table=\"flights\"",
        Is::Above(3.0),
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_watch_has_the_figures_of_what_happened() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let config = "[reads]\ncalls-per-second = 50.0\nidle-every = \"50ms\"\n\
        [host]\nadmin = \"127.0.0.1:0\"\n";
    let host = setting.host_with("a", config);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    let records: u64 = flights::expected().values().sum();
    let mut wrong = vec![String::new()];
    let deadline = tokio::time::Instant::now() + PATIENCE;
    // Gauges follow within a second or two.
    while !wrong.is_empty() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(200)).await;
        wrong.clear();
        for (name, filter, expected) in &FIGURES {
            let value = host.metric(name, filter).await;
            let is_right = match expected {
                Is::Exactly(figure) => (value - figure).abs() < f64::EPSILON,
                Is::Above(figure) => value > *figure,
            };
            if !is_right {
                wrong.push(format!("{name}{filter}: {value}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let settled = host
        .metric("shardmill_records_settled_total{", "flights")
        .await;
    assert!((settled - records as f64).abs() < f64::EPSILON, "{settled}");
    the_times_of_what_is_written_go_on(&host).await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}

/// Checkpoints were written about when heartbeats were, and a heartbeat follows the other.
async fn the_times_of_what_is_written_go_on(host: &Host) {
    const HEARTBEAT: &str = "shardmill_heartbeat_timestamp_seconds{";
    const CHECKPOINT: &str = "shardmill_checkpoint_timestamp_seconds{";
    let first = host.metric(HEARTBEAT, "flights").await;
    for shard in ["shardId-000000000000", "shardId-000000000001"] {
        let written = host.metric(CHECKPOINT, shard).await;
        assert!(
            (first - written).abs() < PATIENCE.as_secs_f64(),
            "{shard}: {written}, {first}"
        );
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while host.metric(HEARTBEAT, "flights").await <= first {
        assert!(
            tokio::time::Instant::now() < deadline,
            "no heartbeat after {first}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
