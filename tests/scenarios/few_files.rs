//! A host that may open few files says so, and takes what it may have.

use harness::guests::guest;
use harness::process::eventually;
use harness::setting::Setting;

const READS: &str = "[reads]\nidle-every = \"50ms\"";
const FEW: &str = "this process may open few files";

fn setting_with_lines(setting: &Setting) -> std::path::PathBuf {
    setting.drop_plugin("echo", &guest("echo"));
    let lines = setting.path().join("lines");
    std::fs::write(&lines, "{\"flight\":1}\n{\"flight\":2}\n{\"flight\":3}\n").unwrap();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_the_user_may_raise_is_raised() {
    let setting = Setting::new(1).await;
    let lines = setting_with_lines(&setting);
    let host = setting.host_under("a", READS, "-S -n 24");
    let last = setting.put(&lines).await;
    setting.until_checkpointed("echo", &last).await;
    assert!(
        !host.log().contains("Too many open files"),
        "{}",
        host.log()
    );
    assert!(!host.log().contains(FEW), "{}", host.log());
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_stays_low_is_reported_at_the_start_and_a_host_that_can_serves() {
    let setting = Setting::new(1).await;
    let lines = setting_with_lines(&setting);
    let host = setting.host_under("a", READS, "-n 64");
    eventually("it is told", || {
        let log = host.log();
        log.contains(FEW) && log.contains("files=64") && log.contains("LimitNOFILE=")
    })
    .await;
    let last = setting.put(&lines).await;
    setting.until_checkpointed("echo", &last).await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}
