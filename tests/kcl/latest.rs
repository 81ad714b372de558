//! Applications that started at LATEST: their quiet shards have rows without a place. Whoever takes
//! them over, replays nothing from before; and nothing that arrives once a host of ours has seen
//! the table is skipped.

use std::collections::{BTreeMap, BTreeSet};

use harness::process::Host;
use shardmill_core::lease::Checkpoint;

use crate::ledger::Shard;
use crate::scene::{Scene, owns_all};
use crate::toolchain::{Kcl, stop};

const SHARDS: u32 = 4;
/// A hash key of the first shard, which gets all the records while the others are quiet.
const FIRST_SHARD: Option<u128> = Some(0);
const LATEST: &str = "[plugin.flights]\ninitial-position = \"latest\"";

#[tokio::test(flavor = "multi_thread")]
async fn a_kcl_that_started_at_latest_is_followed_without_replay_or_loss_and_can_take_back() {
    let Some(kcl) = Kcl::build("2.7.2") else {
        return;
    };
    let (mut scene, history) = scene_with_history(kcl).await;
    let kcl = kcl_reading_all(&mut scene, "kcl-1").await;
    put_to_the_first_shard(&mut scene).await;
    assert!(stop(kcl).await, "a clean end");
    assert_only_one_is_checkpointed(&scene).await;

    // We see the table, take all, and die before anything comes; records come while nobody lives.
    let ours = scene.ours_with("ours-1", LATEST);
    scene
        .until_owned_at_rest("we own all", |owners| owns_all(owners, "ours-1"))
        .await;
    ours.kill();
    put_everywhere(&mut scene).await;
    let ours = scene.ours_with("ours-2", LATEST);
    scene.until_all_handled_but(&history).await;
    assert!(ours.terminate().await.success());
    let left_by_us = scene.checkpoints().await;
    assert!(
        !left_by_us.contains_key("shardId-000000000000"),
        "what was closed before is not started"
    );

    put_everywhere(&mut scene).await;
    let kcl = scene.kcl_with("kcl-2", &from_latest());
    scene.until_all_handled_but(&history).await;
    assert!(stop(kcl).await, "a clean end");
    scene.assert_went_on("kcl-2", &left_by_us);
    nothing_old_and_nothing_twice(scene, &history).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_we_started_at_latest_a_kcl_goes_on_with_replays_nothing_and_gives_back() {
    let Some(kcl) = Kcl::build("3.5.1") else {
        return;
    };
    let (mut scene, history) = scene_with_history(kcl).await;
    let ours = scene.ours_with("ours-1", LATEST);
    scene
        .until_owned_at_rest("we own all", |owners| {
            owners.len() == 5 && owns_all(owners, "ours-1")
        })
        .await;
    put_to_the_first_shard(&mut scene).await;
    assert!(ours.terminate().await.success());
    let left_by_us = assert_only_one_is_checkpointed(&scene).await;

    // Shards at LATEST it reads from its own now, as it always does: nothing comes to those before
    // it reads them all.
    scene.feed.put_under(FIRST_SHARD, 50).await;
    let kcl = kcl_reading_all(&mut scene, "kcl-1").await;
    put_everywhere(&mut scene).await;
    scene.until_all_handled_but(&history).await;
    assert!(stop(kcl).await, "a clean end");
    scene.assert_went_on("kcl-1", &only_places(left_by_us));
    let left_by_kcl = scene.checkpoints().await;

    put_everywhere(&mut scene).await;
    let ours = scene.ours_with("ours-2", LATEST);
    scene.until_all_handled_but(&history).await;
    assert!(ours.terminate().await.success());
    scene.assert_went_on("ours-2", &left_by_kcl);
    nothing_old_and_nothing_twice(scene, &history).await;
}

type Stored = BTreeMap<String, Shard>;

/// A stream with records that nobody wanted, one shard of it split since: open are 1 to 5. And what
/// is in it.
async fn scene_with_history(kcl: Kcl) -> (Scene, Stored) {
    let mut scene = Scene::new(kcl, SHARDS).await;
    scene.feed.put(300).await;
    scene.split_at("shardId-000000000000", 1 << 125).await;
    scene.feed.put(200).await;
    let history = scene.feed.stored.clone();
    assert_eq!(
        history.len(),
        6,
        "each shard has some: {:?}",
        history.keys()
    );
    // The beginning of ours is a whole second, rounded down: it gets what came in that second.
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    (scene, history)
}

fn from_latest() -> Vec<String> {
    vec![
        "initial-position=LATEST".to_owned(),
        "checkpoint-batches=1".to_owned(),
    ]
}

/// Starts a KCL and waits until it has a place in each of the five open shards.
async fn kcl_reading_all(scene: &mut Scene, id: &str) -> Host {
    let kcl = scene.kcl_with(id, &from_latest());
    for shard in 1..=5 {
        // Logged once the first iterator is made.
        scene
            .until_log(id, &format!("shardId-00000000000{shard} starts at"))
            .await;
    }
    kcl
}

/// And waits until they are handled.
async fn put_to_the_first_shard(scene: &mut Scene) {
    let before = scene.balance().distinct;
    scene.feed.put_under(FIRST_SHARD, 50).await;
    scene
        .until("the first shard's records are handled", async || {
            scene.balance().distinct == before + 50
        })
        .await;
}

async fn put_everywhere(scene: &mut Scene) {
    let before: BTreeMap<_, _> = scene
        .feed
        .stored
        .iter()
        .map(|(shard, records)| (shard.clone(), records.len()))
        .collect();
    scene.feed.put(600).await;
    let grown = scene
        .feed
        .stored
        .iter()
        .filter(|(shard, records)| before.get(*shard) != Some(&records.len()));
    assert_eq!(grown.count(), 5, "each open shard gets some");
}

/// How far each shard is checkpointed.
async fn assert_only_one_is_checkpointed(scene: &Scene) -> BTreeMap<String, Checkpoint> {
    let checkpoints = scene.checkpoints().await;
    let at_latest = checkpoints
        .values()
        .filter(|checkpoint| **checkpoint == Checkpoint::Latest)
        .count();
    let has_place = checkpoints
        .values()
        .filter(|checkpoint| checkpoint.position().is_some())
        .count();
    assert_eq!((has_place, at_latest), (1, 4), "{checkpoints:?}");
    checkpoints
}

fn only_places(mut checkpoints: BTreeMap<String, Checkpoint>) -> BTreeMap<String, Checkpoint> {
    checkpoints.retain(|_, checkpoint| checkpoint.position().is_some());
    checkpoints
}

async fn nothing_old_and_nothing_twice(scene: Scene, history: &Stored) {
    let handled = scene.outputs().into_iter().flatten();
    let seen: BTreeSet<(String, String)> = handled
        .map(|handled| (handled.shard, handled.sequence))
        .collect();
    for (shard, records) in history {
        let replayed = records
            .keys()
            .find(|sequence| seen.contains(&(shard.clone(), (*sequence).clone())));
        assert_eq!(
            replayed, None,
            "a record of {shard} from before the application began was handled"
        );
    }
    assert_eq!(
        scene.balance().repeats,
        0,
        "planned exits repeat nothing, and the one that was killed had begun nothing"
    );
    scene.setting.stop().await;
}
