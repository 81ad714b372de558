//! Plugins that loop, hoard, recurse, flood and trap share a host with one that works.

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::setting::Setting;
use serde_json::Value;

/// What each does, and what the status page must say of it; `None` for those that are only cut, not failed.
const HOSTILE: [(&str, Option<&str>); 8] = [
    ("loop", Some("did not return from process")),
    ("loop-in-init", Some("did not return from init")),
    ("memory", Some("limit")),
    ("recursion", Some("plugin")),
    ("giant-emit", Some("limit")),
    ("trap", Some("process panics as asked")),
    ("error", Some("process fails as asked")),
    ("log-flood", None),
];

#[tokio::test(flavor = "multi_thread")]
async fn hostile_plugins_are_shown_and_stopped_while_another_plugin_gets_every_record() {
    let setting = Setting::new(2).await;
    let mut config = "[limits]\nprocess-deadline = \"300ms\"\ninit-deadline = \"300ms\"\n".to_owned();
    for (misbehave, _) in HOSTILE {
        for part in ["[plugin.evil-", misbehave, ".config]\nmisbehave = \"", misbehave, "\"\n"] {
            config += part;
        }
        setting.drop_plugin(&format!("evil-{misbehave}"), &guest("evil"));
    }
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with("a", &format!("[host]\nadmin = \"127.0.0.1:0\"\n{config}[reads]\nidle-every = \"50ms\"\ncalls-per-second = 50.0\nbytes-per-second = \"1GiB\""));
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;

    let mut unseen: Vec<_> = HOSTILE.into_iter().filter_map(|(name, reason)| Some((name, reason?))).collect();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(1);
    while !unseen.is_empty() {
        let status = host.status().await;
        unseen.retain(|(name, reason)| !is_blocked(&status, name, reason));
        assert!(tokio::time::Instant::now() < deadline, "not shown as blocked: {unseen:?}\n{status:#}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    for (name, reason) in HOSTILE {
        let rows = setting.leases(&format!("evil-{name}")).await;
        let is_untouched = rows.iter().all(|row| row.checkpoint == shardmill_core::lease::Checkpoint::TrimHorizon);
        assert!(reason.is_none() || is_untouched, "{name}: nothing that failed is checkpointed");
    }
    assert!(host.terminate().await.success(), "a host full of hostile plugins still drains");
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!(output.carriers, flights::expected());
    assert_eq!((output.repeats, output.disorder), (0, 0));
    setting.stop().await;
}

fn is_blocked(status: &Value, name: &str, reason: &str) -> bool {
    let shards = status["plugins"][format!("evil-{name}")]["shards"].as_object();
    let says = |shard: &Value| shard["blocked"]["reason"].as_str().is_some_and(|text| text.contains(reason));
    shards.is_some_and(|shards| shards.values().any(says))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_exits_at_once_even_if_a_plugin_never_returns() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("evil-loop", &guest("evil"));
    let config = "[limits]\nprocess-deadline = \"1h\"\n[host]\nadmin = \"127.0.0.1:0\"\n[plugin.evil-loop.config]\nmisbehave = \"loop\"\n";
    let host = setting.host_with("a", config);
    setting.put(&flights::input()).await;
    harness::process::eventually("looping", || host.cpu_ticks() > 100).await;
    host.signal(rustix::process::Signal::TERM);
    harness::process::eventually("draining", || host.log().contains("draining")).await;
    host.signal(rustix::process::Signal::INT);
    assert_eq!(host.ended().await.code(), Some(130));
    setting.stop().await;
}
