//! Several plugins on one stream read each shard once, and nobody waits for anybody.

use std::sync::Arc;
use std::time::Duration;

use harness::fake_stream::{FakeStream, ReadOp};
use harness::faults::Fault;
use harness::shared_stream::SharedControl;
use harness::stream_contract;
use shardmill_core::ports::{ReadError, StreamReader};
use shardmill_core::stream::ReadFrom;
use shardmill_worker::ReadLimits;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) mod scene;

use scene::{BUFFER_BYTES, Scene, Walker, sequences, together};

/// A shared stream keeps all promises of a stream.
mod contract {
    use super::*;
    stream_contract!(async {
        let stream = Arc::new(FakeStream::new(2));
        (SharedControl::new(Arc::clone(&stream), stream), ())
    });
}

#[tokio::test(start_paused = true)]
async fn three_plugins_see_all_records_once_and_in_order_for_the_calls_of_one() {
    let mut calls = Vec::new();
    for plugins in [1, 3] {
        let scene = Scene::new();
        scene.put(200);
        let walkers = (0..plugins)
            .map(|_| scene.walker(ReadFrom::TrimHorizon))
            .collect();
        let walkers = together(walkers, Duration::from_secs(30)).await;
        assert!(
            walkers.iter().all(|walker| walker.seen == scene.all()),
            "each record once, in order"
        );
        calls.push(scene.calls());
    }
    assert!(calls[1] <= calls[0] + 2, "{calls:?}: one plugin and three");
    assert!(calls[0] >= 20, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn at_the_tip_one_poll_serves_all_wherever_they_started() {
    for from in [
        ReadFrom::TrimHorizon,
        ReadFrom::Latest,
        ReadFrom::AtTimestamp(1),
    ] {
        let scene = Scene::new();
        let walkers = (0..3).map(|_| scene.walker(from.clone())).collect();
        // An empty shard: nobody knows a record yet.
        let walkers = together(walkers, Duration::from_mins(1)).await;
        let while_empty = scene.calls();
        // One plugin polls after 1 s and then every 2 s; others poll once when they start, and once
        // a minute.
        assert!(
            (28..=40).contains(&while_empty),
            "{from:?}: {while_empty} calls"
        );
        scene.put(5);
        let walkers = together(walkers, Duration::from_mins(1)).await;
        assert!(
            walkers.iter().all(|walker| walker.seen == scene.all()),
            "{from:?}"
        );
        let after = scene.calls() - while_empty;
        assert!((28..=40).contains(&after), "{from:?}: {after} calls");
    }
}

/// The longest that a walker waits for an answer on a silent shard, in five minutes.
async fn longest_silence(mut walker: Walker) -> Duration {
    let until = Instant::now() + Duration::from_mins(5);
    let (mut heard_at, mut longest) = (Instant::now(), Duration::ZERO);
    while Instant::now() < until {
        let answer = tokio::time::timeout_at(until, walker.read()).await;
        longest = longest.max(heard_at.elapsed());
        if answer.is_ok() {
            heard_at = Instant::now();
        }
    }
    longest
}

#[tokio::test(start_paused = true)]
async fn on_a_silent_shard_each_plugin_hears_of_the_calls_that_others_make() {
    let scene = Scene::new();
    let slowly =
        |op| (op == ReadOp::Fetch).then_some(Fault::AnswersAfter(Duration::from_millis(20)));
    scene.stream.faults.draw_from(slowly);
    let mut walkers = JoinSet::new();
    // Those who began elsewhere make no calls at times, and one of them is always the first to come
    // back.
    for from in [ReadFrom::TrimHorizon, ReadFrom::AtTimestamp(1)] {
        for _ in 0..3 {
            walkers.spawn(longest_silence(scene.walker(from.clone())));
        }
    }
    let idle_max = ReadLimits::default().idle_max;
    for silence in walkers.join_all().await {
        assert!(silence <= 2 * idle_max, "{silence:?} without an answer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_starts_late_reads_by_itself_until_it_has_caught_up_and_then_costs_nothing() {
    let scene = Scene::new();
    scene.put(100);
    let early = scene
        .walker(ReadFrom::TrimHorizon)
        .read_for(Duration::from_secs(70))
        .await;
    assert_eq!(early.seen, scene.all());
    let before = scene.calls();
    let mut late = scene.walker(ReadFrom::TrimHorizon);
    late.read_to(100).await;
    assert_eq!(late.seen, scene.all());
    assert_eq!(scene.calls() - before, 10, "what nobody kept is read again");
    let walkers = together(vec![early, late], Duration::from_secs(20)).await;
    let before = scene.calls();
    scene.put(50);
    let walkers = together(walkers, Duration::from_secs(20)).await;
    assert!(walkers.iter().all(|walker| walker.seen == scene.all()));
    assert!(
        scene.calls() - before <= 5 + 12,
        "{} calls for five replies and a quiet time",
        scene.calls() - before
    );
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_lags_falls_out_of_the_ring_reads_on_its_own_and_holds_nobody_back() {
    let scene = Scene::new();
    scene.put(20);
    let (mut fast, mut slow) = (
        scene.walker(ReadFrom::TrimHorizon),
        scene.walker(ReadFrom::TrimHorizon),
    );
    fast.read_to(20).await;
    slow.read_to(10).await;
    // The slow one stays away for longer than replies are kept.
    scene.put(200);
    let started = Instant::now();
    fast.read_to(220).await;
    assert!(
        started.elapsed() < Duration::from_secs(6),
        "at the shard's rate, whoever lags: {:?}",
        started.elapsed()
    );
    let mut fast = fast.read_for(Duration::from_secs(70)).await;
    assert_eq!(
        scene.ring.used_bytes(),
        0,
        "nothing is kept for whoever does not come"
    );
    let before = scene.calls();
    slow.read_to(220).await;
    assert_eq!(slow.seen, scene.all());
    assert_eq!(
        scene.calls() - before,
        21,
        "each reply by itself; the record seen last takes no place in the first"
    );
    scene.put(1);
    fast.read_to(221).await;
    slow.read_to(221).await;
    assert_eq!((&fast.seen, &slow.seen), (&scene.all(), &scene.all()));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_gone_is_not_known_though_it_was_read_before() {
    let scene = Scene::new();
    scene.put(10);
    let mut walker = scene.walker(ReadFrom::TrimHorizon);
    walker.read_to(10).await;
    let leader = scene.shared.reader();
    assert_eq!(leader.knows(&scene.shard).await, Ok(true));
    scene.stream.forget_shard(&scene.shard);
    assert_eq!(
        leader.knows(&scene.shard).await,
        Ok(false),
        "or its row would stay for ever, and its children wait"
    );
}

#[tokio::test(start_paused = true)]
async fn a_plugin_a_little_behind_is_served_from_what_is_kept() {
    let scene = Scene::new();
    scene.put(100);
    let (mut fast, mut slow) = (
        scene.walker(ReadFrom::TrimHorizon),
        scene.walker(ReadFrom::TrimHorizon),
    );
    slow.read_to(10).await;
    fast.read_to(100).await;
    assert_eq!(scene.calls(), 10);
    assert!(scene.ring.used_bytes() > 0);
    slow.read_to(100).await;
    assert_eq!((scene.calls(), &slow.seen), (10, &scene.all()));
    let _ = slow.read().await;
    assert_eq!(scene.ring.used_bytes(), 0, "what all had is forgotten");
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_stays_within_the_ring_and_a_lone_plugin_keeps_nothing() {
    let limits = ReadLimits {
        bytes_per_second: f64::from(1 << 30),
        ..ReadLimits::default()
    };
    let scene = Scene::with_buffer(BUFFER_BYTES, limits);
    for _ in 0..40 {
        scene.stream.put_at(0, "key", vec![0; 1 << 20]);
    }
    let mut alone = scene.walker(ReadFrom::TrimHorizon);
    alone.read_to(20).await;
    assert_eq!(scene.ring.used_bytes(), 0);
    let mut other = scene.walker(ReadFrom::AfterSequenceNumber(alone.seen[19].clone()));
    for count in [30, 40] {
        alone.read_to(count).await;
        let used = scene.ring.used_bytes();
        assert!((1..=BUFFER_BYTES / 4).contains(&used), "{used}");
    }
    other.read_to(20).await;
    assert_eq!(
        other.seen[..],
        scene.all()[20..],
        "also past the ring's end"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_and_bytes_of_a_shard_are_shared_by_all_who_read_it() {
    let scene = Scene::new();
    scene.put(1_000);
    // Places far apart, so that nothing can be shared.
    let all = scene.all();
    let starts = [0, 300, 600].map(|index| ReadFrom::AtSequenceNumber(all[index].clone()));
    let walkers = starts.into_iter().map(|from| scene.walker(from)).collect();
    together(walkers, Duration::from_secs(10)).await;
    let calls = scene.calls();
    assert!(
        (45..=51).contains(&calls),
        "{calls} calls in 10 s, of 5 a second"
    );
}

#[tokio::test(start_paused = true)]
async fn plugins_far_from_each_other_have_the_calls_of_a_shard_in_turns() {
    let scene = Scene::new();
    scene.put(3_000);
    let slowly =
        |op| (op == ReadOp::Fetch).then_some(Fault::AnswersAfter(Duration::from_millis(8)));
    scene.stream.faults.draw_from(slowly);
    let all = scene.all();
    // The last one to come must not lose each call to those who come back from one just then.
    let walkers =
        [2_000, 1_000, 0].map(|begin| scene.walker(ReadFrom::AtSequenceNumber(all[begin].clone())));
    let walkers = together(walkers.into(), Duration::from_secs(30)).await;
    let seen: Vec<_> = walkers.iter().map(|walker| walker.seen.len()).collect();
    let (least, most) = (seen.iter().min(), seen.iter().max());
    let (least, most) = (*least.unwrap(), *most.unwrap());
    assert!(most - least <= 10, "{seen:?} records");
    // Ten records a call, and of the time nothing is lost on the way.
    assert!(seen.iter().sum::<usize>() >= 10 * 130, "{seen:?} records");
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_shared_call_is_told_to_all_who_wait_and_loses_and_repeats_nothing() {
    for fault in [
        Fault::Throttle,
        Fault::UnknownNotApplied,
        Fault::ExpiredIterator,
        Fault::NotFound,
        Fault::Refuse,
    ] {
        let scene = Scene::new();
        scene.put(30);
        let mut walkers: Vec<_> = (0..3)
            .map(|_| scene.walker(ReadFrom::TrimHorizon))
            .collect();
        for walker in &mut walkers {
            walker.read_to(30).await;
        }
        scene.put(30);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = scene.calls();
        scene.stream.faults.queue(ReadOp::Fetch, fault);
        let [a, b, c] = &mut walkers[..] else {
            unreachable!("three")
        };
        let at = |walker: &Walker| walker.next.clone().unwrap();
        let (at_a, at_b, at_c) = (at(a), at(b), at(c));
        let (a, b, c) = tokio::join!(
            a.reader.fetch(&at_a, 10),
            b.reader.fetch(&at_b, 10),
            c.reader.fetch(&at_c, 10)
        );
        let failures = [a, b, c]
            .into_iter()
            .filter_map(Result::err)
            .collect::<Vec<_>>();
        let is_it = |error: &ReadError| match fault {
            Fault::Throttle => matches!(error, ReadError::Throttled { .. }),
            Fault::ExpiredIterator => matches!(error, ReadError::ExpiredIterator),
            Fault::NotFound => matches!(error, ReadError::NotFound { .. }),
            Fault::Refuse => matches!(error, ReadError::Refused { .. }),
            _ => matches!(error, ReadError::Unavailable { .. }),
        };
        assert!(
            !failures.is_empty() && failures.iter().all(is_it),
            "{fault:?}: {failures:?}"
        );
        // After the others, whoever waited asks for himself, since nothing that was known is
        // trusted any more.
        if !matches!(fault, Fault::NotFound | Fault::Refuse) {
            assert_eq!(
                (failures.len(), scene.calls() - before),
                (3, 1),
                "{fault:?}: one call, told to all"
            );
        }
        for walker in &mut walkers {
            walker.next = None;
            walker.read_to(60).await;
            assert_eq!(walker.seen, scene.all(), "{fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_is_given_up_with_its_caller_and_the_next_one_makes_it_again() {
    let scene = Scene::new();
    scene.put(10);
    let (mut first, mut second) = (
        scene.walker(ReadFrom::TrimHorizon),
        scene.walker(ReadFrom::TrimHorizon),
    );
    scene.stream.faults.queue(ReadOp::Fetch, Fault::Hang);
    let hung = tokio::time::timeout(Duration::from_secs(40), first.read());
    let waits = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        second.read().await
    };
    let (hung, served) = tokio::join!(hung, waits);
    assert!(hung.is_err());
    assert_eq!(
        sequences(&served.unwrap().records),
        scene.all(),
        "whoever waited makes the call"
    );
    first.read_to(10).await;
    assert_eq!(scene.calls(), 2, "the one that hung and one for both");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_shard_and_its_children_are_told_to_each() {
    let scene = Scene::new();
    scene.put(15);
    let children = scene.stream.split(&scene.shard, 1_000);
    let mut walkers: Vec<_> = (0..3)
        .map(|_| scene.walker(ReadFrom::TrimHorizon))
        .collect();
    for walker in &mut walkers {
        walker.read_to(15).await;
        assert!(walker.has_ended || walker.read().await.unwrap().next.is_none());
        let last = walker
            .reader
            .iterator(
                &scene.shard,
                &ReadFrom::AfterSequenceNumber(walker.seen[14].clone()),
            )
            .await;
        let end = walker.reader.fetch(&last.unwrap(), 10).await.unwrap();
        let named: Vec<_> = end.children.iter().map(|child| child.id.clone()).collect();
        assert_eq!((end.next, named), (None, children.to_vec()));
    }
    assert_eq!(scene.calls(), 2, "ten records, then five and the end");
}

#[tokio::test(start_paused = true)]
async fn lag_counts_what_is_kept_and_not_yet_taken() {
    let scene = Scene::new();
    for _ in 0..4 {
        scene.put(10);
        scene.stream.advance_ms(1_000);
    }
    let (mut fast, mut slow) = (
        scene.walker(ReadFrom::TrimHorizon),
        scene.walker(ReadFrom::TrimHorizon),
    );
    fast.read_to(40).await;
    assert_eq!(fast.behind, Some(0));
    let mut told = Vec::new();
    for count in [10, 20, 30, 40] {
        slow.read_to(count).await;
        told.push(slow.behind.unwrap());
    }
    assert_eq!(told, [3_000, 2_000, 1_000, 0]);
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_deleted_stream_is_served_of_the_one_that_was_made_in_its_place() {
    let scene = Scene::new();
    scene.put(10);
    let mut first = scene.walker(ReadFrom::TrimHorizon);
    let mut second = scene.walker(ReadFrom::TrimHorizon);
    first.reader.identity().await.unwrap();
    first.read_to(10).await;
    assert!(scene.ring.used_bytes() > 0);
    scene.stream.set_created_at(Some(2_000_000));
    second.reader.identity().await.unwrap();
    assert_eq!(scene.ring.used_bytes(), 0);
    let before = scene.calls();
    second.read_to(10).await;
    assert_eq!(scene.calls() - before, 1, "read anew");
}

/// One plugin of a storm: pauses, limits and starts as the dice fall.
async fn stormy(mut walker: Walker, mut dice: fastrand::Rng, total: usize) -> Walker {
    let deadline = Instant::now() + Duration::from_hours(2);
    while walker.seen.len() < total && !walker.has_ended {
        assert!(
            Instant::now() < deadline,
            "{} of {total}",
            walker.seen.len()
        );
        if dice.u32(0..20) == 0 {
            // As a consumer does that was stuck, or a plugin that was replaced.
            walker.next = None;
        }
        if dice.u32(0..10) == 0 {
            tokio::time::sleep(Duration::from_millis(dice.u64(0..120_000))).await;
        }
        let read = tokio::time::timeout(Duration::from_secs(40), walker.read()).await;
        if !matches!(read, Ok(Ok(_))) {
            tokio::time::sleep(Duration::from_millis(dice.u64(1..2_000))).await;
        }
    }
    walker
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_and_whoever_lags_each_plugin_sees_each_record_once_and_in_order() {
    const RECORDS: usize = 300;
    for seed in 0..60 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let scene = Scene::with_buffer(
            (20 << 20) + dice.usize(0..400_000),
            ReadLimits {
                bytes_per_second: f64::from(1 << 30),
                ..ReadLimits::default()
            },
        );
        let mut fault_dice = fastrand::Rng::with_seed(seed + 1_000);
        scene.stream.faults.draw_from(move |_| {
            let faults = [
                Fault::Throttle,
                Fault::UnknownNotApplied,
                Fault::ExpiredIterator,
                Fault::NotFound,
                Fault::Hang,
            ];
            (fault_dice.u32(0..20) == 0).then(|| faults[fault_dice.usize(0..faults.len())])
        });
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            tasks.spawn(stormy(
                scene.walker(ReadFrom::TrimHorizon),
                dice.fork(),
                RECORDS,
            ));
        }
        for _ in 0..RECORDS / 10 {
            for _ in 0..10 {
                scene.stream.put_at(0, "key", vec![0; dice.usize(1..2_000)]);
            }
            tokio::time::sleep(Duration::from_millis(dice.u64(0..20_000))).await;
        }
        for walker in tasks.join_all().await {
            assert_eq!(walker.seen, scene.all(), "seed {seed}");
        }
        assert!(scene.ring.used_bytes() <= 400_000, "seed {seed}");
    }
}
