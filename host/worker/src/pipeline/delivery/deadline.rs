//! Calls of the plugin that do not come back.

use shardmill_core::plugin::ProcessorError;
use tokio::time::error::Elapsed;

use super::Delivery;
use crate::holding::Stopped;

impl Delivery {
    /// What came of a call, if it came back.
    pub(super) fn in_time<T>(
        &mut self,
        returned: Result<Result<T, ProcessorError>, Elapsed>,
    ) -> Result<Result<T, ProcessorError>, Stopped> {
        if let Ok(result) = returned {
            self.hangs = 0;
            return Ok(result);
        }
        self.hung().map(Err)
    }

    /// What a call failed with that did not come back; that the shard is stuck, if it was not the
    /// first one.
    pub(super) fn hung(&mut self) -> Result<ProcessorError, Stopped> {
        let deadline = self.context.options().leases.plugin_deadline;
        self.instance.kill();
        self.hangs += 1;
        // A component has its own deadline, far below: this is the host's trouble, and no
        // record's.
        let message = format!("the plugin did not return within {deadline:?}");
        if self.hangs > 1 {
            return Err(Stopped::Stuck(format!(
                "{message}, nor did a new instance of it"
            )));
        }
        Ok(ProcessorError::Host { message })
    }
}
