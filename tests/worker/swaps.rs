//! Swaps happen between batches, move no lease, lose and repeat nothing; a version that does not
//! start never takes over.

use std::time::Duration;

use harness::fake_lease_store::StoreOp;
use harness::fleet::{TestFleet, until};
use harness::native::{Event, NativePlugin};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{CloseReason, ProcessorFactory};
use shardmill_core::rollout::RolloutPolicy;

use crate::held::count;

#[tokio::test(start_paused = true)]
async fn fifty_swaps_under_load_lose_and_repeat_nothing_and_move_no_lease() {
    let mut fleet = TestFleet::new(2);
    // Or a shard would go back to the version of the others when a trial ends early.
    fleet.options.rollout = RolloutPolicy::off();
    let first = NativePlugin::echo(1);
    let history = first.history();
    let host = fleet.start("a", first);
    for version in 2..52_u32 {
        fleet.put((version - 2) * 20..(version - 1) * 20);
        host.offer(NativePlugin::echo(u64::from(version)).sharing(&history));
        tokio::time::sleep(Duration::from_millis(130)).await;
    }
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..1000));
    let writes = fleet.store.history();
    assert_eq!(
        writes
            .iter()
            .filter(|write| write.op == StoreOp::Take)
            .count(),
        2
    );
    assert_eq!(
        writes
            .iter()
            .filter(|write| write.op == StoreOp::Release)
            .count(),
        0
    );
    let history = history.lock().unwrap();
    for (position, (shard, digest, event)) in history.iter().enumerate() {
        // After an instance was closed for a reload, its version gets no batch on that shard any
        // more.
        if *event == Event::Closed(CloseReason::Reload) {
            let later = &history[position + 1..];
            assert!(!later.iter().any(|(s, d, e)| s == shard
                && d == digest
                && matches!(e, Event::Delivered { .. })));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_checkpoint_names_the_version_that_settled_it() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.put(0..5);
    until("first version checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(
        fleet.row(&shard).unwrap().plugin_digest,
        Some(NativePlugin::no_op(1).digest().clone())
    );
    host.offer(NativePlugin::echo(2));
    fleet.put(5..10);
    until("second version checkpointed", || {
        fleet.is_all_checkpointed()
    })
    .await;
    assert_eq!(
        fleet.row(&shard).unwrap().plugin_digest,
        Some(NativePlugin::no_op(2).digest().clone())
    );
}

#[tokio::test(start_paused = true)]
async fn a_version_whose_init_fails_is_refused_with_its_reason_and_the_old_one_goes_on() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..10);
    until("all out", || fleet.is_all_checkpointed()).await;
    host.offer(NativePlugin::echo(2).failing_init());
    fleet.put(10..20);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..20));
    let refused = host.status.snapshot().refused.unwrap();
    assert!(refused.reason.contains("init fails"), "{}", refused.reason);
    assert_eq!(
        refused.digest.as_deref(),
        Some(NativePlugin::no_op(2).digest().as_str())
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_keeps_failing_goes_to_the_new_version_at_once() {
    let fleet = TestFleet::new(1);
    let broken = NativePlugin::new(1, |_, _| {
        Err(ProcessorError::Trapped {
            message: "always".into(),
        })
    });
    let host = fleet.start("a", broken);
    fleet.put(0..10);
    let shard = fleet.stream.shards()[0].id.clone();
    until("blocked for long", || {
        host.status
            .snapshot()
            .shards
            .get(shard.as_str())
            .is_some_and(|s| s.blocked.as_ref().is_some_and(|b| b.attempts > 9))
    })
    .await;
    let offered_at = tokio::time::Instant::now();
    host.offer(NativePlugin::echo(2));
    until("handled", || fleet.has_exactly(0..10)).await;
    assert!(
        offered_at.elapsed() < Duration::from_secs(1),
        "back-off does not delay a mended plugin"
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_version_that_does_not_start_is_retried_and_replaced_by_one_that_does() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1).failing_init());
    fleet.put(0..10);
    let shard = fleet.stream.shards()[0].id.clone();
    until("blocked", || {
        host.status
            .snapshot()
            .shards
            .get(shard.as_str())
            .is_some_and(|s| s.blocked.is_some())
    })
    .await;
    host.offer(NativePlugin::echo(2));
    until("handled", || fleet.has_exactly(0..10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_taken_while_a_broken_version_is_on_offer_is_served_by_the_one_that_works() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    fleet.put(0..10);
    until("running", || fleet.has_exactly(0..10)).await;
    host.offer(NativePlugin::echo(2).failing_init());
    let parent = fleet.stream.shards()[0].id.clone();
    fleet.stream.split(&parent, u128::MAX / 2);
    fleet.put(10..40);
    until("the children are served", || fleet.has_exactly(0..40)).await;
    assert!(
        host.status.snapshot().refused.is_some(),
        "and the refusal shows"
    );
    host.offer(NativePlugin::echo(3));
    fleet.put(40..60);
    until("the next version is taken up", || fleet.has_exactly(0..60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_only_version_does_not_start_leaves_its_shards_to_one_that_has_another() {
    let mut fleet = TestFleet::new(2);
    fleet.options.leases.plugin_deadline = fleet.options.leases.duration;
    let _a = fleet.start("a", NativePlugin::echo(1).failing_init());
    until("a has both", || count(&fleet, "a") == 2).await;
    let _b = fleet.start("b", NativePlugin::echo(2));
    until("they share", || count(&fleet, "b") == 1).await;
    fleet.put(0..100);
    until("b has done all", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..100));
}
