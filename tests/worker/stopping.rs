//! A host that is told to stop while it acts: nothing more begins, and nothing half done is called
//! complete.

use std::time::Duration;

use harness::fake_lease_store::StoreOp;
use harness::fake_stream::ReadOp;
use harness::faults::Fault;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;

#[tokio::test(start_paused = true)]
async fn a_host_that_is_told_to_stop_while_it_takes_begins_no_more_takes() {
    let fleet = TestFleet::new(40);
    let slow = Fault::AnswersAfter(Duration::from_secs(1));
    fleet
        .store
        .faults
        .draw_from(move |op| (op == StoreOp::Take).then_some(slow));
    let host = fleet.start("a", NativePlugin::echo(1));
    until("takes are on their way", || is_any_held(&fleet)).await;
    let sent = fleet.store.calls(StoreOp::Take);
    assert!(sent < 40, "they go in waves");
    host.stop().await;
    assert_eq!(fleet.store.calls(StoreOp::Take), sent);
    assert!(!is_any_held(&fleet), "what was taken is given back");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_told_to_stop_in_its_first_sync_does_not_call_it_complete() {
    let fleet = TestFleet::new(40);
    let slow = Fault::AnswersAfter(Duration::from_secs(1));
    fleet
        .store
        .faults
        .draw_from(move |op| (op == StoreOp::Create).then_some(slow));
    let host = fleet.start("a", NativePlugin::echo(1));
    until("rows are being made", || !fleet.store.rows().is_empty()).await;
    host.stop().await;
    assert!(fleet.store.rows().len() < 40);
    assert!(
        !fleet.coordinator.rows().is_bootstrapped(),
        "shards without rows are still to come"
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_question_about_its_stream_hangs_stops_at_once() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("held", || is_any_held(&fleet)).await;
    fleet.stream.faults.draw_from(|op| match op {
        ReadOp::Identity => Some(Fault::Hang),
        _ => Some(Fault::NotFound),
    });
    let asked = fleet.stream.calls(ReadOp::Identity);
    until("asked whether the stream is gone", || {
        fleet.stream.calls(ReadOp::Identity) >= asked + 2
    })
    .await;
    let stopped = tokio::time::timeout(Duration::from_secs(5), host.stop()).await;
    assert!(stopped.is_ok(), "it waits for an answer that nobody needs");
    assert!(!is_any_held(&fleet), "its lease is given back");
}

fn is_any_held(fleet: &TestFleet) -> bool {
    fleet.store.rows().iter().any(|row| row.owner.is_some())
}
