//! What is known of each source, for the supervisor and for people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use shardmill_core::artifact::{ArtifactRef, InEffect, WantedBy};
use shardmill_core::plugin::{PluginDigest, PluginName};
use tokio::time::Instant;

/// The shared view of all sources. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct PullBoard {
    // Written by the tasks that pull; never held across an await.
    views: Arc<Mutex<BTreeMap<PluginName, SourceView>>>,
    /// What is in effect of each plugin that runs. Written by the supervisor.
    in_effect: Arc<Mutex<BTreeMap<PluginName, InEffect>>>,
}

/// Whether a version in the folder may start that is not running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// It is not known yet whether it is one that nobody has proven.
    Unknown,
    /// It is: what was good before is about to take its place.
    Held,
    /// It may.
    Free,
}

/// What is known of one source.
#[derive(Debug, Clone)]
pub(crate) struct SourceView {
    /// The version that is wanted.
    pub(crate) reference: ArtifactRef,
    /// Who wants it.
    pub(crate) by: WantedBy,
    /// The version in the folder, if it was pulled.
    pub(crate) version: Option<PluginDigest>,
    /// What that was pulled from.
    pub(crate) artifact: Option<ArtifactRef>,
    /// Whether what was pulled last came without a manifest, so that none is to be followed.
    pub(crate) is_without_settings: bool,
    pub(crate) start: Start,
    /// When a look last succeeded.
    pub(crate) checked_at: Option<Instant>,
    /// Why the last look failed, if it did.
    pub(crate) error: Option<String>,
    /// Why what an operator deployed is not heeded, if it is not.
    pub(crate) refused: Option<String>,
}

/// A source at one moment.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SourceSnapshot {
    /// The version that is wanted, without what may be secret in it.
    pub reference: String,
    /// Who wants it: `configuration`, `deploy`, or `earlier-deploy`.
    pub wanted_by: &'static str,
    /// The version in the folder, if this host pulled it: the SHA-256 of its component.
    pub version: Option<String>,
    /// Seconds since this host last saw that it has what it is to have; `None` before that.
    pub checked_seconds: Option<f64>,
    /// Why the last look failed, if it did; what runs goes on.
    pub error: Option<String>,
    /// Why the version that an operator deployed is not heeded here, if it is not.
    pub deploy_refused: Option<String>,
    /// Whether the version in the folder does not start, because nobody has proven it yet.
    pub start_held: bool,
}

impl PullBoard {
    /// All sources, by the names of their plugins.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, SourceSnapshot> {
        let views = self.lock();
        let views = views.iter();
        views
            .map(|(name, view)| (name.to_string(), view.snapshot()))
            .collect()
    }

    pub(crate) fn set(&self, plugin: &PluginName, view: SourceView) {
        self.lock().insert(plugin.clone(), view);
    }

    pub(crate) fn is_in_turns(&self, plugin: &PluginName) -> bool {
        let views = self.lock();
        let by = views.get(plugin).map(|view| view.by);
        by == Some(WantedBy::Deploy { is_in_turns: true })
    }

    /// What the source of a plugin says, if it has one.
    pub(crate) fn view(&self, plugin: &PluginName) -> Option<SourceView> {
        self.lock().get(plugin).cloned()
    }

    /// What runs of a plugin, if anything does.
    pub(crate) fn in_effect(&self, plugin: &PluginName) -> Option<InEffect> {
        let in_effect = self.in_effect.lock();
        let in_effect = in_effect.unwrap_or_else(PoisonError::into_inner);
        in_effect.get(plugin).cloned()
    }

    pub(crate) fn set_in_effect(&self, in_effect: BTreeMap<PluginName, InEffect>) {
        let mut known = self
            .in_effect
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = in_effect;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PluginName, SourceView>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SourceView {
    /// Before the first look.
    pub(crate) fn new(reference: ArtifactRef) -> Self {
        Self {
            reference,
            by: WantedBy::Config,
            version: None,
            artifact: None,
            is_without_settings: false,
            start: Start::Unknown,
            checked_at: None,
            error: None,
            refused: None,
        }
    }

    fn snapshot(&self) -> SourceSnapshot {
        let version = self.version.as_ref();
        SourceSnapshot {
            reference: self.reference.to_string(),
            wanted_by: self.by.code(),
            version: version.map(|version| version.as_str().to_owned()),
            checked_seconds: self.checked_at.map(|at| at.elapsed().as_secs_f64()),
            error: self.error.clone(),
            deploy_refused: self.refused.clone(),
            start_held: self.start == Start::Held,
        }
    }
}
