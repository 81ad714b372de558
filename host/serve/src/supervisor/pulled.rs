//! Versions that are pulled: one that was deployed and that nobody has proven does not start with
//! the host, and what is in effect is shown to the tasks that pull and to the fleet.

use std::collections::{BTreeMap, HashMap};

use shardmill_core::artifact::InEffect;
use shardmill_core::plugin::{PluginName, is_label_of};
use tokio::time::Instant;

use super::{Running, Supervisor, Version};
use crate::host_status::HostSnapshot;
use crate::pulls::{SourceView, Start};
use crate::readiness::not_served;

/// What the supervisor remembers of versions that are pulled.
#[derive(Default)]
pub(super) struct Pulled {
    /// Versions that do not start before it is known whether somebody has proven them.
    pub(super) held: HashMap<PluginName, Version>,
    /// Since when an artifact is in effect.
    since: HashMap<PluginName, Instant>,
    /// Since when a plugin is not served as it should be.
    troubled_since: HashMap<PluginName, Instant>,
}

impl Supervisor {
    /// Starts a version, unless it must not start with the host: then it is kept for later.
    pub(super) fn start_or_hold(&mut self, name: &PluginName, version: Version) {
        self.pulled.held.remove(name);
        let view = self.pulls.view(name);
        let Some(view) = view.filter(|view| !may_start(view, &version)) else {
            return self.start(name, version, None);
        };
        if view.start == Start::Held {
            tracing::warn!(
                plugin = %name,
                digest = %version.digest(),
                code = "deploy-unproven",
                "the version in the folder was deployed and nobody has proven it yet: starting \
                    with what was good before"
            );
        }
        self.pulled.held.insert(name.clone(), version);
    }

    /// Starts what may start by now, and shows what is in effect.
    pub(super) fn look_at_pulled(&mut self) {
        self.start_held();
        let status = self.status.snapshot();
        let now = Instant::now();
        let mut in_effect = BTreeMap::new();
        for (name, running) in &self.running {
            let Some(view) = self.pulls.view(name) else {
                continue;
            };
            let is_followed = self.follow_artifact(name, running, &view);
            if is_followed || !self.pulled.since.contains_key(name) {
                self.pulled.since.insert(name.clone(), now);
            }
            let trouble = trouble_of(name, &status);
            let troubled = &mut self.pulled.troubled_since;
            let trouble = if let Some(why) = trouble {
                let since = *troubled.entry(name.clone()).or_insert(now);
                Some((why, now.duration_since(since)))
            } else {
                troubled.remove(name);
                None
            };
            if running.rollout.active().is_some() {
                let since = self.pulled.since.get(name).copied().unwrap_or(now);
                let here = InEffect {
                    artifact: running.rollout.artifact(),
                    passed: running.rollout.passed(),
                    lasts: now.duration_since(since),
                    trouble,
                };
                in_effect.insert(name.clone(), here);
            }
        }
        self.pulls.set_in_effect(in_effect);
    }

    fn start_held(&mut self) {
        let started = |(name, version): (&PluginName, &Version)| {
            let view = self.pulls.view(name)?;
            may_start(&view, version).then(|| name.clone())
        };
        let names: Vec<PluginName> = self.pulled.held.iter().filter_map(started).collect();
        for name in names {
            if let Some(version) = self.pulled.held.remove(&name)
                && !self.running.contains_key(&name)
            {
                self.start(&name, version, None);
            }
        }
    }

    /// An artifact is in effect once its component is on offer and its manifest is followed. Whether
    /// that has just come about.
    fn follow_artifact(&self, name: &PluginName, running: &Running, view: &SourceView) -> bool {
        let artifact = view.artifact.as_ref().map(ToString::to_string);
        let is_news = artifact != running.rollout.artifact();
        let is_offered = view.version.as_ref() == Some(running.versions.borrow().digest());
        let is_at_rest = !running.stop.is_cancelled() && !self.restless.contains(name);
        let is_followed = is_news
            && (artifact.is_none() || is_offered)
            && is_at_rest
            && self.settings(name).as_ref() == Ok(&running.settings);
        if is_followed {
            running.rollout.set_artifact(artifact);
        }
        is_followed
    }
}

/// Whether a version may start that the folder has, or had a moment ago: one that was held may have
/// been read before what is good took its place, and that is about to be offered.
fn may_start(view: &SourceView, version: &Version) -> bool {
    let there = view.version.as_ref();
    view.start == Start::Free && there.is_none_or(|there| there == version.digest())
}

/// Why a plugin is not served as it should be, with the settings that are in its manifest.
fn trouble_of(name: &PluginName, status: &HostSnapshot) -> Option<String> {
    let plugins = status.plugins.iter();
    let mut own = plugins.filter(|(label, _)| is_label_of(label, name.as_str()));
    own.find_map(|(_, plugin)| {
        plugin
            .refused_settings
            .clone()
            .or_else(|| not_served(plugin))
    })
}
