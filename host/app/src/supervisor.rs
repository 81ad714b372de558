//! From files in the plugins folder to running workers: starts, swaps and stops them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::plugin::PluginName;
use shardmill_core::ports::ProcessorFactory;
use shardmill_wasm::Plugin;
use shardmill_wasm::folder::FolderEvent;
use shardmill_worker::{StatusBoard, Worker, WorkerError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::assembly::Parts;
use crate::config::OnRemove;
use crate::host_status::HostStatus;

type Version = Arc<dyn ProcessorFactory>;
type Ended = (PluginName, Result<(), WorkerError>);

/// Owns one worker for each plugin.
pub(crate) struct Supervisor {
    parts: Parts,
    status: HostStatus,
    running: HashMap<PluginName, Running>,
    workers: JoinSet<Ended>,
}

struct Running {
    versions: watch::Sender<Version>,
    stop: CancellationToken,
    /// A version to start with once this worker, which is stopping, has ended.
    next: Option<Version>,
}

impl Supervisor {
    pub(crate) fn new(parts: Parts, status: HostStatus) -> Self {
        Self { parts, status, running: HashMap::new(), workers: JoinSet::new() }
    }

    /// Follows the folder until `stop`; then drains all workers, each within the drain limit.
    pub(crate) async fn run(mut self, mut events: mpsc::Receiver<FolderEvent>, stop: &CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.workers.join_next() => self.worker_ended(ended),
                Some(event) = events.recv() => self.apply(event),
                else => {
                    stop.cancelled().await;
                    break;
                }
            }
        }
        self.drain_all().await;
    }

    fn apply(&mut self, event: FolderEvent) {
        match event {
            FolderEvent::Loaded { name, plugin } => self.offer(name, plugin),
            FolderEvent::Changed { name, plugin, previous } => {
                tracing::info!(plugin = %name, from = %previous, to = %plugin.digest(), "new plugin version, swapping between batches");
                self.offer(name, plugin);
            }
            FolderEvent::Removed { name } => self.removed(&name),
            FolderEvent::Refused { file, reason, keeps } => {
                if let Some(kept) = keeps {
                    tracing::warn!(file, %reason, %kept, "plugin file refused, the version before it runs on");
                } else {
                    tracing::warn!(file, %reason, "plugin file refused");
                }
                let plugin = file.strip_suffix(".wasm").unwrap_or(&file);
                self.status.file_refused(plugin, reason.to_string());
            }
            FolderEvent::FirstScanDone => self.status.folder_read(),
        }
    }

    fn offer(&mut self, name: PluginName, plugin: Plugin) {
        self.status.file_accepted(name.as_str());
        let version: Version = Arc::new(plugin);
        match self.running.get_mut(&name) {
            Some(running) if running.stop.is_cancelled() => running.next = Some(version),
            Some(running) => {
                running.versions.send_replace(version);
            }
            None => self.start(name, version),
        }
    }

    fn start(&mut self, name: PluginName, version: Version) {
        tracing::info!(plugin = %name, digest = %version.digest(), "plugin loaded, starting");
        let settings = match self.parts.settings(&name) {
            Ok(settings) => settings,
            Err(problem) => return self.refuse(&name, problem),
        };
        let [stream] = &settings.streams[..] else {
            return self.refuse(&name, "this version serves one stream a plugin; name one".to_owned());
        };
        let board = StatusBoard::default();
        let (versions, offered) = watch::channel(version);
        let (ports, options) = self.parts.worker(&name, &settings, stream, offered);
        let worker = match Worker::new(ports, options, board.clone()) {
            Ok(worker) => worker,
            Err(error) => return self.refuse(&name, error.to_string()),
        };
        self.status.started(name.as_str(), board);
        let stop = CancellationToken::new();
        let (stopped, limit, ended_name) = (stop.clone(), self.parts.drain_limit(), name.clone());
        self.workers.spawn(async move { (ended_name, worker.run(stopped, limit).await) });
        self.running.insert(name, Running { versions, stop, next: None });
    }

    /// Harms no other plugin, and is told on the status page.
    fn refuse(&mut self, name: &PluginName, problem: String) {
        tracing::error!(plugin = %name, problem, "the plugin's settings cannot work, it is not started");
        self.status.file_refused(name.as_str(), problem);
    }

    fn removed(&mut self, name: &PluginName) {
        let Some(running) = self.running.get_mut(name) else { return };
        running.next = None;
        match self.parts.on_remove() {
            OnRemove::Keep => {
                tracing::warn!(plugin = %name, "plugin file removed; the loaded version runs on until the host stops");
                self.status.file_removed(name.as_str());
            }
            OnRemove::Stop => {
                tracing::info!(plugin = %name, "plugin file removed, draining");
                self.status.file_removed(name.as_str());
                running.stop.cancel();
            }
        }
    }

    fn worker_ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        let Ok((name, result)) = ended else {
            tracing::error!("a worker panicked; its leases will expire and be taken again");
            return;
        };
        let running = self.running.remove(&name);
        match result {
            Ok(()) => self.status.stopped(name.as_str()),
            Err(error) => {
                tracing::error!(plugin = %name, %error, "the plugin cannot be served");
                self.status.file_refused(name.as_str(), error.to_string());
            }
        }
        if let Some(version) = running.and_then(|running| running.next) {
            self.start(name, version);
        }
    }

    async fn drain_all(mut self) {
        /// Room for what a worker does around its drains.
        const MARGIN: Duration = Duration::from_secs(2);
        for running in self.running.values() {
            running.stop.cancel();
        }
        let limit = self.parts.drain_limit() + MARGIN;
        let all_ended = async { while self.workers.join_next().await.is_some() {} };
        if tokio::time::timeout(limit, all_ended).await.is_err() {
            tracing::warn!(?limit, "not all plugins drained in time");
        }
    }
}
