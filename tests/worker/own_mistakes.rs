//! What the host itself gets wrong costs the shard a pause and no record, and is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use harness::fake_stream::ReadOp;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::ports::Processed;
use shardmill_core::stream::Emitted;
use shardmill_worker::ShardState;

const LONG: Duration = Duration::from_mins(10);
/// A lease that was given up is left to others for four lease durations, of 10 s here.
const TRIES_IN_LONG: usize = 15;

#[tokio::test(start_paused = true)]
async fn a_pipeline_that_panics_rests_before_it_is_tried_again_and_loses_nothing() {
    let fleet = TestFleet::new(1);
    let (is_wrong, tries) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (wrong, tried) = (Arc::clone(&is_wrong), Arc::clone(&tries));
    let plugin = NativePlugin::new(1, move |shard, batch| {
        tried.fetch_add(1, Ordering::Relaxed);
        assert!(!wrong.load(Ordering::Relaxed), "a mistake of the host");
        let emit = |record: &shardmill_core::stream::Record| Emitted {
            destination: "out".to_owned(),
            key: shard.to_string(),
            data: record.data.clone(),
        };
        Ok(Processed {
            emitted: batch.records.iter().map(emit).collect(),
            ..Processed::default()
        })
    });
    fleet.put(0..10);
    let host = fleet.start("a", plugin);
    let shard = fleet.stream.shards()[0].id.clone();
    until("it shows", || {
        host.shard(&shard)
            .is_some_and(|shard| shard.state == ShardState::GaveUp)
    })
    .await;
    until("given back", || fleet.row(&shard).unwrap().owner.is_none()).await;
    tokio::time::sleep(LONG).await;
    let tries = tries.load(Ordering::Relaxed);
    assert!((2..=TRIES_IN_LONG).contains(&tries), "{tries} tries");
    is_wrong.store(false, Ordering::Relaxed);
    until("all came once", || fleet.has_exactly(0..10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_panics_rests_before_it_is_tried_again_and_loses_nothing() {
    let fleet = TestFleet::new(1);
    let host = fleet.start("a", NativePlugin::echo(1));
    let shard = fleet.stream.shards()[0].id.clone();
    fleet.put(0..10);
    until("read", || fleet.is_all_checkpointed()).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let tried = Arc::clone(&tries);
    fleet.stream.faults.draw_from(move |op| {
        if op == ReadOp::Fetch {
            tried.fetch_add(1, Ordering::Relaxed);
        }
        assert!(op != ReadOp::Fetch, "a mistake of the host");
        None
    });
    fleet.put(10..20);
    until("it shows", || {
        host.shard(&shard).unwrap().state == ShardState::GaveUp
    })
    .await;
    tokio::time::sleep(LONG).await;
    let tries = tries.load(Ordering::Relaxed);
    assert!((2..=TRIES_IN_LONG).contains(&tries), "{tries} tries");
    let told = fleet.row(&shard).unwrap().stuck;
    assert!(told.is_some_and(|why| why.contains("reader failed")));
    fleet.stream.faults.clear();
    until("all came once", || fleet.has_exactly(0..20)).await;
}
