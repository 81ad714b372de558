//! Prints what the host costs: `cargo test --release -p shardmill-wasm --test measure -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use shardmill_core::plugin::GuestLimits;
use shardmill_core::stream::Batch;
use shardmill_wasm::folder::{FolderEvent, FolderOptions, PluginFolder};
use support::{guest, instance, name, record, runtime};
use tokio_util::sync::CancellationToken;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints numbers, proves nothing"]
async fn costs() {
    let runtime = runtime(GuestLimits::default());
    for guest_name in ["noop", "earthquakes"] {
        let mut times = Vec::new();
        for _ in 0..9 {
            times.push(runtime.load(name(guest_name), guest(guest_name).into()).await.unwrap().compile_time());
        }
        println!("compile {guest_name} ({} bytes): {:?}", guest(guest_name).len(), median(times));
    }

    let noop = support::plugin(&runtime, "noop").await;
    let mut times = Vec::new();
    for _ in 0..501 {
        let started = Instant::now();
        instance(&noop, &[]).await.unwrap();
        times.push(started.elapsed());
    }
    println!("instantiate and init: {:?}", median(times));

    let mut processor = instance(&noop, &[]).await.unwrap();
    for records in [1_u32, 100, 1_000, 10_000] {
        let records_made = (0..records as usize).map(|n| record(n, vec![7_u8; 1_024])).collect();
        let batch = Batch { records: Arc::new(records_made), attempt: 1, millis_behind_latest: 0 };
        let mut times = Vec::new();
        for _ in 0..51 {
            let started = Instant::now();
            processor.process(batch.clone()).await.unwrap();
            times.push(started.elapsed());
        }
        let time = median(times);
        println!("noop, {records} records of 1 KiB: {time:?}, {:?} a record", time / records);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "prints numbers, proves nothing"]
async fn file_in_place_to_version_ready() {
    let folder = tempfile::tempdir().unwrap();
    let (watcher, mut events) = PluginFolder::new(runtime(GuestLimits::default()), FolderOptions::new(folder.path()));
    let cancel = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(watcher.run(cancel.clone()));
    assert!(matches!(events.recv().await, Some(FolderEvent::FirstScanDone)));
    let mut times = Vec::new();
    for turn in 0..20 {
        let bytes = guest(if turn % 2 == 0 { "noop" } else { "echo" });
        std::fs::write(folder.path().join(".new"), bytes).unwrap();
        let started = Instant::now();
        std::fs::rename(folder.path().join(".new"), folder.path().join("orders.wasm")).unwrap();
        events.recv().await.unwrap();
        times.push(started.elapsed());
    }
    println!("rename to event: median {:?}", median(times));
    cancel.cancel();
}
