//! How full the plugin's state is. A state over its limit stops its shard, so this says so before.

use std::sync::Arc;

use shardmill_core::plugin::StateFill;

use super::context::ShardContext;
use crate::metrics;

/// See the module's description.
pub(super) struct Fullness {
    context: Arc<ShardContext>,
    /// That of the state which was saved last; `None` if none was, in this holding.
    fill: Option<StateFill>,
}

impl Fullness {
    pub(super) fn new(context: Arc<ShardContext>) -> Self {
        Self {
            context,
            fill: None,
        }
    }

    /// That of the state which was saved last.
    pub(super) fn fill(&self) -> Option<StateFill> {
        self.fill
    }

    /// A state of so many bytes was saved. Logs it once when it has become nearly full.
    pub(super) fn saved(&mut self, bytes: usize) {
        let bytes_max = self.context.options().state_bytes_max();
        let fill = StateFill::of(bytes, bytes_max);
        let was_nearly_full = self.fill.is_some_and(StateFill::is_nearly_full);
        if fill.is_nearly_full() && !was_nearly_full {
            tracing::warn!(
                shard = %self.context.shard(),
                bytes,
                limit = bytes_max,
                code = "state-large",
                "the plugin's state takes {}% of limits.state, and one over it stops the shard: \
                    raise the limit, or have the plugin keep less",
                fill.0
            );
        }
        let ratio = bytes as f64 / bytes_max.max(1) as f64;
        self.context.signs().gauge(metrics::STATE_FILL, ratio);
        self.context
            .update_status(|status| status.state_percent = Some(fill.0));
        self.fill = Some(fill);
    }

    /// Nothing is known of the state any more.
    pub(super) fn forget(&mut self) {
        self.fill = None;
    }
}
