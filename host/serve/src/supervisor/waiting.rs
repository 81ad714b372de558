//! Versions that could not be started, because of their settings or for lack of room. The cause may
//! go away anywhere: in the plugin's own manifest, or with another plugin.

use shardmill_core::plugin::PluginName;
use shardmill_worker::SharedRollout;

use super::{Supervisor, Version};
use crate::parts::Settings;

/// A version that could not be started.
pub(super) struct Waiting {
    pub(super) version: Version,
    /// That of its plugin's workers, if there were any before: what was on trial stays on trial.
    pub(super) rollout: Option<SharedRollout>,
    /// Why it does not start, as it was logged last.
    why: Option<String>,
    /// Its settings at the last look, if they could be read.
    seen: Option<Settings>,
}

impl Waiting {
    /// Nothing is known yet that keeps it from a start.
    pub(super) fn new(version: Version, rollout: Option<SharedRollout>) -> Self {
        Self {
            version,
            rollout,
            why: None,
            seen: None,
        }
    }

    pub(super) fn why(&self) -> &str {
        self.why.as_deref().unwrap_or_default()
    }

    /// Whether the settings are those of the last look: somebody may be writing the manifest, and
    /// half of it may be valid.
    fn is_steady(&mut self, settings: Option<Settings>) -> bool {
        let before = std::mem::replace(&mut self.seen, settings);
        before == self.seen
    }

    /// Whether nobody knows yet that this keeps it from a start.
    pub(super) fn is_news(&mut self, why: &str) -> bool {
        let before = self.why.replace(why.to_owned());
        before.as_deref() != Some(why)
    }
}

impl Supervisor {
    /// Starts the version, or has it wait until that is possible. Says why not, if that is news.
    pub(super) fn start_or_wait(&mut self, name: &PluginName, mut waiting: Waiting) {
        match self.make(name, &waiting.version, waiting.rollout.clone()) {
            Ok(made) => self.run_made(name, &waiting.version, made),
            Err(why) => {
                if waiting.is_news(&why) {
                    self.refuse(name, &why);
                }
                self.waiting.insert(name.clone(), waiting);
            }
        }
    }

    /// Starts what can be started by now. In the order of names, so that a lack of room keeps the
    /// same plugins out each time.
    pub(super) fn look_at_waiting(&mut self) {
        let mut names: Vec<PluginName> = self.waiting.keys().cloned().collect();
        names.sort();
        for name in names {
            let settings = self.parts.settings(&name).ok();
            if self.is_due(&name, settings)
                && let Some(waiting) = self.waiting.remove(&name)
            {
                self.start_or_wait(&name, waiting);
            }
        }
    }

    fn is_due(&mut self, name: &PluginName, settings: Option<Settings>) -> bool {
        let Some(waiting) = self.waiting.get_mut(name) else {
            return false;
        };
        let is_steady = waiting.is_steady(settings);
        let digest = waiting.version.digest().clone();
        // One that is held, or pinned, is about to take its place.
        is_steady && !self.pulled.held.contains_key(name) && !self.is_other_pinned(name, &digest)
    }
}
