//! What goes wrong with reads and listings: tried again with measure, shown, and never a loss, a
//! repeat or an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::fake_lease_store::StoreOp;
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::lease::{Checkpoint, Lease};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Fetched, Processed, ShardIterator};
use shardmill_core::stream::{Emitted, Record, ShardId};
use shardmill_worker::ShardState;
use tokio::time::Instant;

fn shard(fleet: &TestFleet) -> ShardId {
    fleet.stream.shards()[0].id.clone()
}

fn in_order(fleet: &TestFleet, numbers: std::ops::Range<u32>) {
    assert_eq!(
        fleet.sink.lines(),
        numbers.map(|number| number.to_string()).collect::<Vec<_>>()
    );
}

/// A fleet of one shard that reads straight from the stream, and one that shares its reads as real
/// hosts do.
fn both_ways() -> [TestFleet; 2] {
    let fleet = || {
        let mut fleet = TestFleet::new(1);
        fleet.options.reads.records_per_call = 10;
        fleet
    };
    [fleet(), fleet().sharing_reads()]
}

/// A host that holds the only shard of `fleet` and has read all of it; how often a lease was taken.
async fn holding(fleet: &TestFleet) -> (harness::fleet::TestHost, usize) {
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..10);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    (host, fleet.store.calls(StoreOp::Take))
}

#[tokio::test(start_paused = true)]
async fn a_throttled_shard_keeps_its_lease_backs_off_and_is_shown_once_it_lasts() {
    let fleet = TestFleet::new(1);
    let (host, takes) = holding(&fleet).await;
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::Fetch).then_some(Fault::Throttle));
    let read_error = || host.shard(&shard(&fleet)).unwrap().read_error;
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(read_error(), None, "a throttle is ordinary");
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(read_error().is_some_and(|error| error.contains("throttled")));
    let calls = fleet.stream.calls(ReadOp::Fetch);
    tokio::time::sleep(Duration::from_mins(20)).await;
    let calls = fleet.stream.calls(ReadOp::Fetch) - calls;
    assert!(
        (40..=160).contains(&calls),
        "{calls} calls in 20 minutes, of waits up to 30 s"
    );
    fleet.stream.faults.clear();
    fleet.put(10..20);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    in_order(&fleet, 0..20);
    assert_eq!(
        (fleet.store.calls(StoreOp::Take), read_error()),
        (takes, None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_used_blocks_the_shard_visibly_and_is_tried_slowly_while_the_lease_is_kept()
 {
    for fleet in both_ways() {
        let (host, takes) = holding(&fleet).await;
        fleet
            .stream
            .faults
            .draw_from(|op| (op == ReadOp::Fetch).then_some(Fault::KeyUnusable));
        fleet.put(10..40);
        let read_error = || host.shard(&shard(&fleet)).unwrap().read_error;
        until("shown", || {
            read_error().is_some_and(|error| error.contains("encryption key"))
        })
        .await;
        let stuck = || fleet.row(&shard(&fleet)).unwrap().stuck;
        until("also in the row", || {
            stuck().is_some_and(|why| why.contains("encryption key"))
        })
        .await;
        let calls = fleet.stream.calls(ReadOp::Fetch);
        tokio::time::sleep(Duration::from_hours(1)).await;
        let calls = fleet.stream.calls(ReadOp::Fetch) - calls;
        assert!(
            (55..=125).contains(&calls),
            "{calls} calls in an hour, one every 30 to 60 s"
        );
        in_order(&fleet, 0..10);
        fleet.stream.faults.clear();
        let mended_at = Instant::now();
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        assert!(
            mended_at.elapsed() < Duration::from_secs(70),
            "{:?}",
            mended_at.elapsed()
        );
        in_order(&fleet, 0..40);
        assert_eq!(
            (fleet.store.calls(StoreOp::Take), read_error()),
            (takes, None),
            "the lease was kept"
        );
        until("the row is clean again", || stuck().is_none()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_iterator_that_expires_while_records_wait_goes_on_after_the_last_one_held() {
    for fleet in both_ways() {
        let is_open = Arc::new(AtomicBool::new(false));
        let gate = Arc::clone(&is_open);
        let plugin = NativePlugin::new(1, move |_, batch| {
            if !gate.load(Ordering::Relaxed) {
                return Err(ProcessorError::Trapped {
                    message: "slow".to_owned(),
                });
            }
            let emit = |record: &Record| Emitted {
                destination: "out".into(),
                key: String::new(),
                data: record.data.clone(),
            };
            Ok(Processed {
                emitted: batch.records.iter().map(emit).collect(),
                ..Processed::default()
            })
        });
        fleet.put(0..60);
        let host = fleet.start("a", plugin);
        until("stuck", || {
            host.shard(&shard(&fleet))
                .is_some_and(|shard| shard.blocked.is_some())
        })
        .await;
        tokio::time::sleep(Duration::from_mins(30)).await;
        fleet.stream.expire_iterators();
        is_open.store(true, Ordering::Relaxed);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        in_order(&fleet, 0..60);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_stream_that_stays_gone_the_leases_are_released_and_the_checkpoints_kept() {
    let fleet = TestFleet::new(1);
    let (host, _) = holding(&fleet).await;
    let checkpoint = fleet.row(&shard(&fleet)).unwrap().checkpoint;
    fleet.stream.set_created_at(None);
    fleet
        .stream
        .faults
        .draw_from(|op| (op != ReadOp::Identity).then_some(Fault::NotFound));
    until("told", || {
        host.status
            .snapshot()
            .pass_error
            .is_some_and(|error| error.contains("no stream"))
    })
    .await;
    until("released", || {
        fleet.row(&shard(&fleet)).unwrap().owner.is_none()
    })
    .await;
    let row = fleet.row(&shard(&fleet)).unwrap();
    assert_eq!(row.checkpoint, checkpoint);
    assert!(
        row.stuck
            .is_some_and(|why| why.contains("nothing could be read"))
    );
    assert_eq!(
        host.shard(&shard(&fleet)).unwrap().state,
        ShardState::GaveUp
    );
    tokio::time::sleep(Duration::from_hours(5)).await;
    let row = fleet.row(&shard(&fleet)).unwrap();
    assert_eq!(
        (row.checkpoint, row.children),
        (checkpoint, Vec::new()),
        "no end, and no row removed"
    );
    fleet.stream.faults.clear();
    fleet.stream.set_created_at(Some(1_000_000));
    fleet.put(10..20);
    until("read on", || fleet.is_all_checkpointed()).await;
    in_order(&fleet, 0..20);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_listings_are_throttled_stays_in_office_and_asks_ever_less_often() {
    let fleet = TestFleet::new(4);
    let _hosts = ["a", "b", "c", "d"].map(|id| fleet.start(id, NativePlugin::echo(1)));
    until("shared", || {
        fleet.store.rows().len() == 4 && fleet.store.rows().iter().all(|row| row.owner.is_some())
    })
    .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let leader = fleet.coordinator.rows().leader.unwrap().holder;
    fleet
        .stream
        .faults
        .draw_from(|op| (op == ReadOp::ListShards).then_some(Fault::Throttle));
    let calls = fleet.stream.calls(ReadOp::ListShards);
    tokio::time::sleep(Duration::from_mins(20)).await;
    let calls = fleet.stream.calls(ReadOp::ListShards) - calls;
    assert!(
        (20..=160).contains(&calls),
        "{calls} listings in 20 minutes, of waits up to 30 s"
    );
    assert_eq!(fleet.coordinator.rows().leader.unwrap().holder, leader);
    fleet.put(0..40);
    until("served meanwhile", || fleet.has_exactly(0..40)).await;
    fleet.stream.faults.clear();
    let first = shard(&fleet);
    fleet.stream.split(&first, 1_000);
    fleet.put(40..80);
    until("new shards are served", || fleet.has_exactly(0..80)).await;
}

#[tokio::test(start_paused = true)]
async fn rights_that_are_revoked_for_a_while_cost_neither_the_lease_nor_a_record() {
    let fleet = TestFleet::new(1);
    let (host, takes) = holding(&fleet).await;
    fleet.stream.faults.draw_from(|_| Some(Fault::Refuse));
    fleet.put(10..20);
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert!(
        host.shard(&shard(&fleet))
            .unwrap()
            .read_error
            .is_some_and(|error| error.contains("refused"))
    );
    fleet.stream.faults.clear();
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    in_order(&fleet, 0..20);
    assert_eq!(fleet.store.calls(StoreOp::Take), takes);
}

#[tokio::test(start_paused = true)]
async fn a_host_without_rights_to_anything_stops_at_the_deadline_and_goes_on_when_it_has_them_again()
 {
    let fleet = TestFleet::new(1);
    let (host, _) = holding(&fleet).await;
    fleet.stream.faults.draw_from(|_| Some(Fault::Refuse));
    fleet.store.faults.draw_from(|_| Some(Fault::Refuse));
    fleet.coordinator.faults.draw_from(|_| Some(Fault::Refuse));
    let revoked_at = Instant::now();
    until("lost", || {
        host.shard(&shard(&fleet)).unwrap().state == ShardState::Lost
    })
    .await;
    assert!(revoked_at.elapsed() < fleet.options.leases.duration);
    fleet.put(10..20);
    tokio::time::sleep(Duration::from_hours(1)).await;
    in_order(&fleet, 0..10);
    fleet.stream.faults.clear();
    fleet.store.faults.clear();
    fleet.coordinator.faults.clear();
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    in_order(&fleet, 0..20);
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_moves_no_lease_and_repeats_nothing() {
    let fleet = TestFleet::new(4);
    let _hosts = ["a", "b"].map(|id| fleet.start(id, NativePlugin::echo(1)));
    until("shared", || {
        fleet
            .store
            .rows()
            .iter()
            .filter(|row| row.owner.is_some())
            .count()
            == 4
    })
    .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let takes = fleet.store.calls(StoreOp::Take);
    for (round, wall_ms) in [4_000_000_000_000, 1, 1_700_000_000_000, u64::MAX, 0]
        .into_iter()
        .enumerate()
    {
        fleet.wall_ms.store(wall_ms, Ordering::Relaxed);
        let first = u32::try_from(round).unwrap() * 20;
        fleet.put(first..first + 20);
        tokio::time::sleep(Duration::from_mins(2)).await;
    }
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..100));
    assert_eq!(fleet.store.calls(StoreOp::Take), takes);
}

/// A reply that brings nothing and leads no further, from behind the tip.
fn emptied(fetched: &mut Fetched) {
    let next = fetched.next.take().unwrap().0;
    let (place, index) = next.rsplit_once('/').unwrap();
    let index = index.parse::<usize>().unwrap() - fetched.records.len();
    *fetched = Fetched {
        next: Some(ShardIterator(format!("{place}/{index}"))),
        millis_behind_latest: Some(5_000),
        ..Fetched::default()
    };
}

#[tokio::test(start_paused = true)]
async fn hours_of_empty_replies_end_nothing_and_move_no_checkpoint() {
    for fleet in both_ways() {
        let (host, takes) = holding(&fleet).await;
        let row = fleet.row(&shard(&fleet)).unwrap();
        tokio::time::sleep(Duration::from_hours(6)).await;
        let status = host.shard(&shard(&fleet)).unwrap();
        assert_eq!(
            (status.state, status.millis_behind_latest),
            (ShardState::Processing, Some(0))
        );
        assert_eq!(
            fleet.row(&shard(&fleet)).unwrap().checkpoint,
            row.checkpoint
        );
        for _ in 0..200 {
            fleet.stream.change_next(emptied);
        }
        fleet.put(10..20);
        until("not at the tip", || {
            host.shard(&shard(&fleet)).unwrap().millis_behind_latest == Some(5_000)
        })
        .await;
        assert!(!host.shard(&shard(&fleet)).unwrap().is_at_tip);
        let emptied_at = Instant::now();
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        assert!(
            emptied_at.elapsed() < Duration::from_mins(1),
            "behind the tip, there is no idle pause"
        );
        in_order(&fleet, 0..20);
        assert_eq!(fleet.store.calls(StoreOp::Take), takes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_hangs_is_cut_off_in_time_and_the_lease_is_renewed_meanwhile() {
    for fleet in both_ways() {
        let (_host, takes) = holding(&fleet).await;
        fleet.stream.faults.queue(ReadOp::Fetch, Fault::Hang);
        tokio::time::sleep(Duration::from_secs(3)).await;
        fleet.put(10..20);
        let hung_at = Instant::now();
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        assert!(
            hung_at.elapsed() < Duration::from_secs(50),
            "{:?}",
            hung_at.elapsed()
        );
        in_order(&fleet, 0..20);
        assert_eq!(
            fleet.store.calls(StoreOp::Take),
            takes,
            "longer than a lease, which was kept"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn replies_that_repeat_or_come_from_below_the_place_asked_for_bring_no_record_twice() {
    for fleet in both_ways() {
        fleet.put(0..40);
        let earlier = fleet.stream.records(&shard(&fleet));
        // Each of the second reply twice; the whole first reply in front of the third; nothing but
        // old ones; one late.
        fleet.stream.change_next(|_| {});
        fleet.stream.change_next(|fetched| {
            fetched.records = fetched
                .records
                .iter()
                .flat_map(|record| [record.clone(), record.clone()])
                .collect();
        });
        let first = earlier[..10].to_vec();
        fleet
            .stream
            .change_next(move |fetched| fetched.records.splice(..0, first).for_each(drop));
        let old = earlier[5..25].to_vec();
        fleet.stream.change_next(move |fetched| {
            let next = fetched.next.clone();
            emptied(fetched);
            assert_ne!(fetched.next, next);
            fetched.records = old;
        });
        let _host = fleet.start("a", NativePlugin::echo(1));
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        in_order(&fleet, 0..40);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_out_of_order_is_read_again_whole_and_visibly() {
    for fleet in both_ways() {
        fleet.put(0..40);
        fleet.stream.change_next(|_| {});
        for _ in 0..3 {
            fleet
                .stream
                .change_next(|fetched| fetched.records.swap(2, 7));
        }
        let host = fleet.start("a", NativePlugin::echo(1));
        until("shown", || {
            let error = host
                .shard(&shard(&fleet))
                .and_then(|shard| shard.read_error);
            error.is_some_and(|error| error.contains("out of order"))
        })
        .await;
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        in_order(&fleet, 0..40);
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_replies_repeat_shuffle_or_leave_out_every_record_comes_once_and_in_order() {
    for seed in 0..30 {
        let mut dice = fastrand::Rng::with_seed(seed);
        for fleet in both_ways() {
            fleet.put(0..200);
            let all = fleet.stream.records(&shard(&fleet));
            for _ in 0..60 {
                let (kind, at, mut dice) = (dice.u32(0..5), dice.usize(0..all.len()), dice.fork());
                let old = all[at..(at + dice.usize(0..15)).min(all.len())].to_vec();
                fleet.stream.change_next(move |fetched| match kind {
                    0 if fetched.next.is_some() => emptied(fetched),
                    1 => dice.shuffle(&mut fetched.records),
                    2 => {
                        let twice = fetched
                            .records
                            .iter()
                            .flat_map(|record| [record.clone(), record.clone()]);
                        fetched.records = twice.collect();
                    }
                    // Old ones in front; behind them nothing is out of order, or else all of it is
                    // read again.
                    3 => fetched.records.splice(..0, old).for_each(drop),
                    _ => {}
                });
            }
            let _host = fleet.start("a", NativePlugin::echo(1));
            until("all checkpointed", || fleet.is_all_checkpointed()).await;
            in_order(&fleet, 0..200);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_any_gap_of_a_reshard_is_made_good() {
    // Before any child has a row, between the two, before the parent's end, before its row is
    // removed.
    for (op, done_before) in [
        (StoreOp::Create, 0),
        (StoreOp::Create, 1),
        (StoreOp::End, 0),
        (StoreOp::Delete, 0),
    ] {
        let fleet = TestFleet::new(1);
        let (host, _) = holding(&fleet).await;
        let parent = shard(&fleet);
        let reached = Arc::new(AtomicBool::new(false));
        let (is_reached, mut done) = (Arc::clone(&reached), 0);
        fleet.store.faults.draw_from(move |called| {
            if called != op {
                return None;
            }
            done += 1;
            (done > done_before).then(|| {
                is_reached.store(true, Ordering::Relaxed);
                Fault::UnknownNotApplied
            })
        });
        fleet.put(10..30);
        fleet.stream.split(&parent, u128::MAX / 2);
        fleet.put(30..60);
        until("the gap is reached", || reached.load(Ordering::Relaxed)).await;
        drop(host);
        fleet.store.faults.clear();
        let _next = fleet.start("b", NativePlugin::echo(1));
        until("the parent's row is gone", || fleet.row(&parent).is_none()).await;
        until("the children are read up", || {
            let is_at_end = |row: &Lease| {
                fleet
                    .stream
                    .last(&row.key.shard_id())
                    .map(Checkpoint::At)
                    .as_ref()
                    == Some(&row.checkpoint)
            };
            fleet.store.rows().iter().all(is_at_end)
        })
        .await;
        assert_eq!(fleet.store.rows().len(), 2, "{op:?} {done_before}");
        let mut numbers: Vec<u32> = fleet
            .sink
            .lines()
            .iter()
            .map(|line| line.parse().unwrap())
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers, (0..60).collect::<Vec<_>>(), "{op:?} {done_before}");
    }
}
