//! Enhanced fan-out: every record once and in order, whatever becomes of the subscriptions (fault
//! rows A21 to A24).

use std::time::Duration;

use harness::fake_fan_out::Break;
use harness::fake_stream::ReadOp;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::{Event, History, NativePlugin};
use shardmill_core::ports::{SubscribeError, Subscriptions};
use shardmill_core::stream::{
    ConsumerName, FanOutConsumer, InitialPosition, Position, ReadFrom, ShardId,
};
use shardmill_worker::{FanOut, Retrieval, ShardRetrieval, Why};
use tokio::time::Instant;

pub(super) const CONSUMER: &str = "plugin";

pub(super) fn named(deregister_on_exit: bool) -> FanOut {
    FanOut {
        consumer: FanOutConsumer::Named(ConsumerName::new(CONSUMER).unwrap()),
        deregister_on_exit,
    }
}

fn unavailable() -> SubscribeError {
    SubscribeError::Unavailable {
        message: "by the test".to_owned(),
    }
}

/// A fleet that subscribes, with a consumer that is ready.
pub(super) fn subscribing(shards: u32) -> TestFleet {
    let mut fleet = TestFleet::new(shards);
    fleet.options.retrieval = Retrieval::FanOut(named(false));
    fleet.fan_out.register(CONSUMER);
    fleet
}

/// Positions handled on `shard`, in order.
fn handled(history: &History, shard: &ShardId) -> Vec<Position> {
    let history = history.lock().unwrap();
    let of_shard = history.iter().filter(|(of, ..)| of == shard);
    let positions = of_shard.filter_map(|(_, _, event)| match event {
        Event::Delivered {
            positions,
            is_ok: true,
            ..
        } => Some(positions.clone()),
        Event::Delivered { .. } | Event::Init | Event::Ticked { .. } | Event::Closed(_) => None,
    });
    positions.flatten().collect()
}

pub(super) fn is_all_once_in_order(fleet: &TestFleet, history: &History) -> bool {
    fleet.stream.shards().iter().all(|shard| {
        let put: Vec<_> = fleet
            .stream
            .records(&shard.id)
            .into_iter()
            .map(|record| record.position)
            .collect();
        handled(history, &shard.id) == put
    })
}

pub(super) fn retrieval(host: &TestHost, shard: &ShardId) -> Option<ShardRetrieval> {
    host.status
        .snapshot()
        .shards
        .get(shard.as_str())
        .map(|status| status.retrieval)
}

#[tokio::test(start_paused = true)]
async fn records_are_pushed_once_in_order_and_nothing_is_polled() {
    let fleet = subscribing(4);
    fleet.put(0..500);
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    fleet.put(500..600);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_all_once_in_order(&fleet, &history));
    assert_eq!(fleet.stream.calls(ReadOp::Fetch), 0);
    until("the host is idle at the tip", || {
        host.status.snapshot().is_idle()
    })
    .await;
    let shard = fleet.stream.shards()[0].id.clone();
    assert_eq!(retrieval(&host, &shard), Some(ShardRetrieval::FanOut));
    let shown = host.status.snapshot().fan_out.unwrap();
    assert!(
        shown.consumer.contains("/consumer/plugin:") && shown.unusable.is_none(),
        "{shown:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn subscriptions_are_renewed_every_five_minutes_without_a_gap_or_a_repeat() {
    let fleet = subscribing(1);
    let shard = fleet.stream.shards()[0].id.clone();
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    let end = Instant::now() + Duration::from_mins(21);
    let mut put = 0;
    while Instant::now() < end {
        fleet.put(put..put + 3);
        put += 3;
        tokio::time::sleep(Duration::from_millis(1_370)).await;
    }
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_all_once_in_order(&fleet, &history));
    let starts = fleet.fan_out.starts(&shard);
    assert_eq!(starts.len(), 5, "{starts:?}");
    assert!(
        starts[1..]
            .iter()
            .all(|from| matches!(from, ReadFrom::AtSequenceNumber(_))),
        "{starts:?}"
    );
    assert_eq!(
        fleet.stream.calls(ReadOp::Fetch),
        0,
        "a subscription that ran its time is renewed at once"
    );
}

#[tokio::test(start_paused = true)]
async fn whatever_breaks_a_subscription_it_goes_on_after_the_last_good_event() {
    for how in [Break::Cut, Break::Stall, Break::OutOfOrder, Break::Repeats] {
        let fleet = subscribing(1);
        let shard = fleet.stream.shards()[0].id.clone();
        fleet.put(0..30);
        let plugin = NativePlugin::echo(1);
        let history = plugin.history();
        let _host = fleet.start("a", plugin);
        until("some are out", || fleet.has_exactly(0..30)).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(fleet.fan_out.break_off(&shard, how), "subscribed");
        fleet.put(30..60);
        until("the rest is out", || fleet.has_exactly(0..60)).await;
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        assert!(is_all_once_in_order(&fleet, &history), "{how:?}");
        let subscriptions = if how == Break::Repeats { 1 } else { 2 };
        assert_eq!(fleet.fan_out.starts(&shard).len(), subscriptions, "{how:?}");
        assert_eq!(
            fleet.stream.calls(ReadOp::Fetch),
            0,
            "{how:?}: an old subscription is replaced at once"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_subscription_is_dropped_though_its_connection_stands() {
    let fleet = subscribing(1);
    let shard = fleet.stream.shards()[0].id.clone();
    let host = fleet.start("a", NativePlugin::echo(1));
    until("subscribed", || !fleet.fan_out.starts(&shard).is_empty()).await;
    // Without records, events still come: that is no silence.
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(fleet.fan_out.starts(&shard).len(), 1);
    assert!(fleet.fan_out.events_pushed() > 40);
    fleet.fan_out.break_off(&shard, Break::Stall);
    until("subscribed again", || {
        fleet.fan_out.starts(&shard).len() == 2
    })
    .await;
    let error = host.status.snapshot().shards[shard.as_str()]
        .subscription_error
        .clone();
    assert!(error.unwrap().contains("no event within"));
    until("the error is forgotten", || {
        host.status.snapshot().shards[shard.as_str()]
            .subscription_error
            .is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_kinesis_does_not_let_be_subscribed_to_yet_is_polled_meanwhile() {
    let fleet = subscribing(1);
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.put(0..40);
    fleet.fan_out.refuse_next(SubscribeError::InUse {
        message: "too early".to_owned(),
    });
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let started = Instant::now();
    let host = fleet.start("a", plugin);
    until("all out by polling", || fleet.has_exactly(0..40)).await;
    assert!(fleet.fan_out.starts(&shard).is_empty() && fleet.stream.calls(ReadOp::Fetch) > 0);
    assert_eq!(
        retrieval(&host, &shard),
        Some(ShardRetrieval::PollingForNow)
    );
    until("subscribed", || !fleet.fan_out.starts(&shard).is_empty()).await;
    assert!(started.elapsed() >= Duration::from_secs(5));
    let last = fleet
        .stream
        .records(&shard)
        .last()
        .unwrap()
        .position
        .sequence
        .clone();
    assert_eq!(
        fleet.fan_out.starts(&shard),
        [ReadFrom::AfterSequenceNumber(last)]
    );
    let polls = fleet.stream.calls(ReadOp::Fetch);
    fleet.put(40..80);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_all_once_in_order(&fleet, &history));
    assert_eq!(fleet.stream.calls(ReadOp::Fetch), polls);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_kinesis_does_not_answer_is_shown_long_before_it_is_given_up() {
    let fleet = subscribing(1);
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.put(0..40);
    fleet.fan_out.leave_next_unanswered(2);
    let started = Instant::now();
    let host = fleet.start("a", NativePlugin::echo(1));
    let blocked = || {
        host.status.snapshot().shards[shard.as_str()]
            .blocked
            .clone()
    };
    let is_held = || host.status.snapshot().shards.contains_key(shard.as_str());
    until("shown", || is_held() && blocked().is_some()).await;
    assert!(started.elapsed() < Duration::from_secs(20));
    let shown = blocked().unwrap();
    assert_eq!(shown.why, Why::Reading);
    assert!(shown.reason.contains("no answer from kinesis"), "{shown:?}");
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    until("it is not shown any more", || blocked().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn who_is_taken_over_drops_what_follows_and_rests_before_it_takes_over_again() {
    let fleet = subscribing(1);
    let shard = fleet.stream.shards()[0].id.clone();
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until("subscribed", || !fleet.fan_out.starts(&shard).is_empty()).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let consumer = fleet.fan_out.arn(CONSUMER);
    let mut other = fleet
        .fan_out
        .subscribe(&consumer, &shard, &ReadFrom::Latest)
        .await
        .unwrap();
    let taken_over = Instant::now();
    fleet.put(0..20);
    let event = other.next().await.unwrap().unwrap();
    assert_eq!(event.records.len(), 20, "the other one reads now");
    until("taken back", || fleet.fan_out.starts(&shard).len() == 3).await;
    assert!(
        taken_over.elapsed() >= Duration::from_secs(5),
        "{:?}",
        taken_over.elapsed()
    );
    assert!(matches!(
        other.next().await,
        Err(SubscribeError::InUse { .. })
    ));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_all_once_in_order(&fleet, &history));
    assert_eq!(
        fleet.stream.calls(ReadOp::Fetch),
        0,
        "the loser does not read by other ways"
    );
}

#[tokio::test(start_paused = true)]
async fn leases_that_move_between_subscribing_hosts_repeat_and_lose_nothing() {
    let fleet = subscribing(6);
    fleet.put(0..300);
    let (a, b) = (NativePlugin::echo(1), NativePlugin::echo(1));
    let history = a.history();
    let b = b.sharing(&history);
    let first = fleet.start("a", a);
    until("half is out", || fleet.sink.lines().len() >= 150).await;
    let second = fleet.start("b", b);
    fleet.put(300..600);
    until("leases are shared", || {
        let rows = fleet.store.rows();
        rows.iter()
            .filter(|row| {
                row.owner
                    .as_ref()
                    .is_some_and(|owner| owner.as_str() == "b")
            })
            .count()
            == 3
    })
    .await;
    fleet.put(600..700);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    first.stop().await;
    fleet.put(700..900);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..900));
    assert!(is_all_once_in_order(&fleet, &history));
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shards_end_and_its_children_come_from_the_event_stream() {
    let fleet = subscribing(2);
    let shards = fleet.stream.shards();
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    fleet.put(0..50);
    let listings = fleet.stream.calls(ReadOp::ListShards);
    let middle = shards[0].hash_range.start() + 1_000;
    let [left, _] = fleet.stream.split(&shards[0].id, middle);
    fleet.put(50..100);
    until("all out", || fleet.has_exactly(0..100)).await;
    fleet
        .stream
        .merge(&left, &fleet.stream.shards()[3].id.clone());
    fleet.put(100..150);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..150));
    assert!(is_all_once_in_order(&fleet, &history));
    let parent = fleet.row(&shards[0].id).unwrap();
    assert_eq!(
        (parent.checkpoint, parent.children.len()),
        (shardmill_core::lease::Checkpoint::ShardEnd, 2)
    );
    assert!(
        fleet.stream.calls(ReadOp::ListShards) <= listings + 2,
        "only the leader lists"
    );
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_kinesis_refuses_is_forgotten_for_the_last_record() {
    let fleet = subscribing(1);
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.put(0..30);
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let _host = fleet.start("a", plugin);
    until("all out", || fleet.has_exactly(0..30)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    fleet.fan_out.refuse_next(SubscribeError::Refused {
        message: "no such sequence number".to_owned(),
    });
    fleet.fan_out.break_off(&shard, Break::Cut);
    fleet.put(30..60);
    until("subscribed again", || {
        fleet.fan_out.starts(&shard).len() == 2
    })
    .await;
    assert!(matches!(
        fleet.fan_out.starts(&shard)[1],
        ReadFrom::AfterSequenceNumber(_)
    ));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_all_once_in_order(&fleet, &history));
}

#[tokio::test(start_paused = true)]
async fn a_stream_created_again_under_its_name_is_not_subscribed_to_from_old_checkpoints() {
    let fleet = subscribing(1);
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.put(0..10);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    fleet.stream.set_created_at(Some(99_000_000));
    fleet.fan_out.refuse_next(SubscribeError::NotFound {
        message: "no such shard".to_owned(),
    });
    fleet.fan_out.break_off(&shard, Break::Cut);
    host.ended_with("created again").await;
    assert_eq!(fleet.fan_out.starts(&shard).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn through_a_storm_of_faults_and_reshards_every_record_comes_once_and_in_order() {
    for seed in 0..4 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let fleet = subscribing(2);
        fleet.fan_out.set_event_records(dice.u32(1..40));
        let plugin = NativePlugin::echo(1);
        let history = plugin.history();
        let _a = fleet.start("a", plugin);
        let _b = fleet.start("b", NativePlugin::echo(1).sharing(&history));
        let mut put = 0;
        for _ in 0..60 {
            fleet.put(put..put + dice.u32(0..40));
            put = u32::try_from(
                fleet
                    .stream
                    .shards()
                    .iter()
                    .map(|s| fleet.stream.records(&s.id).len())
                    .sum::<usize>(),
            )
            .unwrap();
            let shards = fleet.stream.shards();
            let shard = shards[dice.usize(0..shards.len())].clone();
            match dice.u32(0..9) {
                0 => drop(fleet.fan_out.break_off(&shard.id, Break::Cut)),
                1 => drop(fleet.fan_out.break_off(&shard.id, Break::Stall)),
                2 => drop(fleet.fan_out.break_off(&shard.id, Break::OutOfOrder)),
                3 => drop(fleet.fan_out.break_off(&shard.id, Break::Repeats)),
                4 => fleet.fan_out.refuse_next(unavailable()),
                5 => fleet.fan_out.refuse_next(SubscribeError::Throttled {
                    message: "by the test".to_owned(),
                }),
                6 if shard.is_open() && shards.len() < 12 => {
                    let middle = shard.hash_range.start()
                        + (shard.hash_range.end() - shard.hash_range.start()) / 2;
                    fleet.stream.split(&shard.id, middle + 1);
                }
                7 => fleet.fan_out.deregister(CONSUMER),
                _ => fleet.fan_out.no_consumer(&unavailable(), 2),
            }
            tokio::time::sleep(Duration::from_millis(dice.u64(0..30_000))).await;
        }
        // Rows of shards that have ended are gone by then.
        until("all out", || fleet.sink.lines().len() >= put as usize).await;
        assert!(fleet.has_exactly(0..put), "seed {seed}");
        assert!(is_all_once_in_order(&fleet, &history), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_ends_before_it_brought_anything_goes_on_with_nothing_from_before_the_start()
 {
    let mut fleet = subscribing(1);
    fleet.options.initial_position = InitialPosition::Latest;
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.put(0..10);
    fleet.stream.advance_ms(60_000);
    let _host = fleet.start("a", NativePlugin::echo(1));
    until("it was made again", || {
        fleet.fan_out.starts(&shard).len() > 1
    })
    .await;
    fleet.put(10..20);
    until("all is out", || {
        fleet.sink.lines().contains(&"19".to_owned())
    })
    .await;
    assert_eq!(
        fleet.sink.lines(),
        (10..20)
            .map(|number: u32| number.to_string())
            .collect::<Vec<_>>()
    );
}
