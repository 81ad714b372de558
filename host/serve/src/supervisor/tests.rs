//! The supervisor with workers that reach no service, and versions that are never called.

use bytes::Bytes;
use shardmill_aws::{AwsOptions, StaticCredentials, connect};
use shardmill_config::Config;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{InstanceContext, PortFuture, RecordProcessor};
use shardmill_core::rollout::Restart;
use shardmill_sinks::open_sinks;
use shardmill_wasm::RuntimeOptions;
use shardmill_worker::HostBell;
use tempfile::TempDir;

use super::*;
use crate::host_status::PluginSnapshot;
use crate::parts::{Outputs, Sinks};

/// A supervisor, and the folder with its configuration and its plugins.
struct Host {
    supervisor: Supervisor,
    folder: TempDir,
}

struct Component(PluginDigest);

impl ProcessorFactory for Component {
    fn digest(&self) -> &PluginDigest {
        &self.0
    }

    fn instantiate(
        &self,
        _context: Arc<InstanceContext>,
        _state: Option<Bytes>,
    ) -> PortFuture<'_, Result<Box<dyn RecordProcessor>, ProcessorError>> {
        let message = "no shard is served here".to_owned();
        Box::pin(async { Err(ProcessorError::Host { message }) })
    }
}

fn name(name: &str) -> PluginName {
    PluginName::new(name).unwrap()
}

fn digest(version: u64) -> PluginDigest {
    PluginDigest::from_hex(&format!("{version:064x}")).unwrap()
}

fn component(version: u64) -> Version {
    Arc::new(Component(digest(version)))
}

impl Host {
    async fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("plugins")).unwrap();
        let text = format!(
            "stream = \"s\"\nplugins = \"plugins\"\nworker-id = \"a\"\n\
            [ceilings]\nstreams = [\"*\"]\napplications = [\"shared\"]\n\
            [host]\ncache = \"off\"\n{more}"
        );
        let config = Config::parse(&text, folder.path()).unwrap();
        let nowhere = Some("http://127.0.0.1:1".to_owned());
        let options = AwsOptions {
            region: Some("eu-west-1".to_owned()),
            kinesis_endpoint: nowhere.clone(),
            dynamodb_endpoint: nowhere,
            credentials: Some(StaticCredentials::dummy()),
            ..AwsOptions::default()
        };
        let clients = connect(&options).await.unwrap();
        let sinks = open_sinks(&config.sinks, &options, Some(&clients)).await;
        let sinks = Arc::new(sinks.unwrap());
        let outputs = Outputs {
            names: sinks.names(),
            sinks: Sinks::Configured(Arc::clone(&sinks)),
            dead_letters: sinks,
        };
        let parts = Parts::new(config, &clients, outputs, None).unwrap();
        let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
        let reloads = Reloads {
            file: None,
            rings: HostBell::new(0).1,
        };
        let (status, marks) = (HostStatus::new("a"), Marks::nothing("a test"));
        let supervisor = Supervisor::new(parts, status, &runtime, marks, reloads);
        Self { supervisor, folder }
    }

    /// What the folder does with a component that it has loaded.
    fn loads(&mut self, plugin: &str, version: u64) {
        self.supervisor
            .offer_version(&name(plugin), component(version));
    }

    fn manifest(&self, plugin: &str, text: &str) {
        let plugins = self.folder.path().join("plugins");
        std::fs::write(plugins.join(format!("{plugin}.toml")), text).unwrap();
    }

    /// Its workers drain, to start again with other settings.
    fn restarts(&mut self, plugin: &str) {
        let running = self.supervisor.running.get_mut(&name(plugin));
        running.unwrap().restart(Restart::OneShard);
    }

    /// One of the workers that were asked to has ended.
    async fn ends(&mut self) {
        let ended = self.supervisor.workers.join_next().await.unwrap();
        self.supervisor.worker_ended(ended).unwrap();
    }

    /// The version that the plugin's workers started with, or were offered since.
    fn runs(&self, plugin: &str) -> Option<PluginDigest> {
        let running = self.supervisor.running.get(&name(plugin))?;
        assert!(!running.stop.is_cancelled());
        Some(running.versions.borrow().digest().clone())
    }

    fn shown(&self, plugin: &str) -> Option<PluginSnapshot> {
        self.supervisor.status.snapshot().plugins.remove(plugin)
    }
}

#[tokio::test]
async fn a_file_that_is_removed_while_its_plugin_restarts_ends_nothing() {
    let mut host = Host::new("").await;
    host.loads("orders", 1);
    host.restarts("orders");
    host.supervisor.removed(&name("orders"));
    host.ends().await;
    assert_eq!(host.runs("orders"), Some(digest(1)));
    assert!(host.shown("orders").unwrap().is_file_removed);
}

#[tokio::test]
async fn a_plugin_that_stops_with_its_file_does_not_restart_and_starts_again_with_a_new_file() {
    let mut host = Host::new("on-remove = \"stop\"\n").await;
    host.loads("orders", 1);
    host.restarts("orders");
    host.supervisor.removed(&name("orders"));
    host.ends().await;
    assert_eq!(host.runs("orders"), None);
    assert!(host.shown("orders").is_none());
    host.loads("orders", 1);
    host.supervisor.removed(&name("orders"));
    host.loads("orders", 2);
    host.ends().await;
    assert_eq!(host.runs("orders"), Some(digest(2)));
}

#[tokio::test]
async fn what_a_plugin_falls_back_to_while_it_restarts_is_what_it_restarts_with() {
    let mut host = Host::new("").await;
    host.loads("orders", 2);
    host.restarts("orders");
    let (orders, bad) = (name("orders"), digest(2));
    host.supervisor
        .fall_back_to(&orders, Some(&bad), component(1));
    host.ends().await;
    assert_eq!(host.runs("orders"), Some(digest(1)));
    let why = host.shown("orders").unwrap().refused_file.unwrap();
    assert!(why.contains("the last good version here"), "{why}");
}

#[tokio::test]
async fn a_version_that_came_after_the_bad_one_is_not_replaced_by_the_last_good_one() {
    let mut host = Host::new("").await;
    let (orders, bad) = (name("orders"), digest(2));
    host.loads("orders", 2);
    host.loads("orders", 3);
    host.supervisor
        .fall_back_to(&orders, Some(&bad), component(1));
    assert_eq!(host.runs("orders"), Some(digest(3)));
    host.restarts("orders");
    host.loads("orders", 4);
    let bad = digest(3);
    host.supervisor
        .fall_back_to(&orders, Some(&bad), component(1));
    host.ends().await;
    assert_eq!(host.runs("orders"), Some(digest(4)));
    assert_eq!(host.shown("orders").unwrap().refused_file, None);
    host.supervisor.fall_back_to(&orders, None, component(1));
    assert_eq!(
        host.runs("orders"),
        Some(digest(4)),
        "its file was refused before"
    );
}

#[tokio::test]
async fn what_is_known_of_a_file_is_shown_on_after_a_restart() {
    let mut host = Host::new("").await;
    host.manifest("orders", "streams = [\"s\", \"s.returns\"]");
    host.loads("orders", 1);
    host.supervisor.status.file_refused("orders", "cut off");
    host.supervisor.status.pinned("orders", Some("1"));
    host.restarts("orders");
    host.ends().await;
    host.ends().await;
    assert_eq!(host.runs("orders"), Some(digest(1)));
    let snapshot = host.supervisor.status.snapshot();
    assert_eq!(snapshot.plugins.len(), 2);
    for shown in snapshot.plugins.values() {
        assert_eq!(shown.refused_file.as_deref(), Some("cut off"));
        assert_eq!(shown.pinned.as_deref(), Some("1"));
        assert!(shown.stream.is_some());
    }
}

#[tokio::test]
async fn a_version_on_trial_stays_so_over_a_restart_that_waits_for_better_settings() {
    let mut host = Host::new("").await;
    let orders = name("orders");
    host.loads("orders", 1);
    let rollout = host.supervisor.running[&orders].rollout.clone();
    rollout.set_artifact(Some("the same rollout".to_owned()));
    host.restarts("orders");
    host.manifest("orders", "nosuch = 1");
    host.ends().await;
    assert_eq!(host.runs("orders"), None);
    let shown = host.shown("orders").unwrap();
    assert!(shown.stream.is_none() && shown.refused_settings.is_some());
    host.supervisor.removed(&orders);
    assert!(host.shown("orders").unwrap().is_file_removed);
    host.manifest("orders", "");
    host.supervisor.follow_settings_of(&orders);
    assert_eq!(host.runs("orders"), Some(digest(1)));
    let rollout = &host.supervisor.running[&orders].rollout;
    assert_eq!(rollout.artifact().as_deref(), Some("the same rollout"));
    assert!(host.shown("orders").unwrap().is_file_removed);
}

#[tokio::test]
async fn a_plugin_that_never_started_is_gone_with_its_file() {
    let mut host = Host::new("").await;
    host.manifest("orders", "nosuch = 1");
    host.loads("orders", 1);
    assert!(host.shown("orders").is_some());
    host.supervisor.removed(&name("orders"));
    assert!(host.shown("orders").is_none());
}

#[tokio::test]
async fn a_plugin_that_waits_starts_once_another_one_gives_way() {
    let mut host = Host::new("").await;
    for plugin in ["first", "second"] {
        host.manifest(plugin, "application = \"shared\"");
        host.loads(plugin, 1);
    }
    host.supervisor.look_at_waiting();
    host.supervisor.look_at_waiting();
    assert_eq!(
        (host.runs("first"), host.runs("second")),
        (Some(digest(1)), None)
    );
    let why = host.shown("second").unwrap().refused_settings.unwrap();
    assert!(why.contains("is plugin first's"), "{why}");
    host.manifest("first", "");
    host.restarts("first");
    host.ends().await;
    host.supervisor.look_at_waiting();
    assert_eq!(host.runs("second"), Some(digest(1)));
    assert_eq!(host.shown("second").unwrap().refused_settings, None);
}

#[tokio::test]
async fn a_plugin_without_room_starts_once_another_one_has_gone() {
    let mut host = Host::new("on-remove = \"stop\"\nbuffer = \"30MiB\"\n").await;
    let plugins = ["first", "second", "third", "fourth"];
    for plugin in plugins {
        host.loads(plugin, 1);
    }
    let runs = |host: &Host| plugins.map(|plugin| host.runs(plugin).is_some());
    let before = runs(&host);
    let without = before.iter().position(|runs| !runs);
    let without = without.expect("too little room for all");
    host.supervisor.removed(&name("first"));
    host.ends().await;
    host.supervisor.look_at_waiting();
    host.supervisor.look_at_waiting();
    assert!(host.runs(plugins[without]).is_some(), "{before:?}");
}

#[tokio::test]
async fn a_manifest_that_is_being_written_starts_nothing_that_waits() {
    let mut host = Host::new("").await;
    host.manifest("orders", "application = \"another's\"");
    host.loads("orders", 1);
    host.manifest("orders", "");
    host.supervisor.look_at_waiting();
    assert_eq!(host.runs("orders"), None, "half of it");
    host.manifest("orders", "application = \"shared\"");
    host.supervisor.look_at_waiting();
    assert_eq!(host.runs("orders"), None, "it has changed since");
    host.supervisor.look_at_waiting();
    assert_eq!(host.runs("orders"), Some(digest(1)));
    assert_eq!(
        host.shown("orders").unwrap().application.as_deref(),
        Some("shared")
    );
}

#[tokio::test]
async fn a_reason_is_news_once() {
    let mut waiting = Waiting::new(component(1), None);
    let news = ["no room", "no room", "no stream", "no room"].map(|why| waiting.is_news(why));
    assert_eq!(news, [true, false, true, true]);
}
