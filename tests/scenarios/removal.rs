//! A file is removed. The loaded version of a plugin runs on, or stops, as configured; the settings
//! of a manifest stay in use; a file that was refused leaves nothing behind.

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::{Host, eventually};
use harness::setting::Setting;

use crate::doors::page;

const PAGES: &str = "[host]\nadmin = \"127.0.0.1:0\"\n\
                     [reads]\ncalls-per-second = 50.0\nidle-every = \"50ms\"\n";

fn remove(setting: &Setting, file: &str) {
    std::fs::remove_file(setting.path().join("plugins").join(file)).unwrap();
}

/// Waits until `/ready` answers with this status; gives the whole answer.
async fn until_ready_says(host: &Host, status: &str) -> String {
    let address = host.admin_address().await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(2);
    loop {
        let reply = page(&address, "/ready").await;
        if reply.starts_with(&format!("HTTP/1.1 {status}")) {
            return reply;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{reply}\n{}",
            host.log()
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// A busy machine may cut a page off: it is asked for until it says this.
async fn until_page_says(host: &Host, path: &str, what: &str) {
    let address = host.admin_address().await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(2);
    loop {
        let reply = page(&address, path).await;
        if reply.contains(what) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}: {reply}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
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
    remove(&setting, "flights.wasm");
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
    remove(&setting, "flights.wasm");
    until_owned(&setting, &host, 0).await;
    setting.drop_plugin("flights", &guest("flights"));
    until_owned(&setting, &host, 2).await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stray_file_makes_a_host_unready_until_it_is_removed_and_leaves_nothing_behind() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with("a", PAGES);
    until_ready_says(&host, "200").await;
    setting.drop_plugin("stray", b"garbage");
    let reply = until_ready_says(&host, "503").await;
    assert!(reply.contains("stray: refused: "), "{reply}");
    remove(&setting, "stray.wasm");
    until_ready_says(&host, "200").await;
    let status = host.status().await;
    assert!(status["plugins"]["stray"].is_null(), "{status:#}");
    assert!(status["plugins"]["flights"].is_object(), "{status:#}");
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_folder_makes_a_host_unready_if_a_section_says_that_a_plugin_is_meant() {
    let setting = Setting::new(1).await;
    // Each host of a setting has sections, also for plugins that are not there.
    let host = setting.host_with("a", PAGES);
    host.until_status("the folder is read", |status| {
        status["is-folder-read"] == true && status["without-file"][0] == "flights"
    })
    .await;
    until_page_says(&host, "/metrics", "shardmill_ready{plugin=\"flights\"} 0").await;
    let reply = until_ready_says(&host, "503").await;
    assert!(reply.contains("there is no flights.wasm"), "{reply}");
    setting.drop_plugin("flights", &guest("flights"));
    until_ready_says(&host, "200").await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_a_removed_manifest_stay_in_use_which_is_shown_until_it_is_back() {
    const MANIFEST: &str = "[config]\ndestination = \"out\"\n";
    let setting = Setting::new(1).await;
    setting.drop_manifest("echo", MANIFEST);
    setting.drop_plugin("echo", &guest("echo"));
    let host = setting.host_with("a", PAGES);
    until_ready_says(&host, "200").await;
    remove(&setting, "echo.toml");
    host.until_status("the removal is shown", |status| {
        let refused = status["plugins"]["echo"]["refused-settings"].as_str();
        refused.is_some_and(|why| why.contains("the manifest was removed"))
    })
    .await;
    let log = host.log();
    assert!(log.contains("the manifest was removed"), "{log}");
    // Without its manifest the plugin would emit to standard output.
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("echo", &last).await;
    let output = std::fs::read_to_string(setting.output_of("a")).unwrap();
    let put: u64 = flights::expected().values().sum();
    assert_eq!(output.lines().count() as u64, put);
    setting.drop_manifest("echo", MANIFEST);
    host.until_status("nothing is refused", |status| {
        status["plugins"]["echo"]["refused-settings"].is_null()
    })
    .await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}
