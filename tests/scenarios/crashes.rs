//! Kill -9 at any moment loses nothing, and repeats only what was not checkpointed.

use std::time::Duration;

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::eventually;
use harness::setting::Setting;

use crate::setting;

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_nothing_is_lost() {
    let setting_ = Setting::new(4).await;
    setting_.drop_plugin("flights", &guest("flights"));
    let last = setting_.put(&flights::input()).await;
    // Slow enough that every life ends in the middle.
    let config =
        "[batch]\nrecords = 50\n[reads]\ncalls-per-second = 20.0\nrecords-per-call = 40\nidle-every = \"50ms\"";
    let output = setting_.output_of("a");
    let written = || output.metadata().map_or(0, |metadata| metadata.len());
    let mut random = fastrand::Rng::new();
    for life in 0..setting("SHARDMILL_KILLS", 3) {
        let host = setting_.host_with("a", config);
        let bytes = written();
        eventually("more output", || written() > bytes).await;
        tokio::time::sleep(Duration::from_millis(random.u64(0..400))).await;
        host.kill();
        eprintln!("life {life} ended with {} bytes of output", written());
    }
    let host = setting_.host("a");
    setting_.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting_.output_of("a")]);
    assert_eq!(output.carriers, flights::expected());
    assert_eq!(output.disorder, 0);
    eprintln!("{} lines, {} repeats", output.lines, output.repeats);
    setting_.stop().await;
}
