//! Versions come from a registry: pulled, tried like any file, deployed to a whole fleet with one
//! command, and served without the registry once they are here.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::flights::{self, Output};
use harness::guests::conduct;
use harness::process::{Host, eventually, shardmill};
use harness::registry::{Fault, Registry};
use harness::setting::Setting;
use serde_json::Value;
use sha2::{Digest, Sha256};
use shardmill_core::artifact::{COMPONENT_TYPE, SETTINGS_TYPE};

use super::backups::lose_tables;

const REPOSITORY: &str = "team/versioned";
const LEASES: &str = "duration = \"3s\"\nscan-every = \"200ms\"";
/// Small batches, so that each host has enough of them for a trial of seconds.
const CONFIG: &str = "[batch]\nrecords = 50\n[reads]\ncalls-per-second = 50.0\nrecords-per-call \
    = 200\nidle-every = \"20ms\"\n[host]\nadmin = \"127.0.0.1:0\"\n[pull]\nevery = \"1s\"\n[rollout]\n\
    canary-for = \"2s\"\nprobation = \"3s\"\ntime-factor = 1000.0";

fn digest_of(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Writes a component into a file of the setting, and gives its name.
fn component(setting: &Setting, name: &str, bytes: &[u8]) -> String {
    let file = format!("{name}.wasm");
    std::fs::write(setting.path().join(&file), bytes).unwrap();
    file
}

async fn run(setting: &Setting, args: &[&str]) -> (bool, String) {
    let ended = shardmill(args, setting.path()).await;
    let text = [ended.stdout, ended.stderr].concat();
    (
        ended.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

async fn push(setting: &Setting, registry: &Registry, file: &str, tag: &str) -> String {
    let reference = registry.reference(REPOSITORY, tag);
    let (is_pushed, told) = run(setting, &["push", file, &reference]).await;
    assert!(is_pushed, "{told}");
    assert!(told.contains("@sha256:"), "{told}");
    reference
}

/// Starts a host with a folder of its own, into which it pulls.
fn host(setting: &Setting, id: &str, reference: &str, config: &str) -> Host {
    host_logging(setting, id, id, reference, config)
}

/// The same, with its log in `LOG.log`: the log of a host that starts again would name the address
/// of its first run.
fn host_logging(setting: &Setting, log: &str, id: &str, reference: &str, config: &str) -> Host {
    host_of(setting, log, id, &[reference], config)
}

fn host_of(setting: &Setting, log: &str, id: &str, references: &[&str], config: &str) -> Host {
    let file = setting.configure(id, LEASES, config);
    let path = setting.path().join(&file);
    let text = std::fs::read_to_string(&path).unwrap();
    let folder = format!("pulled-{id}");
    let plugins = [references, &[folder.as_str()]].concat();
    let plugins = format!("plugins = {plugins:?}\n{text}");
    std::fs::write(&path, plugins).unwrap();
    Host::start(log, &["run", "--config", &file, "--local"], setting.path())
}

fn pulled(setting: &Setting, id: &str) -> PathBuf {
    setting.path().join(format!("pulled-{id}/versioned.wasm"))
}

/// Waits until what the host shows is so, and gives that.
async fn until(host: &Host, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually("the admin pages", || host.log().contains("http://")).await;
    for _ in 0..3_000 {
        let status = host.status().await;
        if is_so(&status) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}\n{}", host.log());
}

fn runs(status: &Value, digest: &str) -> bool {
    status["plugins"]["versioned"]["versions"][0]["digest"] == digest
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_serves_what_it_pulls_follows_the_tag_and_needs_no_registry_once_it_has_it() {
    let setting = Setting::new(2).await;
    let registry = Registry::start().await;
    let (first, second) = (conduct(0, "good"), conduct(1, "good"));
    let file = component(&setting, "first", &first);
    let reference = push(&setting, &registry, &file, "1.4").await;
    registry.fail(Some(Fault::Down));
    let a = host(&setting, "a", &reference, CONFIG);
    until(&a, "the failure is shown", |status| {
        status["sources"]["versioned"]["error"].is_string()
    })
    .await;
    let ready = a.page("/ready").await;
    assert!(ready.contains("no version was pulled yet"), "{ready}");
    registry.fail(None);
    until(&a, "the first version", |status| {
        runs(status, &digest_of(&first))
    })
    .await;
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("versioned", &last).await;

    // The tag moves: a new version like any other.
    let file = component(&setting, "second", &second);
    push(&setting, &registry, &file, "1.4").await;
    until(&a, "the second version", |status| {
        runs(status, &digest_of(&second))
    })
    .await;
    assert!(
        a.log().contains("version promoted to all shards"),
        "{}",
        a.log()
    );
    assert!(a.terminate().await.success());

    registry.stop().await;
    let a = host_logging(&setting, "again", "a", &reference, CONFIG);
    let status = until(&a, "it runs without a registry", |status| {
        let is_told = status["sources"]["versioned"]["error"].is_string();
        is_told && runs(status, &digest_of(&second))
    })
    .await;
    assert_eq!(
        status["sources"]["versioned"]["version"],
        digest_of(&second)
    );
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("versioned", &last).await;
    let ready = a.page("/ready").await;
    assert!(ready.starts_with("ready"), "{ready}");
    assert!(a.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    let expected = 2 * flights::expected().values().sum::<u64>();
    assert_eq!((output.lines, output.repeats), (expected, 0));
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pulled_is_trusted_no_more_than_any_file_and_brings_its_signature_along() {
    let setting = Setting::new(1).await;
    let registry = Registry::start().await;
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let config = format!("{CONFIG}\n[integrity]\nrequire-signature = true\nkeys = [{key:?}]");
    let file = component(&setting, "unsigned", &conduct(0, "good"));
    let reference = push(&setting, &registry, &file, "1").await;
    let a = host(&setting, "a", &reference, &config);
    eventually("it is refused", || a.log().contains("it is not signed")).await;
    let file = component(&setting, "signed", &conduct(1, "good"));
    std::fs::write(setting.path().join("signed.wasm.sig"), "nonsense").unwrap();
    push(&setting, &registry, &file, "1").await;
    eventually("it is refused for its signature", || {
        let log = a.log();
        let last = log.rsplit("plugin file refused").next().unwrap_or_default();
        pulled(&setting, "a").with_extension("wasm.sig").exists() && !last.contains("not signed")
    })
    .await;
    assert!(setting.leases("versioned").await.is_empty(), "nothing runs");
    assert!(a.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_registry_holds_up_its_own_plugin_alone_and_not_for_ever() {
    let setting = Setting::new(1).await;
    let (slow, quick) = (Registry::start().await, Registry::start().await);
    let first = conduct(0, "good");
    let file = component(&setting, "first", &first);
    let reference = push(&setting, &quick, &file, "1").await;
    // Each of these answers comes in time.
    slow.artifact(
        "aslow",
        "1",
        &[
            (COMPONENT_TYPE, &first[..]),
            (SETTINGS_TYPE, &b"streams = []"[..]),
        ],
    );
    slow.fail(Some(Fault::Slow(Duration::from_secs(4))));
    let config = CONFIG.replace("[pull]", "[pull]\ntimeout = \"5s\"");
    let references = [&slow.reference("aslow", "1")[..], &reference];
    let a = host_of(&setting, "a", "a", &references, &config);
    let status = until(&a, "the version of the other registry", |status| {
        status["sources"]["versioned"]["version"].is_string()
    })
    .await;
    let aslow = &status["sources"]["aslow"];
    assert!(aslow["error"].is_null(), "it is asked meanwhile: {aslow}");
    let status = until(&a, "the end of the slow pull", |status| {
        status["sources"]["aslow"]["error"].is_string()
    })
    .await;
    let why = status["sources"]["aslow"]["error"].to_string();
    assert!(
        why.contains("it took longer than 10s, which is 2 times pull.timeout"),
        "{why}"
    );
    assert!(a.terminate().await.success());
    setting.stop().await;
}

/// Puts records until told to end; gives how often, and the last record of each shard.
async fn put_until(setting: &Setting, is_over: &AtomicBool) -> (u64, Vec<(String, String)>) {
    let mut last = std::collections::BTreeMap::new();
    let mut rounds = 0;
    while rounds == 0 || !is_over.load(Ordering::Relaxed) {
        last.extend(setting.put(&flights::input()).await);
        rounds += 1;
    }
    (rounds, last.into_iter().collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deployed_is_restored_and_hosts_go_on_pulling_into_the_restored_folder() {
    let setting = Setting::new(1).await;
    let registry = Registry::start().await;
    let (first, second) = (conduct(0, "good"), conduct(1, "good"));
    let file = component(&setting, "first", &first);
    let reference = push(&setting, &registry, &file, "1").await;
    let a = host(&setting, "a", &reference, CONFIG);
    until(&a, "the first version", |status| {
        runs(status, &digest_of(&first))
    })
    .await;
    let is_over = AtomicBool::new(false);
    let deploys = async {
        let file = component(&setting, "second", &second);
        let (is_done, told) = deploy(&setting, &file, "faster").await;
        assert!(is_done, "{told}");
        is_over.store(true, Ordering::Relaxed);
    };
    let ((_, last), ()) = tokio::join!(put_until(&setting, &is_over), deploys);
    setting.until_checkpointed("versioned", &last).await;
    assert!(a.terminate().await.success());

    let backup = ["backup", "versioned", "--to", "v.backup", "--local"];
    let (is_done, told) = run(
        &setting,
        &[&backup[..], &["--plugins", "pulled-a"]].concat(),
    )
    .await;
    assert!(is_done && told.contains("deployed"), "{told}");
    lose_tables(&setting, "versioned").await;
    std::fs::remove_dir_all(setting.path().join("pulled-a")).unwrap();
    let restore = ["restore", "v.backup", "--plugins", "pulled-a", "--local"];
    let (is_done, told) = run(
        &setting,
        &[&restore[..], &["--why", "lost", "--apply"]].concat(),
    )
    .await;
    assert!(
        is_done && told.contains("was deployed, and is again"),
        "{told}"
    );
    assert_eq!(std::fs::read(pulled(&setting, "a")).unwrap(), second);

    let a = host_logging(&setting, "again", "a", &reference, CONFIG);
    until(&a, "what was deployed", |status| {
        let source = &status["sources"]["versioned"];
        source["wanted-by"] == "deploy"
            && source["error"].is_null()
            && runs(status, &digest_of(&second))
    })
    .await;
    // What the restore put there is a host's own to replace.
    let end = ["deploy", "--application", "versioned", "--local", "--end"];
    let (is_done, told) = run(
        &setting,
        &[&end[..], &["--why", "over", "--apply"]].concat(),
    )
    .await;
    assert!(is_done, "{told}");
    eventually("what is configured is in the folder", || {
        std::fs::read(pulled(&setting, "a")).is_ok_and(|bytes| bytes == first)
    })
    .await;
    assert!(a.terminate().await.success());
    setting.stop().await;
}

/// How often any host began to try a version.
fn trials(hosts: &[Host]) -> usize {
    let tried = "trying the new version on one shard";
    hosts
        .iter()
        .map(|host| host.log().matches(tried).count())
        .sum()
}

async fn deploy(setting: &Setting, file: &str, why: &str) -> (bool, String) {
    let args = [
        "deploy",
        file,
        "--application",
        "versioned",
        "--config",
        "a.toml",
        "--local",
        "--why",
        why,
        "--apply",
        "--wait",
        "3m",
    ];
    run(setting, &args).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_version_goes_back_by_itself_and_a_good_one_reaches_all_hosts_with_one_command() {
    let setting = Setting::new(8).await;
    let registry = Registry::start().await;
    let (first, bad, good) = (conduct(0, "good"), conduct(1, "trap"), conduct(2, "good"));
    let file = component(&setting, "first", &first);
    let reference = push(&setting, &registry, &file, "1").await;
    let ids = ["a", "b", "c", "d"];
    let hosts = ids.map(|id| host(&setting, id, &reference, CONFIG));
    for host in &hosts {
        until(host, "the first version", |status| {
            runs(status, &digest_of(&first))
        })
        .await;
    }
    let is_over = AtomicBool::new(false);
    let deploys = async {
        let file = component(&setting, "bad", &bad);
        let (is_done, told) = deploy(&setting, &file, "faster").await;
        assert!(!is_done, "{told}");
        assert!(
            told.contains("rolled back") && told.contains("found bad by"),
            "{told}"
        );
        assert_eq!(trials(&hosts), 1, "one shard of one host tried it");
        // Their folders go back too, so that a restart brings nothing of it.
        for (id, host) in ids.iter().zip(&hosts) {
            until(host, "the folder is as before", |_| {
                std::fs::read(pulled(&setting, id)).is_ok_and(|bytes| bytes == first)
            })
            .await;
        }
        let (is_done, told) = deploy(&setting, &file, "again").await;
        assert!(!is_done && told.contains("is in quarantine"), "{told}");
        let file = component(&setting, "good", &good);
        let (is_done, told) = deploy(&setting, &file, "correct").await;
        assert!(is_done, "{told}");
        assert!(told.contains("is active on all 4 hosts"), "{told}");
        for host in &hosts {
            let status = host.status().await;
            assert!(runs(&status, &digest_of(&good)), "{status}");
            assert_eq!(status["sources"]["versioned"]["wanted-by"], "deploy");
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let ((rounds, last), ()) = tokio::join!(put_until(&setting, &is_over), deploys);
    setting.until_checkpointed("versioned", &last).await;
    let args = ["deploy", "--application", "versioned", "--local", "--json"];
    let (_, told) = run(&setting, &args).await;
    let shown: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(shown["deployed"]["version"], digest_of(&good));
    let history = shown["history"].as_array().unwrap();
    let count = |deed: &str, part: &str| {
        let is_it = |entry: &&Value| {
            entry["deed"] == deed && entry["details"].as_str().unwrap().contains(part)
        };
        history.iter().filter(is_it).count()
    };
    let (bad, good) = (&digest_of(&bad)[..12], &digest_of(&good)[..12]);
    for (deed, version, expected) in [
        ("deploy", bad, 1),
        ("deployed", bad, 4),
        ("rolled-back", bad, 1),
        ("promoted", bad, 0),
        ("deploy", good, 1),
        ("deployed", good, 4),
        ("promoted", good, 4),
    ] {
        assert_eq!(
            count(deed, version),
            expected,
            "{deed} {version}: {history:#?}"
        );
    }
    let end = ["deploy", "--application", "versioned", "--local", "--end"];
    let (is_shown, told) = run(&setting, &end).await;
    assert!(is_shown && told.contains("nothing was changed"), "{told}");
    let (is_done, told) = run(
        &setting,
        &[&end[..], &["--why", "over", "--apply"]].concat(),
    )
    .await;
    assert!(is_done, "{told}");
    for host in &hosts {
        until(host, "back to what is configured", |status| {
            status["sources"]["versioned"]["wanted-by"] == "configuration"
        })
        .await;
    }
    for host in hosts {
        assert!(host.terminate().await.success());
    }
    let outputs = ids.map(|id| setting.output_of(id));
    let output = Output::read(&outputs.each_ref().map(PathBuf::as_path));
    let total = rounds * flights::expected().values().sum::<u64>();
    assert_eq!(
        (output.lines, output.repeats),
        (total, 0),
        "nothing is lost or repeated"
    );
    setting.stop().await;
}
