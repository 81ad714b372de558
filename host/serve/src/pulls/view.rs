//! What is known of each source, for the supervisor and for people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use shardmill_core::artifact::{ArtifactRef, WantedBy};
use shardmill_core::plugin::{PluginDigest, PluginName};
use tokio::time::Instant;

/// The shared view of all sources. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct PullBoard {
    // Written by the tasks that pull; never held across an await.
    views: Arc<Mutex<BTreeMap<PluginName, SourceView>>>,
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
        }
    }
}
