use std::collections::BTreeMap;

use super::{Asked, DeployAsked, Pause};
use crate::lease::WorkerId;
use crate::plugin::PluginDigest;

/// Most hosts that may be drained at a time. Hosts read the row once a second, so it stays small.
pub const DRAINS_MAX: usize = 64;

/// What operators want of all hosts of an application on one stream: one row of the coordinator
/// table. It stays when nothing is wanted any more, so that its version goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Control {
    /// Raised by one with every change; 0 if there never was one.
    pub version: u64,
    /// Deliver nothing, on any shard.
    pub pause: Option<Pause>,
    /// Hosts that are to hand over what they hold and to take nothing.
    pub drains: BTreeMap<WorkerId, Asked>,
    /// Hosts are to read their configuration again. It stays: each host does it once.
    pub reload: Option<ReloadAsked>,
    /// Hosts are to promote or drop a version in the plugin's shadow. It stays, as `reload` does.
    pub shadow: Option<ShadowAsked>,
    /// The version that all hosts are to pull and to try. It stays until another is deployed, or
    /// somebody ends it.
    pub deploy: Option<DeployAsked>,
    /// Why what was deployed cannot be read, if it cannot: a newer command may have written it. What
    /// hosts run stays.
    pub unread_deploy: Option<String>,
}

/// A wish that a version in the plugin's shadow is promoted or dropped, on each host that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowAsked {
    /// Who, why and when.
    pub asked: Asked,
    /// The version. Hosts with another one do nothing.
    pub digest: PluginDigest,
    /// What becomes of it.
    pub verb: ShadowVerb,
}

/// What becomes of a version in the shadow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShadowVerb {
    /// It takes the place of the plugin's file, and is tried as any new version is.
    Promote,
    /// Its file is put aside.
    Drop,
}

impl ShadowVerb {
    /// A stable word, as it is stored.
    pub fn code(self) -> &'static str {
        match self {
            Self::Promote => "promote",
            Self::Drop => "drop",
        }
    }

    /// The one with this code, if there is one.
    pub fn of_code(code: &str) -> Option<Self> {
        [Self::Promote, Self::Drop]
            .into_iter()
            .find(|verb| verb.code() == code)
    }
}

/// A wish that hosts read their configuration again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadAsked {
    /// Who, why and when.
    pub asked: Asked,
    /// The host that is meant; `None` means all of them.
    pub worker: Option<WorkerId>,
}

impl ReloadAsked {
    /// Whether it is meant for this host.
    pub fn is_for(&self, worker: &WorkerId) -> bool {
        self.worker.as_ref().is_none_or(|meant| meant == worker)
    }
}

impl Control {
    /// What replaces this, once `change` is made.
    #[must_use]
    pub fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next.version = self.version.saturating_add(1);
        next
    }
}
