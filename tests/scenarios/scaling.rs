//! How many hosts are wanted, with the real binary: a load makes the figure rise, every host serves
//! it, and the command shows what it follows from.

use std::time::Duration;

use harness::flights;
use harness::guests::guest;
use harness::process::{Host, shardmill};
use harness::setting::Setting;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::doors::page;

/// A host that may count on so little of a core is soon full, on any machine. Without records, two
/// debug builds use half of that at most, also on a slow one.
const SCALED: &str = "[host]\nadmin = \"127.0.0.1:0\"\n[scaling]\ncores = 0.4\ncatch-up = \"30s\"\n\
    settle = \"30s\"\n[batch]\nrecords = 20\n[reads]\ncalls-per-second = 50.0\nbytes-per-second = \
    \"1GiB\"\nidle-every = \"1s\"";
const SHARDS: u32 = 4;
/// Far more than the test needs on a machine that does little else.
const PATIENCE: Duration = Duration::from_mins(4);

/// What the page `/scaling` says, with its status.
async fn scaling(host: &Host) -> (u16, Value) {
    let reply = page(&host.admin_address().await, "/scaling").await;
    let code = reply.split(' ').nth(1).unwrap().parse().unwrap();
    let body = reply.split("\r\n\r\n").nth(1).unwrap_or_default();
    (code, serde_json::from_str(body).unwrap_or(Value::Null))
}

async fn wanted(host: &Host) -> Option<u64> {
    let (code, body) = scaling(host).await;
    (code == 200).then(|| body["hosts-wanted"].as_u64().unwrap())
}

/// Waits until the host says a number that is right.
async fn until_wanted(host: &Host, what: &str, is_right: impl Fn(u64) -> bool) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = wanted(host).await;
        if let Some(hosts) = said.filter(|hosts| is_right(*hosts)) {
            return hosts;
        }
        assert!(Instant::now() < deadline, "{what}: {said:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

async fn explained(setting: &Setting) -> Value {
    let args = [
        "plan",
        "flights",
        "--hosts",
        "--json",
        "--local",
        "--watch-for",
        "0s",
    ];
    let output = shardmill(&args, setting.path()).await;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_makes_every_host_say_that_more_are_wanted_and_the_command_says_why() {
    let setting = Setting::new(SHARDS).await;
    setting.drop_plugin("flights", &guest("flights"));
    let (a, b) = (
        setting.host_with("a", SCALED),
        setting.host_with("b", SCALED),
    );
    for host in [&a, &b] {
        until_wanted(host, "as many as there are at first", |hosts| hosts == 2).await;
    }
    until_wanted(&a, "one is enough without records", |hosts| hosts == 1).await;
    let input = flights::input();
    let deadline = Instant::now() + PATIENCE;
    while wanted(&a).await.unwrap_or(1) < 2 {
        assert!(Instant::now() < deadline, "{:?}", scaling(&a).await);
        setting.put(&input).await;
    }
    // The load is over, and the figure stays for half a minute at least.
    let (told, report) = until_all_say_the_same(&setting, &a, &b).await;
    assert!((2..=u64::from(SHARDS)).contains(&told), "{told}");
    assert_eq!(report["shards"], SHARDS, "{report}");
    assert_eq!(report["sums"]["cores-of-a-host"], 0.4, "{report}");
    let records: f64 = report["by-host"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|host| host["load"]["records-per-second"].as_f64())
        .sum();
    assert!(records > 0.0, "{report}");
    // One of them leads, and shows the metric.
    let mut shown = 0;
    for host in [&a, &b] {
        let metrics = page(&host.admin_address().await, "/metrics").await;
        shown += metrics.matches("\nshardmill_hosts_wanted ").count();
    }
    assert_eq!(shown, 1);
    until_wanted(&a, "it falls again", |hosts| hosts == 1).await;
    let (_, body) = scaling(&a).await;
    assert_eq!(body["plugins"]["flights"]["wanted"], 1, "{body}");
    setting.stop().await;
}

/// Waits until both hosts and the command say the same number, above one. Gives it, with what the
/// command says.
async fn until_all_say_the_same(setting: &Setting, a: &Host, b: &Host) -> (u64, Value) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (first, second) = (wanted(a).await, wanted(b).await);
        let report = explained(setting).await;
        let published = report["published"]["wanted"].as_u64();
        if first > Some(1) && first == second && first == published {
            return (first.unwrap_or_default(), report);
        }
        assert!(
            Instant::now() < deadline,
            "{first:?} {second:?} {published:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_know_answers_with_an_error_and_one_without_the_setting_with_none() {
    let setting = Setting::new(1).await;
    let without = setting.host_with("a", "[host]\nadmin = \"127.0.0.1:0\"");
    assert_eq!(scaling(&without).await.0, 404);
    assert!(without.terminate().await.success());
    let with = setting.host_with("b", SCALED);
    assert_eq!(scaling(&with).await.0, 404, "no plugin yet");
    setting.drop_plugin("flights", &guest("flights"));
    until_wanted(&with, "the first figure", |hosts| hosts == 1).await;
    setting.stop().await;
}
