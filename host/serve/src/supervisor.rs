//! From files in the plugins folder to running workers: starts, swaps and stops them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use shardmill_config::{PluginConfig, StreamConfig};
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::ProcessorFactory;
use shardmill_wasm::folder::FolderEvent;
use shardmill_wasm::{Marks, Plugin, Runtime};
use shardmill_worker::metrics::keep_series;
use shardmill_worker::{SharedRollout, Worker};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::host_status::HostStatus;
use crate::kept::Kept;
use crate::parts::{Parts, PluginParts, Settings, to_come, warn_of_small_share};
use crate::pulls::Pulls;

mod deadly;
mod deploys;
mod ending;
mod fall_back;
mod keep_serving;
mod keeping;
mod pins;
mod pulled;
mod refused;
mod reload;
mod restless;
mod served;
mod shadows;
mod waiting;

use deadly::Deadly;
use fall_back::{FallBack, Loaded};
use keep_serving::End;
use pins::Pins;
use pulled::Pulled;
use refused::RefusedFiles;
pub(crate) use reload::Reloads;
use served::Served;
use shadows::Shadows;
use waiting::Waiting;

type Version = Arc<dyn ProcessorFactory>;

/// How often versions are looked after: soon enough to keep one before the host is restarted on
/// purpose.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Owns the workers: one for each stream of each plugin.
pub(crate) struct Supervisor {
    parts: Parts,
    status: HostStatus,
    running: HashMap<PluginName, Running>,
    /// Versions that could not be started. They start once the cause is gone.
    waiting: HashMap<PluginName, Waiting>,
    pulled: Pulled,
    /// Plugins whose manifests changed too soon after a start.
    restless: HashSet<PluginName>,
    workers: JoinSet<Ended>,
    /// Where there is a place to keep versions.
    fall_back: Option<FallBack>,
    /// Versions that this host died of.
    deadly: Deadly,
    refused: RefusedFiles,
    /// Where there is a place to keep versions.
    pins: Option<Pins>,
    /// How the configuration is read again.
    reloads: Reloads,
    shadows: Shadows,
    /// Where versions are pulled from.
    pulls: Pulls,
}

/// No plugin is served any longer, and this process may not start one again.
#[derive(Debug, thiserror::Error)]
#[error(
    "no plugin is left to serve: {last} was the last, and the log says why it is no longer served"
)]
pub struct NothingLeft {
    last: String,
}

/// A plugin at work.
struct Running {
    versions: watch::Sender<Version>,
    /// Outlives workers that are restarted with new settings: a version on trial stays on trial.
    rollout: SharedRollout,
    settings: Settings,
    started_at: Instant,
    stop: CancellationToken,
    /// Workers that have not ended.
    workers: usize,
    /// A version to start with once these workers, which are stopping or about to, have ended.
    next: Option<Version>,
}

/// A plugin that is about to start.
struct Made {
    running: Running,
    served: Vec<Served>,
}

/// A stream that is no longer served.
struct Ended {
    name: PluginName,
    label: PluginName,
    end: End,
}

impl Supervisor {
    pub(crate) fn new(
        parts: Parts,
        status: HostStatus,
        runtime: &Runtime,
        marks: Marks,
        reloads: Reloads,
    ) -> Self {
        let config = &parts.config;
        let kept = Kept::of_host(config);
        let pulls = Pulls::none(config);
        let fall_back = kept
            .clone()
            .map(|kept| FallBack::new(kept, runtime.clone(), config.clone()));
        let pins = kept.map(|kept| Pins::new(kept, runtime.clone(), config.clone()));
        Self {
            parts,
            status,
            running: HashMap::new(),
            waiting: HashMap::new(),
            pulled: Pulled::default(),
            restless: HashSet::new(),
            workers: JoinSet::new(),
            fall_back,
            deadly: Deadly::new(marks),
            refused: RefusedFiles::default(),
            pins,
            reloads,
            shadows: Shadows::default(),
            pulls,
        }
    }

    /// The same with sources that versions are pulled from.
    pub(crate) fn pulling(self, pulls: Pulls) -> Self {
        Self { pulls, ..self }
    }

    /// Follows the folder until `stop`; then drains all workers, each within the drain limit.
    ///
    /// # Errors
    /// Nothing is left to serve, and what was served must not be served again by this process.
    pub(crate) async fn run(
        mut self,
        mut events: mpsc::Receiver<FolderEvent>,
        stop: &CancellationToken,
    ) -> Result<(), NothingLeft> {
        let mut served = Ok(());
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(loaded) = next_load(&mut self.fall_back) => self.fell_back(loaded),
                Some((name, digest, loaded)) = next_pinned(&mut self.pins) => {
                    self.loaded_pinned(&name, &digest, loaded);
                }
                _ = look.tick() => {
                    self.deadly.look();
                    self.report_deadly();
                    self.look_at_pins();
                    self.look_after_versions();
                    self.look_at_restless();
                    self.look_at_waiting();
                    self.look_at_shadows();
                    self.look_at_pulled();
                    self.running.keys().for_each(keep_series);
                }
                Some(ended) = self.workers.join_next() => {
                    served = self.worker_ended(ended);
                    if served.is_err() {
                        break;
                    }
                }
                Some(ring) = self.reloads.next() => self.heed(ring),
                Some(event) = events.recv() => self.apply(event),
            }
        }
        self.deadly.end();
        Box::pin(self.drain_all()).await;
        served
    }

    fn apply(&mut self, event: FolderEvent) {
        let Some(event) = self.take_shadow_event(event) else {
            return;
        };
        match event {
            FolderEvent::Loaded { name, plugin } => self.offer(&name, plugin),
            FolderEvent::Changed {
                name,
                plugin,
                previous,
            } => {
                tracing::info!(plugin = %name, from = %previous, to = %plugin.digest(), "new \
                    plugin version, swapping between batches");
                self.offer(&name, plugin);
            }
            FolderEvent::Removed { name } => self.removed(&name),
            FolderEvent::RefusedGone { file } => {
                let name = file.strip_suffix(".wasm").unwrap_or(&file);
                self.no_file_refused(name);
                self.status.refused_file_gone(name);
            }
            FolderEvent::Refused {
                file,
                reason,
                keeps,
            } => self.refused(&file, &reason, keeps),
            FolderEvent::ManifestChanged { name } => {
                self.follow_settings_of(&name);
            }
            FolderEvent::Writers { reported } => self.folder_is_open(reported),
            FolderEvent::Unreadable { reported } => self.status.folder_unreadable(reported),
            FolderEvent::FirstScanDone => self.status.folder_read(),
        }
    }

    fn offer(&mut self, name: &PluginName, plugin: Plugin) {
        let version: Version = Arc::new(plugin);
        if let Some(running) = self
            .running
            .get(name)
            .filter(|running| !running.stop.is_cancelled())
            && let Err(reason) = running.settings.refuse_other_contract(version.as_ref())
        {
            tracing::warn!(
                plugin = %name,
                reason,
                code = "file-refused-kept",
                "plugin file refused, the previous version keeps running"
            );
            return self.status.file_refused(name.as_str(), &reason);
        }
        self.status.file_accepted(name.as_str());
        self.no_file_refused(name.as_str());
        if !self.holds_back(name, &version) {
            self.offer_version(name, version);
        }
    }

    /// Runs it, or has it tried beside what runs.
    fn offer_version(&mut self, name: &PluginName, version: Version) {
        if let Some(running) = self.running.get(name) {
            self.set_policy(name, running);
        }
        // It came with a manifest that is followed in some seconds: it is not tried with the one
        // before.
        let waits = self.restless.contains(name);
        match self.running.get_mut(name) {
            Some(running) if waits || running.stop.is_cancelled() => running.next = Some(version),
            Some(running) => {
                running.versions.send_replace(version);
            }
            None => self.start_or_hold(name, version),
        }
    }

    /// Goes on with a rollout, if there is one: that of the workers before, or of a version that
    /// waits and ran before that.
    fn start(&mut self, name: &PluginName, version: Version, rollout: Option<SharedRollout>) {
        let waiting = self.waiting.remove(name);
        let rollout = rollout.or(waiting.and_then(|waiting| waiting.rollout));
        self.start_or_wait(name, Waiting::new(version, rollout));
    }

    fn run_made(&mut self, name: &PluginName, version: &Version, made: Made) {
        tracing::info!(plugin = %name, digest = %version.digest(), "plugin loaded, starting");
        let Made { running, served } = made;
        self.status.settings_accepted(name.as_str());
        for served in served {
            self.status.started(name, &served.stream);
            let (name, label) = (name.clone(), served.stream.label.clone());
            let serving = Box::pin(served.run());
            self.workers.spawn(async move {
                Ended {
                    name,
                    label,
                    end: serving.await,
                }
            });
        }
        self.running.insert(name.clone(), running);
        self.follow_shadow(name);
        self.report_refused_to_fleet(name);
    }

    /// What serves a plugin on all its streams, if its settings allow it.
    fn make(
        &mut self,
        name: &PluginName,
        version: &Version,
        rollout: Option<SharedRollout>,
    ) -> Result<Made, String> {
        let settings = self.settings(name)?;
        settings.refuse_other_contract(version.as_ref())?;
        let (versions, offered) = watch::channel(Arc::clone(version));
        let rollout = rollout.unwrap_or_else(|| self.parts.rollout(name, &settings.plugin));
        rollout.set_policy(self.policy(name, settings.plugin.rollout));
        let is_running = |other: &PluginName| self.running.contains_key(other);
        let others = to_come(&self.parts.config, name, is_running);
        let shared = PluginParts {
            budget: self.parts.share(others)?,
            versions: offered,
            rollout: rollout.clone(),
        };
        let stop = CancellationToken::new();
        let mut served = Vec::new();
        for stream in &settings.plugin.streams {
            served.push(self.served(&settings.plugin, stream, shared.clone(), &stop)?);
        }
        warn_of_small_share(name, &shared.budget);
        let running = Running {
            versions,
            rollout,
            settings,
            started_at: Instant::now(),
            stop,
            workers: served.len(),
            next: None,
        };
        Ok(Made { running, served })
    }

    fn served(
        &mut self,
        settings: &PluginConfig,
        stream: &StreamConfig,
        shared: PluginParts,
        stop: &CancellationToken,
    ) -> Result<Served, String> {
        let ports = self.parts.ports(settings, stream, shared);
        let options = self.parts.options(settings, stream);
        Worker::check(&ports, &options).map_err(|error| error.to_string())?;
        Ok(Served {
            stream: stream.clone(),
            ports,
            options,
            status: self.status.clone(),
            stop: stop.clone(),
            drain_limit: self.parts.drain_limit(),
        })
    }

    /// The plugin's current settings. Refused if they name an application of another plugin: the
    /// two would fence each other.
    fn settings(&self, name: &PluginName) -> Result<Settings, String> {
        let settings = self.parts.settings(name)?;
        for (other, running) in self.running.iter().filter(|(other, _)| *other != name) {
            if let Some(application) = settings
                .plugin
                .shares_a_table_with(&running.settings.plugin)
            {
                return Err(format!(
                    "its application {application} is plugin {other}'s: name another `application`"
                ));
            }
        }
        Ok(settings)
    }

    /// Reports the problem on the status page. Other plugins are not affected.
    fn refuse(&self, name: &PluginName, problem: &str) {
        tracing::error!(
            plugin = %name,
            problem,
            code = "settings-invalid",
            "the plugin's settings are invalid, not starting it"
        );
        self.status.settings_refused(name.as_str(), problem);
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
            tracing::warn!(
                ?limit,
                code = "drain-exceeded",
                "not all plugins drained in time"
            );
        }
    }
}

/// The next version that was kept and is loaded; `None` if none is being loaded.
async fn next_load(fall_back: &mut Option<FallBack>) -> Option<Loaded> {
    // If the load panicked, the plugin stays as it is.
    fall_back.as_mut()?.loads.join_next().await?.ok()
}

/// The next pinned version that is loaded; `None` if none is being loaded.
async fn next_pinned(
    pins: &mut Option<Pins>,
) -> Option<(PluginName, PluginDigest, anyhow::Result<Plugin>)> {
    pins.as_mut()?.loads.join_next().await?.ok()
}

// === impl Running ===

impl Running {
    /// Refuses new settings that the running version does not fit.
    fn accept(&self, settings: Settings) -> Result<Settings, String> {
        settings.refuse_other_contract(self.versions.borrow().as_ref())?;
        Ok(settings)
    }

    /// The version that was offered last.
    fn newest(&self) -> Version {
        let next = self.next.clone();
        next.unwrap_or_else(|| Arc::clone(&self.versions.borrow()))
    }

    /// Whether it stops, and does not start again.
    fn is_ending(&self) -> bool {
        self.stop.is_cancelled() && self.next.is_none()
    }
}

#[cfg(test)]
mod tests;
