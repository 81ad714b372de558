//! What enhanced fan-out costs and needs: a consumer, money, room on the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::fake_stream::ReadOp;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::NativePlugin;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Processed, SubscribeError};
use shardmill_core::stream::{ConsumerArn, Emitted, FanOutConsumer};
use shardmill_worker::{FanOut, Retrieval, ShardRetrieval};

use crate::fan_out::{CONSUMER, is_all_once_in_order, named, retrieval, subscribing};

fn why_unusable(host: &TestHost) -> Option<String> {
    host.status
        .snapshot()
        .fan_out
        .and_then(|fan_out| fan_out.unusable)
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_was_deregistered_is_registered_again_and_shards_are_polled_meanwhile() {
    let fleet = subscribing(2);
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    fleet.put(0..50);
    until("all out", || fleet.has_exactly(0..50)).await;
    fleet.fan_out.deregister(CONSUMER);
    fleet.put(50..100);
    until("all out", || fleet.has_exactly(0..100)).await;
    assert!(
        fleet.stream.calls(ReadOp::Fetch) > 0,
        "polled while the consumer is made"
    );
    assert!(why_unusable(&host).is_some_and(|reason| reason.contains("still being made")));
    let shard = fleet.stream.shards()[0].id.clone();
    until("subscribed again", || {
        retrieval(&host, &shard) == Some(ShardRetrieval::FanOut)
    })
    .await;
    assert_eq!(fleet.fan_out.consumers(), [CONSUMER]);
    assert_eq!(why_unusable(&host), None);
    fleet.put(100..150);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_all_once_in_order(&fleet, &history));
}

#[tokio::test(start_paused = true)]
async fn a_given_consumer_that_is_gone_is_never_registered_and_shards_are_polled_visibly() {
    let mut fleet = TestFleet::new(2);
    let arn = fleet.fan_out.register("theirs");
    let consumer = FanOutConsumer::Given(arn);
    fleet.options.retrieval = Retrieval::FanOut(FanOut {
        consumer,
        deregister_on_exit: true,
    });
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    fleet.put(0..50);
    until("all out", || fleet.has_exactly(0..50)).await;
    assert_eq!(fleet.stream.calls(ReadOp::Fetch), 0);
    fleet.fan_out.deregister("theirs");
    fleet.put(50..100);
    until("all out by polling", || fleet.has_exactly(0..100)).await;
    until("visible", || {
        why_unusable(&host).is_some_and(|reason| reason.contains("not registered"))
    })
    .await;
    let shard = fleet.stream.shards()[0].id.clone();
    assert_eq!(
        retrieval(&host, &shard),
        Some(ShardRetrieval::PollingForNow)
    );
    assert!(fleet.fan_out.consumers().is_empty());
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_all_once_in_order(&fleet, &history));
}

#[tokio::test(start_paused = true)]
async fn a_stream_full_of_consumers_is_polled_and_subscribed_to_once_there_is_room() {
    let mut fleet = TestFleet::new(2);
    fleet.options.retrieval = Retrieval::FanOut(named(false));
    for n in 0..20 {
        fleet.fan_out.register(&format!("other-{n}"));
    }
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    fleet.put(0..50);
    until("all out by polling", || fleet.has_exactly(0..50)).await;
    let reason = why_unusable(&host).unwrap();
    assert!(
        reason.contains("20 for each stream") && reason.contains("shardmill consumers"),
        "{reason}"
    );
    fleet.fan_out.deregister("other-7");
    let shard = fleet.stream.shards()[0].id.clone();
    until("subscribed", || {
        retrieval(&host, &shard) == Some(ShardRetrieval::FanOut)
    })
    .await;
    fleet.put(50..100);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_all_once_in_order(&fleet, &history));
}

#[tokio::test(start_paused = true)]
async fn while_the_plugin_is_stuck_nothing_is_pulled_and_what_ended_meanwhile_is_subscribed_to_again()
 {
    let fleet = subscribing(1);
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.fan_out.set_event_records(20);
    let is_stuck = Arc::new(AtomicBool::new(true));
    let stuck = Arc::clone(&is_stuck);
    let plugin = NativePlugin::new(1, move |_, batch| {
        if stuck.load(Ordering::Relaxed) {
            return Err(ProcessorError::Trapped {
                message: "stuck".to_owned(),
            });
        }
        let emit = |record: &shardmill_core::stream::Record| Emitted {
            destination: "out".into(),
            key: String::new(),
            data: record.data.clone(),
        };
        Ok(Processed {
            emitted: batch.records.iter().map(emit).collect(),
            ..Processed::default()
        })
    });
    let history = plugin.history();
    fleet.put(0..1_000);
    let _host = fleet.start("a", plugin);
    until("something is pushed", || fleet.fan_out.records_pushed() > 0).await;
    tokio::time::sleep(Duration::from_mins(12)).await;
    // One in delivery, one waiting for it.
    let pushed = fleet.fan_out.records_pushed();
    assert!(
        pushed <= 40,
        "{pushed} records were pulled for a consumer that takes none"
    );
    assert_eq!(
        fleet.fan_out.open_subscriptions(),
        0,
        "a window full of records is no place to keep them"
    );
    is_stuck.store(false, Ordering::Relaxed);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..1_000));
    assert!(is_all_once_in_order(&fleet, &history));
    assert!(fleet.fan_out.starts(&shard).len() >= 2);
}

#[tokio::test(start_paused = true)]
async fn pulled_bytes_stay_within_the_budget_and_one_event_a_shard() {
    const SHARDS: usize = 24;
    const RECORD: usize = 1 << 20;
    let fleet = subscribing(24);
    fleet.fan_out.set_event_records(4);
    let plugin = NativePlugin::new(1, |_, _| {
        Err(ProcessorError::Trapped {
            message: "stuck".to_owned(),
        })
    });
    for n in 0..SHARDS as u128 * 12 {
        let width = u128::MAX / SHARDS as u128;
        fleet
            .stream
            .put_at((n % SHARDS as u128) * width + 1, "key", vec![0_u8; RECORD]);
    }
    let _host = fleet.start("a", plugin);
    until("the budget is used", || {
        fleet.fan_out.records_pushed() >= 56
    })
    .await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    // The harness gives a host 64 MiB: with two events, 24 shards would hold 192 MiB, and they have
    // more to pull.
    let pushed = fleet.fan_out.records_pushed();
    assert!(pushed <= 4 * SHARDS, "{pushed} MiB pulled");
    until("what waits for room is let go of", || {
        fleet.fan_out.open_subscriptions() == 0
    })
    .await;
    // A reader that gets nowhere for `read-deadline` is made anew and tries once more: no tight
    // loop.
    let pushed = fleet.fan_out.records_pushed();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(fleet.fan_out.records_pushed() <= pushed + 2 * 4 * SHARDS);
    until("all is let go of again", || {
        fleet.fan_out.open_subscriptions() == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn auto_spends_no_money_unless_the_host_allows_it() {
    for is_fan_out_allowed in [false, true] {
        let mut fleet = TestFleet::new(2);
        fleet.options.retrieval = Retrieval::Auto {
            is_fan_out_allowed,
            fan_out: named(false),
        };
        fleet.put(0..50);
        let host = fleet.start("a", NativePlugin::echo(1));
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let shard = fleet.stream.shards()[0].id.clone();
        let (consumers, how) = if is_fan_out_allowed {
            (vec![CONSUMER.to_owned()], ShardRetrieval::FanOut)
        } else {
            (Vec::new(), ShardRetrieval::Polling)
        };
        assert_eq!(
            (fleet.fan_out.consumers(), retrieval(&host, &shard)),
            (consumers, Some(how))
        );
        assert!(fleet.has_exactly(0..50));
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_last_host_that_leaves_deregisters_the_consumer_and_only_if_told_to() {
    for is_told in [false, true] {
        let mut fleet = TestFleet::new(2);
        fleet.options.retrieval = Retrieval::FanOut(named(is_told));
        let first = fleet.start("a", NativePlugin::echo(1));
        let second = fleet.start("b", NativePlugin::echo(1));
        fleet.put(0..50);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        until("both are there", || second.status.snapshot().workers == 2).await;
        first.stop().await;
        assert_eq!(
            fleet.fan_out.consumers(),
            [CONSUMER],
            "another host uses it"
        );
        second.stop().await;
        assert_eq!(fleet.fan_out.consumers().is_empty(), is_told);
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_of_another_stream_is_refused_at_once() {
    let mut fleet = TestFleet::new(1);
    let arn = "arn:aws:kinesis:us-east-1:000000000000:stream/another/consumer/c:1";
    let consumer = FanOutConsumer::Given(ConsumerArn::new(arn).unwrap());
    fleet.options.retrieval = Retrieval::FanOut(FanOut {
        consumer,
        deregister_on_exit: false,
    });
    let error = fleet.options.validate().unwrap_err();
    assert!(
        error.problem.contains("consumer of stream another"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_consumer_whose_registration_is_throttled_is_asked_for_again_and_shards_are_polled_meanwhile()
 {
    let mut fleet = TestFleet::new(2);
    fleet.options.retrieval = Retrieval::FanOut(named(false));
    fleet.fan_out.no_consumer(
        &SubscribeError::Throttled {
            message: "slow down".to_owned(),
        },
        5,
    );
    let plugin = NativePlugin::echo(1);
    let history = plugin.history();
    let host = fleet.start("a", plugin);
    fleet.put(0..50);
    until("all out by polling", || fleet.has_exactly(0..50)).await;
    assert!(fleet.fan_out.consumers().is_empty());
    assert!(why_unusable(&host).is_some_and(|reason| reason.contains("slow down")));
    let shard = fleet.stream.shards()[0].id.clone();
    until("subscribed", || {
        retrieval(&host, &shard) == Some(ShardRetrieval::FanOut)
    })
    .await;
    fleet.put(50..100);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(is_all_once_in_order(&fleet, &history));
}
