//! What a traced call of the plugin has to do with its shard.

use shardmill_core::plugin::PluginDigest;
use shardmill_core::stream::{Position, Record};

use super::ShardPipeline;
use crate::pipeline::deliveries::Deliveries;
use crate::pipeline::intake::Intake;
use crate::pipeline::receptions::Received;
use crate::pipeline::traces::{Batched, TracedCall};

/// A batch of a strand.
struct OfStrand<'a> {
    at: usize,
    records: &'a [Record],
    deliveries: &'a Deliveries,
    intake: &'a Intake,
}

impl Batched for OfStrand<'_> {
    fn attempt(&self) -> u32 {
        self.deliveries.one(self.at).retries().attempt(self.records)
    }

    fn digest(&self) -> &PluginDigest {
        self.deliveries.digest()
    }

    fn received(&self, first: &Position) -> Option<Received> {
        self.intake.received(first)
    }
}

impl ShardPipeline {
    /// Begins the span of a call of strand `at` with `records`, if they are traced.
    pub(super) fn trace_call(&mut self, at: usize, records: &[Record]) -> Option<Box<TracedCall>> {
        let batch = OfStrand {
            at,
            records,
            deliveries: &self.deliveries,
            intake: &self.intake,
        };
        self.traces.begin(at, records, &batch)
    }
}
