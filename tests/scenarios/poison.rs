//! A stream with records that fail: each good one comes out once and in order, each that never
//! works is a dead letter with its reason, also while the dead letters' sink is down for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use harness::embedded::machine_now_ms;
use harness::endpoint::Endpoint;
use harness::flights::Output;
use harness::guests::guest;
use harness::process::{Host, eventually, shardmill};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::{PutEntry, StreamWriter};
use shardmill_core::stream::StreamName;

use crate::setting as number;

/// Isolate, five attempts, then the dead letters. A hang costs a deadline for each halving of its
/// batch and each attempt.
const POLICY: &str = r#"
[reads]
calls-per-second = 50.0
bytes-per-second = "1GiB"
idle-every = "50ms"
[host]
admin = "127.0.0.1:0"
[limits]
process-deadline = "500ms"
[retry]
cap = "200ms"
[plugin.poison.failure]
attempts = 5
on-exhausted = "dead-letter"
dead-letter = "dead"
"#;
const PORTIONS: usize = 50;

/// How the `n`th record fails.
fn badness(n: usize) -> Option<&'static str> {
    match n {
        12_345 => Some("hang"),
        n if n % 10_000 == 7_777 => Some("trap"),
        n if n % 5_000 == 2_345 => Some("twice"),
        _ => None,
    }
}

fn count() -> usize {
    number("SHARDMILL_POISONED", 30_000)
}

fn entry(n: usize) -> PutEntry {
    let bad = badness(n).map_or_else(String::new, |how| format!(r#","bad":"{how}""#));
    let data = Bytes::from(format!(r#"{{"n":{n}{bad}}}"#));
    PutEntry {
        partition_key: format!("key-{}", n % 97),
        explicit_hash_key: None,
        data,
    }
}

/// Puts the records in portions, a tenth of a second apart; gives the last sequence number of each
/// shard, and how long ago the last settled record had arrived, for each shard after each portion.
async fn feed(setting: &Setting, host: &Host) -> (Vec<(String, String)>, Vec<Duration>) {
    let writer = StreamWriter::new(
        setting.clients.kinesis.clone(),
        StreamName::new(STREAM).unwrap(),
    );
    let (mut last, mut lags) = (BTreeMap::new(), Vec::new());
    let numbers: Vec<usize> = (0..count()).collect();
    for portion in numbers.chunks(count().div_ceil(PORTIONS)) {
        let report = writer
            .put_all(portion.iter().map(|n| entry(*n)), |_, _| {})
            .await
            .unwrap();
        last.extend(
            report
                .last_sequence
                .iter()
                .map(|(shard, last)| (shard.to_string(), last.to_string())),
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
        lags.extend(lags_of(host).await);
    }
    (last.into_iter().collect(), lags)
}

async fn lags_of(host: &Host) -> Vec<Duration> {
    let status = host.status().await;
    let shards = status["plugins"]["poison"]["shards"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let now = machine_now_ms();
    let arrived = shards
        .values()
        .filter_map(|shard| shard["settled-arrival-ms"].as_u64());
    arrived
        .map(|arrived| Duration::from_millis(now.saturating_sub(arrived)))
        .collect()
}

/// Each record that never works is there once, with a reason that fits.
fn check_letters(lines: &[String]) {
    let letters: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut found = BTreeMap::new();
    for letter in &letters {
        let data: Value = serde_json::from_str(letter["data"].as_str().unwrap()).unwrap();
        let (n, reason) = (
            usize::try_from(data["n"].as_u64().unwrap()).unwrap(),
            letter["reason"].as_str().unwrap(),
        );
        let expected = if badness(n) == Some("hang") {
            "500"
        } else {
            "poison"
        };
        assert!(reason.contains(expected), "{n}: {reason}");
        // Those as part of a batch that was cut count too: all deliveries.
        assert!(letter["attempts"].as_u64().unwrap() >= 5, "{letter}");
        assert_eq!(found.insert(n, reason), None, "{n} is there twice");
    }
    let never = (0..count()).filter(|n| matches!(badness(*n), Some("trap" | "hang")));
    assert_eq!(
        found.into_keys().collect::<Vec<_>>(),
        never.collect::<Vec<_>>()
    );
}

fn check_output(setting: &Setting) {
    let output = Output::read(&[&setting.output_of("a")]);
    let twice = (0..count())
        .filter(|n| badness(*n) == Some("twice"))
        .count() as u64;
    let good = (0..count()).filter(|n| badness(*n).is_none()).count() as u64;
    assert_eq!(
        output.carriers,
        BTreeMap::from([("good".to_owned(), good), ("twice".to_owned(), twice)])
    );
    assert_eq!((output.repeats, output.disorder), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_becomes_dead_letters_and_every_other_record_comes_out_once_and_in_order() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("poison", &guest("poison"));
    let dead = setting.path().join("dead.ndjson");
    let config = format!("{POLICY}[sinks.dead]\ntype = \"file\"\npath = \"dead.ndjson\"\n");
    let host = setting.host_with("a", &config);
    eventually("the pages are served", || host.log().contains("http://")).await;
    let started = tokio::time::Instant::now();
    let (last, mut lags) = feed(&setting, &host).await;
    setting.until_checkpointed("poison", &last).await;
    lags.sort();
    let at = |percent: usize| lags[(lags.len() * percent / 100).min(lags.len() - 1)].as_secs_f64();
    eprintln!(
        "{} records settled in {:.1} s; age of the last settled record: median {:.2} s, p90 {:.2} \
            s, longest {:.2} s",
        count(),
        started.elapsed().as_secs_f64(),
        at(50),
        at(90),
        at(100),
    );
    explained(&setting).await;
    let never = (0..count())
        .filter(|n| matches!(badness(*n), Some("trap" | "hang")))
        .count();
    let counted = host
        .metric("shardmill_records_given_up_total", "dead-letter")
        .await;
    assert!((counted - never as f64).abs() < 0.5, "{counted} counted");
    assert!(host.terminate().await.success());
    check_output(&setting);
    let letters = std::fs::read_to_string(dead).unwrap();
    check_letters(&letters.lines().map(str::to_owned).collect::<Vec<_>>());
    setting.stop().await;
}

/// Whoever asks about a shard is told the last record that was given up.
async fn explained(setting: &Setting) {
    let mut last = Vec::new();
    for lease in setting.leases("poison").await {
        let args = [
            "explain",
            "poison",
            lease.key.as_str(),
            "--local",
            "--watch-for",
            "0s",
            "--json",
        ];
        let told: Value =
            serde_json::from_slice(&shardmill(&args, setting.path()).await.stdout).unwrap();
        last.extend(told["place"]["last-given-up"].as_str().map(str::to_owned));
    }
    assert!(
        !last.is_empty() && last.iter().all(|last| last.starts_with("dead-letter of ")),
        "{last:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_dead_letters_sink_is_down_poison_blocks_its_shard_visibly_and_then_all_is_settled()
 {
    let setting = Setting::new(2).await;
    setting.drop_plugin("poison", &guest("poison"));
    let endpoint = Endpoint::refusing(503).await;
    let config = format!(
        "{POLICY}[sinks.dead]\ntype = \"http\"\nurl = \"{}\"\n",
        endpoint.url
    );
    let host = setting.host_with("a", &config);
    eventually("the pages are served", || host.log().contains("http://")).await;
    let (last, _) = feed(&setting, &host).await;
    eventually("dead letters are refused", || endpoint.refused() > 5).await;
    let shards = host.status().await["plugins"]["poison"]["shards"]
        .as_object()
        .cloned()
        .unwrap();
    let reasons: Vec<_> = shards
        .values()
        .filter_map(|shard| shard["blocked"]["reason"].as_str())
        .collect();
    assert!(
        reasons
            .iter()
            .any(|reason| reason.contains("sink dead cannot store")),
        "{reasons:?}"
    );
    assert!(endpoint.lines().is_empty());
    endpoint.take();
    setting.until_checkpointed("poison", &last).await;
    assert!(host.terminate().await.success());
    check_output(&setting);
    check_letters(&endpoint.lines());
    setting.stop().await;
}
