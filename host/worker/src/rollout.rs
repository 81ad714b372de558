//! The versions of one plugin on this host: the pure state machine, the compiled versions that it
//! names, and the pipelines that wait for its decisions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::ProcessorFactory;
use shardmill_core::rollout::{
    At, Change, Restart, Role, Rollout, RolloutPolicy, Site, VersionRow,
};
use tokio::sync::{broadcast, watch};

use crate::metrics;
use crate::shadow::SharedShadow;

type Version = Arc<dyn ProcessorFactory>;

/// Compiled versions that are kept before unneeded ones are dropped: what runs, what ran before,
/// and what is tried or starts just now. Each takes memory for its code.
const VERSIONS_KEPT: usize = 3;
/// Decisions that wait for a worker to take them in: more than one version brings about at a time.
const CHANGES_KEPT: usize = 32;

/// Shared by all shards that a plugin serves on a host, on all its streams. Cheap to clone.
#[derive(Clone)]
pub struct SharedRollout {
    shared: Arc<Shared>,
}

struct Shared {
    plugin: PluginName,
    // Every pipeline of the plugin asks it between batches; never held across an await.
    inner: Mutex<Inner>,
    revision: watch::Sender<u64>,
    /// What is decided, for the histories of the plugin's applications.
    changes: broadcast::Sender<Change>,
    shadow: SharedShadow,
}

struct Inner {
    rollout: Rollout,
    versions: HashMap<PluginDigest, Version>,
    /// The artifact whose component runs and whose manifest is followed.
    artifact: Option<String>,
    /// The revision as of which the shadow follows the active version.
    followed: u64,
}

/// What a shard is to do about versions.
pub(crate) enum Assigned {
    /// Run this one, which is the active one or is being tried.
    Run { version: Version, is_active: bool },
    /// See whether this one starts, and ask again.
    Probe(Version),
}

/// One pipeline's view of it.
pub(crate) struct RolloutView {
    shared: SharedRollout,
    revision: watch::Receiver<u64>,
}

impl SharedRollout {
    /// The rollout of a plugin of which no version runs yet.
    pub fn new(plugin: PluginName, worker: WorkerId, policy: RolloutPolicy) -> Self {
        metrics::count_rollbacks_from_zero(&plugin);
        let inner = Inner {
            rollout: Rollout::new(worker, policy),
            versions: HashMap::new(),
            artifact: None,
            followed: 0,
        };
        let shared = Shared {
            shadow: SharedShadow::new(plugin.clone()),
            plugin,
            inner: Mutex::new(inner),
            revision: watch::channel(0).0,
            changes: broadcast::channel(CHANGES_KEPT).0,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Uses another policy from now on.
    pub fn set_policy(&self, policy: RolloutPolicy) {
        self.with(|rollout| rollout.set_policy(policy));
    }

    /// All workers of the plugin are about to restart with other settings.
    pub fn restarts(&self, how: Restart) {
        self.with(|rollout| rollout.restarts(how));
    }

    /// The folder has a version that was not loaded; `since_ms` is milliseconds since the Unix
    /// epoch.
    pub fn file_refused(&self, digest: &PluginDigest, reason: &str, since_ms: u64) {
        self.with(|rollout| rollout.file_refused(digest, reason, since_ms));
    }

    /// The version in the folder is loaded, or gone.
    pub fn file_accepted(&self) {
        self.with(Rollout::file_accepted);
    }

    /// The version of all shards of this host but a canary's.
    pub fn active(&self) -> Option<PluginDigest> {
        self.with(|rollout| rollout.active().cloned())
    }

    /// The version of all shards, if it has passed its trial.
    pub fn passed(&self) -> Option<PluginDigest> {
        self.with(|rollout| rollout.passed().cloned())
    }

    /// The artifact whose component runs and whose manifest is followed, as people see it.
    pub fn artifact(&self) -> Option<String> {
        self.act(|inner| inner.artifact.clone())
    }

    /// Takes note that this artifact is in effect.
    pub fn set_artifact(&self, artifact: Option<String>) {
        self.act(|inner| inner.artifact = artifact);
    }

    /// The version that runs in the shadow of the active one, if there is one.
    pub fn shadow(&self) -> &SharedShadow {
        &self.shared.shadow
    }

    /// The shadow has ended, by an operator's wish or by a rule, and this came of it.
    pub fn shadow_ended(&self, digest: PluginDigest, outcome: &str) {
        let change = Change::ShadowEnded(digest, outcome.to_owned());
        self.report(&change);
        let _ = self.shared.changes.send(change);
    }

    /// What runs, first; then what is tried, refused, or in the shadow.
    pub(crate) fn rows(&self) -> Vec<VersionRow> {
        let mut rows = self.with(|rollout| rollout.rows());
        if !rows.is_empty() {
            rows.extend(self.shared.shadow.row());
        }
        rows
    }

    /// Whether the version was found bad, here or elsewhere.
    pub fn is_quarantined(&self, digest: &PluginDigest) -> bool {
        self.with(|rollout| rollout.quarantined().any(|entry| entry.digest == *digest))
    }

    /// Whether no version is on trial.
    pub fn is_settled(&self) -> bool {
        self.with(|rollout| rollout.is_settled())
    }

    /// What is decided from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Change> {
        self.shared.changes.subscribe()
    }

    pub(crate) fn view(&self) -> RolloutView {
        RolloutView {
            shared: self.clone(),
            revision: self.shared.revision.subscribe(),
        }
    }

    /// What the shard at `site` is to run, where `offered` is the newest version; see
    /// [`Rollout::role`].
    pub(crate) fn assign(&self, site: &Site, offered: &Version, may_try: bool, at: At) -> Assigned {
        self.act(|inner| {
            if !inner.versions.contains_key(offered.digest()) {
                inner
                    .versions
                    .insert(offered.digest().clone(), Arc::clone(offered));
            }
            let role = inner.rollout.role(site, offered.digest(), may_try, at);
            inner.forget_unneeded(offered.digest());
            let version = |digest| Arc::clone(inner.versions.get(&digest).unwrap_or(offered));
            match role {
                Role::Run(digest) => {
                    let is_active = inner.rollout.active() == Some(&digest);
                    Assigned::Run {
                        version: version(digest),
                        is_active,
                    }
                }
                Role::Probe(digest) => Assigned::Probe(version(digest)),
            }
        })
    }

    /// The last version that started on any shard of this host.
    pub(crate) fn last_started(&self) -> Option<Version> {
        self.act(|inner| inner.versions.get(inner.rollout.last_started()?).cloned())
    }

    /// Asks or informs the state machine; its decisions are logged, counted, and passed to the
    /// pipelines that wait.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Rollout) -> T) -> T {
        self.act(|inner| act(&mut inner.rollout))
    }

    fn act<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let (answer, changes, revision) = {
            let mut inner = self
                .shared
                .inner
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let answer = act(&mut inner);
            self.follow_in_shadow(&mut inner);
            (
                answer,
                inner.rollout.take_changes(),
                inner.rollout.revision(),
            )
        };
        for change in changes {
            self.report(&change);
            // An error means that no worker listens.
            let _ = self.shared.changes.send(change);
        }
        self.shared
            .revision
            .send_if_modified(|known| std::mem::replace(known, revision) != revision);
        answer
    }

    /// The shadow is compared with the active version. Under the lock, so that the last one counts.
    fn follow_in_shadow(&self, inner: &mut Inner) {
        let revision = inner.rollout.revision();
        if inner.followed != revision {
            inner.followed = revision;
            self.shared.shadow.compare_with(inner.rollout.active());
        }
    }

    fn report(&self, change: &Change) {
        let plugin = &self.shared.plugin;
        log(plugin, change);
        if let Change::RolledBack(_, why) = change {
            metrics::rollbacks(plugin, why.code()).increment(1);
        }
        let labels = [
            ("plugin", plugin.to_string()),
            ("change", change.code().to_owned()),
        ];
        ::metrics::counter!(metrics::ROLLOUT_CHANGES, &labels).increment(1);
    }
}

impl Inner {
    fn forget_unneeded(&mut self, offered: &PluginDigest) {
        if self.versions.len() > VERSIONS_KEPT {
            let rollout = &self.rollout;
            self.versions.retain(|digest, _| {
                digest == offered || rollout.needed().any(|needed| needed == digest)
            });
        }
    }
}

impl RolloutView {
    /// Returns once a shard's role may have changed since the last call, or since this view began.
    /// Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        if self.revision.changed().await.is_err() {
            // Only with the host.
            std::future::pending::<()>().await;
        }
    }
}

impl Clone for RolloutView {
    fn clone(&self) -> Self {
        self.shared.view()
    }
}

impl std::ops::Deref for RolloutView {
    type Target = SharedRollout;

    fn deref(&self) -> &SharedRollout {
        &self.shared
    }
}

fn log(plugin: &PluginName, change: &Change) {
    match change {
        Change::Offered(digest) => {
            tracing::info!(%plugin, %digest, "new version on offer");
        }
        Change::Canary(digest, site) => {
            tracing::info!(%plugin, %digest, %site, "trying the new version on one shard");
        }
        Change::Suspected(digest, site, reason) => {
            tracing::warn!(
                %plugin,
                %digest,
                %site,
                reason,
                code = "trial-failed",
                "the version failed, trying the previous one on the same records"
            );
        }
        Change::Cleared(digest, site) => {
            tracing::info!(%plugin, %digest, %site, "the previous version failed on them too, \
                    so the records are at fault");
        }
        Change::Promoted(digest, why) => {
            tracing::info!(%plugin, %digest, %why, "version promoted to all shards");
        }
        Change::Proven(digest) => {
            tracing::info!(
                %plugin,
                %digest,
                "probation is over, the previous version is no longer kept"
            );
        }
        Change::RolledBack(digest, why) => {
            tracing::error!(
                %plugin,
                %digest,
                cause = why.code(),
                %why,
                code = "rolled-back",
                "version rolled back and quarantined"
            );
        }
        Change::Withdrawn(digest) => {
            tracing::info!(%plugin, %digest, "version no longer tried");
        }
        Change::Released(digest) => {
            tracing::info!(%plugin, %digest, "version released from quarantine");
        }
        Change::ShadowEnded(digest, outcome) => {
            tracing::info!(%plugin, %digest, outcome, "the version in the shadow has ended");
        }
    }
}
