//! Commands change a fleet of real hosts that works off all flights: every count is exact, also if
//! the host that was told is killed.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::{Host, eventually, shardmill};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::{PutEntry, StreamWriter};
use shardmill_core::control::Deed;
use shardmill_core::lease::Checkpoint;
use shardmill_core::stream::StreamName;

/// Slow enough that each command comes in the middle.
const SLOW: &str = "[host]\ncache = \"off\"\n[batch]\nrecords = 20\n[reads]\ncalls-per-second = \
    20.0\nrecords-per-call = 40\nidle-every = \"50ms\"";

/// Runs a command that changes something, and gives what it printed.
async fn change(setting: &Setting, args: &[&str]) -> Value {
    let mut all = args.to_vec();
    all.extend(["--local", "--why", "a test", "--apply", "--json"]);
    let ended = shardmill(&all, setting.path()).await;
    let (out, told) = (
        String::from_utf8_lossy(&ended.stdout).into_owned(),
        String::from_utf8_lossy(&ended.stderr).into_owned(),
    );
    assert!(ended.status.success(), "{args:?}: {out} {told}");
    let report: Value = serde_json::from_str(&out).unwrap();
    eprintln!("{args:?} was done after {} ms", report["waited"]["millis"]);
    report
}

async fn history(setting: &Setting, more: &[&str]) -> Vec<Value> {
    let mut args = vec!["history", "flights", "--local", "--json"];
    args.extend(more);
    let history = shardmill(&args, setting.path()).await;
    serde_json::from_slice(&history.stdout).unwrap()
}

fn lines(setting: &Setting) -> u64 {
    Output::read(&[&setting.output_of("a"), &setting.output_of("b")]).lines
}

async fn held(setting: &Setting, host: &str) -> usize {
    let leases = setting.leases("flights").await;
    let owners = leases.iter().filter_map(|lease| lease.owner.as_ref());
    owners.filter(|owner| owner.as_str() == host).count()
}

/// The flights in three files, so that there is always something left to deliver.
fn thirds(setting: &Setting) -> [PathBuf; 3] {
    let input = std::fs::File::open(flights::input()).unwrap();
    let lines: Vec<String> = BufReader::new(GzDecoder::new(input))
        .lines()
        .map(Result::unwrap)
        .collect();
    let third = lines.len().div_ceil(3);
    let mut parts = lines.chunks(third);
    std::array::from_fn(|n| {
        let path = setting.path().join(format!("part-{n}.ndjson"));
        let part = parts.next().unwrap().join("\n");
        std::fs::write(&path, part + "\n").unwrap();
        path
    })
}

async fn until_held(setting: &Setting, of_a: usize, of_b: usize) {
    let began = Instant::now();
    while (held(setting, "a").await, held(setting, "b").await) != (of_a, of_b) {
        assert!(began.elapsed() < Duration::from_mins(1), "never held so");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn grown(setting: &Setting, by: u64) {
    let before = lines(setting);
    eventually("more output", || lines(setting) >= before + by).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_change_a_fleet_at_work_and_repeat_and_lose_nothing_but_what_they_say() {
    let setting = Setting::new(4).await;
    setting.drop_plugin("flights", &guest("flights"));
    let first = setting.host_with("a", SLOW);
    let second = setting.host_with("b", SLOW);
    until_held(&setting, 2, 2).await;
    let [morning, noon, evening] = thirds(&setting);
    setting.put(&morning).await;
    grown(&setting, 100).await;

    change(&setting, &["pause", "flights"]).await;
    let paused = lines(&setting);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lines(&setting), paused, "nothing is delivered");
    let shown = shardmill(
        &["status", "flights", "--local", "--json", "--check"],
        setting.path(),
    );
    let shown: Value = serde_json::from_slice(&shown.await.stdout).unwrap();
    assert_eq!(
        (&shown["counts"]["held"], &shown["counts"]["paused"]),
        (&4.into(), &4.into())
    );
    change(&setting, &["resume", "flights"]).await;
    setting.put(&noon).await;
    grown(&setting, 100).await;

    change(&setting, &["drain", "flights", "b"]).await;
    assert_eq!(held(&setting, "b").await, 0);
    until_held(&setting, 4, 0).await;
    change(&setting, &["drain", "flights", "b", "--undo"]).await;
    until_held(&setting, 2, 2).await;
    let last = setting.put(&evening).await;
    grown(&setting, 100).await;

    let leases = setting.leases("flights").await;
    let of_a = leases
        .iter()
        .find(|lease| lease.owner.as_ref().is_some_and(|id| id.as_str() == "a"));
    let shard = of_a.unwrap().key.to_string();
    change(&setting, &["release", "flights", &shard, "--to", "b"]).await;
    setting.until_checkpointed("flights", &last).await;
    let output = Output::read(&[&setting.output_of("a"), &setting.output_of("b")]);
    assert_eq!((output.carriers, output.repeats), (flights::expected(), 0));

    let again = change(&setting, &["seek", "flights", "--to", "horizon"]).await;
    assert_eq!(again["steps"].as_array().unwrap().len(), 4, "{again}");
    let all = 2 * flights::expected().values().sum::<u64>();
    eventually("everything again", || lines(&setting) >= all).await;
    setting.until_checkpointed("flights", &last).await;
    assert!(first.terminate().await.success() && second.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a"), &setting.output_of("b")]);
    assert_eq!((output.lines, output.carriers), (all, flights::expected()));
    assert!(output.seen.values().all(|count| *count == 2));

    let all = history(&setting, &[]).await;
    let took = |entry: &Value| entry["deed"] == Deed::Took.code();
    assert!(all.iter().any(took), "leases moved: {all:?}");
    let history = history(&setting, &["--commands"]).await;
    let deeds: Vec<&str> = history
        .iter()
        .filter_map(|entry| entry["deed"].as_str())
        .collect();
    for deed in [
        Deed::Pause,
        Deed::Resume,
        Deed::Drain,
        Deed::Undrain,
        Deed::Move,
        Deed::Seek,
        Deed::Sought,
    ] {
        assert!(deeds.contains(&deed.code()), "{deed} is not in {deeds:?}");
    }
    assert!(
        history.iter().all(|entry| entry["why"] == "a test"),
        "{history:?}"
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seek_outlives_the_host_that_was_told_and_the_command_that_told_it() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let last = setting.put(&flights::input()).await;
    let host = setting.host("a");
    setting.until_checkpointed("flights", &last).await;
    let expected: u64 = flights::expected().values().sum();
    change(
        &setting,
        &["seek", "flights", "0", "--to", "-100", "--wait", "0s"],
    )
    .await;
    host.kill();
    let host = setting.host("b");
    let obeyed = async || {
        let leases = setting.leases("flights").await;
        leases[0].directives.seek.is_none() && matches!(leases[0].checkpoint, Checkpoint::At(_))
    };
    let began = Instant::now();
    while !obeyed().await {
        assert!(began.elapsed() < Duration::from_mins(1), "never obeyed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eventually("again", || lines(&setting) >= expected + 100).await;
    setting.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a"), &setting.output_of("b")]);
    assert_eq!(
        (output.lines, output.carriers),
        (expected + 100, flights::expected())
    );
    setting.stop().await;
}

fn entry(n: usize) -> PutEntry {
    let bad = if n == 70 { r#","bad":"trap""# } else { "" };
    PutEntry {
        partition_key: format!("key-{n}"),
        explicit_hash_key: None,
        data: format!(r#"{{"n":{n}{bad}}}"#).into(),
    }
}

async fn stuck_record(host: &Host) -> String {
    let blocked = |status: &Value| {
        let shards = status["plugins"]["poison"]["shards"].as_object()?;
        let shard = shards.values().next()?;
        let is_alone = shard["blocked"]["attempts"].as_u64()? > 12;
        is_alone.then(|| shard["settled"].as_str().map(str::to_owned))?
    };
    host.until_status("the shard is stuck", |status| blocked(status).is_some())
        .await;
    blocked(&host.status().await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_record_is_skipped_by_command_and_its_letter_is_stored_first() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("poison", &guest("poison"));
    let settings = "[host]\nadmin = \"127.0.0.1:0\"\n[retry]\ncap = \"100ms\"\n[sinks.dead]\ntype = \
        \"file\"\npath = \"dead.ndjson\"\n[plugin.poison.failure]\nbisect = true\n[reads]\n\
        calls-per-second = 50.0\nidle-every = \"50ms\"";
    let host = setting.host_with("a", settings);
    let stream = StreamName::new(STREAM).unwrap();
    let writer = StreamWriter::new(setting.clients.kinesis.clone(), stream);
    writer
        .put_all((0..100).map(entry), |_, _| {})
        .await
        .unwrap();
    let settled = stuck_record(&host).await;
    let explained = shardmill(
        &["explain", "poison", "0", "--local", "--watch-for", "0s"],
        setting.path(),
    )
    .await;
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains("poison"), "{explained}");
    let captured = shardmill(
        &["capture", "--stream", STREAM, "--local", "--count", "71"],
        setting.path(),
    )
    .await;
    let captured = String::from_utf8_lossy(&captured.stdout).into_owned();
    let poison: Value = serde_json::from_str(captured.lines().last().unwrap()).unwrap();
    let number = poison["sequence-number"].as_str().unwrap();
    assert!(number > settled.as_str());
    change(
        &setting,
        &["skip", "poison", "0", number, "--dead-letters", "dead"],
    )
    .await;
    let good = || {
        Output::read(&[&setting.output_of("a")])
            .carriers
            .get("good")
            .copied()
    };
    eventually("the others", || good() == Some(99)).await;
    let letters = std::fs::read_to_string(setting.path().join("dead.ndjson")).unwrap();
    let letters: Vec<Value> = letters
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letters[0]["sequence-number"], number);
    let reason = letters[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("skipped by command: by") && reason.contains("a test"),
        "{reason}"
    );
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!(output.repeats, 0);
    setting.stop().await;
}
