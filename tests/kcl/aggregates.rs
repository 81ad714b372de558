//! Aggregates of the KPL, from the KCL to us and back, each time in the middle of some; polled by
//! both, and pushed to us.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use harness::flights;
use harness::setting::STREAM;
use shardmill_aws::{PutEntry, StreamWriter};
use shardmill_core::lease::Checkpoint;
use shardmill_core::stream::StreamName;

use crate::ledger::Handled;
use crate::scene::Scene;
use crate::toolchain::Kcl;

/// The aggregates were made for this many shards; each holds some 158 records.
const SHARDS: u32 = 4;
/// One aggregate a reply, and batches that wait until they are full, so that nearly all end inside
/// one.
const POLLING: &str = "[batch]\nrecords = 100\nwindow = \"3s\"\n[reads]\nrecords-per-call = \
    1\nidle-every = \"100ms\"";
/// The same, pushed: what comes out in time was not polled.
const FAN_OUT: &str = "[batch]\nrecords = 100\nwindow = \"3s\"\n[reads]\nretrieval = \
    \"fan-out\"\ncalls-per-second = 0.004";

#[tokio::test(flavor = "multi_thread")]
async fn aggregates_go_to_us_and_back_in_the_middle_of_some_and_no_record_is_lost_or_out_of_order()
{
    let Some(kcl) = Kcl::build("2.7.2") else {
        return;
    };
    let mut scene = Scene::new(kcl, SHARDS).await;
    let total = usize::try_from(flights::expected().values().sum::<u64>()).unwrap();
    put(&scene, flights::aggregates()).await;
    // What each worker found.
    let mut found = Vec::new();

    for (theirs, ours, reads) in [("kcl-1", "ours-1", POLLING), ("kcl-2", "ours-2", FAN_OUT)] {
        found.push((theirs, scene.checkpoints().await));
        // Killed, since it would checkpoint whole aggregates at a planned end.
        let kcl = scene.kcl_with(theirs, &one_aggregate_a_reply());
        scene.until_handled_by(theirs, total / 10).await;
        kcl.kill();
        found.push((ours, scene.checkpoints().await));
        let host = scene.ours_reading(ours, reads);
        match reads {
            FAN_OUT => {
                scene
                    .until("all has come out", async || {
                        distinct(&scene.outputs()).len() == total
                    })
                    .await;
            }
            _ => scene.until_handled_by(ours, total / 10).await,
        }
        assert!(host.terminate().await.success());
    }

    let outputs = scene.outputs();
    let all = distinct(&outputs);
    for ((id, checkpoints), handled) in found.iter().zip(&outputs) {
        assert_went_on(id, handled, checkpoints, &all);
    }
    let inside = found
        .iter()
        .skip(1)
        .map(|(_, checkpoints)| count_inside(checkpoints, &all));
    let inside: Vec<usize> = inside.collect();
    assert!(
        inside.iter().all(|count| *count > 0),
        "each goes on inside an aggregate: {inside:?}"
    );
    let lines: usize = outputs.iter().map(Vec::len).sum();
    let largest = all.iter().map(|place| place.2 + 1).max().unwrap();
    // What each of the two that were killed had not checkpointed: a reply, and the last record of
    // the one before.
    let repeats_max = 2 * SHARDS as usize * (usize::try_from(largest).unwrap() + 1);
    assert!(
        lines - all.len() <= repeats_max,
        "{} records came again",
        lines - all.len()
    );
    crate::figures(&format!(
        "aggregates: {total} records, {} repeats; places inside an aggregate at each of three \
            hand-overs: {inside:?}",
        lines - all.len()
    ));
    scene.setting.stop().await;
}

fn one_aggregate_a_reply() -> Vec<String> {
    [
        "records-per-call=1",
        "checkpoint-batches=1",
        "checkpoint-at=last-but-one",
    ]
    .map(str::to_owned)
    .to_vec()
}

async fn put(scene: &Scene, aggregates: Vec<(String, Vec<u8>)>) {
    let stream = StreamName::new(STREAM).unwrap();
    let writer = StreamWriter::new(scene.setting.clients.kinesis.clone(), stream);
    let entry = |(partition_key, data)| PutEntry {
        partition_key,
        explicit_hash_key: None,
        data: Bytes::from(data),
    };
    writer
        .put_all(aggregates.into_iter().map(entry), |_, _| {})
        .await
        .unwrap();
}

/// Shard, sequence number, number within the aggregate. Sequence numbers of the embedded stack have
/// equal lengths.
type Place<'a> = (&'a str, &'a str, u64);

fn distinct(outputs: &[Vec<Handled>]) -> BTreeSet<Place<'_>> {
    outputs.iter().flatten().map(place).collect()
}

fn place(handled: &Handled) -> Place<'_> {
    (&handled.shard, &handled.sequence, handled.sub_sequence)
}

/// The first record that a checkpoint does not cover.
fn next_after<'a>(
    shard: &str,
    checkpoint: &Checkpoint,
    all: &BTreeSet<Place<'a>>,
) -> Option<Place<'a>> {
    let covered = checkpoint.position().map_or(("", 0), |position| {
        (position.sequence.as_str(), position.sub_sequence)
    });
    all.iter()
        .copied()
        .find(|(of, sequence, sub)| *of == shard && (*sequence, *sub) > covered)
}

/// Checks that a worker began each shard with the first record that the checkpoints do not cover,
/// and went on in order.
fn assert_went_on(
    id: &str,
    handled: &[Handled],
    found: &BTreeMap<String, Checkpoint>,
    all: &BTreeSet<Place<'_>>,
) {
    let mut by_shard: BTreeMap<&str, Vec<Place<'_>>> = BTreeMap::new();
    for handled in handled {
        by_shard
            .entry(&handled.shard)
            .or_default()
            .push(place(handled));
    }
    assert!(!by_shard.is_empty(), "{id} handled nothing");
    for (shard, places) in by_shard {
        let checkpoint = found.get(shard).unwrap_or(&Checkpoint::TrimHorizon);
        assert_eq!(
            places.first().copied(),
            next_after(shard, checkpoint, all),
            "{id}, checkpointed at {checkpoint}"
        );
        assert!(
            places.is_sorted(),
            "{id} met records of {shard} out of order"
        );
    }
}

/// In how many shards the first record that is not covered belongs to an aggregate of which others
/// are.
fn count_inside(checkpoints: &BTreeMap<String, Checkpoint>, all: &BTreeSet<Place<'_>>) -> usize {
    let is_inside = |(shard, checkpoint): &(&String, &Checkpoint)| {
        let next = next_after(shard, checkpoint, all);
        next.is_some_and(|(_, sequence, _)| {
            checkpoint
                .position()
                .is_some_and(|at| at.sequence.as_str() == sequence)
        })
    };
    checkpoints.iter().filter(is_inside).count()
}
