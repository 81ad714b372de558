//! Deploys to a whole fleet that do not go well: bad ones in a row, hosts that start meanwhile,
//! references that nobody heeds, two at a time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::flights;
use harness::guests::conduct;
use harness::process::{Host, eventually, shardmill};
use harness::registry::Registry;
use harness::setting::Setting;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::endings::{interrupt, piped};

const REPOSITORY: &str = "team/versioned";
const LEASES: &str = "duration = \"3s\"\nscan-every = \"200ms\"";
/// On a busy machine the time that a record takes says nothing of its version.
const CONFIG: &str = "[batch]\nrecords = 50\n[reads]\ncalls-per-second = 50.0\nrecords-per-call \
    = 200\nidle-every = \"20ms\"\n[host]\nadmin = \"127.0.0.1:0\"\n[pull]\nevery = \"1s\"\n[rollout]\n\
    canary-for = \"1s\"\ntime-factor = 1000.0\n";

/// A fleet that pulls from a registry, while records arrive.
struct Fleet {
    setting: Setting,
    registry: Registry,
    config: String,
    is_over: AtomicBool,
}

impl Fleet {
    async fn new(rollout: &str) -> Self {
        Self {
            setting: Setting::new(8).await,
            registry: Registry::start().await,
            config: format!("{CONFIG}{rollout}"),
            is_over: AtomicBool::new(false),
        }
    }

    async fn records(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.setting.put(&flights::input()).await;
        }
    }

    fn component(&self, name: &str, bytes: &[u8]) -> String {
        let file = format!("{name}.wasm");
        std::fs::write(self.path().join(&file), bytes).unwrap();
        file
    }

    fn path(&self) -> &Path {
        self.setting.path()
    }

    /// Pushes a version, and gives the reference with its digest.
    async fn push(&self, file: &str, repository: &str, tag: &str, more: &[&str]) -> String {
        let reference = self.registry.reference(repository, tag);
        let (is_pushed, text) = self
            .run(&[&["push", file, &reference], more].concat())
            .await;
        assert!(is_pushed, "{text}");
        let mut words = text.split_whitespace();
        let pinned = words.find(|word| word.contains("@sha256:"));
        let pinned = pinned.unwrap_or_else(|| panic!("{text}"));
        pinned.trim_matches(['[', '"', ']']).to_owned()
    }

    async fn run(&self, args: &[&str]) -> (bool, String) {
        let ended = shardmill(args, self.path()).await;
        let text = [ended.stdout, ended.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (ended.status.success(), text)
    }

    async fn deploy(&self, version: &str, more: &[&str]) -> (bool, String) {
        let args = ["deploy", version, "--application", "versioned", "--local"];
        let apply = ["--why", "faster", "--apply"];
        self.run(&[&args[..], &apply, more].concat()).await
    }

    fn manifest(&self, id: &str) -> PathBuf {
        self.path().join(format!("pulled-{id}/versioned.toml"))
    }

    /// Deploys, and gives the most hosts that had a manifest at a time, with what the command said.
    async fn watched_deploy<const N: usize>(
        &self,
        version: &str,
        ids: [&str; N],
    ) -> (usize, (bool, String)) {
        let is_over = AtomicBool::new(false);
        let watching = async {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                let with = ids.iter().filter(|id| self.manifest(id).exists());
                most = most.max(with.count());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            most
        };
        let deploying = async {
            let ended = self.deploy(version, &["--wait", "4m"]).await;
            is_over.store(true, Ordering::Relaxed);
            ended
        };
        tokio::join!(watching, deploying)
    }

    async fn shown(&self) -> Value {
        let args = ["deploy", "--application", "versioned", "--local", "--json"];
        let (_, text) = self.run(&args).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Starts a host with a folder of its own, and its log in `LOG.log`.
    fn host(&self, log: &str, id: &str) -> Host {
        let file = self.setting.configure(id, LEASES, &self.config);
        let path = self.path().join(&file);
        let text = std::fs::read_to_string(&path).unwrap();
        if !text.starts_with("plugins") {
            let reference = self.registry.reference(REPOSITORY, "1");
            let plugins = format!("plugins = [{reference:?}, \"pulled-{id}\"]\n{text}");
            std::fs::write(&path, plugins).unwrap();
        }
        Host::start(log, &["run", "--config", &file, "--local"], self.path())
    }

    /// Hosts that run the version with the tag 1, which is `bytes`, and know each other: whose turn
    /// it is they decide by the rows of all.
    async fn started<const N: usize>(&self, bytes: &[u8], ids: [&str; N]) -> [Host; N] {
        let file = self.component("first", bytes);
        self.push(&file, REPOSITORY, "1", &[]).await;
        let hosts = ids.map(|id| self.host(id, id));
        for host in &hosts {
            until(host, "the first version, and all hosts", |status| {
                let all = &status["plugins"]["versioned"]["workers"];
                first_version(status) == digest_of(bytes) && *all == N
            })
            .await;
        }
        hosts
    }
}

fn digest_of(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// What a host runs; nothing if it runs nothing.
fn first_version(status: &Value) -> String {
    let digest = &status["plugins"]["versioned"]["versions"][0]["digest"];
    digest.as_str().unwrap_or_default().to_owned()
}

fn first_state(status: &Value) -> &str {
    let state = &status["plugins"]["versioned"]["versions"][0]["state"];
    state.as_str().unwrap_or_default()
}

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

fn trials(hosts: &[&Host]) -> usize {
    let tried = "trying the new version on one shard";
    let counts = hosts.iter().map(|host| host.log().matches(tried).count());
    counts.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_starts_while_a_version_is_on_trial_starts_with_what_was_good_before() {
    let fleet = Fleet::new("probation = \"10m\"").await;
    let (first, second) = (conduct(0, "good"), conduct(1, "good"));
    let [a, b] = fleet.started(&first, ["a", "b"]).await;
    let steps = async {
        let file = fleet.component("second", &second);
        let pinned = fleet.push(&file, REPOSITORY, "2", &[]).await;
        let (is_done, text) = fleet.deploy(&pinned, &["--wait", "0s"]).await;
        assert!(!is_done, "{text}");
        let is_tried = |status: &Value| {
            first_version(status) == digest_of(&second) && first_state(status) == "probation"
        };
        let (id, tries, other) = loop {
            if is_tried(&a.status().await) {
                break ("a", a, b);
            }
            if is_tried(&b.status().await) {
                break ("b", b, a);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(tries.terminate().await.success());
        let again = fleet.host("again", id);
        let fresh = fleet.host("fresh", "c");
        for host in [&again, &fresh] {
            let status = until(host, "it runs", |status| !first_version(status).is_empty()).await;
            assert_eq!(first_version(&status), digest_of(&first), "{}", host.log());
        }
        let text = format!(
            "starting plugin=versioned digest={}",
            &digest_of(&second)[..12]
        );
        assert!(!again.log().contains(&text), "{}", again.log());
        until(&again, "it is tried as any other", |status| {
            trials(&[&again, &other, &fresh]) > 1 || is_tried(status)
        })
        .await;
        let shown = fleet.shown().await;
        assert_eq!(shown["deployed"]["state"], "on-trial", "{shown}");
        for host in [again, fresh, other] {
            let status = host.status().await;
            let is_active = first_state(&status) == "active";
            assert!(!is_active || first_version(&status) == digest_of(&first));
            assert!(host.terminate().await.success());
        }
        fleet.is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(fleet.records(), steps);
    fleet.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_goes_on_without_the_command_that_was_interrupted_while_it_waited() {
    let fleet = Fleet::new("probation = \"3s\"").await;
    let (first, second) = (conduct(0, "good"), conduct(1, "good"));
    let [a, b] = fleet.started(&first, ["a", "b"]).await;
    let steps = async {
        let file = fleet.component("second", &second);
        let pinned = fleet.push(&file, REPOSITORY, "2", &[]).await;
        let wanted = ["--application", "versioned", "--local"];
        let apply = ["--why", "faster", "--apply", "--wait", "10m"];
        let args = [&["deploy", pinned.as_str()], &wanted[..], &apply].concat();
        let waiting = piped(&args, &fleet.setting);
        eventually("a host tries it", || trials(&[&a, &b]) > 0).await;
        interrupt(&waiting);
        let ended = waiting.wait_with_output().await.unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{said}");
        assert!(said.contains("it stays wanted"), "{said}");
        for host in [a, b] {
            until(&host, "the second version is active", |status| {
                first_version(status) == digest_of(&second) && first_state(status) == "active"
            })
            .await;
            assert!(host.terminate().await.success());
        }
        fleet.is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(fleet.records(), steps);
    fleet.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_host_restarts_with_settings_that_do_harm_no_other_takes_them_up() {
    let fleet = Fleet::new("probation = \"4s\"").await;
    let first = conduct(0, "good");
    let hosts = fleet.started(&first, ["a", "b", "c"]).await;
    let steps = async {
        let file = fleet.component("first", &first);
        // Valid, and too little for an instance: the plugin restarts, and is served nowhere.
        let manifest = "[limits]\nmemory = \"1MiB\"\n";
        std::fs::write(fleet.path().join("m.toml"), manifest).unwrap();
        let with = ["--manifest", "m.toml"];
        let bad = fleet.push(&file, REPOSITORY, "bad", &with).await;
        let (most, (is_done, text)) = fleet.watched_deploy(&bad, ["a", "b", "c"]).await;
        assert!(!is_done, "{text}");
        let logs = hosts.each_ref().map(Host::log);
        assert_eq!(most, 1, "hosts with the manifest at a time: {logs:#?}");
        for (id, host) in ["a", "b", "c"].into_iter().zip(&hosts) {
            eventually("the manifest is gone", || !fleet.manifest(id).exists()).await;
            until(host, "it is served as before", |status| {
                status["plugins"]["versioned"]["not-served"].is_null()
            })
            .await;
        }
        for host in hosts {
            assert!(host.terminate().await.success());
        }
        fleet.is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(fleet.records(), steps);
    fleet.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_deploys_in_a_row_lead_back_to_the_last_good_one_and_are_never_tried_again() {
    let fleet = Fleet::new("probation = \"2s\"\nquarantine-for = \"1m\"").await;
    let (first, good) = (conduct(0, "good"), conduct(1, "good"));
    let [a, b] = fleet.started(&first, ["a", "b"]).await;
    let steps = async {
        let file = fleet.component("good", &good);
        let pinned = fleet.push(&file, REPOSITORY, "2", &[]).await;
        let (is_done, text) = fleet.deploy(&pinned, &[]).await;
        assert!(is_done && text.contains("active on all 2 hosts"), "{text}");
        assert_eq!(fleet.shown().await["deployed"]["state"], "proven");
        let mut last = String::new();
        for (number, wait) in [(2, "0s"), (3, "2m")] {
            let file = fleet.component("bad", &conduct(number, "trap"));
            last = fleet.push(&file, REPOSITORY, "3", &[]).await;
            let (is_done, text) = fleet.deploy(&last, &["--wait", wait]).await;
            assert!(!is_done, "{text}");
            assert!(wait == "0s" || text.contains("was rolled back"), "{text}");
        }
        let is_back = |status: &Value| {
            let source = &status["sources"]["versioned"];
            let is_in_folder = source["version"] == digest_of(&good);
            source["wanted-by"] == "earlier-deploy" && is_in_folder
        };
        for host in [&a, &b] {
            until(host, "back to the last good one", is_back).await;
        }
        let before = trials(&[&a, &b]);
        tokio::time::sleep(Duration::from_secs(75)).await;
        assert_eq!(trials(&[&a, &b]), before, "the quarantine is over");
        let shown = fleet.shown().await;
        assert_eq!(shown["deployed"]["state"], "failed", "{shown}");
        assert_eq!(shown["deployed"]["reference"], last.as_str());
        let fresh = fleet.host("fresh", "c");
        let status = until(&fresh, "it runs", |status| {
            !first_version(status).is_empty()
        })
        .await;
        assert_eq!(first_version(&status), digest_of(&good), "{}", fresh.log());
        for host in [a, b, fresh] {
            assert!(host.terminate().await.success());
        }
        fleet.is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(fleet.records(), steps);
    fleet.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_that_nobody_heeds_or_that_was_replaced_ends_at_once_and_changes_nothing() {
    let fleet = Fleet::new("probation = \"2s\"").await;
    let (first, good) = (conduct(0, "good"), conduct(1, "good"));
    let [a, b] = fleet.started(&first, ["a", "b"]).await;
    let steps = async {
        let file = fleet.component("good", &good);
        let pinned = fleet.push(&file, REPOSITORY, "2", &[]).await;
        let (is_done, text) = fleet.deploy(&pinned, &[]).await;
        assert!(is_done, "{text}");

        let foreign = fleet.push(&file, "team/other", "2", &[]).await;
        let (is_done, text) = fleet.deploy(&foreign, &["--config", "a.toml"]).await;
        assert!(!is_done && text.contains("is not heeded"), "{text}");
        let (is_done, text) = fleet.deploy(&foreign, &[]).await;
        assert!(!is_done && text.contains("no host takes"), "{text}");
        tokio::time::sleep(Duration::from_secs(3)).await;
        for host in [&a, &b] {
            let status = until(host, "it says so", |status| {
                status["sources"]["versioned"]["deploy-refused"].is_string()
            })
            .await;
            assert_eq!(first_version(&status), digest_of(&good), "{}", host.log());
            let source = &status["sources"]["versioned"];
            assert_eq!(source["version"], digest_of(&good));
        }

        let file = fleet.component("third", &conduct(2, "good"));
        let third = fleet.push(&file, REPOSITORY, "3", &[]).await;
        let replacing = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            fleet.deploy(&pinned, &["--by", "bob"]).await
        };
        let (replaced, (is_done, text)) = tokio::join!(fleet.deploy(&third, &[]), replacing);
        assert!(is_done, "{text}");
        assert!(
            !replaced.0 && replaced.1.contains("by bob"),
            "{}",
            replaced.1
        );
        for host in [a, b] {
            assert!(host.terminate().await.success());
        }
        let (is_done, text) = fleet.deploy(&third, &[]).await;
        assert!(!is_done && text.contains("no host lives"), "{text}");
        fleet.is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(fleet.records(), steps);
    fleet.setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_does_harm_is_taken_up_by_one_host_and_goes_back_by_itself() {
    let fleet = Fleet::new("probation = \"4s\"").await;
    let first = conduct(0, "good");
    let [a, b] = fleet.started(&first, ["a", "b"]).await;
    let steps = async {
        let file = fleet.component("first", &first);
        let write = |text: &str| std::fs::write(fleet.path().join("m.toml"), text).unwrap();
        write("[batch]\nrecords = 10\n[restart]\nnosuch = 1\n");
        let with = ["--manifest", "m.toml"];
        let bad = fleet.push(&file, REPOSITORY, "bad", &with).await;
        let (most, (is_done, text)) = fleet.watched_deploy(&bad, ["a", "b"]).await;
        assert!(!is_done && text.contains("with its manifest"), "{text}");
        let logs = [a.log(), b.log()];
        assert_eq!(most, 1, "hosts with the manifest at a time: {logs:#?}");
        for (id, host) in [("a", &a), ("b", &b)] {
            eventually("the manifest is gone", || !fleet.manifest(id).exists()).await;
            until(host, "its settings are as before", |status| {
                status["plugins"]["versioned"]["refused-settings"].is_null()
            })
            .await;
        }

        write("[batch]\nrecords = 40\n");
        let good = fleet.push(&file, REPOSITORY, "good", &with).await;
        let (is_done, text) = fleet.deploy(&good, &[]).await;
        assert!(is_done && text.contains("active on all 2 hosts"), "{text}");
        assert!(fleet.manifest("a").exists() && fleet.manifest("b").exists());
        let without = fleet.push(&file, REPOSITORY, "without", &[]).await;
        let (is_done, text) = fleet.deploy(&without, &[]).await;
        assert!(is_done && text.contains("active on all 2 hosts"), "{text}");
        assert!(!fleet.manifest("a").exists() && !fleet.manifest("b").exists());
        for host in [a, b] {
            let log = host.log();
            assert!(!log.contains("stay in use until the host stops"), "{log}");
            assert!(host.terminate().await.success());
        }
        fleet.is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(fleet.records(), steps);
    fleet.setting.stop().await;
}
