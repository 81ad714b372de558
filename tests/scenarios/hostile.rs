//! A plugin that never returns, and an operator who does not wait for it. The other ways to be
//! hostile are in the corpus.

use harness::flights;
use harness::guests::guest;
use harness::setting::Setting;

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_exits_at_once_even_if_a_plugin_never_returns() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("evil-loop", &guest("evil"));
    let config = "[limits]\nprocess-deadline = \"1h\"\n[host]\nadmin = \
        \"127.0.0.1:0\"\n[plugin.evil-loop.config]\nmisbehave = \"loop\"\n";
    let host = setting.host_with("a", config);
    setting.put(&flights::input()).await;
    harness::process::eventually("looping", || host.cpu_ticks() > 100).await;
    host.signal(rustix::process::Signal::TERM);
    harness::process::eventually("draining", || host.log().contains("draining")).await;
    host.signal(rustix::process::Signal::INT);
    assert_eq!(host.ended().await.code(), Some(130));
    setting.stop().await;
}
