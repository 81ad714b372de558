//! Enhanced fan-out on both sides, through one consumer, which both name after the application:
//! shards go from one to the other and back, and split and merge while both are subscribed.

use harness::setting::STREAM;

use crate::ledger;
use crate::scene::{Owners, Scene, count, owns_all};
use crate::toolchain::{Kcl, stop};

const SHARDS: u32 = 4;
/// Polling at a call in four minutes: whatever comes out in time was pushed.
const FAN_OUT: &str = "[reads]\nretrieval = \"fan-out\"\ncalls-per-second = 0.004";

#[tokio::test(flavor = "multi_thread")]
async fn a_kcl_and_we_subscribe_to_each_others_shards_and_their_children_through_one_consumer() {
    let Some(kcl) = Kcl::build("2.7.2") else {
        return;
    };
    let mut scene = Scene::new(kcl, SHARDS).await;
    scene.feed.put(500).await;
    let kcl = scene.kcl_with("kcl-1", &by_fan_out());
    scene.until_handled_by("kcl-1", 400).await;

    let ours = scene.ours_reading("ours-1", FAN_OUT);
    let both = |owners: &Owners| count(owners, "kcl-1") == 2 && count(owners, "ours-1") == 2;
    let owners = scene.until_owned("both own half", both).await;
    let by_us = scene.setting.output_of("ours-1");
    scene
        .while_putting_until("we handle some", || ledger::read(&by_us).len() >= 100)
        .await;
    scene.merge_and_split(&owners).await;
    assert!(
        ours.log().contains("subscribing with enhanced fan-out"),
        "{}",
        ours.log()
    );

    let _hangs_on_finished_leases = stop(kcl).await;
    scene
        .until_owned("we own all", |owners| owns_all(owners, "ours-1"))
        .await;
    scene.until_all_handled().await;
    let kcl = scene.kcl_with("kcl-2", &by_fan_out());
    // It begins with the leases of finished shards, and counts them to its share until our leader
    // has removed their rows.
    scene
        .until_owned("the KCL has its share again", |owners| {
            count(owners, "kcl-2") == 2
        })
        .await;
    assert!(ours.terminate().await.success());
    scene
        .until_owned("the KCL owns all", |owners| owns_all(owners, "kcl-2"))
        .await;
    scene.feed.put(500).await;
    scene.until_all_handled().await;
    assert_eq!(
        consumers(&scene).await,
        ["flights"],
        "one consumer for both"
    );
    kcl.kill();

    let by_us = ledger::read(&by_us).len();
    let balance = scene.balance();
    crate::figures(&format!(
        "by fan-out: {} records, {by_us} of them pushed to us, {} repeats; owners changed {} \
            times from the KCL to us, {} times back",
        balance.distinct,
        balance.repeats,
        scene.changes.count("kcl", "ours"),
        scene.changes.count("ours", "kcl"),
    ));
    scene.setting.stop().await;
}

fn by_fan_out() -> Vec<String> {
    vec![
        "retrieval=fan-out".to_owned(),
        "checkpoint-batches=1".to_owned(),
    ]
}

async fn consumers(scene: &Scene) -> Vec<String> {
    let kinesis = &scene.setting.clients.kinesis;
    let summary = kinesis
        .describe_stream_summary()
        .stream_name(STREAM)
        .send()
        .await
        .unwrap();
    let arn = summary.stream_description_summary().unwrap().stream_arn();
    let listed = kinesis
        .list_stream_consumers()
        .stream_arn(arn)
        .send()
        .await
        .unwrap();
    listed
        .consumers()
        .iter()
        .map(|consumer| consumer.consumer_name().to_owned())
        .collect()
}
