//! What holds for each instance of a shard, whichever version it is of.

use std::time::Duration;

use shardmill_core::plugin::{ProcessorError, check_state_permission, check_ticks};
use shardmill_core::ports::ProcessorFactory;

/// See the module's description.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// How long a call may take, and `close`: a lease that is asked for, and a host on its way out,
    /// cannot wait for ever.
    pub(super) deadline: Duration,
    /// Whether the host keeps the plugin's state.
    pub(super) keeps_state: bool,
    /// Whether no other instance serves the shard beside it.
    pub(super) is_alone: bool,
}

impl Terms {
    /// Whether the version fits what it is allowed: to keep state, to get ticks.
    pub(super) fn check(self, version: &dyn ProcessorFactory) -> Result<(), ProcessorError> {
        check_state_permission(self.keeps_state, version.saves_state())?;
        check_ticks(self.is_alone, version.ticks())
    }
}
