//! What the pipelines and the sinks see of it.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use shardmill_core::ports::Tracer;
use shardmill_core::stream::Record;
use shardmill_core::trace::{Links, Sampler, Span, SpanId, TraceContext};

use super::carrying::carrying;
use super::producers::Finder;
use super::queue::Queue;
use super::settings::Settings;
use crate::clock::wall_now;

/// See the module's description.
pub(super) struct OtlpTracer {
    sampler: Sampler,
    follows: bool,
    injects: bool,
    finder: Finder,
    queue: Queue,
}

impl OtlpTracer {
    pub(super) fn new(settings: &Settings, queue: Queue) -> Self {
        Self {
            sampler: settings.sampler,
            follows: settings.follows,
            injects: settings.injects,
            finder: Finder::new(),
            queue,
        }
    }
}

impl Tracer for OtlpTracer {
    fn sampler(&self) -> Sampler {
        self.sampler
    }

    fn now_ns(&self) -> u64 {
        let since_epoch = wall_now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
    }

    fn new_span(&self) -> SpanId {
        SpanId::of_random(fastrand::u64(..))
    }

    fn producers(&self, records: &[Record]) -> Links {
        let mut links = Links::default();
        for record in records {
            if let Some(link) = self.finder.find(&record.data) {
                links.add(link);
            }
        }
        links
    }

    fn follows(&self, records: &[Record]) -> bool {
        let is_recorded = |record: &Record| {
            let found = self.finder.find(&record.data);
            found.is_some_and(|link| link.context.is_sampled)
        };
        self.follows && records.iter().any(is_recorded)
    }

    fn carrying(&self, data: &[u8], context: TraceContext) -> Option<Bytes> {
        if self.injects {
            carrying(data, context)
        } else {
            None
        }
    }

    fn ended(&self, span: Span) {
        self.queue.push(span);
    }
}
