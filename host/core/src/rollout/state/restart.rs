//! All workers of the plugin restart with other settings, and a version may have come with these.
//! It is tried as any, against the version before, which has the other settings then, too. A shard
//! has no settings of its own.

use super::{At, Passed, Rollout, Site, StartFailure};

/// Failures to start after which the version before counts as unable to, where each may be due to
/// something that comes back.
const FAILED_RESTARTS_MAX: u32 = 3;

/// How the shards of a host take up a version that comes with other settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// As any version: on one shard, and then on all.
    OneShard,
    /// On all at once, in probation: this host as a whole is what tries it.
    AllShards,
}

/// What a shard that asks finds on its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Shards that are served, itself or others.
    Shards,
    /// None, nor were there any when it began.
    NoShards,
    /// None yet, since the workers have just restarted.
    Restarted(Restart),
}

impl Rollout {
    /// All workers restart with other settings. If they serve shards now, a version that comes
    /// meanwhile finds shards to be tried on, though all of them leave before.
    pub fn restarts(&mut self, how: Restart) {
        if !self.sites.is_empty() {
            self.restart = Some(how);
        }
    }

    /// A shard asks what to run.
    pub(super) fn join(&mut self, site: &Site) -> Found {
        let is_first = self.sites.is_empty();
        if !self.sites.contains(site) {
            self.sites.insert(site.clone());
        }
        if !is_first {
            return Found::Shards;
        }
        self.restart
            .take()
            .map_or(Found::NoShards, Found::Restarted)
    }

    /// Takes note that the active version has to show that it starts with the settings that it has
    /// now.
    pub(super) fn note_restart(&mut self, found: Found) {
        if let (Found::Restarted(_), Some(active)) = (found, &mut self.active) {
            active.failed_restarts = Some(0);
        }
    }

    /// The active version could not be started. Whether the version on trial takes its place at
    /// once: if the one before does not start with the settings which that one came with, there is
    /// nothing to compare it with, and shards would stand still for the time of its trial.
    pub(super) fn gives_way(&mut self, failure: &StartFailure, at: At) -> bool {
        let (Some(active), Some(candidate)) = (&mut self.active, &self.candidate) else {
            return false;
        };
        let Some(failures) = &mut active.failed_restarts else {
            return false;
        };
        *failures += 1;
        let is_sure = matches!(failure, StartFailure::Failed(_));
        if !is_sure && *failures < FAILED_RESTARTS_MAX {
            return false;
        }
        let digest = candidate.digest.clone();
        // It is not withdrawn.
        self.candidate = None;
        self.promote_untried(&digest, Passed::NothingBefore, at);
        true
    }
}

impl Found {
    /// Why a new version cannot be tried on one shard first, or is not to be; `None` if it can.
    pub(super) fn untried(self) -> Option<Passed> {
        match self {
            Self::Shards | Self::Restarted(Restart::OneShard) => None,
            Self::NoShards => Some(Passed::NoShard),
            Self::Restarted(Restart::AllShards) => Some(Passed::WithSettings),
        }
    }
}
