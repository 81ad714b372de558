//! What the row of a lease says that was given back in trouble.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use harness::fake_lease_store::{AppliedWrite, StoreOp};
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;

use crate::held::{count, processing, refuse};

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_handed_over_without_its_last_checkpoint_says_so_in_its_row() {
    const RAISES: &[StoreOp] = &[StoreOp::Renew, StoreOp::Checkpoint];
    let fleet = TestFleet::new(2);
    let (a, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    until("a has both", || processing(&a) == 2).await;
    refuse(&tables, RAISES, Fault::Throttle);
    fleet.put(0..100);
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("one is handed over", || count(&fleet, "b") >= 1).await;
    let written = [fleet.store.history(), tables.store.history()].concat();
    let released: Vec<_> = written
        .iter()
        .filter(|write| write.op == StoreOp::Release)
        .collect();
    assert!(!released.is_empty());
    for write in released {
        assert!(write.row.stuck.is_some(), "{:?}", write.row);
    }
    until("all out", || fleet.is_all_checkpointed()).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_given_up_says_why_in_its_row_though_that_can_be_written_only_on_leaving()
{
    let fleet = TestFleet::new(2);
    let (a, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || {
        processing(&a) == 1 && count(&fleet, "b") == 1
    })
    .await;
    let before = fleet.store.history().len();
    // The lease is tried to be released for its duration; what comes after is said on leaving.
    let (lease, mut tried_since, mut is_over) = (fleet.options.leases.duration, None, false);
    tables.store.faults.draw_from(move |op| match op {
        StoreOp::Checkpoint => Some(Fault::Throttle),
        StoreOp::Release if !is_over => {
            let since = *tried_since.get_or_insert_with(tokio::time::Instant::now);
            is_over = since.elapsed() >= lease;
            Some(Fault::Throttle)
        }
        _ => None,
    });
    fleet.put(0..100);
    until("a gave it back", || count(&fleet, "a") == 0).await;
    let history = fleet.store.history().into_iter().skip(before);
    let of_a = |write: &AppliedWrite| write.op == StoreOp::Release;
    let released: Vec<_> = history.filter(of_a).map(|write| write.row.stuck).collect();
    assert!(
        matches!(&released[..], [Some(reason)] if reason.contains("throttled")),
        "{released:?}"
    );
    until("all out", || fleet.is_all_checkpointed()).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_holder_was_cut_off_in_trouble_says_why_in_its_row() {
    let fleet = TestFleet::new(1);
    let (a, tables) = fleet.start_apart("a", NativePlugin::echo(1));
    until("a has it", || processing(&a) == 1).await;
    refuse(&tables, &[StoreOp::Checkpoint], Fault::Hang);
    fleet.put(0..100);
    tokio::time::sleep(fleet.options.leases.duration).await;
    a.stop().await;
    let row = fleet.store.rows().remove(0);
    assert_eq!(row.owner, None);
    let why = row.stuck.unwrap_or_default();
    assert!(why.contains("cannot be written"), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_behind_a_write_that_was_given_up_is_written_before_the_lease_is_given_back() {
    let mut fleet = TestFleet::new(2);
    fleet.options.checkpoints.records = 1;
    // So long that the row is renewed meanwhile, to say so.
    let slow = NativePlugin::echo(1).taking(fleet.options.leases.duration);
    let (a, tables) = fleet.start_apart("a", slow);
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || {
        processing(&a) == 1 && count(&fleet, "b") == 1
    })
    .await;
    // The renewal is applied and never answered, nor is the read that follows, until it is given up
    // and the checkpoint behind it is sent.
    let (mut renewals, mut reads_since) = (0, 0);
    tables.store.faults.draw_from(move |op| match op {
        StoreOp::Renew => {
            (renewals, reads_since) = (renewals + 1, 0);
            Some(match renewals {
                1 => Fault::UnknownApplied,
                _ => Fault::UnknownNotApplied,
            })
        }
        StoreOp::Get => {
            reads_since += 1;
            (reads_since <= 2).then_some(Fault::UnknownNotApplied)
        }
        _ => None,
    });
    fleet.put(0..100);
    until("a gave it back", || count(&fleet, "a") == 0).await;
    until("all out", || fleet.sink.lines().len() >= 100).await;
    assert!(
        fleet.has_exactly(0..100),
        "nothing that was settled repeats"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_row_was_written_after_all_is_kept_though_a_long_call_runs_meanwhile() {
    let mut fleet = TestFleet::new(2);
    let lease = fleet.options.leases.duration;
    fleet.options.leases.plugin_deadline = lease * 20;
    fleet.options.checkpoints.records = 1;
    let slow = NativePlugin::echo(1).taking(lease * 6);
    let (a, tables) = fleet.start_apart("a", slow);
    let _b = fleet.start("b", NativePlugin::echo(1));
    until("they share", || {
        processing(&a) == 1 && count(&fleet, "b") == 1
    })
    .await;
    let before = fleet.store.history().len();
    // Checkpoints fail until the host checks whether it can write at all: it gives up next.
    let (mut is_failing, is_over) = (false, Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&is_over);
    tables.store.faults.draw_from(move |op| match op {
        StoreOp::Checkpoint if !seen.load(Ordering::Relaxed) => {
            is_failing = true;
            Some(Fault::Throttle)
        }
        StoreOp::Renew if is_failing => {
            seen.store(true, Ordering::Relaxed);
            None
        }
        _ => None,
    });
    fleet.put(0..50);
    tokio::time::sleep(lease).await;
    fleet.put(50..100);
    until("all out", || fleet.is_all_checkpointed()).await;
    assert!(is_over.load(Ordering::Relaxed), "it was about to give up");
    let is_given_back = |write: &AppliedWrite| write.op == StoreOp::Release;
    let history = fleet.store.history();
    assert!(!history.iter().skip(before).any(is_given_back));
    assert_eq!(count(&fleet, "a"), 1);
    assert!(fleet.has_exactly(0..100));
}

#[tokio::test(start_paused = true)]
async fn what_a_host_gave_up_it_takes_at_once_when_the_host_that_took_it_goes() {
    let mut fleet = TestFleet::new(2);
    let lease = fleet.options.leases.duration;
    fleet.options.leases.plugin_deadline = lease;
    let a = fleet.start("a", NativePlugin::hanging(1));
    until("a has both", || processing(&a) == 2).await;
    fleet.put(0..100);
    until("a gave them up", || count(&fleet, "a") == 0).await;
    let b = fleet.start("b", NativePlugin::echo(2));
    until("b has its share", || count(&fleet, "b") == 1).await;
    a.offer(NativePlugin::echo(2));
    // Until a has looked.
    tokio::time::sleep(lease * 5 / 4).await;
    b.stop().await;
    let gone_at = tokio::time::Instant::now();
    until("a has what b had", || count(&fleet, "a") == 1).await;
    let waited = gone_at.elapsed();
    assert!(waited < lease / 2, "{waited:?}");
    until("all out", || fleet.is_all_checkpointed()).await;
}
