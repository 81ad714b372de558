//! A past time of a stream is replayed beside its live host, across a split, with exact counts; the
//! replay is killed and goes on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use harness::contract::stream::StreamControl;
use harness::embedded::EmbeddedStream;
use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::{Host, shardmill};
use harness::setting::{STREAM, Setting};
use shardmill_aws::KinesisReader;
use shardmill_core::lease::Checkpoint;
use shardmill_core::ports::StreamReader;
use shardmill_core::stream::{LeaseKey, ShardId, StreamName, StreamRef, Utc};

/// The replay's own sink, and batches that are small enough to be killed between two of them.
const AGAIN: &str = "[sinks.out]\ntype = \"file\"\npath = \
    \"again.ndjson\"\n[batch]\nrecords = 20\n[plugin.flights.config]\ndestination = \"out\"\n";

async fn stream_ms(setting: &Setting) -> u64 {
    let stream = StreamRef::parse(STREAM).unwrap();
    let reader = KinesisReader::new(setting.clients.kinesis.clone(), &stream);
    // Kinesis tells its time in whole seconds, and records that the emulator takes right after a
    // split arrive up to a second later than they were put. After two, all of them are older.
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    reader.now_ms().await.unwrap().unwrap()
}

async fn checkpoints(setting: &Setting) -> BTreeMap<LeaseKey, Checkpoint> {
    let leases = setting.leases("flights").await.into_iter();
    leases.map(|lease| (lease.key, lease.checkpoint)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_past_time_is_replayed_beside_the_fleet_and_goes_on_after_a_kill() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host("a");
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    let from_ms = stream_ms(&setting).await;
    setting.put(&flights::input()).await;
    let stream = StreamName::new(STREAM).unwrap();
    let stream = EmbeddedStream::new(setting.clients.kinesis.clone(), stream);
    let parent = ShardId::new("shardId-000000000000").unwrap();
    stream.split(&parent, u128::MAX / 2).await;
    setting.put(&flights::input()).await;
    let to_ms = stream_ms(&setting).await;
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    let before = checkpoints(&setting).await;
    let component = setting.path().join("again.wasm");
    std::fs::write(&component, guest("flights")).unwrap();
    let config = format!("stream = \"{STREAM}\"\n{AGAIN}");
    std::fs::write(setting.path().join("again.toml"), config).unwrap();
    let (from, to) = (Utc(from_ms).to_string(), Utc(to_ms).to_string());
    let args = [
        "replay",
        "--stream",
        STREAM,
        "--from",
        &from,
        "--to",
        &to,
        "--plugin",
        "again.wasm",
        "--of",
        "flights",
        "--config",
        "again.toml",
        "--local",
    ];
    let again = setting.path().join("again.ndjson");
    let lines = || Output::read(&[&again]).lines;
    let replay = Host::start("replay", &args, setting.path());
    let began = Instant::now();
    while lines() == 0 {
        assert!(began.elapsed() < Duration::from_mins(1), "nothing came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    replay.kill();
    let ended = shardmill(&args, setting.path()).await;
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{told}");
    let flights = flights::expected().values().sum::<u64>();
    let output = Output::read(&[&again]);
    assert_eq!(output.seen.len() as u64, 2 * flights, "each of both times");
    let twice = flights::expected().into_iter();
    let twice: BTreeMap<String, u64> = twice.map(|(carrier, n)| (carrier, 2 * n)).collect();
    assert_eq!(output.carriers, twice);
    let all = lines();
    let once_more = shardmill(&args, setting.path()).await;
    assert!(once_more.status.success());
    let told = String::from_utf8_lossy(&once_more.stdout).into_owned();
    assert!(told.starts_with("0 records processed"), "{told}");
    assert_eq!(lines(), all, "what is done is not done again");
    assert_eq!(checkpoints(&setting).await, before, "the fleet's stay");
    assert!(host.terminate().await.success());
    setting.stop().await;
}
