//! `shardmill load`: what it costs is told before, the load arrives, and nothing is left behind.

use std::process::Stdio;

use harness::guests::conduct;
use harness::process::{binary, shardmill};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::StreamAdmin;
use shardmill_core::stream::StreamName;

const MADE: [&str; 6] = [
    "load",
    "--local",
    "--stream",
    "made-for-it",
    "--create-with",
    "2",
];

async fn ended(args: &[&str], setting: &Setting) -> (Option<i32>, String) {
    let ended = shardmill(args, setting.path()).await;
    let text = [ended.stdout, ended.stderr].concat();
    (
        ended.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

async fn exists(stream: &str, setting: &Setting) -> bool {
    let admin = StreamAdmin::new(setting.clients.kinesis.clone());
    let stream = StreamName::new(stream).unwrap();
    let found = admin.describe(&stream).await.unwrap();
    found.is_some_and(|found| found.status != "DELETING")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_test_says_what_it_costs_and_does_nothing_until_it_is_told_to() {
    let setting = Setting::new(2).await;
    let load = [&MADE[..], &["--records-per-second", "4000", "--for", "1h"]].concat();
    let (code, text) = ended(&load, &setting).await;
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "would make stream made-for-it with 2 shards",
        "14,400,000 records",
        "needs 4 shards, and there are 2",
        "costs 0.23 dollars",
        "nothing was done",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!exists("made-for-it", &setting).await);
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_test_ends_once_the_hosts_have_handled_all_and_its_stream_goes_with_it() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("loaded", &conduct(0, "good"));
    let host = setting.host_with("a", "[host]\nadmin = \"127.0.0.1:0\"");
    let load = ["load", "--local", "--stream", STREAM, "--json", "--apply"];
    let rate = [
        "--records-per-second",
        "500",
        "--bytes",
        "300",
        "--for",
        "2s",
    ];
    let unserved = ["--application", "unserved"];
    let (code, text) = ended(&[&load[..], &rate, &unserved].concat(), &setting).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("there is no lease table unserved"), "{text}");

    host.until_status("it serves", |status| {
        status["plugins"]["loaded"]["shards"]
            .as_object()
            .map(serde_json::Map::len)
            == Some(2)
    })
    .await;
    let application = ["--application", "loaded"];
    let output = shardmill(&[&load[..], &rate, &application].concat(), setting.path()).await;
    assert!(output.status.success(), "{output:?}");
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["records"], 1_000, "{outcome}");
    assert_eq!(outcome["bytes"], 300_000, "{outcome}");
    assert!(outcome["handled-after-seconds"].is_number(), "{outcome}");
    assert_eq!(outcome["is-deleted"], false);

    let made = [&MADE[..], &rate, &["--apply"]].concat();
    let (code, text) = ended(&made, &setting).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1,000 records"), "{text}");
    assert!(text.contains("stream made-for-it is deleted"), "{text}");
    assert!(!exists("made-for-it", &setting).await);
    let taken = ["load", "--local", "--stream", STREAM, "--create-with", "1"];
    let (code, text) = ended(&[&taken[..], &rate, &["--apply"]].concat(), &setting).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("exists already"), "{text}");
    assert!(exists(STREAM, &setting).await);
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_test_that_is_interrupted_deletes_its_stream_and_says_so_by_its_exit_code() {
    let setting = Setting::new(1).await;
    let mut child = tokio::process::Command::new(binary())
        .args(
            [
                &MADE[..],
                &["--records-per-second", "100", "--for", "1h", "--apply"],
            ]
            .concat(),
        )
        .current_dir(setting.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(1);
    while !exists("made-for-it", &setting).await {
        assert!(tokio::time::Instant::now() < deadline, "no stream is made");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let id = child.id().unwrap().to_string();
    let interrupted = std::process::Command::new("kill")
        .args(["-INT", &id])
        .status();
    assert!(interrupted.unwrap().success());
    let status = child.wait().await.unwrap();
    assert_eq!(status.code(), Some(130), "{status}");
    assert!(!exists("made-for-it", &setting).await);
    setting.stop().await;
}
