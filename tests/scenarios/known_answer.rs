//! Every departure comes out once, in order within its shard.

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::setting::Setting;

#[tokio::test(flavor = "multi_thread")]
async fn every_flight_comes_out_exactly_once_and_in_order() {
    let setting = Setting::new(4).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host("a");
    let last = setting.put(&flights::input()).await;
    assert_eq!(last.len(), 4, "all shards got records");
    setting.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!(output.carriers, flights::expected());
    assert_eq!((output.repeats, output.disorder), (0, 0));
    let leases = setting.leases("flights").await;
    assert!(
        leases
            .iter()
            .all(|lease| lease.owner.is_none() && lease.plugin_digest.is_some()),
        "released, with digest"
    );
    setting.stop().await;
}
