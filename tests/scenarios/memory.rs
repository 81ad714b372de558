//! One budget of memory for all instances: more shards than it holds at once take turns, and lose
//! nothing.

use std::time::Duration;

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::eventually;
use harness::setting::Setting;

/// Shards. An instance takes a mebibyte before its first record and some more for a batch: six
/// times the budget.
const SHARDS: u32 = 48;
const BUDGET_BYTES: f64 = 16.0 * 1_048_576.0;

#[tokio::test(flavor = "multi_thread")]
async fn shards_whose_instances_do_not_fit_at_once_take_turns_and_every_record_is_handled() {
    let setting = Setting::new(SHARDS).await;
    setting.drop_plugin("flights", &guest("flights"));
    let last = setting.put(&flights::input()).await;
    let host = setting.host_with(
        "a",
        "[limits]\nmemory = \"16MiB\"\n[retry]\ncap = \"500ms\"\n[host]\nadmin = \
            \"127.0.0.1:0\"\ninstances-memory = \"16MiB\"\n\
         [reads]\ncalls-per-second = 50.0\nbytes-per-second = \"1GiB\"\nidle-every = \"50ms\"",
    );
    eventually("the pages are served", || host.log().contains("http://")).await;
    let mut done = Box::pin(setting.until_checkpointed("flights", &last));
    let mut most = 0.0_f64;
    loop {
        tokio::select! {
            () = &mut done => break,
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
        most = most.max(host.metric("shardmill_instances_memory_bytes", "").await);
    }
    drop(done);
    let limit = host
        .metric("shardmill_instances_memory_limit_bytes", "")
        .await;
    let recycled = host.metric("shardmill_instances_recycled_total", "").await;
    assert!((limit - BUDGET_BYTES).abs() < 1.0, "{limit}");
    assert!(most > 0.0 && most <= BUDGET_BYTES, "{most}");
    assert!(recycled > 0.0, "nobody made room");
    assert!(host.metric("shardmill_records_given_up_total", "").await < 1.0);
    eprintln!(
        "at most {:.1} of 16 MiB, {recycled} instances made room",
        most / 1_048_576.0
    );
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!(output.carriers, flights::expected());
    assert_eq!((output.repeats, output.disorder), (0, 0));
    setting.stop().await;
}
