//! Versions that an operator pinned on this host: they run, whatever file is in the folder, until
//! they are unpinned.

use std::collections::{BTreeSet, HashMap};

use shardmill_config::Config;
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::rollout::{ONE_HOST, RolloutPolicy};
use shardmill_wasm::{Plugin, Runtime};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fall_back::{LOAD_AGAIN_AFTER, may_load_later};
use super::refused::wall_ms;
use super::{Running, Supervisor, Version};
use crate::component;
use crate::kept::Kept;

/// What is pinned, and what waits for the end of that.
pub(crate) struct Pins {
    kept: Kept,
    runtime: Runtime,
    config: Config,
    pinned: HashMap<PluginName, Pin>,
    pub(super) loads: JoinSet<(PluginName, PluginDigest, anyhow::Result<Plugin>)>,
}

struct Pin {
    digest: PluginDigest,
    /// What the folder gave meanwhile, or ran before.
    held_back: Option<Version>,
    /// When to load it again, if this host could not, for reasons that may pass.
    load_again_at: Option<Instant>,
}

impl Pins {
    pub(crate) fn new(kept: Kept, runtime: Runtime, config: Config) -> Self {
        Self {
            kept,
            runtime,
            config,
            pinned: HashMap::new(),
            loads: JoinSet::new(),
        }
    }

    /// Notes that a version is pinned. What was held back until now, or else the version that
    /// `runs`, waits for the end of that.
    fn pin(&mut self, name: &PluginName, digest: &PluginDigest, runs: Option<Version>) {
        let before = self.pinned.remove(name).and_then(|pin| pin.held_back);
        let held_back = before
            .or(runs)
            .filter(|version| *version.digest() != *digest);
        let pin = Pin {
            digest: digest.clone(),
            held_back,
            load_again_at: None,
        };
        self.pinned.insert(name.clone(), pin);
    }

    /// Starts to load a version; false if it is not kept.
    fn load(&mut self, name: &PluginName, digest: &PluginDigest) -> bool {
        let mut versions = self.kept.versions(name).into_iter();
        let Some(version) = versions.find(|version| version.digest == *digest) else {
            return false;
        };
        let (runtime, config, name) = (self.runtime.clone(), self.config.clone(), name.clone());
        self.loads.spawn(async move {
            let (path, digest) = (&version.path, &version.digest);
            let loaded = component::load_exactly(&runtime, &config, &name, path, digest).await;
            (name, version.digest, loaded)
        });
        true
    }
}

impl Supervisor {
    /// Takes in what was pinned and unpinned since the last look.
    pub(super) fn look_at_pins(&mut self) {
        let Some(pins) = &mut self.pins else { return };
        let mut names: BTreeSet<PluginName> = pins.kept.plugins().into_iter().collect();
        names.extend(pins.pinned.keys().cloned());
        for name in names {
            let Some(pins) = &self.pins else { return };
            let was = pins.pinned.get(&name).map(|pin| pin.digest.clone());
            match pins.kept.pinned(&name) {
                Ok(Some(digest)) if was.as_ref() != Some(&digest) => self.pin(&name, &digest),
                Ok(None) if was.is_some() => self.unpin(&name),
                Ok(_) => self.load_again(&name),
                // As long as the pin cannot be read, the running version keeps running.
                Err(error) => tracing::debug!(plugin = %name, %error, "the pin cannot be read"),
            }
        }
    }

    fn pin(&mut self, name: &PluginName, digest: &PluginDigest) {
        let Some(pins) = &mut self.pins else { return };
        tracing::warn!(
            plugin = %name,
            %digest,
            code = "pinned", "version pinned: it runs, whatever file is in the folder"
        );
        let running = self.running.get(name);
        let runs = running.map(|running| running.versions.borrow().clone());
        pins.pin(name, digest, runs.clone());
        self.status.pinned(name.as_str(), Some(digest.as_str()));
        if runs.is_some_and(|version| *version.digest() == *digest) {
            if let Some(running) = self.running.get(name) {
                self.set_policy(name, running);
            }
            self.report_held_back(name);
        } else if !pins.load(name, digest) {
            self.cannot_run_pinned(name, digest, "it is not kept on this host");
        }
    }

    fn load_again(&mut self, name: &PluginName) {
        let Some(pins) = &mut self.pins else { return };
        let Some(pin) = pins.pinned.get_mut(name) else {
            return;
        };
        if pin.load_again_at.is_some_and(|at| at <= Instant::now()) {
            pin.load_again_at = None;
            let digest = pin.digest.clone();
            pins.load(name, &digest);
        }
    }

    fn unpin(&mut self, name: &PluginName) {
        let Some(pin) = self.pins.as_mut().and_then(|pins| pins.pinned.remove(name)) else {
            return;
        };
        tracing::warn!(
            plugin = %name,
            digest = %pin.digest,
            code = "unpinned",
            "version unpinned: trying the file in the folder"
        );
        self.status.pinned(name.as_str(), None);
        if let Some(running) = self.running.get(name) {
            running.rollout.set_policy(running.settings.plugin.rollout);
            running.rollout.file_accepted();
        }
        match pin.held_back {
            Some(version) => {
                self.status.file_accepted(name.as_str());
                self.offer_version(name, version);
            }
            // The file was refused, or is the pinned version: its status stays the same.
            None => self.report_refused_to_fleet(name),
        }
    }

    /// Whether the folder's version has to wait, since another is pinned.
    pub(super) fn holds_back(&mut self, name: &PluginName, version: &Version) -> bool {
        let Some(pin) = self
            .pins
            .as_mut()
            .and_then(|pins| pins.pinned.get_mut(name))
        else {
            return false;
        };
        if pin.digest == *version.digest() {
            pin.held_back = None;
            return false;
        }
        tracing::warn!(
            plugin = %name,
            digest = %version.digest(),
            pinned = %pin.digest,
            code = "pin-holds-back", "version held back because another is pinned"
        );
        pin.held_back = Some(version.clone());
        self.report_held_back(name);
        true
    }

    /// A pinned version is loaded, or is not.
    pub(super) fn loaded_pinned(
        &mut self,
        name: &PluginName,
        digest: &PluginDigest,
        loaded: anyhow::Result<Plugin>,
    ) {
        let is_meant = |pins: &Pins| {
            pins.pinned
                .get(name)
                .is_some_and(|pin| pin.digest == *digest)
        };
        if !self.pins.as_ref().is_some_and(is_meant) {
            return;
        }
        match loaded {
            Ok(plugin) => {
                self.offer_version(name, std::sync::Arc::new(plugin));
                self.show_refusal_of_file(name);
            }
            Err(error) => {
                if may_load_later(&error)
                    && let Some(pin) = self
                        .pins
                        .as_mut()
                        .and_then(|pins| pins.pinned.get_mut(name))
                {
                    pin.load_again_at = Some(Instant::now() + LOAD_AGAIN_AFTER);
                }
                self.cannot_run_pinned(name, digest, &format!("{error:#}"));
            }
        }
        self.report_held_back(name);
    }

    /// The running version keeps running: it was good enough until now. A plugin that does not run
    /// is not started with a version that the operator did not choose.
    fn cannot_run_pinned(&self, name: &PluginName, digest: &PluginDigest, why: &str) {
        tracing::error!(
            plugin = %name,
            %digest,
            why,
            code = "pin-failed",
            "the pinned version cannot run"
        );
        let reason = format!(
            "{digest} is pinned and cannot run ({why}): `shardmill plugins {name} --unpin`"
        );
        self.status.file_refused(name.as_str(), &reason);
    }

    /// Reports the version that does not run because another is pinned.
    fn report_held_back(&self, name: &PluginName) {
        let Some(Pin {
            digest,
            held_back: Some(held_back),
            ..
        }) = self.pins.as_ref().and_then(|pins| pins.pinned.get(name))
        else {
            return;
        };
        let reason = format!(
            "it is held back because {digest} is pinned here: `shardmill plugins {name} --unpin` ends that"
        );
        if let Some(running) = self.running.get(name) {
            running
                .rollout
                .file_refused(held_back.digest(), &reason, wall_ms());
            self.status
                .file_refused(name.as_str(), &format!("{}: {reason}", held_back.digest()));
        }
    }

    pub(super) fn is_pinned(&self, name: &PluginName) -> bool {
        self.pins
            .as_ref()
            .is_some_and(|pins| pins.pinned.contains_key(name))
    }

    /// Whether another version than this one is pinned.
    pub(super) fn is_other_pinned(&self, name: &PluginName, digest: &PluginDigest) -> bool {
        let pin = self.pins.as_ref().and_then(|pins| pins.pinned.get(name));
        pin.is_some_and(|pin| pin.digest != *digest)
    }

    /// The rollout of a plugin of which a version is pinned tries nothing: what is offered is run.
    pub(super) fn policy(&self, name: &PluginName, policy: RolloutPolicy) -> RolloutPolicy {
        RolloutPolicy {
            enabled: policy.enabled && !self.is_pinned(name),
            share: if self.pulls.is_in_turns(name) {
                ONE_HOST
            } else {
                policy.share
            },
            ..policy
        }
    }

    /// The same for one that runs already.
    pub(super) fn set_policy(&self, name: &PluginName, running: &Running) {
        running
            .rollout
            .set_policy(self.policy(name, running.settings.plugin.rollout));
    }
}
