//! A plugin's file is removed: the loaded version runs on, or stops, as configured.

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::{Host, eventually};
use harness::setting::Setting;

fn remove(setting: &Setting) {
    std::fs::remove_file(setting.path().join("plugins/flights.wasm")).unwrap();
}

async fn owned(setting: &Setting) -> usize {
    setting
        .leases("flights")
        .await
        .iter()
        .filter(|lease| lease.owner.is_some())
        .count()
}

async fn until_owned(setting: &Setting, host: &Host, count: usize) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(1);
    while owned(setting).await != count || setting.leases("flights").await.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "{}", host.log());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_file_stops_nothing_by_default() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host("a");
    until_owned(&setting, &host, 2).await;
    remove(&setting);
    eventually("the removal is noticed", || {
        host.log().contains("plugin file removed")
    })
    .await;
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success());
    assert_eq!(
        Output::read(&[&setting.output_of("a")]).carriers,
        flights::expected()
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_file_drains_and_releases_if_asked_to_and_starts_again_when_restored() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with(
        "a",
        "[host]\non-remove = \"stop\"\n[reads]\nidle-every = \"50ms\"",
    );
    until_owned(&setting, &host, 2).await;
    remove(&setting);
    until_owned(&setting, &host, 0).await;
    setting.drop_plugin("flights", &guest("flights"));
    until_owned(&setting, &host, 2).await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}
