use std::collections::BTreeMap;

use super::{Asked, Pause};
use crate::lease::WorkerId;

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
