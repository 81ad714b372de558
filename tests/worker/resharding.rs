//! Splits and merges: parents are drained first, children have rows before `SHARD_END`.

use std::time::Duration;

use harness::fake_coordinator::CoordinatorOp;
use harness::fake_lease_store::{AppliedWrite, StoreOp};
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::{Event, NativePlugin};
use shardmill_core::lease::{Checkpoint, Lease, WorkerId};
use shardmill_core::ports::CloseReason;
use shardmill_core::stream::{InitialPosition, LeaseKey, Shard, ShardId};
use tokio::time::Instant;

/// Index of the first write of `op` to `shard`'s row.
fn first_write(fleet: &TestFleet, op: StoreOp, shard: &ShardId) -> usize {
    let of = |write: &AppliedWrite| write.op == op && write.row.key.shard_id() == *shard;
    fleet
        .store
        .history()
        .iter()
        .position(of)
        .unwrap_or_else(|| panic!("no {op:?} of {shard}"))
}

#[tokio::test(start_paused = true)]
async fn a_split_drains_the_parent_before_its_children_start_and_leases_them_before_shard_end() {
    let mut fleet = TestFleet::new(1);
    fleet.options.initial_position = InitialPosition::Latest;
    let parent = fleet.stream.shards()[0].id.clone();
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until("reading", || fleet.stream.calls(ReadOp::Fetch) > 0).await;
    fleet.put(0..50);
    let children = fleet.stream.split(&parent, u128::MAX / 2);
    fleet.put(50..100);
    until("all out", || fleet.has_exactly(0..100)).await;
    let end = first_write(&fleet, StoreOp::End, &parent);
    for child in &children {
        assert!(first_write(&fleet, StoreOp::Create, child) < end);
        assert!(first_write(&fleet, StoreOp::Take, child) > end);
    }
    let row = fleet.row(&parent).unwrap();
    assert_eq!(
        (row.checkpoint, row.children, row.owner),
        (Checkpoint::ShardEnd, children.to_vec(), None)
    );
    let history = history.lock().unwrap();
    let closed = (
        parent,
        history[0].1.clone(),
        Event::Closed(CloseReason::ShardEnded),
    );
    assert!(history.contains(&closed));
}

#[tokio::test(start_paused = true)]
async fn a_finished_row_that_a_kcl_renews_between_our_listing_and_the_delete_is_removed() {
    let fleet = TestFleet::new(1);
    let parent = fleet.stream.shards()[0].id.clone();
    fleet.put(0..20);
    fleet.stream.split(&parent, u128::MAX / 2);
    fleet.put(20..60);
    let (rows, key, mut is_just_read) =
        (fleet.store.seen_apart(), LeaseKey::of_shard(&parent), false);
    fleet.store.faults.draw_from(move |op| {
        let row = rows
            .row(&key)
            .filter(|row| op == StoreOp::Delete && !is_just_read && row.is_finished());
        if let Some(row) = row {
            rows.put_row(Lease {
                owner: WorkerId::new("kcl"),
                counter: row.counter.next(),
                ..row
            });
        }
        is_just_read = op == StoreOp::Get;
        None
    });
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("all out", || fleet.has_exactly(0..60)).await;
    until("the parent's row is gone", || fleet.row(&parent).is_none()).await;
    assert!(fleet.store.calls(StoreOp::Delete) >= 2, "it had moved");
}

#[tokio::test(start_paused = true)]
async fn the_row_of_a_shard_that_retention_took_is_removed_though_its_holder_renews_it() {
    let fleet = TestFleet::new(1);
    let first = fleet.stream.shards()[0].id.clone();
    fleet.put(0..10);
    fleet
        .start("a", NativePlugin::echo(1))
        .stop_when(|| fleet.is_all_checkpointed())
        .await;
    fleet.stream.split(&first, u128::MAX / 2);
    fleet.stream.forget_shard(&first);
    fleet.put(10..50);
    let (rows, key, mut is_just_read) =
        (fleet.store.seen_apart(), LeaseKey::of_shard(&first), false);
    fleet.store.faults.draw_from(move |op| {
        if let Some(row) = rows
            .row(&key)
            .filter(|_| op == StoreOp::Delete && !is_just_read)
        {
            rows.put_row(Lease {
                owner: WorkerId::new("kcl"),
                counter: row.counter.next(),
                ..row
            });
        }
        is_just_read = op == StoreOp::Get;
        None
    });
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("the children are read", || fleet.has_exactly(0..50)).await;
    assert!(fleet.row(&first).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_merged_shard_waits_for_both_parents() {
    let fleet = TestFleet::new(2);
    let [left, right] = [0, 1].map(|n| fleet.stream.shards()[n].id.clone());
    fleet.put(0..60);
    let child = fleet.stream.merge(&left, &right);
    fleet.put(60..90);
    let _a = fleet.start("a", NativePlugin::echo(1));
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("all out", || fleet.has_exactly(0..90)).await;
    let take = first_write(&fleet, StoreOp::Take, &child);
    assert!(first_write(&fleet, StoreOp::End, &left) < take);
    assert!(first_write(&fleet, StoreOp::End, &right) < take);
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_creating_children_and_shard_end_is_made_good() {
    let fleet = TestFleet::new(1);
    let parent = fleet.stream.shards()[0].id.clone();
    fleet.put(0..30);
    fleet.stream.split(&parent, u128::MAX / 2);
    fleet.put(30..60);
    fleet
        .store
        .faults
        .draw_from(|op| (op == StoreOp::End).then_some(Fault::UnknownNotApplied));
    let host = fleet.start("a", NativePlugin::echo(1));
    until("children have rows", || fleet.store.rows().len() == 3).await;
    drop(host);
    fleet.store.faults.clear();
    let _again = fleet.start("a", NativePlugin::echo(1));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(fleet.row(&parent).unwrap().checkpoint, Checkpoint::ShardEnd);
    let mut lines = fleet.sink.lines();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 60, "nothing lost");
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_splits_and_merges_loses_nothing_and_repeats_nothing() {
    let fleet = TestFleet::new(1);
    let _a = fleet.start("a", NativePlugin::echo(1));
    let _b = fleet.start("b", NativePlugin::echo(1));
    let mut put = 0;
    for _ in 0..4 {
        let open: Vec<_> = fleet
            .stream
            .shards()
            .into_iter()
            .filter(Shard::is_open)
            .collect();
        for shard in &open {
            let middle =
                shard.hash_range.start() + (shard.hash_range.end() - shard.hash_range.start()) / 2;
            fleet.stream.split(&shard.id, middle + 1);
            fleet.put(put..put + 10);
            put += 10;
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
        let mut open: Vec<_> = fleet
            .stream
            .shards()
            .into_iter()
            .filter(Shard::is_open)
            .collect();
        open.sort_by_key(|shard| shard.hash_range.start());
        if let [left, right, ..] = &open[..] {
            fleet.stream.merge(&left.id, &right.id);
        }
        fleet.put(put..put + 50);
        put += 50;
    }
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..put));
}

/// Whether the last record of a shard is checkpointed.
fn is_read_up(fleet: &TestFleet, shard: &ShardId) -> bool {
    let last = fleet.stream.last(shard).map(Checkpoint::At);
    fleet
        .row(shard)
        .is_some_and(|row| Some(row.checkpoint) == last)
}

/// Open shards in the order of their keys.
fn open_shards(fleet: &TestFleet) -> Vec<Shard> {
    let mut open: Vec<_> = fleet
        .stream
        .shards()
        .into_iter()
        .filter(Shard::is_open)
        .collect();
    open.sort_by_key(|shard| shard.hash_range.start());
    open
}

#[tokio::test(start_paused = true)]
async fn from_1_shard_to_256_and_back_under_crashes_nothing_is_lost_and_one_row_is_left() {
    let fleet = TestFleet::new(1);
    let mut hosts: Vec<_> = ["a0", "b0", "c0"]
        .map(|id| fleet.start(id, NativePlugin::echo(1)))
        .into();
    let mut put = 0;
    for step in 0..16 {
        let open = open_shards(&fleet);
        if step < 8 {
            for shard in &open {
                let (start, end) = (shard.hash_range.start(), shard.hash_range.end());
                fleet.stream.split(&shard.id, start + (end - start) / 2 + 1);
            }
        } else {
            for pair in open.chunks_exact(2) {
                fleet.stream.merge(&pair[0].id, &pair[1].id);
            }
        }
        fleet.put(put..put + 100);
        put += 100;
        tokio::time::sleep(Duration::from_secs(3)).await;
        // A crash, and another host in its place.
        drop(hosts.remove(0));
        hosts.push(fleet.start(&format!("host-{step}"), NativePlugin::echo(1)));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let [last] = &open_shards(&fleet)[..] else {
        panic!("one open shard")
    };
    until("one row is left", || fleet.store.rows().len() == 1).await;
    until("all of it is checkpointed", || is_read_up(&fleet, &last.id)).await;
    let mut numbers: Vec<u32> = fleet
        .sink
        .lines()
        .iter()
        .map(|line| line.parse().unwrap())
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..put).collect::<Vec<_>>(), "nothing lost");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_listing_took_long_while_another_led_brings_no_finished_shard_back() {
    /// Far more than another needs to lead, to read the shard to its end and to remove its row.
    const LISTING: Duration = Duration::from_mins(10);
    let fleet = TestFleet::new(1);
    fleet
        .stream
        .faults
        .queue(ReadOp::ListShards, Fault::AnswersAfter(LISTING));
    let (_a, began) = (fleet.start("a", NativePlugin::echo(1)), Instant::now());
    until("a lists the shards of a table without rows", || {
        fleet.stream.calls(ReadOp::ListShards) > 0
    })
    .await;
    let _b = fleet.start("b", NativePlugin::echo(1));
    let parent = fleet.stream.shards()[0].id.clone();
    fleet.put(0..20);
    until("b has read them", || fleet.is_all_checkpointed()).await;
    fleet.stream.split(&parent, u128::MAX / 2);
    fleet.put(20..40);
    until("the finished shard's row is removed", || {
        fleet.row(&parent).is_none()
    })
    .await;
    assert!(began.elapsed() < LISTING, "a still waits for its listing");
    tokio::time::sleep(LISTING).await;
    let history = fleet.store.history();
    let made: Vec<_> = history
        .iter()
        .filter(|write| write.op == StoreOp::Create)
        .map(|write| &write.row.key)
        .collect();
    assert_eq!(
        made.len(),
        3,
        "the parent and its two children have got a row each, once: {made:?}"
    );
    assert!(fleet.has_exactly(0..40), "nothing repeated");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_leads_again_does_not_act_on_what_it_listed_before() {
    const LISTING: Duration = Duration::from_mins(10);
    let fleet = TestFleet::new(1);
    let (_a, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    fleet.put(0..20);
    until("a has read them", || fleet.is_all_checkpointed()).await;
    let (listings, faults) = (fleet.stream.calls(ReadOp::ListShards), &fleet.stream.faults);
    faults.queue(ReadOp::ListShards, Fault::AnswersAfter(LISTING));
    let is_listing = || fleet.stream.calls(ReadOp::ListShards) > listings;
    until("a lists the shards again", is_listing).await;
    let b = fleet.start("b", NativePlugin::echo(1));
    let refuse_office = |op| (op == CoordinatorOp::WriteLeader).then_some(Fault::Refuse);
    tables.coordinator.faults.draw_from(refuse_office);
    until("b leads", || {
        b.status.snapshot().leader.as_deref() == Some("b")
    })
    .await;
    let parent = fleet.stream.shards()[0].id.clone();
    fleet.stream.split(&parent, u128::MAX / 2);
    fleet.put(20..40);
    until("the finished shard's row is removed", || {
        fleet.row(&parent).is_none()
    })
    .await;
    drop(b);
    // It does not hear that it leads again.
    let mut is_first = true;
    tables.coordinator.faults.draw_from(move |op| {
        let is_lost = op == CoordinatorOp::WriteLeader && std::mem::take(&mut is_first);
        is_lost.then_some(Fault::UnknownApplied)
    });
    tokio::time::sleep(LISTING).await;
    let history = fleet.store.history();
    let of_parent =
        |write: &&AppliedWrite| write.op == StoreOp::Create && write.row.key.shard_id() == parent;
    assert_eq!(
        history.iter().filter(of_parent).count(),
        1,
        "it is not made again"
    );
}
