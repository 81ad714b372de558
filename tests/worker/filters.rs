//! Records that a filter keeps from the plugin are settled, and disturb nothing else.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use harness::aggregates::aggregate;
use harness::fake_fan_out::Break;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::lease::Checkpoint;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{FailureKind, Outcome, Processed, RecordFailure};
use shardmill_core::stream::{LeaseKey, Position, ShardId};
use shardmill_filter::Filter;
use tokio::sync::Notify;

use crate::fan_out::subscribing;
use crate::poison::{dead_lettering, deliveries};

/// A fleet of one shard whose plugin gets only records with `"n": 1`.
fn filtering() -> TestFleet {
    let mut fleet = TestFleet::new(1);
    let patterns = vec![r#"{"data": {"n": [1]}}"#.to_owned()];
    fleet.options.filter = Some(Arc::new(Filter::new(None, patterns).unwrap()));
    fleet
}

/// Puts the `number`th record.
fn put(fleet: &TestFleet, number: u32, matches: bool) -> ShardId {
    let data = record(number, matches);
    fleet.stream.put_at(0, &format!("key-{number}"), data).0
}

fn record(number: u32, matches: bool) -> String {
    format!(r#"{{"id": {number}, "n": {}}}"#, u32::from(matches))
}

async fn until_all_checkpointed(fleet: &TestFleet) {
    until("all is checkpointed", || fleet.is_all_checkpointed()).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_on_which_nothing_matches_is_checkpointed_without_a_delivery() {
    for keeps_state in [false, true] {
        let mut fleet = filtering();
        fleet.options.keeps_state = keeps_state;
        let plugin = NativePlugin::echo(1);
        let plugin = if keeps_state {
            plugin.keeping_state()
        } else {
            plugin
        };
        let history = plugin.history();
        let host = fleet.start("a", plugin);
        for number in 0..25 {
            put(&fleet, number, false);
        }
        let (shard, _) = fleet.stream.put_at(0, "key", "plain text");
        until_all_checkpointed(&fleet).await;
        until("nothing waits", || {
            let status = host.shard(&shard);
            status.is_some_and(|status| status.lag_ms == Some(0) && status.is_idle())
        })
        .await;
        let status = host.shard(&shard).unwrap();
        assert_eq!((status.filtered_records, status.records), (26, 0));
        assert_eq!(deliveries(&history), Vec::<usize>::new());
        put(&fleet, 26, true);
        until_all_checkpointed(&fleet).await;
        assert_eq!(fleet.sink.lines(), [record(26, true)]);
        host.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn records_that_match_come_once_and_in_order_among_those_that_do_not() {
    let fleet = filtering();
    let matches = |number: u32| number.is_multiple_of(3);
    for number in 0..100 {
        put(&fleet, number, matches(number));
    }
    let shard = put(&fleet, 100, false);
    let host = fleet.start("a", NativePlugin::echo(1));
    until_all_checkpointed(&fleet).await;
    let wanted = (0..100).filter(|number| matches(*number));
    let wanted: Vec<_> = wanted.map(|number| record(number, true)).collect();
    assert_eq!(fleet.sink.lines(), wanted);
    let status = host.shard(&shard).unwrap();
    assert_eq!((status.records, status.filtered_records), (34, 67));
}

#[tokio::test(start_paused = true)]
async fn the_checkpoint_stays_below_a_record_that_fails_whatever_is_filtered_after_it() {
    let mut fleet = filtering();
    fleet.options.failure = dead_lettering(6);
    put(&fleet, 0, false);
    let (shard, good) = fleet.stream.put_at(0, "key", record(1, true));
    put(&fleet, 2, false);
    let (_, bad) = fleet.stream.put_at(0, "key", "{\"n\": 1, \"bad\": true}");
    for number in 4..30 {
        put(&fleet, number, false);
    }
    let failing = NativePlugin::new(1, |_, batch| {
        let bad = batch
            .records
            .iter()
            .position(|record| record.data.ends_with(b"true}"));
        let failure = |index| RecordFailure {
            index: u32::try_from(index).unwrap(),
            kind: FailureKind::Retry,
            message: "not yet".to_owned(),
        };
        Ok::<_, ProcessorError>(Processed {
            outcome: Outcome {
                failures: bad.map(failure).into_iter().collect(),
                ..Outcome::default()
            },
            ..Processed::default()
        })
    });
    let host = fleet.start("a", failing);
    until("it was tried, and what came before is checkpointed", || {
        fleet.row(&shard).is_some_and(|row| {
            let is_at = |from| Checkpoint::At(Position::plain(from));
            let (good, bad) = (is_at(good.clone()), is_at(bad.clone()));
            assert!(row.checkpoint < bad || !fleet.dead_letters.stored().is_empty());
            row.checkpoint >= good
        })
    })
    .await;
    until_all_checkpointed(&fleet).await;
    assert_eq!(fleet.dead_letters.stored().len(), 1);
    assert_eq!(host.shard(&shard).unwrap().filtered_records, 28);
}

#[tokio::test(start_paused = true)]
async fn each_user_record_of_an_aggregate_is_filtered_for_itself() {
    let mut fleet = filtering();
    let patterns = vec![r#"{"data": {"n": [1]}}"#.to_owned()];
    let filter = Filter::new(Some("key-{\"id\": 1".to_owned()), patterns);
    fleet.options.filter = Some(Arc::new(filter.unwrap()));
    let matching = |numbers: std::ops::Range<u32>| numbers.map(|number| record(number, true));
    let (shard, sequence) = fleet.stream.put_at(
        0,
        "aggregate",
        aggregate(
            matching(10..12)
                .chain([record(13, false)])
                .chain(matching(20..25)),
        ),
    );
    let host = fleet.start("a", NativePlugin::echo(1));
    let last = Position {
        sequence,
        sub_sequence: 7,
    };
    until("its end is checkpointed", || {
        let row = fleet.row(&shard);
        row.is_some_and(|row| row.checkpoint == Checkpoint::At(last.clone()))
    })
    .await;
    assert_eq!(fleet.sink.lines(), matching(10..12).collect::<Vec<_>>());
    assert_eq!(host.shard(&shard).unwrap().filtered_records, 6);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_ends_with_records_that_do_not_match_ends() {
    let fleet = filtering();
    put(&fleet, 0, true);
    let shard = put(&fleet, 1, false);
    let children = fleet.stream.split(&shard, u128::MAX / 2);
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("it has ended", || {
        let row = fleet.row(&shard);
        row.is_none_or(|row| row.checkpoint == Checkpoint::ShardEnd)
            && children.iter().all(|child| fleet.row(child).is_some())
    })
    .await;
    assert_eq!(fleet.sink.lines(), [record(0, true)]);
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_waits_for_its_window_while_records_are_filtered() {
    let mut fleet = filtering();
    fleet.options.batches.window = Duration::from_secs(2);
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    for number in 0..60 {
        put(&fleet, number, number.is_multiple_of(20));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    until_all_checkpointed(&fleet).await;
    assert_eq!(
        deliveries(&history),
        [3],
        "what is filtered takes no place in a batch"
    );
}

#[tokio::test(start_paused = true)]
async fn other_tasks_have_their_turn_while_a_large_reply_is_filtered() {
    /// A record as long as it may be.
    const LARGE: usize = 1 << 20;
    let turns = async |text_bytes: usize| {
        let fleet = filtering();
        let data = |number| {
            let text = "x".repeat(text_bytes);
            format!(r#"{{"text": "{text}", "n": 0, "id": {number}}}"#)
        };
        for number in 0..10 {
            fleet.stream.put_at(0, "key", data(number));
        }
        let shard = fleet.stream.shards()[0].id.clone();
        let read = Arc::new(Notify::new());
        let tell = Arc::clone(&read);
        fleet.stream.change_next(move |fetched| {
            assert_eq!(fetched.records.len(), 10, "one reply has all of them");
            tell.notify_one();
        });
        let host = fleet.start("a", NativePlugin::echo(1));
        read.notified().await;
        let mut turns = 0;
        while host
            .shard(&shard)
            .is_none_or(|status| status.fetched.is_none())
        {
            tokio::task::yield_now().await;
            turns += 1;
        }
        turns
    };
    let (small, large) = (turns(10).await, turns(LARGE - 100).await);
    assert!(
        large >= small + 8,
        "{small} turns for 1 KiB, {large} for 10 MiB"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_pushed_is_filtered_too_though_subscriptions_break() {
    let mut fleet = subscribing(1);
    fleet.options.filter = filtering().options.filter;
    fleet.fan_out.set_event_records(7);
    let shard = fleet.stream.shards()[0].id.clone();
    let host = fleet.start("a", NativePlugin::echo(1));
    let matches = |number: u32| number.is_multiple_of(5);
    for (round, how) in [Break::Cut, Break::Repeats, Break::OutOfOrder]
        .into_iter()
        .enumerate()
    {
        let first = u32::try_from(round).unwrap() * 50;
        for number in first..first + 50 {
            put(&fleet, number, matches(number));
        }
        until_all_checkpointed(&fleet).await;
        until("a subscription runs", || {
            fleet.fan_out.break_off(&shard, how)
        })
        .await;
    }
    put(&fleet, 150, false);
    until_all_checkpointed(&fleet).await;
    let wanted = (0..150).filter(|number| matches(*number));
    let wanted: Vec<_> = wanted.map(|number| record(number, true)).collect();
    assert_eq!(fleet.sink.lines(), wanted);
    let status = host.shard(&shard).unwrap();
    assert_eq!((status.records, status.filtered_records), (30, 121));
}

#[tokio::test(start_paused = true)]
async fn a_few_copied_records_of_a_shared_read_are_those_that_others_get_whole() {
    let all = TestFleet::new(1).sharing_reads();
    // Gets one record of a hundred.
    let mut few = all.neighbour();
    few.options.filter = filtering().options.filter;
    let matches = |number: u32| number.is_multiple_of(100);
    let everything: Vec<_> = (0..1_000)
        .map(|number| record(number, matches(number)))
        .collect();
    for number in 0..1_000 {
        put(&all, number, matches(number));
    }
    let host_of_all = all.start("a", NativePlugin::echo(1));
    let host_of_few = few.start("b", NativePlugin::echo(1));
    until("all is checkpointed", || {
        all.is_all_checkpointed() && few.is_all_checkpointed()
    })
    .await;
    assert_eq!(all.sink.lines(), everything);
    let wanted = (0..1_000).filter(|number| matches(*number));
    let wanted: Vec<_> = wanted.map(|number| record(number, true)).collect();
    assert_eq!(few.sink.lines(), wanted);
    host_of_all.stop().await;
    host_of_few.stop().await;
}

#[tokio::test(start_paused = true)]
async fn state_counts_each_record_that_matches_once_though_hosts_are_killed() {
    let mut fleet = filtering();
    fleet.options.keeps_state = true;
    let matches = |number: u32| number.is_multiple_of(4);
    let shard = fleet.stream.shards()[0].id.clone();
    let saved = |fleet: &TestFleet| {
        let saved = fleet.store.saved_state(&LeaseKey::of_shard(&shard));
        let bytes = saved.map(|saved| saved.bytes.to_vec()).unwrap_or_default();
        String::from_utf8(bytes).unwrap()
    };
    let mut wanted = String::new();
    for life in 0..8_u32 {
        let host = fleet.start(
            &format!("host-{life}"),
            NativePlugin::no_op(1).keeping_state(),
        );
        let written = || fleet.store.history().len();
        let before = written();
        for number in life * 60..(life + 1) * 60 {
            let (_, sequence) = fleet
                .stream
                .put_at(0, "key", record(number, matches(number)));
            if matches(number) {
                writeln!(wanted, "{}", Position::plain(sequence)).unwrap();
            }
        }
        until("something is written", || written() > before).await;
        tokio::time::sleep(Duration::from_millis(u64::from(life) * 97)).await;
        // Killed, wherever it is.
        drop(host);
    }
    let host = fleet.start("last", NativePlugin::no_op(1).keeping_state());
    until_all_checkpointed(&fleet).await;
    assert_eq!(saved(&fleet).trim_end(), wanted.trim_end());
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_is_changed_decides_from_the_checkpoint_on() {
    let mut fleet = filtering();
    for number in 0..40 {
        put(&fleet, number, number.is_multiple_of(2));
    }
    let host = fleet.start("a", NativePlugin::echo(1));
    until_all_checkpointed(&fleet).await;
    host.stop().await;
    // As a new manifest does it: the plugin's worker is replaced by one with the new filter.
    let patterns = vec![r#"{"data": {"n": [0]}}"#.to_owned()];
    fleet.options.filter = Some(Arc::new(Filter::new(None, patterns).unwrap()));
    for number in 40..80 {
        put(&fleet, number, number.is_multiple_of(2));
    }
    let host = fleet.start("a", NativePlugin::echo(2));
    until_all_checkpointed(&fleet).await;
    let before = (0..40).filter(|number| number % 2 == 0);
    let after = (40..80).filter(|number| number % 2 == 1);
    let before = before.map(|number| record(number, true));
    let wanted: Vec<_> = before
        .chain(after.map(|number| record(number, false)))
        .collect();
    assert_eq!(
        fleet.sink.lines(),
        wanted,
        "nothing that was dropped comes back"
    );
    host.stop().await;
}
