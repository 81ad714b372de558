use std::sync::Arc;

use super::{PortFuture, SinkError};
use crate::plugin::{PluginDigest, PluginName};
use crate::stream::{Record, ShardId, StreamName};

/// Where records go that a failure policy gives up.
pub trait DeadLetters: Send + Sync {
    /// Stores all of `letters` in the sink named `target`, in order; returns once they are stored,
    /// so that they may be settled. After an error some of them may be stored: they are sent again,
    /// so a letter may be there twice.
    fn store<'a>(
        &'a self,
        target: &'a str,
        letters: Arc<Vec<DeadLetter>>,
    ) -> PortFuture<'a, Result<(), SinkError>>;
}

/// A record that was given up: all of it, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The whole record, with its position.
    pub record: Record,
    /// The stream it is of.
    pub stream: StreamName,
    /// The shard it is of.
    pub shard: ShardId,
    /// The application that gave it up.
    pub application: String,
    /// The plugin that failed on it.
    pub plugin: PluginName,
    /// The version of the plugin that failed last.
    pub digest: PluginDigest,
    /// What failed, in the plugin's or the host's words.
    pub reason: String,
    /// How often it was delivered.
    pub attempts: u32,
    /// When it was given up, in milliseconds since the Unix epoch.
    pub failed_at_ms: u64,
}
