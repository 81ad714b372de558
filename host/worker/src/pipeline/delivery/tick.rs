//! A call of the plugin because time has passed.

use std::time::Duration;

use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{TickTime, Ticked};

use super::Delivery;
use crate::holding::Stopped;
use crate::signs::Stage;
use crate::timer::Stopwatch;

/// What came of such a call.
pub(in crate::pipeline) struct TickCalled {
    pub(in crate::pipeline) result: Result<Ticked, ProcessorError>,
    pub(in crate::pipeline) took: Duration,
}

impl Delivery {
    /// Calls the live instance, and waits for it as for a delivery: for at most its deadline.
    pub(in crate::pipeline) async fn tick(
        &mut self,
        time: TickTime,
    ) -> Result<TickCalled, Stopped> {
        self.context.enter(Stage::InPlugin);
        let started = Stopwatch::start();
        let deadline = self.context.options().leases.plugin_deadline;
        let returned = tokio::time::timeout(deadline, self.instance.tick(time)).await;
        Ok(TickCalled {
            result: self.in_time(returned)?,
            took: started.elapsed(),
        })
    }
}
