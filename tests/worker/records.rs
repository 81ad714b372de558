//! Whatever a record holds, it arrives as it was put: data are bytes, keys are text, times are only
//! shown.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use harness::aggregates::aggregate;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::ports::Processed;
use shardmill_core::stream::Record;

/// Everything that was delivered.
type Seen = Arc<Mutex<Vec<Record>>>;

fn watching() -> (NativePlugin, Seen) {
    let seen = Seen::default();
    let keeper = Arc::clone(&seen);
    let plugin = NativePlugin::new(1, move |_, batch| {
        keeper.lock().unwrap().extend(batch.records.iter().cloned());
        Ok(Processed::default())
    });
    (plugin, seen)
}

#[tokio::test(start_paused = true)]
async fn records_of_any_size_bytes_and_key_arrive_as_they_were_put() {
    let gzip = [0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0, 3, 0x4b, 0x4c];
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 4, 0x58, 1, 0];
    let json_bomb = "[".repeat(100_000);
    let data: Vec<Bytes> = vec![
        Bytes::new(),
        Bytes::from_static(b"x"),
        Bytes::from_static(&[0, 0xff, 0xfe, 0xc3, 0x28, 0]),
        Bytes::copy_from_slice(&gzip),
        Bytes::copy_from_slice(&zstd),
        Bytes::from(json_bomb),
        Bytes::from(vec![0xa5; 1 << 20]),
        Bytes::from(vec![0x5a; 10 << 20]),
    ];
    let keys = [
        "k".to_owned(),
        "\u{1f980}".repeat(256),
        "a\0b".to_owned(),
        "\u{202e}\u{7f}".to_owned(),
    ];
    for is_shared in [false, true] {
        let fleet = TestFleet::new(1);
        let fleet = if is_shared {
            fleet.sharing_reads()
        } else {
            fleet
        };
        for key in &keys {
            for data in &data {
                fleet.stream.put_at(0, key, data.clone());
            }
        }
        let (plugin, seen) = watching();
        let _host = fleet.start("a", plugin);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        let shard = fleet.stream.shards()[0].id.clone();
        assert!(
            *seen.lock().unwrap() == fleet.stream.records(&shard),
            "shared: {is_shared}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn records_of_ten_mebibytes_flow_from_more_shards_than_the_budget_holds() {
    let mut fleet = TestFleet::new(12);
    fleet.options.reads.records_per_call = 1;
    let data = Bytes::from(vec![7; 10 << 20]);
    for shard in fleet.stream.shards() {
        for _ in 0..3 {
            fleet
                .stream
                .put_at(shard.hash_range.start(), "key", data.clone());
        }
    }
    // 12 shards of 10 MiB in delivery, as much again waiting: nearly four times the 64 MiB of a
    // test host.
    let plugin = NativePlugin::no_op(1);
    let _host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_holds_ten_thousand_records_if_it_may() {
    let mut fleet = TestFleet::new(1);
    fleet.options.batches.records = 10_000;
    fleet.options.batches.window = Duration::from_secs(30);
    fleet.put(0..10_000);
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&sizes);
    let _host = fleet.start(
        "a",
        NativePlugin::new(1, move |_, batch| {
            kept.lock().unwrap().push(batch.records.len());
            Ok(Processed::default())
        }),
    );
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(*sizes.lock().unwrap(), [10_000]);
}

#[tokio::test(start_paused = true)]
async fn what_a_producer_puts_twice_is_delivered_twice() {
    let fleet = TestFleet::new(1);
    for _ in 0..2 {
        fleet.stream.put_at(0, "key", "the same");
        fleet.stream.put_at(
            0,
            "key",
            aggregate(["inside".to_owned(), "inside".to_owned()]),
        );
    }
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("all out", || fleet.sink.lines().len() == 6).await;
    assert_eq!(
        fleet.sink.lines(),
        [
            "the same", "inside", "inside", "the same", "inside", "inside"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn arrival_times_that_are_missing_in_the_future_or_go_backwards_harm_nothing() {
    let fleet = TestFleet::new(1);
    let shard = fleet.stream.shards()[0].id.clone();
    let times = [0, 1_700_000_000_000, u64::MAX, 5, 253_402_300_799_000, 0, 7];
    for (number, now_ms) in (0..).zip(times) {
        fleet.stream.set_now_ms(now_ms);
        fleet.put(number..number + 1);
    }
    let (plugin, seen) = watching();
    let host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(
        seen.lock()
            .unwrap()
            .iter()
            .map(|record| record.arrival_ms)
            .collect::<Vec<_>>(),
        times
    );
    let status = host.shard(&shard).unwrap();
    assert_eq!(
        (status.settled_arrival_ms, status.millis_behind_latest),
        (Some(7), Some(0))
    );
    assert_eq!(fleet.row(&shard).unwrap().settled_arrival_ms, Some(7));
}

#[tokio::test(start_paused = true)]
async fn user_records_whose_keys_belong_to_another_shard_are_delivered_with_the_rest() {
    // As after a reshard, while a producer still packs by the shards that were. Nobody else is sure
    // to have them.
    let fleet = TestFleet::new(1);
    let parent = fleet.stream.shards()[0].id.clone();
    let packed =
        |numbers: std::ops::Range<u32>| aggregate(numbers.map(|number| number.to_string()));
    fleet.stream.put_at(0, "key", packed(0..20));
    fleet.stream.split(&parent, u128::MAX / 2);
    fleet.stream.put_at(0, "key", packed(20..40));
    fleet.stream.put_at(u128::MAX, "key", packed(40..60));
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("all out, each once", || fleet.has_exactly(0..60)).await;
}
