//! Plugins that take all they can get on very many shards, beside one that works:
//! `SHARDMILL_CROWD=1 cargo test --test scenarios crowd -- --nocapture` prints the second one's
//! time from put to output, and the host's memory. Without the variable the crowds are small.

use std::time::Duration;

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::eventually;
use harness::setting::Setting;
use shardmill_aws::StreamAdmin;
use shardmill_core::stream::StreamName;

use crate::hostile_corpus::Latency;
use crate::setting as number;

/// Memory that the host may have beside what all instances may take.
const BESIDE_INSTANCES_KIB: u64 = 1 << 20;
const INSTANCES_KIB: u64 = 1 << 20;

/// How many times longer than alone the neighbour's slowest record may take. Quiet cores show 11 beside
/// a crowd that spins; this is no promise, but would show a neighbour that waits its turn behind all
/// of the crowd.
const SLOWER_MAX: u32 = 50;
/// What that is at least: alone a record takes some milliseconds, and the machine may be busy.
const LONGEST_MIN: Duration = Duration::from_secs(5);

/// What a call of the crowd emits before it is written, at least, if it floods its sink.
const EMITTED_BYTES: u64 = 31 << 20;

/// A crowd: how each of its shards misbehaves, and how many there are: the embedded stack has 1,000
/// in all.
const CROWDS: [(&str, u32); 6] = [
    ("sleep", 999),
    // A line of the sink is six times as large as what is emitted.
    ("control-emit", 24),
    ("loop", 24),
    ("memory-leak", 48),
    ("histogram-flood", 48),
    ("log-flood", 48),
];
/// The crowds that are tried in any case, smaller.
const SMALL_CROWDS: [&str; 2] = ["sleep", "control-emit"];
const SMALLER: u32 = 24;

async fn measure(misbehave: &str, shards: u32, measured_for: Duration) {
    let setting = Setting::new(1).await;
    let stream = StreamName::new("crowd").unwrap();
    StreamAdmin::new(setting.clients.kinesis.clone())
        .ensure_stream(&stream, shards)
        .await
        .unwrap();
    setting.put_into("crowd", &flights::input()).await;
    setting.drop_plugin("flights", &guest("flights"));
    let config = format!(
        "[host]\nadmin = \"127.0.0.1:0\"\ninstances-memory = \"{INSTANCES_KIB}KiB\"\ndrain-limit \
            = \"5s\"\n\
         [reads]\ncalls-per-second = 50.0\nidle-every = \"20ms\"\nidle-max = \"20ms\"\n\
         [plugin.crowd]\nstream = \"crowd\"\n[plugin.crowd.limits]\nprocess-deadline = \"30s\"\n\
         [plugin.crowd.config]\nmisbehave = \"{misbehave}\"\ndestination = \"crowd\"\n\
         [sinks.crowd]\ntype = \"file\"\npath = \"crowd.ndjson\"\nformat = \"envelope\"\n"
    );
    let host = setting.host_with("a", &config);
    let latency = Latency::start(setting.clients.kinesis.clone(), setting.output_of("a"));
    latency.until_flowing().await;
    tokio::time::sleep(measured_for).await;
    let (alone, before) = (latency.take(), host.resident_kib());
    setting.drop_plugin("crowd", &guest("evil"));
    let shards_held = usize::try_from(shards).unwrap();
    host.until_status("the crowd is there", |status| {
        status["plugins"]["crowd"]["shards"]
            .as_object()
            .is_some_and(|held| held.len() == shards_held)
    })
    .await;
    let mut at_most = 0;
    let until = tokio::time::Instant::now() + measured_for;
    while tokio::time::Instant::now() < until {
        at_most = at_most.max(host.resident_kib());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let beside = latency.take();
    eprintln!(
        "{misbehave} on {shards} shards; the neighbour's median, p99, longest, records, and \
            resident memory:"
    );
    eprintln!(
        "  alone  {alone:?} {} MiB\n  beside {beside:?} {} MiB",
        before >> 10,
        at_most >> 10
    );
    assert!(
        at_most < INSTANCES_KIB + BESIDE_INSTANCES_KIB,
        "{at_most} KiB"
    );
    let (_, _, longest_alone, _) = alone;
    let (_, _, longest_beside, _) = beside;
    assert!(
        longest_beside < LONGEST_MIN.max(longest_alone * SLOWER_MAX),
        "{misbehave} made the neighbour wait for {longest_beside:?}"
    );
    if misbehave == "control-emit" {
        let file = setting.path().join("crowd.ndjson");
        let written = || std::fs::metadata(&file).map_or(0, |file| file.len());
        eventually("the crowd's output is written", || {
            written() > EMITTED_BYTES
        })
        .await;
    }
    let put = latency.stop().await;
    host.signal(rustix::process::Signal::TERM);
    host.ended().await;
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!(
        (output.lines, output.repeats, output.disorder),
        (put as u64, 0, 0)
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_on_many_shards_costs_a_neighbour_no_record_and_the_host_no_more_than_it_was_given()
{
    let is_large = number("SHARDMILL_CROWD", 0) > 0;
    for (misbehave, shards) in CROWDS {
        if is_large {
            measure(misbehave, shards, Duration::from_secs(20)).await;
        } else if SMALL_CROWDS.contains(&misbehave) {
            measure(misbehave, shards / SMALLER, Duration::from_secs(1)).await;
        }
    }
}
