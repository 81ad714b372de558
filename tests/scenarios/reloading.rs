//! A host takes over changed settings while it runs, by command and by signal, and loses and
//! repeats nothing.

use std::path::Path;

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::{Host, eventually, shardmill};
use harness::setting::Setting;
use rustix::process::Signal;
use serde_json::Value;

const SLOW: &str = "[batch]\nrecords = 20\n[reads]\ncalls-per-second = 20.0\nrecords-per-call = \
    100\nidle-every = \"50ms\"";

/// Changes a host's file, in one step.
fn change(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{text}");
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, text.replacen(from, to, 1)).unwrap();
    std::fs::rename(fresh, file).unwrap();
}

/// What each host answers to the command, by its name; all of them did it, if `is_done`.
async fn reload(setting: &Setting, is_done: bool) -> Vec<(String, String)> {
    let args = [
        "reload", "flights", "--local", "--why", "a test", "--apply", "--json", "--wait", "60s",
    ];
    let ended = shardmill(&args, setting.path()).await;
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(i32::from(!is_done)), "{told}");
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let steps = report["steps"].as_array().unwrap();
    let text = |step: &Value, key: &str| step[key].as_str().unwrap().to_owned();
    let answer = |step: &Value| (text(step, "what"), text(step, "then"));
    steps.iter().map(answer).collect()
}

async fn until_logged(host: &Host, text: &str) {
    eventually("the log says it", || host.log().contains(text)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_at_work_takes_over_what_plugins_are_served_with_or_nothing() {
    let setting = Setting::new(4).await;
    setting.drop_plugin("flights", &guest("flights"));
    let hosts = ["a", "b"].map(|id| setting.host_with(id, SLOW));
    let files = ["a", "b"].map(|id| setting.path().join(format!("{id}.toml")));
    setting.put(&flights::input()).await;
    let outputs = [setting.output_of("a"), setting.output_of("b")];
    let lines = || Output::read(&[&outputs[0], &outputs[1]]).lines;
    eventually("some output", || lines() > 100).await;

    for file in &files {
        change(file, "records = 20", "records = 30");
    }
    for (host, answer) in reload(&setting, true).await {
        assert_eq!(answer, "batch.records; restarted: flights", "{host}");
    }
    let before = lines();
    eventually("they go on", || lines() > before).await;
    for (host, answer) in reload(&setting, true).await {
        assert_eq!(answer, "nothing has changed", "{host}");
    }

    change(
        &files[0],
        "[sinks.out]",
        "[host]\ndrain-limit = \"25s\"\n[sinks.out]",
    );
    change(&files[0], "records = 30", "records = 40");
    change(&files[1], "records = 30", "records = \"many\"");
    let answers = reload(&setting, false).await;
    let (a, b) = (&answers[0].1, &answers[1].1);
    assert!(
        a.contains("host.drain-limit can change only with a restart"),
        "{a}"
    );
    assert!(
        b.contains("nothing was taken over") && b.contains("line"),
        "{b}"
    );

    change(&files[1], "\"many\"", "50");
    hosts[1].signal(Signal::HUP);
    until_logged(&hosts[1], "batch.records; restarted: flights").await;

    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    let output = Output::read(&[&outputs[0], &outputs[1]]);
    let expected = 2 * flights::expected().values().sum::<u64>();
    assert_eq!(output.seen.len() as u64, expected);
    assert_eq!((output.repeats, output.disorder), (0, 0));
    for host in hosts {
        assert!(host.terminate().await.success());
    }
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_of_one_host_is_for_that_host_and_unknown_ones_are_refused() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with("a", SLOW);
    setting.put(&flights::input()).await;
    eventually("a row of the host", || host.log().contains("lease taken")).await;
    let reload = |worker: &'static str| {
        let args = ["reload", "flights", "--local", "--worker", worker];
        let path = setting.path().to_owned();
        async move { shardmill(&args, &path).await }
    };
    let dry = reload("a").await;
    let text = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(
        dry.status.success() && text.contains("nothing was changed"),
        "{text}"
    );
    assert!(!host.log().contains("read again"), "it was only shown");
    let unknown = reload("z").await;
    let told = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        !unknown.status.success() && told.contains("no worker z"),
        "{told}"
    );
    assert!(host.terminate().await.success());
    setting.stop().await;
}
