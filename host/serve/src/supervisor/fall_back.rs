//! Keeps the last version of each plugin that worked well, and runs it where the one in the folder
//! cannot be run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_config::Config;
use shardmill_core::plugin::{PluginDigest, PluginName, is_label_of};
use shardmill_core::rollout::RolloutState;
use shardmill_wasm::{LoadError, Plugin, Runtime};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::keeping::Keepings;
use super::{Supervisor, Version};
use crate::component;
use crate::host_status::{HostSnapshot, PluginSnapshot};
use crate::kept::Kept;

/// How long a kept version waits that this host could not load, for reasons that may pass: each try
/// reads the file, and may compile it.
pub(super) const LOAD_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// What a supervisor needs for it.
pub(crate) struct FallBack {
    kept: Kept,
    runtime: Runtime,
    config: Config,
    pub(super) loads: JoinSet<Loaded>,
    /// Plugins that fell back, each once a run, and when what is kept may be tried again, if this
    /// host could not load it.
    fallen_back: HashMap<PluginName, Option<Instant>>,
    keepings: Keepings,
}

/// A kept version that was loaded.
pub(super) struct Loaded {
    name: PluginName,
    /// What cannot be run; `None` if nothing ran.
    unfit: Option<PluginDigest>,
    plugin: anyhow::Result<Plugin>,
}

impl FallBack {
    pub(crate) fn new(kept: Kept, runtime: Runtime, config: Config) -> Self {
        Self {
            keepings: Keepings::new(kept.clone(), config.plugins.clone()),
            kept,
            runtime,
            config,
            loads: JoinSet::new(),
            fallen_back: HashMap::new(),
        }
    }

    /// Loads what is kept of a plugin, unless that is what cannot be run.
    fn load(&mut self, name: &PluginName, unfit: Option<&PluginDigest>) {
        let Some((digest, path)) = self.kept.find(name) else {
            return;
        };
        if unfit == Some(&digest) || !self.may_try(name) {
            return;
        }
        self.fallen_back.insert(name.clone(), None);
        let (runtime, config, name) = (self.runtime.clone(), self.config.clone(), name.clone());
        let unfit = unfit.cloned();
        self.loads.spawn(async move {
            let plugin = component::load_exactly(&runtime, &config, &name, &path, &digest).await;
            Loaded {
                name,
                unfit,
                plugin,
            }
        });
    }

    fn may_try(&self, name: &PluginName) -> bool {
        match self.fallen_back.get(name) {
            None => true,
            Some(again_at) => again_at.is_some_and(|at| at <= Instant::now()),
        }
    }
}

impl Supervisor {
    /// The file of a plugin that does not run was refused.
    pub(super) fn file_is_unfit(&mut self, file: &str) {
        let Some(name) = file
            .strip_suffix(".wasm")
            .and_then(|stem| PluginName::new(stem).ok())
        else {
            return;
        };
        if self.running.contains_key(&name) || self.is_pinned(&name) {
            return;
        }
        if let Some(fall_back) = &mut self.fall_back {
            fall_back.load(&name, None);
        }
    }

    /// Keeps what does well, and falls back from what the fleet found bad.
    pub(super) fn look_after_versions(&mut self) {
        let snapshot = self.status.snapshot();
        let Some(fall_back) = &mut self.fall_back else {
            return;
        };
        fall_back.keepings.look();
        for (name, running) in &self.running {
            let offered = running.versions.borrow().digest().clone();
            if running.is_ending() || *running.newest().digest() != offered {
                // Another version is about to take its place.
                continue;
            }
            let mut own = of_plugin(&snapshot, name);
            if running.rollout.is_quarantined(&offered)
                && own.any(|plugin| plugin.worker.is_version_quarantined)
            {
                fall_back.load(name, Some(&offered));
            } else if of_plugin(&snapshot, name).any(|plugin| does_well(plugin, &offered)) {
                let running = self.running.keys();
                fall_back.keepings.keep(name, offered, running);
            }
        }
    }

    /// A kept version is loaded: runs it in the place of the one in the folder.
    pub(super) fn fell_back(&mut self, loaded: Loaded) {
        let Loaded {
            name,
            unfit,
            plugin,
        } = loaded;
        match plugin {
            Ok(plugin) => self.fall_back_to(&name, unfit.as_ref(), Arc::new(plugin)),
            Err(error) => self.cannot_fall_back(&name, &error),
        }
    }

    pub(super) fn fall_back_to(
        &mut self,
        name: &PluginName,
        unfit: Option<&PluginDigest>,
        version: Version,
    ) {
        if !self.is_still_unfit(name, unfit) {
            // It was not needed, and may be later.
            if let Some(fall_back) = &mut self.fall_back {
                fall_back.fallen_back.remove(name);
            }
            return;
        }
        let digest = version.digest().clone();
        tracing::warn!(
            plugin = %name,
            %digest,
            code = "fell-back",
            "the version in the folder cannot run; running the last good one instead"
        );
        match (self.running.get_mut(name), self.waiting.get_mut(name)) {
            // It is about to restart with what cannot be run.
            (Some(running), _) if running.next.is_some() => running.next = Some(version),
            (Some(running), _) => drop(running.versions.send_replace(version)),
            (None, Some(waiting)) if unfit.is_some() => waiting.version = version,
            (None, _) => self.start(name, version, None),
        }
        let why = self
            .refused
            .reason(name)
            .unwrap_or("the version in the folder is quarantined");
        let reason = format!(
            "{why}; running {digest}, the last good version here, instead: put a good version there"
        );
        self.status.file_refused(name.as_str(), &reason);
    }

    /// Whether the plugin still is to run what it cannot run. Meanwhile another version may have
    /// come, or it is to stop.
    fn is_still_unfit(&self, name: &PluginName, unfit: Option<&PluginDigest>) -> bool {
        let running = self.running.get(name);
        let newest = match (running, self.waiting.get(name)) {
            (Some(running), _) if running.is_ending() => return false,
            (Some(running), _) => running.newest(),
            (None, Some(waiting)) => Arc::clone(&waiting.version),
            (None, None) => return unfit.is_none(),
        };
        // The file of a plugin that waits may be refused too.
        unfit.map_or(running.is_none(), |unfit| newest.digest() == unfit)
    }

    /// It is tried again later, if the reason may pass.
    fn cannot_fall_back(&mut self, name: &PluginName, error: &anyhow::Error) {
        if may_load_later(error)
            && let Some(fall_back) = &mut self.fall_back
        {
            let again_at = Instant::now() + LOAD_AGAIN_AFTER;
            fall_back.fallen_back.insert(name.clone(), Some(again_at));
        }
        let reason = format!("{error:#}");
        tracing::error!(
            plugin = %name,
            reason,
            code = "kept-failed",
            "the kept version cannot run either"
        );
    }
}

/// Whether it says nothing of the component, as with too little memory for its code.
pub(super) fn may_load_later(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<LoadError>();
    error.is_some_and(LoadError::is_hosts)
}

fn of_plugin<'a>(
    snapshot: &'a HostSnapshot,
    name: &'a PluginName,
) -> impl Iterator<Item = &'a PluginSnapshot> {
    let own = snapshot
        .plugins
        .iter()
        .filter(|(label, _)| is_label_of(label, name.as_str()));
    own.map(|(_, plugin)| plugin)
}

/// It is active, past its probation, and has settled records.
fn does_well(plugin: &PluginSnapshot, digest: &PluginDigest) -> bool {
    let first = plugin.worker.versions.first();
    let is_active = first.is_some_and(|version| {
        version.digest == digest.as_str() && version.state == RolloutState::Active.code()
    });
    let has_settled =
        plugin.worker.shards.values().any(|shard| {
            shard.records > 0 && shard.plugin_digest.as_deref() == Some(digest.as_str())
        });
    is_active && has_settled
}
