//! The loop: waits for a reason to look, looks, and has the tracker's decisions carried out.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::plugin::PluginName;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::FolderEvent;
use super::loading::{Load, Loading, Turns};
use super::manifests::Manifests;
use super::scan::{Listing, scan};
use super::tracker::{Action, News, Tracker};
use super::watched::{Changes, Watched};
use crate::blocking::blocking;
use crate::{Integrity, Runtime};

/// How the folder is watched.
#[derive(Debug, Clone)]
pub struct FolderOptions {
    /// The plugins folder; only files directly in it count.
    pub path: PathBuf,
    /// Largest file that is read. 32 MiB: twice the largest Python component seen.
    pub file_bytes_max: u64,
    /// Plugins that are loaded at most; further files are refused. 100: ten times what one host is
    /// good for.
    pub plugins_max: usize,
    /// Plugins that have their places before others, as soon as their files are here. None.
    pub first: BTreeSet<PluginName>,
    /// Whether all others are refused. No.
    pub only_first: bool,
    /// How long a file must be unchanged before it is read, unless it is another version of a
    /// plugin and the system says that its writer has closed it. 40 ms: tools that write in place
    /// pause less.
    pub settle: Duration,
    /// How long file events are gathered, and how long the folder rests after a look. 10 ms, so
    /// that a thousand small writes are some looks, not a thousand.
    pub debounce: Duration,
    /// How long a file that looks cut off may take to be completed before it is refused. 1 s.
    pub incomplete_grace: Duration,
    /// How often to look without an event: some file systems send none, and queues overflow. 5 s.
    pub rescan: Duration,
    /// Which components are loaded at all. All.
    pub integrity: Integrity,
    /// How often to look when there are no file events at all. 500 ms: cheap, and still feels
    /// immediate.
    pub poll: Duration,
}

impl FolderOptions {
    /// The defaults, for this directory.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            file_bytes_max: 32 << 20,
            plugins_max: 100,
            first: BTreeSet::new(),
            only_first: false,
            settle: Duration::from_millis(40),
            debounce: Duration::from_millis(10),
            incomplete_grace: Duration::from_secs(1),
            rescan: Duration::from_secs(5),
            integrity: Integrity::default(),
            poll: Duration::from_millis(500),
        }
    }
}

/// A watched folder, to be run by a task of the caller's.
pub struct PluginFolder {
    runtime: Runtime,
    options: FolderOptions,
    events: mpsc::Sender<FolderEvent>,
    tracker: Tracker,
    manifests: Manifests,
    integrity: Arc<Integrity>,
    loads: JoinSet<Load>,
    turns: Arc<Turns>,
    changes: Arc<Changes>,
    watched: Option<(Watched, (u64, u64))>,
    /// The last problem, so that one that lasts is logged once.
    trouble: Option<String>,
    /// Why the folder could not be read at the last look, as it was told.
    unreadable: Option<String>,
    /// What was sent last about other users who may write here.
    writers: Option<String>,
    is_first_scan_done: bool,
}

/// The receiver of events is gone, so there is no reason to watch.
struct NobodyListens;

impl PluginFolder {
    /// Prepares to watch. Events wait in the channel, and the folder with them, until they are
    /// received.
    pub fn new(runtime: Runtime, options: FolderOptions) -> (Self, mpsc::Receiver<FolderEvent>) {
        /// Each event holds at most one plugin; more would only hide a consumer that is stuck.
        const EVENTS_MAX: usize = 64;
        let (events, received) = mpsc::channel(EVENTS_MAX);
        let folder = Self {
            tracker: Tracker::new(
                options.settle,
                options.incomplete_grace,
                options.plugins_max,
                options.first.clone(),
            ),
            manifests: Manifests::new(options.settle),
            integrity: Arc::new(options.integrity.clone()),
            runtime,
            options,
            events,
            loads: JoinSet::new(),
            turns: Arc::new(Turns::new()),
            changes: Arc::default(),
            watched: None,
            trouble: None,
            unreadable: None,
            writers: None,
            is_first_scan_done: false,
        };
        (folder, received)
    }

    /// Watches until cancelled, or until nobody receives the events any more.
    pub async fn run(mut self, cancel: CancellationToken) {
        tokio::select! {
            () = cancel.cancelled() => {}
            NobodyListens = self.watch() => {}
        }
    }

    async fn watch(&mut self) -> NobodyListens {
        loop {
            if let Err(nobody) = self.look().await {
                return nobody;
            }
            let rested_at = Instant::now() + self.options.debounce;
            let next = self.next_look();
            tokio::select! {
                () = self.changes.reason(self.options.debounce) => {
                    tokio::time::sleep_until(rested_at).await;
                }
                () = tokio::time::sleep_until(next) => {}
                Some(load) = self.loads.join_next() => {
                    if let Err(nobody) = self.finish(load).await {
                        return nobody;
                    }
                }
            }
        }
    }

    fn next_look(&self) -> Instant {
        let interval = if self.watched.is_some() {
            self.options.rescan
        } else {
            self.options.poll
        };
        let latest = Instant::now() + interval;
        let looks = [self.tracker.next_look(), self.manifests.next_look()];
        looks
            .into_iter()
            .flatten()
            .fold(latest, |next, at| next.min(at.into()))
    }

    async fn look(&mut self) -> Result<(), NobodyListens> {
        // Watch before the first scan: what changes between the two is an event.
        if self.watched.is_none() {
            self.start_watching();
        }
        // Before the look, which then sees them as they were left, or as they are written again.
        let whole = self.changes.take_whole();
        let scanned = self.scan().await;
        self.report_unreadable(scanned.as_ref().err()).await?;
        let Ok(mut listing) = scanned else {
            return Ok(());
        };
        if self.options.only_first {
            listing.refuse_all_but(&self.options.first);
        }
        self.check_directory(&listing);
        if self.writers != listing.writers {
            self.writers.clone_from(&listing.writers);
            let reported = listing.writers.clone();
            self.send(FolderEvent::Writers { reported }).await?;
        }
        let now = std::time::Instant::now();
        // First: who changes both puts the manifest there before the component.
        for name in self.manifests.observe(now, &listing.manifests) {
            self.send(FolderEvent::ManifestChanged { name }).await?;
        }
        let now = std::time::Instant::now();
        self.tracker.hold(self.manifests.changing());
        self.tracker.note_whole(&whole);
        for action in self.tracker.observe(now, &listing.seen) {
            self.act(action).await?;
        }
        if !self.is_first_scan_done && self.tracker.is_settled(now) {
            self.is_first_scan_done = true;
            self.send(FolderEvent::FirstScanDone).await?;
        }
        Ok(())
    }

    /// An error if nothing is known of the folder. So nothing is removed: a folder that is
    /// unmounted for a moment stops no plugin.
    async fn scan(&mut self) -> Result<Listing, String> {
        let (path, size_max) = (self.options.path.clone(), self.options.file_bytes_max);
        let listing = blocking(move || scan(&path, size_max))
            .await
            .unwrap_or_else(|message| Err(std::io::Error::other(message)));
        match listing {
            Ok(listing) => {
                self.trouble = None;
                Ok(listing)
            }
            Err(error) => {
                let mut message = error.to_string();
                if error.kind() == std::io::ErrorKind::NotFound {
                    message += "; create it, or set `plugins` to another folder: what runs goes on, \
                        and no new version is loaded";
                }
                self.report_trouble(&message);
                Err(message)
            }
        }
    }

    /// Says once that the folder cannot be read, and once that it can be again.
    async fn report_unreadable(&mut self, why: Option<&String>) -> Result<(), NobodyListens> {
        if self.unreadable.as_ref() == why {
            return Ok(());
        }
        self.unreadable = why.cloned();
        let reported = why.cloned();
        self.send(FolderEvent::Unreadable { reported }).await
    }

    fn start_watching(&mut self) {
        let directory = rustix::fs::stat(&self.options.path).map(|stat| (stat.st_dev, stat.st_ino));
        let watched = Watched::start(&self.options.path, Arc::clone(&self.changes));
        match (watched, directory) {
            (Ok(watched), Ok(directory)) => self.watched = Some((watched, directory)),
            (Err(error), _) => self.report_trouble(&format!(
                "no file events, polling the folder instead: {error}"
            )),
            (_, Err(error)) => self.report_trouble(&error.to_string()),
        }
    }

    /// A watch stays with the directory that it was made on; a directory put in its place needs a
    /// new one.
    fn check_directory(&mut self, listing: &Listing) {
        if self
            .watched
            .as_ref()
            .is_some_and(|(_, directory)| *directory != listing.directory)
        {
            self.watched = None;
            self.changes.look_again();
        }
    }

    async fn act(&mut self, action: Action) -> Result<(), NobodyListens> {
        match action {
            Action::Load { file, name, stamps } => {
                let loading = Loading {
                    runtime: self.runtime.clone(),
                    integrity: Arc::clone(&self.integrity),
                    turns: Arc::clone(&self.turns),
                    folder: self.options.path.clone(),
                    known: self.tracker.known_digests(&file),
                    file,
                    name,
                    stamps,
                };
                self.loads.spawn(loading.run());
                Ok(())
            }
            Action::Refuse {
                file,
                reason,
                keeps,
            } => {
                self.send(FolderEvent::Refused {
                    file,
                    reason,
                    keeps,
                })
                .await
            }
            Action::Forget { file } => self.send(FolderEvent::RefusedGone { file }).await,
            Action::Remove { name } => self.send(FolderEvent::Removed { name }).await,
        }
    }

    async fn finish(
        &mut self,
        load: Result<Load, tokio::task::JoinError>,
    ) -> Result<(), NobodyListens> {
        let Ok(Load {
            file,
            name,
            stamps,
            ended,
            plugin,
        }) = load
        else {
            return Ok(());
        };
        let news = self
            .tracker
            .ended(std::time::Instant::now(), &file, &name, stamps, ended);
        let event = match (news, plugin) {
            (News::First, Some(plugin)) => FolderEvent::Loaded { name, plugin },
            (News::Changed { previous }, Some(plugin)) => FolderEvent::Changed {
                name,
                plugin,
                previous,
            },
            (News::Refused { reason, keeps }, _) => FolderEvent::Refused {
                file,
                reason,
                keeps,
            },
            (News::Nothing | News::First | News::Changed { .. }, _) => return Ok(()),
        };
        self.send(event).await
    }

    async fn send(&self, event: FolderEvent) -> Result<(), NobodyListens> {
        self.events.send(event).await.map_err(|_| NobodyListens)
    }

    fn report_trouble(&mut self, message: &str) {
        if self.trouble.as_deref() != Some(message) {
            tracing::warn!(
                folder = %self.options.path.display(),
                reason = message,
                code = "folder-problem", "problem with the plugins folder"
            );
            self.trouble = Some(message.to_owned());
        }
    }
}
