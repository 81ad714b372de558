//! Standalone hosts: each reads all shards by itself, with exact counts for each of them.

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::{Host, eventually, shardmill};
use harness::setting::Setting;
use shardmill_core::plugin::of_standalone_host;

/// Hosts of these ids read by themselves.
const HOSTS: [&str; 3] = ["pod-a", "pod-b", "pod-c"];
const LEASES: &str = "duration = \"2s\"\nscan-every = \"100ms\"";
const READS: &str = "[reads]\ncalls-per-second = 50.0\nbytes-per-second = \"1GiB\"\n\
    idle-every = \"50ms\"\n";

/// The section, and the reads.
fn standalone(restart: &str) -> String {
    format!("{READS}[plugin.flights.standalone]\nrestart = {restart:?}\n")
}

async fn run(setting: &Setting, args: &[&str]) -> (bool, String) {
    let ended = shardmill(args, setting.path()).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        ended.status.success(),
        text(&ended.stdout) + &text(&ended.stderr),
    )
}

fn output_of(setting: &Setting, id: &str) -> Output {
    Output::read(&[&setting.output_of(id)])
}

fn start(setting: &Setting, restart: &str) -> Vec<Host> {
    let mut hosts = Vec::new();
    for id in HOSTS {
        hosts.push(setting.host_sharing(id, LEASES, &standalone(restart)));
    }
    hosts
}

async fn until_all_checkpointed(setting: &Setting, last: &[(String, String)]) {
    for id in HOSTS {
        let own = of_standalone_host("flights", id);
        setting.until_checkpointed(&own, last).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_standalone_hosts_have_all_flights_each_and_one_that_was_killed_goes_on() {
    let setting = Setting::new(4).await;
    setting.drop_plugin("flights", &guest("flights"));
    let mut hosts = start(&setting, "resume");
    let all: u64 = flights::expected().values().sum();
    let last = setting.put(&flights::input()).await;
    let killed = hosts.remove(1);
    let has_some = || output_of(&setting, HOSTS[1]).lines > 0;
    eventually("the second host is at work", has_some).await;
    killed.kill();
    hosts.push(setting.host_sharing(HOSTS[1], LEASES, &standalone("resume")));
    until_all_checkpointed(&setting, &last).await;
    for id in HOSTS {
        let output = output_of(&setting, id);
        assert_eq!(output.carriers, flights::expected(), "{id}");
        assert_eq!(output.disorder, 0, "{id}");
        let (was_killed, repeats) = (id == HOSTS[1], output.lines - all);
        assert!(was_killed || repeats == 0, "{id} repeated {repeats}");
    }
    for host in hosts {
        assert!(host.terminate().await.success());
    }
    // A planned stop repeats nothing, and what came meanwhile is read.
    let before: Vec<u64> = HOSTS.map(|id| output_of(&setting, id).lines).to_vec();
    let last = setting.put(&flights::input()).await;
    let hosts = start(&setting, "resume");
    until_all_checkpointed(&setting, &last).await;
    for (id, before) in HOSTS.iter().zip(before) {
        assert_eq!(output_of(&setting, id).lines, before + all, "{id}");
    }
    for host in hosts {
        assert!(host.terminate().await.success());
    }
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standalone_host_that_starts_over_reads_everything_again_and_disturbs_no_other() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let mut hosts = start(&setting, "start-over");
    let all: u64 = flights::expected().values().sum();
    let last = setting.put(&flights::input()).await;
    until_all_checkpointed(&setting, &last).await;
    assert!(hosts.remove(0).terminate().await.success());
    hosts.push(setting.host_sharing(HOSTS[0], LEASES, &standalone("start-over")));
    let has_all_again = || output_of(&setting, HOSTS[0]).lines == 2 * all;
    eventually("everything again", has_all_again).await;
    for id in &HOSTS[1..] {
        assert_eq!(output_of(&setting, id).lines, all, "{id}");
    }
    for host in hosts {
        assert!(host.terminate().await.success());
    }
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_name_one_standalone_host_and_the_application_alone_says_so() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let hosts = start(&setting, "resume");
    let last = setting.put(&flights::input()).await;
    until_all_checkpointed(&setting, &last).await;
    let (is_shown, text) = run(&setting, &["plugins", "--local"]).await;
    assert!(is_shown, "{text}");
    for id in HOSTS {
        let own = of_standalone_host("flights", id);
        assert!(text.contains(&own), "{own}: {text}");
        let (is_shown, leases) = run(&setting, &["leases", &own, "--local"]).await;
        assert!(
            is_shown && leases.contains("shardId-000000000001"),
            "{leases}"
        );
        assert!(leases.contains(id), "{leases}");
    }
    for command in ["leases", "plan", "doctor"] {
        let (_, text) = run(&setting, &[command, "flights", "--local"]).await;
        assert!(text.contains("APPLICATION@HOST"), "{command}: {text}");
    }
    let pause = ["pause", "flights", "--local", "--why", "a test", "--apply"];
    let (is_done, text) = run(&setting, &pause).await;
    assert!(
        !is_done && text.contains("name one, such as flights@pod-"),
        "{text}"
    );
    let one = [
        "pause",
        "flights@pod-b",
        "--local",
        "--why",
        "a test",
        "--apply",
    ];
    let (is_done, text) = run(&setting, &one).await;
    assert!(is_done, "{text}");
    let before = output_of(&setting, "pod-b").lines;
    setting.put(&flights::input()).await;
    let all: u64 = flights::expected().values().sum();
    for id in ["pod-a", "pod-c"] {
        eventually("the others go on", || {
            output_of(&setting, id).lines == 2 * all
        })
        .await;
    }
    assert_eq!(output_of(&setting, "pod-b").lines, before, "it is paused");
    for host in hosts {
        assert!(host.terminate().await.success());
    }
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_one_standalone_host_are_deleted_and_the_tables_once_all_are() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let hosts = start(&setting, "resume");
    let last = setting.put(&flights::input()).await;
    until_all_checkpointed(&setting, &last).await;
    for host in hosts {
        assert!(host.terminate().await.success());
    }
    let delete = [
        "delete",
        "flights@pod-b",
        "--local",
        "--confirm",
        "flights@pod-b",
        "--why",
        "a test",
        "--apply",
    ];
    let (is_done, text) = run(&setting, &delete).await;
    assert!(is_done && text.contains("the tables are kept"), "{text}");
    let (_, text) = run(&setting, &["plugins", "--json", "--local"]).await;
    assert!(
        !text.contains("flights@pod-b") && text.contains("flights@pod-a"),
        "{text}"
    );
    assert_eq!(setting.leases("flights@pod-a").await.len(), 2);
    let unknown = [
        "pause",
        "flights@nobody",
        "--local",
        "--why",
        "a test",
        "--apply",
    ];
    let (is_done, text) = run(&setting, &unknown).await;
    assert!(
        !is_done && text.contains("no standalone host nobody"),
        "{text}"
    );
    let whole = [
        "delete",
        "flights",
        "--local",
        "--confirm",
        "flights",
        "--why",
        "a",
        "--apply",
    ];
    let (is_done, text) = run(&setting, &whole).await;
    assert!(!is_done, "two hosts have rows: {text}");
    for id in ["flights@pod-a", "flights@pod-c"] {
        let delete = [
            "delete",
            id,
            "--local",
            "--confirm",
            id,
            "--why",
            "a",
            "--apply",
        ];
        let (is_done, text) = run(&setting, &delete).await;
        assert!(is_done, "{text}");
    }
    let (is_done, text) = run(&setting, &whole).await;
    assert!(
        is_done && text.contains("these tables are deleted"),
        "{text}"
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_shares_leases_does_not_start_on_tables_of_standalone_hosts() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let first = setting.host_sharing("pod-a", LEASES, &standalone("resume"));
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights@pod-a", &last).await;
    let shared = setting.host_sharing("shared", LEASES, READS);
    let is_told = || shared.log().contains("it belongs to standalone hosts");
    eventually("the host says why it does not start", is_told).await;
    assert_eq!(output_of(&setting, "shared").lines, 0);
    shared.kill();
    assert!(first.terminate().await.success());
    setting.stop().await;
}
