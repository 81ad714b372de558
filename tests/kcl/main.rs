//! The real Kinesis Client Library and our hosts on one lease table: fleets move to us and back,
//! and share.
//!
//! Needs Java and Maven: runs with `SHARDMILL_KCL=1`; see [`toolchain`]. With `--test-threads 8`
//! all wait at the same time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "the course of a failed run")]

mod aggregates;
mod changes;
mod fan_out;
mod latest;
mod ledger;
mod provisioned;
mod scene;
mod toolchain;

use std::io::Write;
use std::time::Duration;

use harness::process::Host;
use scene::{Owners, Scene, count, owns_all};
use toolchain::{Kcl, stop};

const SHARDS: u32 = 4;
/// The KCL's workers here checkpoint every third batch.
const CHECKPOINT_BATCHES: u64 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn the_kcl_2_and_we_hand_leases_to_each_other_and_share_them() {
    let Some(kcl) = Kcl::build("2.7.2") else {
        return;
    };
    let mut scene = Scene::new(kcl, SHARDS).await;
    let ours = back_and_forth(&mut scene, End::Killed).await;
    let ours = side_by_side(&mut scene, ours).await;
    nothing_is_lost("KCL 2.7.2", scene, ours).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kcl_3_and_we_hand_leases_to_each_other() {
    let Some(kcl) = Kcl::build("3.5.1") else {
        return;
    };
    let mut scene = Scene::new(kcl, SHARDS).await;
    // A dead leader would keep the next one waiting for two minutes, which is the KCL's own affair.
    let ours = back_and_forth(&mut scene, End::Planned).await;
    let ours = under_a_leader(&mut scene, ours).await;
    nothing_is_lost("KCL 3.5.1", scene, ours).await;
}

/// How a worker goes.
enum End {
    Planned,
    Killed,
}

/// The KCL begins on an empty table, we take over, the KCL takes back, goes, and we take over
/// again.
async fn back_and_forth(scene: &mut Scene, end: End) -> Host {
    scene.feed.put(2_000).await;
    let kcl = scene.kcl("kcl-1", CHECKPOINT_BATCHES);
    scene.until_handled_by("kcl-1", 600).await;
    assert!(stop(kcl).await, "a clean end");
    let left_by_kcl = scene.checkpoints().await;
    scene.write_on_every_row("42").await;

    let ours = scene.ours("ours-1");
    scene.feed.put(2_000).await;
    scene.until_handled_by("ours-1", 1_000).await;
    assert!(ours.terminate().await.success());
    scene.assert_went_on("ours-1", &left_by_kcl);
    let left_by_us = scene.checkpoints().await;

    let kcl = scene.kcl("kcl-2", CHECKPOINT_BATCHES);
    scene.until_handled_by("kcl-2", 700).await;
    let repeats_max = match end {
        End::Planned => {
            assert!(stop(kcl).await, "a clean end");
            0
        }
        End::Killed => {
            kcl.kill();
            Scene::repeats_max(CHECKPOINT_BATCHES, SHARDS.into())
        }
    };
    scene.assert_went_on("kcl-2", &left_by_us);
    assert_eq!(
        scene.balance().repeats,
        0,
        "planned exits repeat nothing, theirs and ours"
    );
    let left_by_kcl = scene.checkpoints().await;

    let ours = scene.ours("ours-2");
    scene
        .until_owned("we own all that the KCL had", |owners| {
            owns_all(owners, "ours-2")
        })
        .await;
    scene.until_all_handled().await;
    scene.assert_went_on("ours-2", &left_by_kcl);
    let repeats = scene.balance().repeats;
    assert!(
        repeats <= repeats_max,
        "{repeats} records came again, {repeats_max} were not checkpointed"
    );
    // All four workers have written to all rows by now.
    let kept = scene.rows_with_foreign_and_own_attributes().await;
    assert_eq!(
        kept,
        (4, 4),
        "rows keep what neither side knows, and the KCL keeps our digest"
    );
    ours
}

/// A KCL 2.x worker steals its share from us; a merge of a shard of each and a split of another of
/// each follow; then each leaves the other alone with everything.
async fn side_by_side(scene: &mut Scene, ours: Host) -> Host {
    let kcl = scene.kcl("kcl-3", CHECKPOINT_BATCHES);
    let is_shared = |owners: &Owners| count(owners, "kcl-3") == 2 && count(owners, "ours-2") == 2;
    let owners: Vec<_> = scene
        .until_owned("both own half", is_shared)
        .await
        .into_iter()
        .collect();
    // Two of each in a row of four: two neighbours differ, and the two that are left differ too.
    let left = owners
        .windows(2)
        .position(|pair| pair[0].1 != pair[1].1)
        .unwrap();
    let is_merged = |index: usize| index == left || index == left + 1;
    scene.merge(&owners[left].0, &owners[left + 1].0).await;
    for (index, (shard, _)) in owners.iter().enumerate() {
        if !is_merged(index) {
            scene.split(shard).await;
        }
    }
    let are_followed = |owners: &Owners| {
        let all_owned = owners.values().all(Option::is_some);
        owners.len() == 5 && all_owned && count(owners, "kcl-3") > 0 && count(owners, "ours-2") > 0
    };
    scene
        .until_owned(
            "all four are finished, their five children owned by both",
            are_followed,
        )
        .await;
    for (index, (parent, _)) in owners.iter().enumerate() {
        // The leader among our hosts deletes finished rows once their children have started.
        let Some(row) = scene.lease(parent).await else {
            continue;
        };
        assert_eq!(
            row.children.len(),
            if is_merged(index) { 1 } else { 2 },
            "{parent} names what follows it"
        );
    }
    scene.for_a_while(Duration::from_secs(2)).await;
    assert!(ours.terminate().await.success());
    scene
        .until_owned("the KCL owns all", |owners| owns_all(owners, "kcl-3"))
        .await;
    let ours = scene.ours("ours-3");
    scene
        .until_owned("we have our share of the living KCL's", |owners| {
            is_even(owners, "ours-3", "kcl-3")
        })
        .await;
    let _hangs_on_finished_leases = stop(kcl).await;
    scene
        .until_owned("we own all", |owners| owns_all(owners, "ours-3"))
        .await;
    ours
}

/// Whether two workers own all, and as many each as the other, or one more.
fn is_even(owners: &Owners, one: &str, other: &str) -> bool {
    let (one, other) = (count(owners, one), count(owners, other));
    one + other == owners.len() && one.abs_diff(other) <= 1
}

/// A native KCL 3.x gives leases away by its leader, which knows only workers with metrics: it
/// leaves ours alone as long as we live. Each takes over when the other leaves.
async fn under_a_leader(scene: &mut Scene, ours: Host) -> Host {
    let kcl = scene.kcl("kcl-3", CHECKPOINT_BATCHES);
    scene.until_log("kcl-3", "performing assignment").await;
    // Longer than it takes the leader to look at the table twice.
    scene.for_a_while(Duration::from_secs(13)).await;
    let owners = scene
        .until_owned("leases have owners", |owners| {
            owners.values().all(Option::is_some)
        })
        .await;
    assert!(
        owns_all(&owners, "ours-2"),
        "the leader takes nothing from the living: {owners:?}"
    );
    scene.split(owners.keys().next().unwrap()).await;
    scene
        .until_owned("the children are owned", |owners| {
            owners.len() == 5 && owners.values().all(Option::is_some)
        })
        .await;
    assert!(ours.terminate().await.success());
    let owners = scene
        .until_owned("the KCL owns all", |owners| owns_all(owners, "kcl-3"))
        .await;
    scene.split(owners.keys().next().unwrap()).await;
    scene
        .until_owned("the KCL owns the children", |owners| {
            owners.len() == 6 && owns_all(owners, "kcl-3")
        })
        .await;
    let ours = scene.ours("ours-3");
    scene
        .until_owned("we have our share of the living KCL's", |owners| {
            is_even(owners, "ours-3", "kcl-3")
        })
        .await;
    assert!(stop(kcl).await, "a clean end");
    scene
        .until_owned("we own all", |owners| owns_all(owners, "ours-3"))
        .await;
    ours
}

async fn nothing_is_lost(version: &str, mut scene: Scene, ours: Host) {
    let left = scene.feed.left();
    scene.feed.put(left).await;
    scene.until_all_handled().await;
    let log = ours.log();
    assert!(ours.terminate().await.success());
    let balance = scene.balance();
    assert_eq!(balance.distinct, scene.feed.total());
    assert!(
        !log.contains("cannot be read"),
        "the KCL's rows are ours: {log}"
    );
    let (to_us, to_kcl) = (
        scene.changes.count("kcl", "ours"),
        scene.changes.count("ours", "kcl"),
    );
    // Each way at least as many as the stream had shards at first; how many more depends on when
    // finished leases go.
    assert!(
        to_us >= 4 && to_kcl >= 4,
        "{to_us} leases went to us, {to_kcl} to the KCL"
    );
    figures(&format!(
        "{version}: {} records, {} repeats; owners changed {to_us} times from the KCL to us, \
            {to_kcl} times back",
        balance.distinct, balance.repeats
    ));
    scene.setting.stop().await;
}

/// For whoever reads the output of a run that went well: not through `eprintln!`, which the test
/// runner keeps to itself.
fn figures(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
