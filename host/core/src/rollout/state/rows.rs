//! The state of a rollout as rows for people and for other hosts.

use super::{Active, Candidate, Phase, Rollout};
use crate::plugin::PluginDigest;
use crate::rollout::quarantine::{Quarantined, REASON_CHARS_MAX};
use crate::rollout::version_row::{RolloutState, VersionRow};
use crate::text::shortened;

impl Rollout {
    /// What runs, first; then what is tried, or why the newest version is not.
    pub fn rows(&self) -> Vec<VersionRow> {
        let active = self.active.as_ref().map(Active::row);
        let candidate = self.candidate.as_ref().map(Candidate::row);
        let refused = self.blocked(self.offered.as_ref()).map(|entry| VersionRow {
            digest: entry.digest.clone(),
            state: RolloutState::Quarantined.to_string(),
            since_ms: entry.at_ms,
            reason: Some(entry.reason.clone()),
        });
        let is_known =
            |digest: &PluginDigest| refused.as_ref().is_some_and(|row| row.digest == *digest);
        let unloaded = self.refused.clone().filter(|row| !is_known(&row.digest));
        active
            .into_iter()
            .chain(candidate)
            .chain(refused)
            .chain(unloaded)
            .collect()
    }

    /// The version in the folder could not be loaded; `since_ms` is in milliseconds since the Unix
    /// epoch.
    pub fn file_refused(&mut self, digest: &PluginDigest, reason: &str, since_ms: u64) {
        self.refused = Some(row(digest, &RolloutState::Refused, since_ms, Some(reason)));
    }

    /// The version in the folder is loaded, or gone.
    pub fn file_accepted(&mut self) {
        self.refused = None;
    }

    /// Why `offered` is not taken, if it is quarantined and does not run already.
    pub fn blocked(&self, offered: Option<&PluginDigest>) -> Option<&Quarantined> {
        let offered = offered?;
        let is_active = self
            .active
            .as_ref()
            .is_some_and(|active| active.digest == *offered);
        if is_active {
            return None;
        }
        let entry = self.quarantine.get(offered)?;
        (self.policy.enabled || entry.is_deadly()).then_some(entry)
    }

    /// The version that all shards but the canary run.
    pub fn active(&self) -> Option<&PluginDigest> {
        self.active.as_ref().map(|active| &active.digest)
    }

    /// The version that all shards run, if it is not in probation and its instances live.
    pub fn passed(&self) -> Option<&PluginDigest> {
        let active = self.active.as_ref();
        let active = active.filter(|it| it.probation.is_none() && it.trouble.is_none());
        active.filter(|it| it.has_started).map(|it| &it.digest)
    }

    /// Whether no version is on trial: the active one has passed.
    pub fn is_settled(&self) -> bool {
        let is_on_probation = |active: &Active| active.probation.is_some();
        self.candidate.is_none() && !self.active.as_ref().is_some_and(is_on_probation)
    }

    /// The versions that this host does not take, in the order of their digests.
    pub fn quarantined(&self) -> impl Iterator<Item = &Quarantined> {
        self.quarantine.iter()
    }

    /// The version that waits for its turn in the fleet.
    pub fn waiting(&self) -> Option<&PluginDigest> {
        let waiting = self
            .candidate
            .as_ref()
            .filter(|candidate| candidate.phase == Phase::Waiting);
        waiting.map(|candidate| &candidate.digest)
    }
}

impl Active {
    fn row(&self) -> VersionRow {
        let (state, reason) = match (&self.trouble, &self.probation) {
            (Some(trouble), _) => (RolloutState::CrashLooping, Some(trouble.as_str())),
            (None, Some(_)) => (RolloutState::Probation, None),
            (None, None) => (RolloutState::Active, None),
        };
        row(&self.digest, &state, self.since_ms, reason)
    }
}

impl Candidate {
    fn row(&self) -> VersionRow {
        let (state, reason) = match &self.phase {
            Phase::Waiting => (RolloutState::Waiting, Some("for its turn in the fleet")),
            Phase::Probing { trouble, .. } => (RolloutState::Probing, trouble.as_deref()),
            Phase::Canary { site: None } => (
                RolloutState::Probing,
                Some("waits for a shard with records"),
            ),
            Phase::Canary { site: Some(site) } => (
                RolloutState::Canary {
                    shard: site.shard.clone(),
                },
                None,
            ),
            Phase::Verifying { site, fault } => (
                RolloutState::Canary {
                    shard: site.shard.clone(),
                },
                Some(fault.reason.as_str()),
            ),
        };
        row(&self.digest, &state, self.since_ms, reason)
    }
}

fn row(
    digest: &PluginDigest,
    state: &RolloutState,
    since_ms: u64,
    reason: Option<&str>,
) -> VersionRow {
    let reason = reason.map(|reason| shortened(reason, REASON_CHARS_MAX).into_owned());
    VersionRow {
        digest: digest.clone(),
        state: state.to_string(),
        since_ms,
        reason,
    }
}
