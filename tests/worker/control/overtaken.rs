//! Commands that something came before: the shard went on, a state was saved, the operator thought
//! better of it, or the shard is in trouble already.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_to_go_forward_and_has_come_past_the_place_stays_and_repeats_nothing() {
    let fleet = TestFleet::new(1);
    fleet.put(0..100);
    let host = fleet.start("a", copying());
    let shard = only_shard(&fleet);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    let records = fleet.stream.records(&shard);
    let arrived = Place::Time(records[50].arrival_ms);
    let numbered = Place::Sequence(records[50].position.sequence.clone());
    for to in [arrived, numbered] {
        operator.seek_forward(&shard, to, SeekState::Drop).await;
        within(SOON, "answered", || {
            fleet.row(&shard).unwrap().directives.seek.is_none()
        })
        .await;
    }
    fleet.put(100..150);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(numbers(&fleet), (0..150).collect::<Vec<u32>>());
    let history = fleet.coordinator.history();
    let deeds: Vec<Deed> = history.iter().map(|entry| entry.deed).collect();
    assert_eq!(deeds, [Deed::Stayed, Deed::Stayed]);
    assert!(history[0].details.contains("past that place already"));
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_state_covers_that_is_saved_on_the_way_counts_when_a_shard_may_only_go_forward() {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    // So long, that nothing is saved before the command is obeyed.
    fleet.options.checkpoints.age = Duration::from_hours(1);
    fleet.put(0..10);
    let host = fleet.start("a", copying().keeping_state());
    let shard = only_shard(&fleet);
    until("delivered", || numbers(&fleet).len() == 10).await;
    let operator = Operator::of(&fleet);
    let numbered = Place::Sequence(fleet.stream.records(&shard)[5].position.sequence.clone());
    operator
        .seek_forward(&shard, numbered, SeekState::Keep)
        .await;
    until("answered", || {
        fleet.row(&shard).unwrap().directives.seek.is_none()
    })
    .await;
    let history = fleet.coordinator.history();
    assert_eq!(history[0].deed, Deed::Stayed, "{history:?}");
    fleet.put(10..20);
    until("delivered", || numbers(&fleet).len() >= 20).await;
    assert_eq!(numbers(&fleet), (0..20).collect::<Vec<u32>>());
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_holder_knows_too_that_a_shard_is_past_the_time_it_was_to_go_forward_to() {
    let fleet = TestFleet::new(1);
    fleet.put(0..100);
    let host = fleet.start("a", copying());
    let shard = only_shard(&fleet);
    host.stop_when(|| fleet.is_all_checkpointed()).await;
    let arrived = Place::Time(fleet.stream.records(&shard)[50].arrival_ms);
    let operator = Operator::of(&fleet);
    operator
        .seek_forward(&shard, arrived, SeekState::Drop)
        .await;
    let host = fleet.start("b", copying());
    until("answered", || {
        fleet.row(&shard).unwrap().directives.seek.is_none()
    })
    .await;
    fleet.put(100..110);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(numbers(&fleet), (0..110).collect::<Vec<u32>>());
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_state_that_was_saved_after_the_command_is_not_dropped_and_the_shard_stays() {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    fleet.put(0..50);
    let host = fleet.start("a", copying().keeping_state());
    let shard = only_shard(&fleet);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let operator = Operator::of(&fleet);
    let number = fleet.stream.records(&shard)[30].position.sequence.clone();
    operator
        .seek(&shard, Place::Sequence(number), SeekState::Absent)
        .await;
    until("answered", || {
        fleet.row(&shard).unwrap().directives.seek.is_none()
    })
    .await;
    fleet.put(50..60);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(numbers(&fleet), (0..60).collect::<Vec<u32>>());
    let key = LeaseKey::of_shard(&shard);
    let saved = fleet.store.saved_state(&key).unwrap();
    let counted = String::from_utf8(saved.bytes.to_vec()).unwrap();
    assert_eq!(counted.lines().count(), 60);
    let history = fleet.coordinator.history();
    assert_eq!(history[0].deed, Deed::Stayed);
    assert!(history[0].details.contains("--state"), "{history:?}");
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_skip_whose_letters_cannot_be_stored_is_taken_back_and_the_records_are_delivered() {
    for (order, parallelism) in [(Order::Shard, 1), (Order::Key, 1), (Order::Key, 3)] {
        let mut fleet = TestFleet::new(1);
        fleet.options.parallelism = Parallelism::new(parallelism).unwrap();
        fleet.options.failure.order = order;
        fleet.dead_letters.is_broken.store(true, Ordering::Relaxed);
        let shard = only_shard(&fleet);
        let operator = Operator::of(&fleet);
        fleet.put(0..10);
        let host = fleet.start("a", copying());
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        operator.pause(&shard, None).await;
        until("paused", || {
            host.shard(&shard).unwrap().state == ShardState::Paused
        })
        .await;
        fleet.put(10..100);
        let records = fleet.stream.records(&shard);
        let at = |index: usize| records[index].position.sequence.clone();
        operator.skip(&shard, at(40), at(42), Some("dead")).await;
        operator.resume(&shard).await;
        until("waiting for the sink", || {
            let shard = host.shard(&shard).unwrap();
            shard
                .blocked
                .is_some_and(|blocked| blocked.why == Why::Sink)
        })
        .await;
        operator.change(&shard, |next| next.skip = None).await;
        within(SOON, "delivered", || numbers(&fleet).len() == 100).await;
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        let mut out = numbers(&fleet);
        out.sort_unstable();
        assert_eq!(
            out,
            (0..100).collect::<Vec<u32>>(),
            "{order:?} {parallelism}"
        );
        assert_eq!(host.shard(&shard).unwrap().given_up.dead_lettered, 0);
        until("no sign is left of it", || {
            let is_blocked = host.shard(&shard).unwrap().blocked.is_some();
            !is_blocked && fleet.row(&shard).unwrap().stuck.is_none()
        })
        .await;
        host.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_row_of_a_failing_shard_says_first_that_it_is_paused_and_then_what_failed() {
    let fleet = TestFleet::new(1);
    fleet.put(0..100);
    let host = fleet.start(
        "a",
        plugin(1, |record, _| (number(record) == 50).then_some(Bad::Retry)),
    );
    let shard = only_shard(&fleet);
    let row_says = || fleet.row(&shard).and_then(|row| row.stuck);
    until("failing", || {
        row_says().is_some_and(|why| why.contains("failed"))
    })
    .await;
    let operator = Operator::of(&fleet);
    operator.pause(&shard, None).await;
    within(SOON, "said", || {
        row_says().is_some_and(|why| why.starts_with("paused"))
    })
    .await;
    let why = row_says().unwrap();
    assert!(why.contains("before that: attempt"), "{why}");
    operator.resume(&shard).await;
    within(SOON, "said", || {
        row_says().is_some_and(|why| !why.contains("paused"))
    })
    .await;
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_row_of_a_shard_with_nothing_left_to_deliver_does_not_go_on_to_show_the_old_lag() {
    let fleet = TestFleet::new(1);
    let shard = only_shard(&fleet);
    fleet.put(0..20);
    let host = fleet.start("a", plugin(1, |_, _| Some(Bad::Traps)));
    until("stuck", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.blocked.is_some())
    })
    .await;
    // All arrived at 1 ms.
    fleet.wall_ms.store(1 + 600_000, Ordering::Relaxed);
    let row_lag = || fleet.row(&shard).unwrap().millis_behind_latest;
    until("the row says so", || row_lag() == Some(600_000)).await;
    let operator = Operator::of(&fleet);
    let tip = Place::Time(2);
    operator.seek_forward(&shard, tip, SeekState::Absent).await;
    until("over", || row_lag() == Some(0)).await;
    assert_eq!(fleet.row(&shard).unwrap().stuck, None);
    assert!(numbers(&fleet).is_empty());
    host.stop().await;
}
