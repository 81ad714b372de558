//! What is noted of a call that has ended.

use std::time::Duration;

use shardmill_core::kcl_metrics::Observation;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::Processed;
use shardmill_core::stream::Batch;

use super::Delivery;
use crate::pipeline::history::Delivered;
use crate::tap::Call;

impl Delivery {
    pub(super) fn observe(&self, took: Duration) {
        self.context.meter().note(&Observation::Called { took });
    }

    /// What the instance was given is kept, and recorded if it failed.
    pub(super) fn note_call(
        &mut self,
        batch: Batch,
        result: &Result<Processed, ProcessorError>,
        took: Duration,
    ) {
        let tap = &self.context.ports().tap;
        if tap.is_watched() {
            tap.called(&Call {
                application: &self.instance.context().application,
                shard: self.context.shard(),
                batch: &batch,
                result,
            });
        }
        self.instance.shadow(&batch, result, took);
        let at = self.context.at();
        self.instance.note(Delivered {
            batch,
            result: result.as_ref().map(|processed| &processed.outcome),
            took,
            at,
        });
    }
}
