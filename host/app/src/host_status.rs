//! What a whole host is doing: one entry a plugin.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use shardmill_core::plugin::{PluginName, is_label_of};
use shardmill_worker::{StatusBoard, WorkerStatus};

use crate::config::StreamConfig;

/// The shared view of a host. Cheap to clone.
#[derive(Clone, Default)]
pub struct HostStatus {
    // Written by the supervisor, read by the status page and by `--until-idle`; never held across an await.
    plugins: Arc<Mutex<BTreeMap<String, PluginEntry>>>,
    is_folder_read: Arc<AtomicBool>,
    worker_id: Arc<str>,
}

#[derive(Clone, Default)]
struct PluginEntry {
    board: StatusBoard,
    stream: Option<StreamConfig>,
    is_file_removed: bool,
    refused_file: Option<String>,
    refused_settings: Option<String>,
}

/// A host at one moment.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostSnapshot {
    /// This host's id.
    pub worker_id: String,
    /// Whether everything that lay in the plugins folder at the start has been loaded or refused.
    pub is_folder_read: bool,
    /// By plugin name; `PLUGIN.STREAM` for the streams that a plugin has besides its first.
    pub plugins: BTreeMap<String, PluginSnapshot>,
}

/// A plugin on one stream at one moment.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PluginSnapshot {
    /// Whether its file is gone; it runs on until the host stops, unless `on-remove = "stop"`.
    pub is_file_removed: bool,
    /// Why the file now in the folder was refused, if it was; the version before it runs on.
    pub refused_file: Option<String>,
    /// Why its settings were refused, if they were; those before them stay in use, if there were any.
    pub refused_settings: Option<String>,
    /// The stream it reads, as configured.
    pub stream: Option<String>,
    /// What its leases are kept under.
    pub application: Option<String>,
    /// Its worker.
    #[serde(flatten)]
    pub worker: WorkerStatus,
}

impl HostStatus {
    /// An empty view.
    pub fn new(worker_id: &str) -> Self {
        Self { plugins: Arc::default(), is_folder_read: Arc::default(), worker_id: worker_id.into() }
    }

    /// A copy of everything, at one moment.
    pub fn snapshot(&self) -> HostSnapshot {
        let plugins = self.lock();
        let snapshot = |entry: &PluginEntry| PluginSnapshot {
            is_file_removed: entry.is_file_removed,
            refused_file: entry.refused_file.clone(),
            refused_settings: entry.refused_settings.clone(),
            stream: entry.stream.as_ref().map(|stream| stream.stream.to_string()),
            application: entry.stream.as_ref().map(|stream| stream.application.clone()),
            worker: entry.board.snapshot(),
        };
        HostSnapshot {
            worker_id: self.worker_id.to_string(),
            is_folder_read: self.is_folder_read.load(Ordering::Acquire),
            plugins: plugins.iter().map(|(name, entry)| (name.clone(), snapshot(entry))).collect(),
        }
    }

    /// A plugin has begun to serve a stream. What was told of the plugin alone, before it had one, is told no more.
    pub(crate) fn started(&self, plugin: &PluginName, stream: &StreamConfig, board: StatusBoard) {
        let mut plugins = self.lock();
        if plugins.get(plugin.as_str()).is_some_and(|entry| entry.stream.is_none()) {
            plugins.remove(plugin.as_str());
        }
        let entry = PluginEntry { board, stream: Some(stream.clone()), ..PluginEntry::default() };
        plugins.insert(stream.label.to_string(), entry);
    }

    pub(crate) fn file_accepted(&self, plugin: &str) {
        self.change(plugin, |entry| {
            entry.is_file_removed = false;
            entry.refused_file = None;
        });
    }

    pub(crate) fn file_removed(&self, plugin: &str) {
        self.change(plugin, |entry| entry.is_file_removed = true);
    }

    pub(crate) fn file_refused(&self, plugin: &str, reason: &str) {
        self.change(plugin, |entry| entry.refused_file = Some(reason.to_owned()));
    }

    pub(crate) fn settings_accepted(&self, plugin: &str) {
        self.change(plugin, |entry| entry.refused_settings = None);
    }

    pub(crate) fn settings_refused(&self, plugin: &str, reason: &str) {
        self.change(plugin, |entry| entry.refused_settings = Some(reason.to_owned()));
    }

    pub(crate) fn folder_read(&self) {
        self.is_folder_read.store(true, Ordering::Release);
    }

    pub(crate) fn stopped(&self, label: &str) {
        self.lock().remove(label);
    }

    /// Changes the entry of each stream of `plugin`, or makes one if it has none yet.
    fn change(&self, plugin: &str, change: impl Fn(&mut PluginEntry)) {
        let mut plugins = self.lock();
        let mut is_known = false;
        for (_, entry) in plugins.iter_mut().filter(|(label, _)| is_label_of(label, plugin)) {
            change(entry);
            is_known = true;
        }
        if !is_known {
            change(plugins.entry(plugin.to_owned()).or_default());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PluginEntry>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
