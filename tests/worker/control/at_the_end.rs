//! Commands that come while a shard ends: it does not end over them.

use super::*;

/// A fleet whose only shard is read to its end; it gave its last record up.
fn with_state_and_a_bad_end() -> TestFleet {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    fleet.options.failure = FailurePolicy {
        attempts: Some(1),
        then: Some(GiveUp::Skip),
        ..FailurePolicy::default()
    };
    fleet
}

fn has_ended(fleet: &TestFleet, shard: &ShardId) -> bool {
    let row = fleet.row(shard);
    row.is_some_and(|row| row.checkpoint == Checkpoint::ShardEnd)
}

fn split(fleet: &TestFleet, shard: &ShardId) {
    fleet.stream.split(shard, u128::MAX / 2);
}

async fn until_it_says(fleet: &TestFleet, shard: &ShardId, what: &str) {
    until(what, || {
        let stuck = fleet.row(shard).and_then(|row| row.stuck);
        stuck.is_some_and(|why| why.contains(what))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_sent_back_while_its_last_instance_does_not_start_is_read_again_before_it_ends()
 {
    let fleet = with_state_and_a_bad_end();
    let shard = only_shard(&fleet);
    let traps_at_ten =
        |record: &_, before| (number(record) == 10 && before == 0).then_some(Bad::Traps);
    let host = fleet.start("a", plugin(1, traps_at_ten).refusing_state());
    fleet.put(0..10);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    // The record kills the instance, and none starts from what it had saved.
    fleet.put(10..11);
    split(&fleet, &shard);
    until_it_says(&fleet, &shard, "cannot create an instance").await;
    let operator = Operator::of(&fleet);
    operator.seek(&shard, Place::Horizon, SeekState::Drop).await;
    until("the end", || has_ended(&fleet, &shard)).await;
    let expected: Vec<u32> = (0..10).chain(0..11).collect();
    assert_eq!(numbers(&fleet), expected);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_plugin_fails_at_the_end_still_does_what_is_wanted() {
    for parallelism in [1, 3] {
        let mut fleet = TestFleet::new(1);
        fleet.options.parallelism = Parallelism::new(parallelism).unwrap();
        fleet.options.failure.order = Order::Key;
        let shard = only_shard(&fleet);
        let host = fleet.start("a", copying().failing_at_the_end());
        fleet.put(0..10);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        split(&fleet, &shard);
        until_it_says(&fleet, &shard, "close at the shard's end").await;
        // It waits for a minute between two tries by now.
        tokio::time::sleep(Duration::from_mins(10)).await;
        let operator = Operator::of(&fleet);
        operator.pause(&shard, None).await;
        within(SOON, "paused", || {
            host.shard(&shard).unwrap().state == ShardState::Paused
        })
        .await;
        operator.resume(&shard).await;
        operator.seek(&shard, Place::Horizon, SeekState::Drop).await;
        within(SOON, "all again", || numbers(&fleet).len() == 20).await;
        host.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_does_not_end_over_a_seek_that_its_holder_has_not_heard_of() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    let (host, own) = fleet.start_apart("a", copying());
    fleet.put(0..10);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    // The rows of its children take some time, and nobody tells it of the seek meanwhile.
    own.store.faults.queue(StoreOp::Create, Fault::Throttle);
    let tries = own.store.calls(StoreOp::Create);
    split(&fleet, &shard);
    until("ending", || own.store.calls(StoreOp::Create) > tries).await;
    let operator = Operator::of(&fleet);
    operator
        .seek_silently(&shard, Place::Horizon, SeekState::Drop)
        .await;
    until("the end", || has_ended(&fleet, &shard)).await;
    let expected: Vec<u32> = (0..10).chain(0..10).collect();
    assert_eq!(numbers(&fleet), expected);
    assert_eq!(fleet.row(&shard).unwrap().directives.seek, None);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_paused_as_it_ends_ends_once_it_goes_on() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    let (host, own) = fleet.start_apart("a", copying());
    fleet.put(0..10);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    own.store.faults.queue(StoreOp::Create, Fault::Throttle);
    let tries = own.store.calls(StoreOp::Create);
    split(&fleet, &shard);
    until("ending", || own.store.calls(StoreOp::Create) > tries).await;
    let operator = Operator::of(&fleet);
    operator.pause_silently(&shard).await;
    until("paused", || {
        let shard = host.shard(&shard);
        shard.is_some_and(|shard| shard.state == ShardState::Paused)
    })
    .await;
    assert!(!has_ended(&fleet, &shard));
    operator.resume(&shard).await;
    until("the end", || has_ended(&fleet, &shard)).await;
    assert_eq!(numbers(&fleet), (0..10).collect::<Vec<u32>>());
    host.stop().await;
}
