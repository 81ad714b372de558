//! A plugin's own metrics, as the host shows them.

use std::time::Duration;

use harness::flights;
use harness::guests::guest;
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
