//! One budget of memory for all instances: more shards than it holds at once take turns, and lose
//! nothing.

use std::time::Duration;

use harness::flights::{self, Output};
use harness::guests::{guest, versioned};
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

/// Address space that is less than an instance reserves, for its memory and what guards it.
const TOO_LITTLE: u64 = 2 << 30;

/// The system refuses what an instance needs, as under `LimitAS=` or with too few memory maps.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_the_system_has_no_room_for_is_not_to_blame_and_takes_over_once_there_is() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("versioned", &versioned(0));
    let host = setting.host_with(
        "a",
        "[host]\nadmin = \"127.0.0.1:0\"\n[retry]\ncap = \"500ms\"",
    );
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("versioned", &last).await;
    let limit = host.limit_address_space(TOO_LITTLE);
    setting.drop_plugin("versioned", &versioned(1));
    eventually("the system refuses an instance", || {
        host.log().contains("Cannot allocate memory")
    })
    .await;
    // Long enough for a verdict: a version that does not start gets three tries.
    let later = setting.put(&flights::input()).await;
    setting.until_checkpointed("versioned", &later).await;
    let log = host.log();
    assert!(log.contains("the host could not run the plugin"), "{log}");
    assert!(!log.contains("quarantined"), "{log}");
    host.set_address_space(limit);
    let flights = flights::expected().values().sum::<u64>();
    let mut times = 2;
    while Output::read(&[&setting.output_of("a")]).versions.len() < 2 {
        assert!(
            times < 20,
            "the new version never takes over: {}",
            host.log()
        );
        let last = setting.put(&flights::input()).await;
        setting.until_checkpointed("versioned", &last).await;
        times += 1;
    }
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!((output.lines, output.repeats), (times * flights, 0));
    assert!(host.terminate().await.success());
    setting.stop().await;
}
