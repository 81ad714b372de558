use bytes::Bytes;
use shardmill_core::plugin::PluginName;
use shardmill_core::stream::SequenceNumber;
use shardmill_sinks::Captured;

use super::*;
use crate::author::dry_run::CapturedStream;

const SHARD: &str = "shardId-0";

fn record(n: u64) -> Record {
    Record {
        data: Bytes::from_static(b"x"),
        partition_key: format!("key-{n}"),
        explicit_hash_key: None,
        position: Position::plain(SequenceNumber::parse(&(n + 1).to_string()).unwrap()),
        arrival_ms: n,
    }
}

fn stream(count: u64) -> Box<dyn StreamReader> {
    let captured = (0..count).map(|n| Captured {
        stream: StreamName::new("orders").unwrap(),
        shard: ShardId::new(SHARD).unwrap(),
        record: record(n),
    });
    let reader = CapturedStream::new(captured.collect()).unwrap();
    reader.release(usize::MAX);
    Box::new(reader)
}

fn order(folder: &std::path::Path, from_ms: u64, to_ms: u64) -> WindowOrder {
    WindowOrder {
        stream: StreamName::new("orders").unwrap(),
        from_ms,
        to_ms,
        plugin: PluginName::new("alerts").unwrap(),
        application: "alerts".to_owned(),
        progress: folder.join("progress.json"),
    }
}

fn digest(digits: &str) -> PluginDigest {
    PluginDigest::from_hex(&digits.repeat(32)).unwrap()
}

async fn opened(order: &WindowOrder, digits: &str) -> anyhow::Result<Window> {
    Window::open(
        stream(20),
        order.clone(),
        digest(digits),
        Box::new(|_| true),
    )
    .await
}

/// The arrival times of all that is left, and whether it came to the end.
async fn rest(window: &mut Window) -> Vec<u64> {
    let mut arrived = Vec::new();
    while let Some(portion) = window.next(&CancellationToken::new()).await.unwrap() {
        let letters = portion.letters.iter();
        arrived.extend(letters.map(|letter| letter.record.arrival_ms));
        if portion.is_last {
            window.ended(&portion.shard);
        }
    }
    arrived
}

#[tokio::test(start_paused = true)]
async fn only_records_between_the_two_times_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let mut window = opened(&order(folder.path(), 5, 15), "ab").await.unwrap();
    assert_eq!(rest(&mut window).await, (5..15).collect::<Vec<u64>>());
    drop(window);
    let mut to_the_tip = order(folder.path(), 5, 1_000);
    to_the_tip.progress = folder.path().join("other.json");
    let mut window = opened(&to_the_tip, "ab").await.unwrap();
    assert_eq!(rest(&mut window).await, (5..20).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn the_next_run_goes_on_after_what_was_settled_and_stored_and_ends_where_all_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let order = order(folder.path(), 5, 15);
    let shard = ShardId::new(SHARD).unwrap();
    let mut first = opened(&order, "ab").await.unwrap();
    first.settled(&shard, record(7).position);
    first.save().unwrap();
    first.settled(&shard, record(9).position);
    drop(first);
    let mut second = opened(&order, "ab").await.unwrap();
    assert_eq!(rest(&mut second).await, (8..15).collect::<Vec<u64>>());
    second.save().unwrap();
    drop(second);
    let mut third = opened(&order, "ab").await.unwrap();
    assert_eq!((third.shards_left(), rest(&mut third).await), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn progress_of_another_replay_and_one_that_is_in_use_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let order = order(folder.path(), 5, 15);
    let first = opened(&order, "ab").await.unwrap();
    first.save().unwrap();
    let refused = async |order: &WindowOrder, digits| match opened(order, digits).await {
        Ok(_) => panic!("not refused"),
        Err(error) => format!("{error:#}"),
    };
    let in_use = refused(&order, "ab").await;
    assert!(in_use.contains("another replay uses"), "{in_use}");
    drop(first);
    let other_window = WindowOrder {
        to_ms: 16,
        ..order.clone()
    };
    for told in [
        refused(&order, "cd").await,
        refused(&other_window, "ab").await,
    ] {
        assert!(told.contains("--progress"), "{told}");
    }
    std::fs::write(&order.progress, "{").unwrap();
    let damaged = refused(&order, "ab").await;
    assert!(damaged.contains("cannot read"), "{damaged}");
}

#[tokio::test(start_paused = true)]
async fn the_plugin_gets_no_record_that_its_filter_keeps_out() {
    let folder = tempfile::tempdir().unwrap();
    let order = order(folder.path(), 5, 15);
    let is_even = |record: &Record| record.arrival_ms.is_multiple_of(2);
    let opened = Window::open(stream(20), order, digest("ab"), Box::new(is_even)).await;
    assert_eq!(rest(&mut opened.unwrap()).await, [6, 8, 10, 12, 14]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_dies_before_anything_is_settled_is_known_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let order = order(folder.path(), 5, 15);
    drop(opened(&order, "ab").await.unwrap());
    assert!(order.progress.exists());
    let mut next = opened(&order, "ab").await.unwrap();
    assert_eq!(rest(&mut next).await, (5..15).collect::<Vec<u64>>());
}
