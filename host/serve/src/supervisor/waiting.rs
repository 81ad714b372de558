//! Versions that could not be started, because of their settings or for lack of room.

use shardmill_worker::SharedRollout;

use super::Version;

/// A version that could not be started.
pub(super) struct Waiting {
    pub(super) version: Version,
    /// That of its plugin's workers, if there were any before: what was on trial stays on trial.
    pub(super) rollout: Option<SharedRollout>,
}
