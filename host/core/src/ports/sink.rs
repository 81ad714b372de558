use std::sync::Arc;

use super::PortFuture;
use crate::plugin::PluginName;
use crate::stream::{Emitted, Position, ShardId};
use crate::trace::BatchTrace;

/// Where emitted data goes.
///
/// The pipeline writes a batch's output only after the whole batch was processed, and checkpoints
/// only after `flush` returned: so output is stored at least once, and repeats only if records do.
pub trait Sink: Send + Sync {
    /// Accepts output, in order, all of it or none; may buffer up to its own limit, and waits when
    /// full.
    fn write(
        &self,
        origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>>;

    /// Returns once everything accepted before the call is stored.
    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>>;
}

/// Where output came from, for sinks that write it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The name of the plugin that emitted it.
    pub plugin: PluginName,
    /// The shard whose records the plugin got.
    pub shard: ShardId,
    /// The last record of the batch that caused it; `None` if it was emitted on close.
    pub through: Option<Position>,
    /// The trace of that batch, if it is traced.
    pub trace: Option<BatchTrace>,
}

/// Output that could not be stored. The pipeline tries again until it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sink {sink} cannot store output: {message}")]
pub struct SinkError {
    /// The sink's name in the configuration.
    pub sink: String,
    /// What went wrong, for people.
    pub message: String,
}
