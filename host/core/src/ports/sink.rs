use std::sync::Arc;

use super::PortFuture;
use crate::plugin::PluginName;
use crate::stream::{Emitted, Position, ShardId};

/// Where emitted data goes.
///
/// The pipeline writes a batch's output only after the whole batch was processed, and checkpoints
/// only after `flush` returned: so output is stored at least once, and repeated only where records
/// are.
pub trait Sink: Send + Sync {
    /// Accepts output, in order, all of it or none; may buffer, but within a bound of its own,
    /// waiting when full.
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
    /// The plugin.
    pub plugin: PluginName,
    /// The shard.
    pub shard: ShardId,
    /// The last record of the batch that caused it; `None` if it was emitted on close.
    pub through: Option<Position>,
}

/// Output that could not be stored; the pipeline tries again until it can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sink {sink} cannot store output: {message}")]
pub struct SinkError {
    /// Which sink.
    pub sink: String,
    /// What went wrong.
    pub message: String,
}
