//! What a whole host is doing: one entry a plugin.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use shardmill_worker::{StatusBoard, WorkerStatus};

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
    is_file_removed: bool,
    refused_file: Option<String>,
}

/// A host at one moment.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostSnapshot {
    /// This host's id.
    pub worker_id: String,
    /// Whether everything that lay in the plugins folder at the start has been loaded or refused.
    pub is_folder_read: bool,
    /// By plugin name.
    pub plugins: BTreeMap<String, PluginSnapshot>,
}

/// A plugin at one moment.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PluginSnapshot {
    /// Whether its file is gone; it runs on until the host stops, unless `on-remove = "stop"`.
    pub is_file_removed: bool,
    /// Why the file now in the folder was refused, if it was; the version before it runs on.
    pub refused_file: Option<String>,
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
        let plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = |entry: &PluginEntry| PluginSnapshot {
            is_file_removed: entry.is_file_removed,
            refused_file: entry.refused_file.clone(),
            worker: entry.board.snapshot(),
        };
        HostSnapshot {
            worker_id: self.worker_id.to_string(),
            is_folder_read: self.is_folder_read.load(Ordering::Acquire),
            plugins: plugins.iter().map(|(name, entry)| (name.clone(), snapshot(entry))).collect(),
        }
    }

    pub(crate) fn started(&self, plugin: &str, board: StatusBoard) {
        self.change(plugin, |entry| *entry = PluginEntry { board, ..PluginEntry::default() });
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

    pub(crate) fn file_refused(&self, plugin: &str, reason: String) {
        self.change(plugin, |entry| entry.refused_file = Some(reason));
    }

    pub(crate) fn folder_read(&self) {
        self.is_folder_read.store(true, Ordering::Release);
    }

    pub(crate) fn stopped(&self, plugin: &str) {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner).remove(plugin);
    }

    fn change(&self, plugin: &str, change: impl FnOnce(&mut PluginEntry)) {
        let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        change(plugins.entry(plugin.to_owned()).or_default());
    }
}
