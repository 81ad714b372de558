//! Hosts come, go, die and stop for a while under load: what it costs, and that nothing is lost.
//!
//! `SHARDMILL_ROUNDS=50` and `SHARDMILL_LEASE=10s` give the figures of docs/benchmarks.md.

use std::collections::BTreeSet;
use std::time::Duration;

use harness::feed::{Feed, Follower};
use harness::flights::Output;
use harness::guests::guest;
use harness::process::{Host, eventually};
use harness::setting::Setting;
use harness::throttle::Throttle;
use rustix::process::Signal;

use crate::setting as number;

/// Hosts are killed within a minute of their start, and no plugin is blamed for that.
const READS: &str =
    "[host]\ncache = \"off\"\n[reads]\ncalls-per-second = 20.0\nidle-every = \"50ms\"";
const SHARDS: u32 = 4;

/// One fleet at a time: several hosts and a feed each are as much as two cores run without missing
/// deadlines.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn lease() -> String {
    let duration = std::env::var("SHARDMILL_LEASE").unwrap_or_else(|_| "3s".to_owned());
    format!("duration = \"{duration}\"")
}

fn start(setting: &Setting, id: &str) -> Host {
    setting.host_sharing(id, &lease(), READS)
}

/// A stream that gets records on every shard, and the plugin; no host yet.
async fn under_load() -> (Setting, Feed) {
    let setting = Setting::new(SHARDS).await;
    setting.drop_plugin("flights", &guest("flights"));
    let feed = Feed::start(
        setting.clients.kinesis.clone(),
        SHARDS,
        Duration::from_millis(50),
    );
    (setting, feed)
}

async fn owned_by(setting: &Setting, id: &str) -> BTreeSet<String> {
    let leases = setting.leases("flights").await;
    let mine = leases.iter().filter(|lease| {
        lease
            .owner
            .as_ref()
            .is_some_and(|owner| owner.as_str() == id)
    });
    mine.map(|lease| lease.key.shard_id().to_string()).collect()
}

/// Waits until each host holds its even share.
async fn until_shared(setting: &Setting, ids: &[&str]) {
    let share = SHARDS as usize / ids.len();
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    loop {
        let mut is_even = true;
        for id in ids {
            is_even &= owned_by(setting, id).await.len() == share;
        }
        if is_even {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "the fleet never becomes even"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn until_all_out(setting: &Setting, ids: &[&str], put: u64) -> Output {
    let paths: Vec<_> = ids.iter().map(|id| setting.output_of(id)).collect();
    let paths: Vec<_> = paths.iter().map(std::path::PathBuf::as_path).collect();
    eventually("every record is out", || {
        Output::read(&paths).seen.len() as u64 == put
    })
    .await;
    Output::read(&paths)
}

fn report(what: &str, mut waits: Vec<Duration>, repeats: u64) {
    waits.sort();
    let at =
        |percent: usize| waits[(waits.len() * percent / 100).min(waits.len() - 1)].as_secs_f64();
    let (median, p99, longest) = (at(50), at(99), at(100));
    eprintln!(
        "{what}: {} rounds, median {median:.2} s, p99 {p99:.2} s, longest {longest:.2} s, \
            {repeats} repeats",
        waits.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_a_host_that_leaves_go_on_elsewhere_and_nothing_is_lost_or_repeated() {
    let _turn = TURN.lock().await;
    let (setting, feed) = under_load().await;
    let mut hosts = vec![("a", start(&setting, "a")), ("b", start(&setting, "b"))];
    let mut waits = Vec::new();
    for _ in 0..number("SHARDMILL_ROUNDS", 2) {
        until_shared(&setting, &["a", "b"]).await;
        let (leaving, host) = hosts.remove(0);
        let follower = Follower::at_end(&setting.output_of(hosts[0].0));
        let shards = owned_by(&setting, leaving).await;
        host.signal(Signal::TERM);
        waits.push(follower.until_all(&shards).await);
        assert!(host.ended().await.success());
        hosts.push((leaving, start(&setting, leaving)));
    }
    let put = feed.stop().await;
    let output = until_all_out(&setting, &["a", "b"], put).await;
    report("after SIGTERM", waits, output.repeats);
    assert_eq!(
        (output.repeats, output.disorder),
        (0, 0),
        "a planned exit repeats nothing, nor does a hand-over"
    );
    for (_, host) in hosts {
        assert!(host.terminate().await.success());
    }
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_a_killed_host_go_on_after_the_lease_duration_and_nothing_is_lost() {
    let _turn = TURN.lock().await;
    let (setting, feed) = under_load().await;
    let mut hosts = vec![("a", start(&setting, "a")), ("b", start(&setting, "b"))];
    let mut waits = Vec::new();
    for _ in 0..number("SHARDMILL_ROUNDS", 2) {
        until_shared(&setting, &["a", "b"]).await;
        let (dying, host) = hosts.remove(0);
        let follower = Follower::at_end(&setting.output_of(hosts[0].0));
        let shards = owned_by(&setting, dying).await;
        host.kill();
        waits.push(follower.until_all(&shards).await);
        hosts.push((dying, start(&setting, dying)));
    }
    let put = feed.stop().await;
    let output = until_all_out(&setting, &["a", "b"], put).await;
    report("after kill -9", waits, output.repeats);
    assert_eq!(output.disorder, 0);
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_stopped_for_longer_than_a_lease_takes_part_again_and_nothing_is_lost() {
    let _turn = TURN.lock().await;
    let (setting, feed) = under_load().await;
    let (a, b) = (start(&setting, "a"), start(&setting, "b"));
    until_shared(&setting, &["a", "b"]).await;
    let shards = owned_by(&setting, "a").await;
    let follower = Follower::at_end(&setting.output_of("b"));
    a.signal(Signal::STOP);
    follower.until_all(&shards).await;
    a.signal(Signal::CONT);
    until_shared(&setting, &["a", "b"]).await;
    let put = feed.stop().await;
    let output = until_all_out(&setting, &["a", "b"], put).await;
    assert_eq!(output.disorder, 0);
    assert!(a.terminate().await.success() && b.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_of_four_hosts_under_load_repeats_nothing() {
    let _turn = TURN.lock().await;
    let (setting, feed) = under_load().await;
    let ids = ["a", "b", "c", "d"];
    let mut hosts: Vec<_> = ids.map(|id| (id, start(&setting, id))).into();
    until_shared(&setting, &ids).await;
    let mut lags = Vec::new();
    for _ in ids {
        let (id, host) = hosts.remove(0);
        let followers: Vec<_> = hosts
            .iter()
            .map(|(other, _)| Follower::at_end(&setting.output_of(other)))
            .collect();
        let shards = owned_by(&setting, id).await;
        let left_at = tokio::time::Instant::now();
        host.signal(Signal::TERM);
        eventually("its shards go on elsewhere", || {
            let out: BTreeSet<_> = followers.iter().flat_map(Follower::shards).collect();
            shards.is_subset(&out)
        })
        .await;
        lags.push(left_at.elapsed());
        assert!(host.ended().await.success());
        hosts.push((id, start(&setting, id)));
        until_shared(&setting, &ids).await;
    }
    let put = feed.stop().await;
    let output = until_all_out(&setting, &ids, put).await;
    report(
        "rolling restart of four hosts, lag of the shards that moved",
        lags,
        output.repeats,
    );
    assert_eq!((output.repeats, output.disorder), (0, 0));
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_table_slows_hosts_down_and_loses_nothing() {
    let _turn = TURN.lock().await;
    let setting = Setting::new(SHARDS).await;
    setting.drop_plugin("flights", &guest("flights"));
    let throttle = Throttle::before(setting.stack().dynamodb_endpoint()).await;
    let feed = Feed::start(
        setting.clients.kinesis.clone(),
        SHARDS,
        Duration::from_millis(50),
    );
    let leases = format!(
        "{}\n[aws]\ndynamodb-endpoint = \"{}\"",
        lease(),
        throttle.endpoint
    );
    let (a, b) = (
        setting.host_behind("a", &leases, READS),
        setting.host_behind("b", &leases, READS),
    );
    until_shared(&setting, &["a", "b"]).await;
    throttle.refuse(70);
    eventually("many requests are refused", || throttle.refused() > 150).await;
    throttle.refuse(100);
    tokio::time::sleep(Duration::from_secs(6)).await;
    throttle.refuse(0);
    until_shared(&setting, &["a", "b"]).await;
    let put = feed.stop().await;
    let output = until_all_out(&setting, &["a", "b"], put).await;
    assert_eq!(output.disorder, 0);
    assert!(a.terminate().await.success() && b.terminate().await.success());
    setting.stop().await;
}
