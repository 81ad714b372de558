//! A version in the shadow gets what the version at work gets and is compared with it; whatever it
//! does, the shard, its output and its checkpoint are what they would be without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use harness::fleet::{TestFleet, TestHost, until};
use harness::native::{Event, History, NativePlugin};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{
    Commit, FailureKind, Outcome, Processed, ProcessorFactory, RecordFailure, Ticked,
};
use shardmill_core::shadow::{Ruling, ShadowPolicy, Tally};
use shardmill_core::stream::{Batch, Emitted, ShardId};
use shardmill_worker::{SampleKind, Wanted};

use crate::poison::only_shard;

/// Runs `shadow` beside `plugin` over these records, until all are checkpointed and both are done.
async fn compared(
    fleet: &TestFleet,
    plugin: NativePlugin,
    shadow: NativePlugin,
) -> (TestHost, Tally) {
    let host = fleet.start("a", plugin);
    offer(&host, shadow);
    fleet.put(0..200);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    until("all is counted", || {
        let tally = tally(&host);
        tally.records + tally.missed >= 200
    })
    .await;
    let tally = tally(&host);
    (host, tally)
}

/// Runs a version in the shadow. Whether it begins.
fn offer(host: &TestHost, shadow: NativePlugin) -> bool {
    let version: Arc<dyn ProcessorFactory> = Arc::new(shadow);
    host.shadow.offer(&version, 0)
}

fn tally(host: &TestHost) -> Tally {
    host.shadow.report().unwrap().tally
}

fn emit(data: &str) -> Emitted {
    Emitted {
        destination: "out".to_owned(),
        key: String::new(),
        data: Bytes::from(data.to_owned()),
    }
}

/// Emits the data of each record as `change` makes it.
fn changing(
    version: u64,
    change: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
) -> NativePlugin {
    NativePlugin::new(version, move |_, batch| {
        let texts = batch
            .records
            .iter()
            .map(|record| String::from_utf8_lossy(&record.data));
        let changed = texts.filter_map(|text| change(&text));
        Ok(Processed {
            emitted: changed.map(|text| emit(&text)).collect(),
            ..Processed::default()
        })
    })
}

fn plain(version: u64) -> NativePlugin {
    changing(version, |text| Some(text.to_owned()))
}

fn trap() -> ProcessorError {
    ProcessorError::Trapped {
        message: "unreachable".to_owned(),
    }
}

fn deliveries(history: &History) -> usize {
    let history = history.lock().unwrap();
    let is_delivery = |event: &Event| matches!(event, Event::Delivered { .. });
    history
        .iter()
        .filter(|(_, _, event)| is_delivery(event))
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_does_the_same_has_no_differences_and_stores_nothing() {
    let fleet = TestFleet::new(3);
    let shadow = plain(2);
    let history = shadow.history();
    let (host, tally) = compared(&fleet, plain(1), shadow).await;
    assert_eq!((tally.records, tally.same, tally.missed), (200, 200, 0));
    assert_eq!(tally.differences(), 0, "{tally}");
    assert!(deliveries(&history) > 0);
    assert!(
        fleet.has_exactly(0..200),
        "each record once, by the version at work"
    );
    host.stop().await;
    let closed = |event: &Event| matches!(event, Event::Closed(_));
    let history = history.lock().unwrap();
    assert!(
        !history.iter().any(|(_, _, event)| closed(event)),
        "what it would emit is for nobody"
    );
}

#[tokio::test(start_paused = true)]
async fn what_only_one_of_the_two_emits_is_counted_placed_and_shown() {
    let fleet = TestFleet::new(1);
    let mut watch = fleet
        .tap
        .watch(Wanted {
            kinds: [SampleKind::OnlyAtWork, SampleKind::OnlyShadow].into(),
            application: fleet.options.application.clone(),
            shard: None,
            key: None,
            contains: None,
        })
        .unwrap();
    let shadow = changing(2, |text| match text {
        "17" => Some("seventeen".to_owned()),
        "18" => None,
        other => Some(other.to_owned()),
    });
    let (host, found) = compared(&fleet, plain(1), shadow).await;
    assert_eq!(found.records, 200);
    // What waits for its like is shown when the shard's part ends.
    host.stop().await;
    let mut shown = Vec::new();
    while shown.len() < 3 {
        let sample = watch.next().await.unwrap();
        shown.push((sample.kind, String::from_utf8(sample.data).unwrap()));
    }
    shown.sort_by(|a, b| a.1.cmp(&b.1));
    let expected = [
        (SampleKind::OnlyAtWork, "17"),
        (SampleKind::OnlyAtWork, "18"),
        (SampleKind::OnlyShadow, "seventeen"),
    ];
    let expected = expected.map(|(kind, text)| (kind, text.to_owned()));
    assert_eq!(shown, expected);
    assert!(fleet.has_exactly(0..200));
}

#[tokio::test(start_paused = true)]
async fn differences_name_the_first_batch_that_has_one() {
    let mut fleet = TestFleet::new(1);
    fleet.options.batches.records = 1;
    let shadow = changing(2, |text| (text != "5").then(|| text.to_owned()));
    let host = fleet.start("a", plain(1));
    offer(&host, shadow);
    fleet.put(0..150);
    until("the difference is found", || {
        tally(&host).differences() == 1
    })
    .await;
    let found = tally(&host);
    assert_eq!((found.only_at_work, found.only_shadow), (1, 0));
    let shard = only_shard(&fleet);
    let at = found.first_difference.unwrap();
    assert!(at.starts_with(&format!("{shard}@")), "{at}");
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_fails_is_counted_and_begins_anew_while_the_shard_goes_on() {
    let mut fleet = TestFleet::new(1);
    fleet.options.batches.records = 10;
    let shadow = NativePlugin::new(2, |_, batch| {
        let is_bad = batch
            .records
            .iter()
            .any(|record| record.data.as_ref() == b"100");
        if is_bad {
            Err(trap())
        } else {
            Ok(Processed::default())
        }
    });
    let (host, found) = compared(&fleet, NativePlugin::no_op(1), shadow).await;
    assert_eq!(
        (found.shadow_failed, found.at_work_failed),
        (1, 0),
        "{found}"
    );
    assert!(found.starts >= 2, "{found}");
    assert!(found.last_failure.unwrap().contains("unreachable"));
    assert!(
        found.records >= 100,
        "the others were compared: {}",
        found.records
    );
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn records_that_only_the_version_at_work_fails_are_counted_and_come_to_both_again() {
    let fleet = TestFleet::new(1);
    let tries = AtomicU32::new(0);
    let plugin = NativePlugin::new(1, move |_, batch| {
        let at = batch
            .records
            .iter()
            .position(|record| record.data.as_ref() == b"50");
        let fails = at.filter(|_| tries.fetch_add(1, Ordering::Relaxed) < 2);
        let failures = fails.map(|at| RecordFailure {
            index: u32::try_from(at).unwrap(),
            kind: FailureKind::Retry,
            message: "not yet".to_owned(),
        });
        Ok(Processed {
            outcome: Outcome {
                failures: failures.into_iter().collect(),
                ..Outcome::default()
            },
            emitted: Vec::new(),
        })
    });
    let (host, found) = compared(&fleet, plugin, NativePlugin::no_op(2)).await;
    assert_eq!(
        (found.at_work_failed, found.shadow_failed),
        (2, 0),
        "{found}"
    );
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_hangs_or_is_slow_holds_up_nothing() {
    for shadow in [
        NativePlugin::hanging(2),
        plain(2).taking(Duration::from_mins(1)),
    ] {
        let mut fleet = TestFleet::new(1);
        fleet.options.batches.records = 1;
        let host = fleet.start("a", plain(1));
        offer(&host, shadow);
        fleet.put(0..500);
        let started = tokio::time::Instant::now();
        until("checkpointed", || fleet.is_all_checkpointed()).await;
        let took = started.elapsed();
        assert!(took < Duration::from_mins(1), "{took:?}");
        assert!(fleet.has_exactly(0..500));
        assert!(tally(&host).records < 100, "{}", tally(&host));
        host.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_does_not_start_says_why_and_is_tried_again_now_and_then() {
    let mut fleet = TestFleet::new(1);
    fleet.options.batches.records = 1;
    let shadow = plain(2).failing_init();
    let history = shadow.history();
    let (host, found) = compared(&fleet, plain(1), shadow).await;
    assert!(found.to_string().contains("does not start"), "{found}");
    assert_eq!((found.records, found.starts), (0, 0));
    assert_eq!(deliveries(&history), 0);
    assert!(fleet.has_exactly(0..200));
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shadow_of_a_plugin_with_state_begins_where_the_state_is_known() {
    let mut fleet = TestFleet::new(1);
    fleet.options.keeps_state = true;
    fleet.options.batches.records = 5;
    let host = fleet.start("a", plain(1).keeping_state());
    fleet.put(0..100);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    let shadow = plain(2).keeping_state();
    let history = shadow.history();
    offer(&host, shadow);
    fleet.put(100..400);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    fleet.put(400..600);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    until("all is counted", || {
        let found = tally(&host);
        found.records + found.missed >= 500
    })
    .await;
    let found = tally(&host);
    assert!(found.missed > 0, "until a state was saved: {found}");
    assert!(found.records >= 200 && found.differences() == 0, "{found}");
    assert!(deliveries(&history) > 0);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shadow_is_given_the_ticks_too() {
    let fleet = TestFleet::new(1);
    let ticking = |version: u64, text: &'static str| {
        NativePlugin::no_op(version).ticking(move |_, _| {
            Ok(Ticked {
                emitted: vec![emit(text)],
                ..Ticked::default()
            })
        })
    };
    let host = fleet.start("a", ticking(1, "tick"));
    offer(&host, ticking(2, "tick"));
    until("ticks are compared", || tally(&host).same >= 3).await;
    offer(&host, ticking(3, "tock"));
    // What the instance has in memory after a tick is not known: it begins after the next batch.
    fleet.put(0..1);
    until("one is missed", || tally(&host).missed == 1).await;
    fleet.put(1..2);
    until("one is compared", || tally(&host).records == 1).await;
    until("ticks differ", || tally(&host).only_shadow > 0).await;
    assert!(tally(&host).only_at_work > 0);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn output_that_comes_in_another_call_is_the_same_and_what_is_held_back_is_no_difference() {
    let mut fleet = TestFleet::new(1);
    fleet.options.batches.records = 1;
    // Emits each pair of records with the second one, and holds the first back.
    let pairs = |version: u64| {
        let last = std::sync::Mutex::new(None::<String>);
        NativePlugin::new(version, move |_: &ShardId, batch: &Batch| {
            let text = String::from_utf8_lossy(&batch.records[0].data).into_owned();
            let mut last = last.lock().unwrap();
            let Some(first) = last.take() else {
                *last = Some(text);
                return Ok(Processed {
                    outcome: Outcome {
                        commit: Some(Commit::Nothing),
                        ..Outcome::default()
                    },
                    emitted: Vec::new(),
                });
            };
            Ok(Processed {
                emitted: vec![emit(&first), emit(&text)],
                ..Processed::default()
            })
        })
    };
    let (host, found) = compared(&fleet, plain(1), pairs(2)).await;
    host.stop().await;
    assert_eq!(found.differences(), 0, "{found}");
    assert_eq!(found.same, found.records, "{found}");
    assert!(found.records > 100, "{found}");
}

#[tokio::test(start_paused = true)]
async fn a_shadow_ends_when_it_is_withdrawn_replaced_or_told_to() {
    let fleet = TestFleet::new(1);
    let first = plain(2);
    let first_history = first.history();
    let (host, _) = compared(&fleet, plain(1), first).await;
    let before = deliveries(&first_history);
    let digest = host.shadow.report().unwrap().digest;
    host.shadow.end(&digest, "dropped");
    fleet.put(200..300);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(deliveries(&first_history), before);
    let report = host.shadow.report().unwrap();
    assert_eq!(
        (report.tally.records, report.ended.as_deref()),
        (200, Some("dropped"))
    );
    offer(&host, plain(3));
    fleet.put(300..400);
    until("the next one is compared", || tally(&host).records == 100).await;
    host.shadow.withdraw();
    assert_eq!(host.shadow.report(), None);
    fleet.put(400..500);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(fleet.has_exactly(0..500));
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_decides_once_enough_is_compared() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", plain(1));
    host.shadow.set_policy(ShadowPolicy {
        promote_after: Some(200),
        ..ShadowPolicy::default()
    });
    offer(&host, plain(2));
    fleet.put(0..100);
    until("half is compared", || tally(&host).records == 100).await;
    assert_eq!(host.shadow.rule(), Ruling::GoOn);
    fleet.put(100..200);
    until("all is compared", || tally(&host).records == 200).await;
    assert!(matches!(host.shadow.rule(), Ruling::Promote(_)));
    let digest = host.shadow.report().unwrap().digest;
    host.shadow.end(&digest, "promoted");
    assert_eq!(host.shadow.rule(), Ruling::GoOn, "once");
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_share_of_the_shards_has_a_shadow() {
    let fleet = TestFleet::new(8);
    let host = fleet.start("a", plain(1));
    host.shadow.set_policy(ShadowPolicy {
        share: 0.5,
        ..ShadowPolicy::default()
    });
    let shadow = plain(2);
    let history = shadow.history();
    offer(&host, shadow);
    fleet.put(0..400);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    host.stop().await;
    let history = history.lock().unwrap();
    let mut shards: Vec<&ShardId> = history.iter().map(|(shard, _, _)| shard).collect();
    shards.sort();
    shards.dedup();
    assert!((1..8).contains(&shards.len()), "{shards:?}");
}

#[tokio::test(start_paused = true)]
async fn no_rule_promotes_a_version_while_outputs_wait_for_their_like() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", plain(1));
    host.shadow.set_policy(ShadowPolicy {
        promote_after: Some(10),
        ..ShadowPolicy::default()
    });
    offer(&host, changing(2, |text| Some(format!("{text}!"))));
    fleet.put(0..15);
    until("all is compared", || tally(&host).records == 15).await;
    let found = tally(&host);
    assert_eq!((found.differences(), found.waiting), (0, 30), "{found}");
    assert_eq!(host.shadow.rule(), Ruling::GoOn);
    let shadow = host.shadow.clone();
    host.stop().await;
    let found = shadow.report().unwrap().tally;
    assert_eq!((found.waiting, found.undecided), (0, 30), "{found}");
    assert_eq!(shadow.rule(), Ruling::GoOn);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_never_lets_the_checkpoint_move_differs() {
    let mut fleet = TestFleet::new(1);
    fleet.options.batches.records = 1;
    let holding = NativePlugin::new(2, |_, _| {
        Ok(Processed {
            outcome: Outcome {
                commit: Some(Commit::Nothing),
                ..Outcome::default()
            },
            emitted: Vec::new(),
        })
    });
    let host = fleet.start("a", NativePlugin::no_op(1).taking(Duration::from_millis(1)));
    offer(&host, holding);
    fleet.put(0..60);
    until("it differs", || tally(&host).held_back > 0).await;
    assert_eq!(tally(&host).only_at_work + tally(&host).only_shadow, 0);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_found_says_nothing_of_another_version_at_work() {
    let fleet = TestFleet::new(1);
    let (host, found) = compared(&fleet, plain(1), plain(2)).await;
    assert_eq!(found.records, 200);
    host.offer(changing(3, |text| Some(format!("{text}!"))));
    fleet.put(200..300);
    until("the new version is at work", || {
        let report = host.shadow.report().unwrap();
        report
            .at_work
            .is_some_and(|digest| digest.as_str().ends_with('3'))
    })
    .await;
    assert!(tally(&host).records < 200, "{}", tally(&host));
    fleet.put(300..400);
    until("it is compared with that one", || tally(&host).records > 0).await;
    assert!(tally(&host).differences_at_most() > 0);
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_in_the_shadow_of_itself_waits_until_another_is_at_work() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", plain(1));
    fleet.put(0..10);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    assert!(!offer(&host, plain(1)));
    let waits = host.shadow.report().unwrap().ended;
    assert!(waits.unwrap().contains("the version at work"));
    fleet.put(10..20);
    until("checkpointed", || fleet.is_all_checkpointed()).await;
    assert_eq!(tally(&host).records, 0);
    host.offer(plain(4));
    fleet.put(20..40);
    until("the new version is at work", || {
        let report = host.shadow.report().unwrap();
        report
            .at_work
            .is_some_and(|digest| digest.as_str().ends_with('4'))
    })
    .await;
    assert!(
        offer(&host, plain(1)),
        "as the supervisor does at its next look"
    );
    fleet.put(40..60);
    until("it is compared", || tally(&host).records > 0).await;
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_wants_no_ticks_is_not_called_at_them_and_differs_only_in_what_they_emit() {
    let fleet = TestFleet::new(1);
    let ticking = NativePlugin::no_op(1).ticking(|_, _| {
        Ok(Ticked {
            emitted: vec![emit("tick")],
            ..Ticked::default()
        })
    });
    let host = fleet.start("a", ticking);
    offer(&host, NativePlugin::no_op(2));
    until("ticks differ", || tally(&host).only_at_work > 2).await;
    let found = tally(&host);
    assert_eq!(
        (found.shadow_failed, found.missed, found.starts),
        (0, 0, 1),
        "{found}"
    );
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_is_over_stays_over_whatever_newer_file_is_refused() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", plain(1));
    let version: Arc<dyn ProcessorFactory> = Arc::new(plain(2));
    let newer = NativePlugin::no_op(9);
    host.shadow.offer(&version, 0);
    host.shadow
        .refuse(Some(newer.digest()), "not a component", 0);
    host.shadow.end(version.digest(), "dropped");
    for _ in 0..3 {
        // As the supervisor looks, every two seconds.
        assert!(!host.shadow.offer(&version, 0));
        host.shadow
            .refuse(Some(newer.digest()), "not a component", 0);
        let report = host.shadow.report().unwrap();
        assert_eq!(report.ended.as_deref(), Some("dropped"));
        assert!(report.newer.unwrap().contains("not a component"));
    }
    host.stop().await;
}

#[tokio::test(start_paused = true)]
async fn instances_that_may_send_requests_end_when_they_may_not_any_more() {
    let fleet = TestFleet::new(1);
    let shadow = plain(2);
    let history = shadow.history();
    let made = || {
        let history = history.lock().unwrap();
        let is_made = |event: &Event| *event == Event::Init;
        history
            .iter()
            .filter(|(_, _, event)| is_made(event))
            .count()
    };
    let host = fleet.start("a", plain(1));
    host.shadow.set_policy(ShadowPolicy {
        may_send_http: true,
        ..ShadowPolicy::default()
    });
    offer(&host, shadow);
    fleet.put(0..10);
    until("it is compared", || tally(&host).records == 10).await;
    assert_eq!(made(), 1);
    host.shadow.set_policy(ShadowPolicy::default());
    fleet.put(10..20);
    until("another one is made", || made() == 2).await;
    host.stop().await;
}
