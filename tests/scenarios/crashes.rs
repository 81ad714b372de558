//! Kill -9 at any moment loses nothing, and repeats only what was not checkpointed. A host that
//! dies of a plugin does so twice.

use std::time::Duration;

use harness::flights::{self, Output};
use harness::guests::{guest, versioned};
use harness::process::{Host, eventually, shardmill};
use harness::setting::Setting;
use sha2::{Digest, Sha256};

use crate::setting;

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_nothing_is_lost() {
    let setting_ = Setting::new(4).await;
    setting_.drop_plugin("flights", &guest("flights"));
    let last = setting_.put(&flights::input()).await;
    // Slow enough that every life ends in the middle; and no plugin is blamed for these deaths.
    let config = "[host]\ncache = \"off\"\n[batch]\nrecords = 50\n[reads]\ncalls-per-second = 20.0\nrecords-per-call = \
        40\nidle-every = \"50ms\"";
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

/// A plugin that never comes back from a call, in a host that gets little processor time, and one
/// that does its work.
const DEADLY: &str = "[host]\ncache = \"cache\"\nadmin = \
    \"127.0.0.1:0\"\n[plugin.evil.config]\nmisbehave = \"loop\"\n\
                      [reads]\ncalls-per-second = 50.0\nbytes-per-second = \"1GiB\"\nidle-every = \"50ms\"";
/// What a host, its neighbour and its start need is a fraction of it.
const CPU_SECONDS: u32 = 2;

/// The neighbour did well in an earlier life of the host.
fn prove(setting: &Setting, component: &[u8]) {
    let marks = setting.path().join("cache.marks");
    std::fs::create_dir(&marks).unwrap();
    let line = format!(
        "{} {}\n",
        hex::encode(Sha256::digest(component)),
        env!("CARGO_PKG_VERSION")
    );
    std::fs::write(marks.join("proven"), line).unwrap();
}

/// It names where the admin pages of an earlier life were.
fn forget_log(setting: &Setting) {
    std::fs::remove_file(setting.path().join("a.log")).unwrap();
}

async fn until_refused(host: &Host) -> String {
    eventually("the admin pages", || host.log().contains("http://")).await;
    let refusal = |status: &serde_json::Value| {
        status["plugins"]["evil"]["refused-file"]
            .as_str()
            .map(str::to_owned)
    };
    host.until_status("the deadly plugin is refused", |status| {
        refusal(status).is_some()
    })
    .await;
    refusal(&host.status().await).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_killed_by_a_plugin_quarantines_it_and_serves_the_rest() {
    let setting_ = Setting::new(2).await;
    let (good, evil) = (versioned(1), guest("evil"));
    prove(&setting_, &good);
    setting_.drop_plugin("versioned", &good);
    setting_.drop_plugin("evil", &evil);
    setting_.put(&flights::input()).await;
    for life in 1..=2 {
        let status = setting_.host_within("a", DEADLY, CPU_SECONDS).ended().await;
        assert!(!status.success(), "life {life} ended with {status}");
    }
    let output = setting_.output_of("a");
    let written = || output.metadata().map_or(0, |metadata| metadata.len());
    let (bytes, restarted) = (written(), std::time::Instant::now());
    let last = setting_.put(&flights::input()).await;
    forget_log(&setting_);
    let host = setting_.host_with("a", DEADLY);
    eventually("the neighbour is served", || written() > bytes).await;
    eprintln!(
        "2 deaths; the neighbour's first output came {:?} after the restart",
        restarted.elapsed()
    );
    let refused = until_refused(&host).await;
    assert!(
        refused.contains("died 2 times") && refused.contains("in its calls"),
        "{refused}"
    );
    setting_.until_checkpointed("versioned", &last).await;
    assert!(host.terminate().await.success());
    let found = Output::read(&[&output]);
    assert_eq!(
        found.seen.len() as u64,
        2 * flights::expected().values().sum::<u64>()
    );
    assert_eq!(found.disorder, 0);

    // Nor does another host of the fleet start it, which has not died of it.
    let other = setting_.host_with("b", &DEADLY.replace("\"cache\"", "\"other\""));
    eventually("the other host knows", || {
        other.log().contains("is quarantined, found bad by a")
    })
    .await;
    assert!(
        setting_
            .leases("evil")
            .await
            .iter()
            .all(|lease| lease.owner.as_ref().is_none_or(|id| id.as_str() != "b"))
    );
    assert!(other.terminate().await.success());

    forget_log(&setting_);
    let host = setting_.host_with("a", DEADLY);
    until_refused(&host).await;
    let digest = hex::encode(Sha256::digest(&evil));
    let released = shardmill(
        &["plugins", "evil", "--local", "--release", &digest[..12]],
        setting_.path(),
    )
    .await;
    assert!(
        released.status.success(),
        "{}",
        String::from_utf8_lossy(&released.stderr)
    );
    host.until_status("the released version is served", |status| {
        !status["plugins"]["evil"]["stream"].is_null()
    })
    .await;
    host.kill();
    setting_.stop().await;
}
