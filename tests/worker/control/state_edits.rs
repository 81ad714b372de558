//! A plugin's state is replaced by whoever holds the lease: in one write with the directive, at a
//! place that the state belongs to, and never by what an instance has in its memory.

use std::time::Duration;

use bytes::Bytes;
use harness::fake_lease_store::StoreOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::control::{Deed, NewState, Place, SeekState, StateAt};
use shardmill_core::lease::Checkpoint;
use shardmill_core::plugin::{GuestLimits, StateFill};
use shardmill_core::ports::SavedState;
use shardmill_core::stream::{LeaseKey, ShardId};
use shardmill_worker::ShardState;

use super::operator::Operator;
use super::{SOON, copying, numbers, within};
use crate::poison::{Bad, number, only_shard};

fn stateful() -> TestFleet {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    fleet
}

fn plugin() -> NativePlugin {
    copying().keeping_state()
}

/// The records that the state counts, one each line.
fn counted(fleet: &TestFleet, shard: &ShardId) -> usize {
    let saved = fleet.store.saved_state(&LeaseKey::of_shard(shard));
    let bytes = saved.map(|saved| saved.bytes).unwrap_or_default();
    String::from_utf8(bytes.to_vec()).unwrap().lines().count()
}

/// A state that counts so many records, of that place.
fn state(lines: usize, checkpoint: &Checkpoint) -> SavedState {
    SavedState {
        bytes: Bytes::from("imported\n".repeat(lines)),
        checkpoint: checkpoint.clone(),
        plugin_digest: None,
    }
}

fn checkpoint(fleet: &TestFleet, shard: &ShardId) -> Checkpoint {
    fleet.row(shard).unwrap().checkpoint
}

fn is_obeyed(fleet: &TestFleet, shard: &ShardId) -> bool {
    fleet.row(shard).unwrap().directives.state.is_none()
}

fn at(fleet: &TestFleet, shard: &ShardId, index: usize) -> Checkpoint {
    let records = fleet.stream.records(shard);
    Checkpoint::At(records[index].position.clone())
}

#[tokio::test(start_paused = true)]
async fn an_imported_state_is_the_one_the_plugin_goes_on_with_though_the_answer_is_lost() {
    for fault in [Fault::UnknownApplied, Fault::UnknownNotApplied] {
        let fleet = stateful();
        fleet.put(0..50);
        let host = fleet.start("a", plugin());
        let shard = only_shard(&fleet);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        fleet.store.faults.queue(StoreOp::Obey, fault);
        let here = checkpoint(&fleet, &shard);
        let only = StateAt::Only(here.clone());
        let operator = Operator::of(&fleet);
        let left = operator.import_state(&shard, state(3, &here), only).await;
        until("obeyed", || is_obeyed(&fleet, &shard)).await;
        assert_eq!(fleet.store.saved_state(&left), None, "left nowhere");
        assert_eq!(checkpoint(&fleet, &shard), here);
        fleet.put(50..60);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        host.stop().await;
        assert_eq!(counted(&fleet, &shard), 13);
        assert_eq!(numbers(&fleet), (0..60).collect::<Vec<u32>>());
        let history = fleet.coordinator.history();
        let deeds: Vec<Deed> = history.iter().map(|entry| entry.deed).collect();
        assert_eq!(deeds, [Deed::EditedState]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_goes_back_with_its_state_so_that_each_record_counts_once() {
    let fleet = stateful();
    fleet.put(0..50);
    let host = fleet.start("a", plugin());
    let shard = only_shard(&fleet);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    let there = at(&fleet, &shard, 30);
    operator
        .import_state(&shard, state(31, &there), StateAt::GoTo(there.clone()))
        .await;
    until("again", || numbers(&fleet).len() == 69).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(numbers(&fleet)[50..], (31..50).collect::<Vec<u32>>());
    assert_eq!(counted(&fleet, &shard), 50);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_removed_is_gone_also_while_the_shard_is_paused() {
    let fleet = stateful();
    fleet.put(0..50);
    let host = fleet.start("a", plugin());
    let shard = only_shard(&fleet);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    operator.pause(&shard, None).await;
    until("paused", || {
        host.shard(&shard).unwrap().state == ShardState::Paused
    })
    .await;
    operator
        .edit_state(&shard, NewState::None, StateAt::Anywhere)
        .await;
    within(SOON, "obeyed", || is_obeyed(&fleet, &shard)).await;
    let key = LeaseKey::of_shard(&shard);
    assert_eq!(fleet.store.saved_state(&key), None);
    assert_eq!(host.shard(&shard).unwrap().state, ShardState::Paused);
    operator.resume(&shard).await;
    fleet.put(50..60);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(counted(&fleet, &shard), 10);
    assert_eq!(numbers(&fleet), (0..60).collect::<Vec<u32>>());
}

#[tokio::test(start_paused = true)]
async fn a_state_that_does_not_fit_is_refused_in_the_row_once_and_the_shard_goes_on() {
    let mut fleet = stateful();
    fleet.options.limits = Some(GuestLimits {
        state_bytes: 4_096,
        ..GuestLimits::default()
    });
    fleet.put(0..50);
    let host = fleet.start("a", plugin());
    let shard = only_shard(&fleet);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    let refusal = || {
        let edit = fleet.row(&shard).unwrap().directives.state;
        edit.and_then(|edit| edit.refused)
    };
    let here = checkpoint(&fleet, &shard);
    let elsewhere = StateAt::Only(at(&fleet, &shard, 30));
    let left = operator
        .import_state(&shard, state(3, &here), elsewhere)
        .await;
    within(SOON, "refused", || refusal().is_some()).await;
    assert!(refusal().unwrap().contains("--go-back"), "{:?}", refusal());
    assert!(fleet.store.saved_state(&left).is_some(), "it is not lost");
    operator
        .import_state(&shard, state(1_000, &here), StateAt::Anywhere)
        .await;
    let is_too_large = || refusal().is_some_and(|why| why.contains("limits.state"));
    within(SOON, "refused", is_too_large).await;
    let gone = NewState::Staged(LeaseKey::new("staged:9:gone").unwrap());
    operator.edit_state(&shard, gone, StateAt::Anywhere).await;
    let is_gone = || refusal().is_some_and(|why| why.contains("import again"));
    within(SOON, "refused", is_gone).await;
    let obeyed = fleet.store.calls(StoreOp::Obey);
    fleet.put(50..60);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fleet.store.calls(StoreOp::Obey), obeyed, "not tried again");
    assert_eq!(counted(&fleet, &shard), 60);
    assert_eq!(numbers(&fleet), (0..60).collect::<Vec<u32>>());
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_import_outlives_the_host_that_was_told_and_one_that_is_taken_back_changes_nothing() {
    let fleet = stateful();
    fleet.put(0..50);
    let host = fleet.start("a", plugin());
    let shard = only_shard(&fleet);
    host.stop_when(|| fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    let here = checkpoint(&fleet, &shard);
    operator
        .import_state(&shard, state(3, &here), StateAt::Only(here.clone()))
        .await;
    operator.change(&shard, |next| next.state = None).await;
    let host = fleet.start("b", plugin());
    fleet.put(50..60);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(counted(&fleet, &shard), 60, "taken back");
    fleet
        .store
        .faults
        .queue(StoreOp::Obey, Fault::UnknownNotApplied);
    let here = checkpoint(&fleet, &shard);
    operator
        .import_state(&shard, state(5, &here), StateAt::Only(here))
        .await;
    drop(host);
    let host = fleet.start("c", plugin());
    fleet.put(60..70);
    until("obeyed", || is_obeyed(&fleet, &shard)).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    host.stop().await;
    let count = counted(&fleet, &shard);
    assert_eq!(
        count,
        15,
        "{:?}",
        fleet.store.saved_state(&LeaseKey::of_shard(&shard))
    );
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_nearly_full_is_shown_in_the_row_and_the_status() {
    let mut fleet = stateful();
    fleet.put(0..10);
    let host = fleet.start("a", plugin());
    let shard = only_shard(&fleet);
    host.stop_when(|| fleet.is_all_checkpointed()).await;
    let saved = fleet
        .store
        .saved_state(&LeaseKey::of_shard(&shard))
        .unwrap();
    fleet.options.limits = Some(GuestLimits {
        // One more record takes about a tenth of what ten take.
        state_bytes: saved.bytes.len() * 12 / 10,
        ..GuestLimits::default()
    });
    let host = fleet.start("b", plugin());
    fleet.put(10..11);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let fill = fleet.row(&shard).unwrap().state_fill.unwrap();
    assert!(fill.is_nearly_full() && fill < StateFill(100), "{fill:?}");
    let shown = host.shard(&shard).unwrap().state_percent;
    assert_eq!(shown, Some(fill.0));
    let operator = Operator::of(&fleet);
    operator
        .edit_state(&shard, NewState::None, StateAt::Anywhere)
        .await;
    until("obeyed", || is_obeyed(&fleet, &shard)).await;
    assert_eq!(fleet.row(&shard).unwrap().state_fill, Some(StateFill(0)));
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_plugin_refuses_its_state_goes_on_once_the_state_is_removed() {
    let fleet = stateful();
    fleet.put(0..10);
    let host = fleet.start("a", plugin());
    let shard = only_shard(&fleet);
    host.stop_when(|| fleet.is_all_checkpointed()).await;
    let host = fleet.start("b", copying().refusing_state());
    let is_blocked = || host.shard(&shard).and_then(|shard| shard.blocked).is_some();
    until("blocked", is_blocked).await;
    let epoch = host.shard(&shard).unwrap().epoch;
    let operator = Operator::of(&fleet);
    operator
        .edit_state(&shard, NewState::None, StateAt::Anywhere)
        .await;
    until("obeyed", || is_obeyed(&fleet, &shard)).await;
    fleet.put(10..20);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(
        host.shard(&shard).unwrap().epoch,
        epoch,
        "the lease is kept"
    );
    assert_eq!(counted(&fleet, &shard), 10);
    assert_eq!(numbers(&fleet), (0..20).collect::<Vec<u32>>());
}

/// A shard whose record 10 kills the instance of the first ten, after which none starts from what
/// they had saved: the record waits in the pipeline's hand.
async fn with_a_batch_in_hand(fleet: &TestFleet) -> TestHost {
    let traps_at_ten =
        |record: &_, before| (number(record) == 10 && before == 0).then_some(Bad::Traps);
    let host = fleet.start("a", crate::poison::plugin(1, traps_at_ten).refusing_state());
    fleet.put(0..10);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    fleet.put(10..11);
    let shard = only_shard(fleet);
    until("blocked", || {
        let stuck = fleet.row(&shard).and_then(|row| row.stuck);
        stuck.is_some_and(|why| why.contains("cannot create an instance"))
    })
    .await;
    host
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_waits_for_an_instance_is_not_delivered_at_the_place_that_a_shard_is_sent_to()
{
    let fleet = stateful();
    let host = with_a_batch_in_hand(&fleet).await;
    let shard = only_shard(&fleet);
    let operator = Operator::of(&fleet);
    operator.seek(&shard, Place::Horizon, SeekState::Drop).await;
    until("all again", || numbers(&fleet).len() >= 21).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    host.stop().await;
    assert_eq!(numbers(&fleet), (0..10).chain(0..11).collect::<Vec<u32>>());
    assert_eq!(counted(&fleet, &shard), 11);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_waits_for_an_instance_is_counted_once_by_the_state_that_lets_it_start() {
    let fleet = stateful();
    let host = with_a_batch_in_hand(&fleet).await;
    let shard = only_shard(&fleet);
    let operator = Operator::of(&fleet);
    operator
        .edit_state(&shard, NewState::None, StateAt::Anywhere)
        .await;
    until("obeyed", || is_obeyed(&fleet, &shard)).await;
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    host.stop().await;
    assert_eq!(numbers(&fleet), (0..11).collect::<Vec<u32>>());
    assert_eq!(counted(&fleet, &shard), 1);
}
