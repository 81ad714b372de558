//! What a whole host is doing: one entry a plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use shardmill_aws::Wire;
use shardmill_config::StreamConfig;
use shardmill_core::plugin::{PluginName, is_label_of};
use shardmill_wasm::Marks;
use shardmill_worker::{StatusBoard, WorkerStatus};
use tokio::time::Instant;

use crate::hardening;
use crate::pulls::{PullBoard, SourceSnapshot};

/// The shared view of a host. Cheap to clone.
#[derive(Clone, Default)]
pub struct HostStatus {
    // Written by the supervisor, read by the status page and by `--until-idle`; never held across
    // an await.
    plugins: Arc<Mutex<BTreeMap<String, PluginEntry>>>,
    configured: Arc<Mutex<Configured>>,
    is_folder_read: Arc<AtomicBool>,
    folder_written_by: Arc<Mutex<Option<String>>>,
    folder_unreadable: Arc<Mutex<Option<Unreadable>>>,
    worker_id: Arc<str>,
    marks: Marks,
    wire: Option<Wire>,
    sources: PullBoard,
}

#[derive(Clone, Default)]
struct PluginEntry {
    board: StatusBoard,
    stream: Option<StreamConfig>,
    file: FileEntry,
    refused_settings: Option<String>,
    not_served: Option<String>,
}

/// What is known of the file of a plugin, whichever version runs. Stays the same when its workers
/// restart: nobody says it again.
#[derive(Clone, Default)]
struct FileEntry {
    is_removed: bool,
    refused: Option<String>,
    pinned: Option<String>,
}

/// Plugins with a section in the configuration.
#[derive(Default)]
struct Configured {
    all: BTreeSet<String>,
    /// Those whose file was in the folder since this host began, or since they have a section.
    found: BTreeSet<String>,
}

/// The plugins folder cannot be read.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Unreadable {
    /// Why, and what to do about it.
    pub reason: String,
    /// When this host first failed to read it; shown as seconds since then.
    #[serde(rename = "seconds", serialize_with = "seconds_since")]
    pub since: Instant,
}

/// A host at one moment.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostSnapshot {
    /// The id under which this host owns leases.
    pub worker_id: String,
    /// Whether everything that lay in the plugins folder at the start has been loaded or refused.
    pub is_folder_read: bool,
    /// What the second wall around this process lacks, each with why; empty where it is whole.
    pub wall_lacks: Vec<String>,
    /// Why this host would not know, after a crash, which plugin caused it; `None` if it would.
    pub deaths_not_remembered: Option<String>,
    /// Which users besides this one and root may write to the plugins folder, or to files loaded
    /// from it, and what to do about it; `None` if no others may.
    pub folder_written_by: Option<String>,
    /// Why the plugins folder cannot be read, if it cannot: what runs goes on, and no new version
    /// is loaded.
    pub(crate) folder_unreadable: Option<Unreadable>,
    /// The format that Kinesis is spoken to in, and why it is not the better one; `None` before
    /// there is a client.
    pub wire: Option<String>,
    /// Where versions are pulled from, by plugin name.
    pub sources: BTreeMap<String, SourceSnapshot>,
    /// Plugins with a section in the configuration whose file has not been in the folder since this
    /// host began.
    pub without_file: BTreeSet<String>,
    /// By plugin name; `PLUGIN.STREAM` for the streams that a plugin has besides its first.
    pub plugins: BTreeMap<String, PluginSnapshot>,
}

/// A plugin on one stream at one moment.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PluginSnapshot {
    /// Whether its file is gone; it runs on until the host stops, unless `on-remove = "stop"`.
    pub is_file_removed: bool,
    /// Why the file now in the folder was refused, if it was; the version before it runs on.
    pub refused_file: Option<String>,
    /// The version that an operator pinned on this host, if one did: it runs, whatever file is in
    /// the folder.
    pub pinned: Option<String>,
    /// Why its settings were refused, if they were; those before them stay in use, if there were
    /// any.
    pub refused_settings: Option<String>,
    /// Why it is not served: its worker ended or panicked, and no other has looked at its leases
    /// since.
    pub not_served: Option<String>,
    /// The stream it reads, as configured.
    pub stream: Option<String>,
    /// What its leases are kept under.
    pub application: Option<String>,
    /// The worker that serves the stream for the plugin.
    #[serde(flatten)]
    pub worker: WorkerStatus,
}

impl HostStatus {
    /// A view without plugins, before the folder was read.
    pub fn new(worker_id: &str) -> Self {
        let worker_id = worker_id.into();
        Self {
            plugins: Arc::default(),
            configured: Arc::default(),
            is_folder_read: Arc::default(),
            folder_written_by: Arc::default(),
            folder_unreadable: Arc::default(),
            worker_id,
            marks: Marks::default(),
            wire: None,
            sources: PullBoard::default(),
        }
    }

    /// The same, showing whether the host's deaths are remembered.
    pub(crate) fn remembering(self, marks: Marks) -> Self {
        Self { marks, ..self }
    }

    /// The same, showing the wire format used with Kinesis.
    pub(crate) fn speaking(self, wire: Wire) -> Self {
        let wire = Some(wire);
        Self { wire, ..self }
    }

    /// Where the tasks that pull show what they do.
    pub(crate) fn sources(&self) -> PullBoard {
        self.sources.clone()
    }

    /// A copy of everything, at one moment.
    pub fn snapshot(&self) -> HostSnapshot {
        let plugins = self.lock();
        HostSnapshot {
            worker_id: self.worker_id.to_string(),
            is_folder_read: self.is_folder_read.load(Ordering::Acquire),
            wall_lacks: hardening::wall_lacks(),
            deaths_not_remembered: self.marks.why_not(),
            folder_written_by: self.written_by().clone(),
            folder_unreadable: self.unreadable().clone(),
            wire: self.wire.as_ref().map(Wire::to_string),
            sources: self.sources.snapshot(),
            without_file: self.configured().without_file(),
            plugins: plugins
                .iter()
                .map(|(name, entry)| (name.clone(), entry.snapshot()))
                .collect(),
        }
    }

    /// The plugins that have a section now.
    pub(crate) fn configured_are(&self, names: impl IntoIterator<Item = PluginName>) {
        let plugins = self.lock();
        let mut configured = self.configured();
        let all: BTreeSet<_> = names.into_iter().map(|name| name.to_string()).collect();
        let is_here = |name: &str| plugins.keys().any(|label| is_label_of(label, name));
        configured.found = all
            .iter()
            .filter(|name| configured.found.contains(*name) || is_here(name))
            .cloned()
            .collect();
        configured.all = all;
    }

    /// A plugin has begun to serve a stream. Drops the entry that was shown while the plugin had no
    /// stream, but what is known of its file.
    pub(crate) fn started(&self, plugin: &PluginName, stream: &StreamConfig) {
        let mut plugins = self.lock();
        let known = plugins
            .iter()
            .find(|(label, _)| is_label_of(label, plugin.as_str()));
        let file = known.map(|(_, entry)| entry.file.clone());
        if plugins
            .get(plugin.as_str())
            .is_some_and(|entry| entry.stream.is_none())
        {
            plugins.remove(plugin.as_str());
        }
        let entry = PluginEntry {
            stream: Some(stream.clone()),
            file: file.unwrap_or_default(),
            ..PluginEntry::default()
        };
        plugins.insert(stream.label.to_string(), entry);
        self.configured().found(plugin.as_str());
    }

    /// A worker begins to serve the stream labelled `label`, the first one or another.
    pub(crate) fn serving(&self, label: &str, board: StatusBoard) {
        if let Some(entry) = self.lock().get_mut(label) {
            entry.board = board;
        }
    }

    /// The worker for the stream labelled `label` fell: drops the status that it reported.
    pub(crate) fn not_served(&self, label: &str, reason: &str) {
        if let Some(entry) = self.lock().get_mut(label) {
            entry.board = StatusBoard::default();
            entry.not_served = Some(reason.to_owned());
        }
    }

    pub(crate) fn file_accepted(&self, plugin: &str) {
        self.change(plugin, |entry| {
            entry.file.is_removed = false;
            entry.file.refused = None;
        });
    }

    pub(crate) fn file_removed(&self, plugin: &str) {
        self.change(plugin, |entry| {
            entry.file.is_removed = true;
            entry.file.refused = None;
        });
    }

    /// A refused file is gone, and so is its refusal. The entry of a running plugin stays.
    pub(crate) fn refused_file_gone(&self, plugin: &str) {
        let mut plugins = self.lock();
        plugins.retain(|label, entry| !is_label_of(label, plugin) || entry.stream.is_some());
        for (_, entry) in plugins
            .iter_mut()
            .filter(|(label, _)| is_label_of(label, plugin))
        {
            entry.file.refused = None;
        }
    }

    pub(crate) fn file_refused(&self, plugin: &str, reason: &str) {
        self.change(plugin, |entry| entry.file.refused = Some(reason.to_owned()));
    }

    /// Nothing speaks against the file, if there is one.
    pub(crate) fn file_not_refused(&self, plugin: &str) {
        self.change(plugin, |entry| entry.file.refused = None);
    }

    pub(crate) fn pinned(&self, plugin: &str, digest: Option<&str>) {
        self.change(plugin, |entry| {
            entry.file.pinned = digest.map(str::to_owned);
        });
    }

    pub(crate) fn settings_accepted(&self, plugin: &str) {
        self.change(plugin, |entry| entry.refused_settings = None);
    }

    pub(crate) fn settings_refused(&self, plugin: &str, reason: &str) {
        self.change(plugin, |entry| {
            entry.refused_settings = Some(reason.to_owned());
        });
    }

    pub(crate) fn folder_read(&self) {
        self.is_folder_read.store(true, Ordering::Release);
    }

    pub(crate) fn folder_written_by(&self, reported: Option<String>) {
        *self.written_by() = reported;
    }

    pub(crate) fn folder_unreadable(&self, reported: Option<String>) {
        *self.unreadable() = reported.map(|reason| Unreadable {
            reason,
            since: Instant::now(),
        });
    }

    pub(crate) fn stopped(&self, label: &str) {
        self.lock().remove(label);
    }

    /// The last worker of a plugin has stopped, the one for the stream labelled `label`, and others
    /// take their place.
    pub(crate) fn restarts(&self, plugin: &PluginName, label: &str) {
        let mut plugins = self.lock();
        if let Some(PluginEntry { file, .. }) = plugins.remove(label) {
            let entry = PluginEntry {
                file,
                ..PluginEntry::default()
            };
            plugins.insert(plugin.to_string(), entry);
        }
    }

    /// Changes the entry of each stream of `plugin`, or makes one if it has none yet.
    fn change(&self, plugin: &str, change: impl Fn(&mut PluginEntry)) {
        let mut plugins = self.lock();
        let mut is_known = false;
        for (_, entry) in plugins
            .iter_mut()
            .filter(|(label, _)| is_label_of(label, plugin))
        {
            change(entry);
            is_known = true;
        }
        if !is_known {
            change(plugins.entry(plugin.to_owned()).or_default());
            self.configured().found(plugin);
        }
    }

    /// Taken after `plugins` where both are.
    fn configured(&self) -> MutexGuard<'_, Configured> {
        self.configured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn written_by(&self) -> MutexGuard<'_, Option<String>> {
        let reported = self.folder_written_by.lock();
        reported.unwrap_or_else(PoisonError::into_inner)
    }

    fn unreadable(&self) -> MutexGuard<'_, Option<Unreadable>> {
        let unreadable = self.folder_unreadable.lock();
        unreadable.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PluginEntry>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seconds_since<S: serde::Serializer>(at: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(at.elapsed().as_secs_f64())
}

impl Configured {
    fn found(&mut self, plugin: &str) {
        if self.all.contains(plugin) {
            self.found.insert(plugin.to_owned());
        }
    }

    fn without_file(&self) -> BTreeSet<String> {
        self.all.difference(&self.found).cloned().collect()
    }
}

impl PluginEntry {
    fn snapshot(&self) -> PluginSnapshot {
        let worker = self.board.snapshot();
        PluginSnapshot {
            is_file_removed: self.file.is_removed,
            refused_file: self.file.refused.clone(),
            pinned: self.file.pinned.clone(),
            refused_settings: self.refused_settings.clone(),
            not_served: if worker.passes > 0 {
                None
            } else {
                self.not_served.clone()
            },
            stream: self.stream.as_ref().map(|stream| stream.stream.to_string()),
            application: self
                .stream
                .as_ref()
                .map(|stream| stream.application.clone()),
            worker,
        }
    }
}
