//! What distinguishes the letters of one instance from others.

use shardmill_core::plugin::PluginName;
use shardmill_core::ports::DeadLetter;
use shardmill_core::stream::{ShardId, StreamName};

/// Letters from the same source go to the same instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) plugin: PluginName,
    pub(super) application: String,
    pub(super) stream: StreamName,
    pub(super) shard: ShardId,
}

impl Source {
    pub(super) fn of(letter: &DeadLetter) -> Self {
        Self {
            plugin: letter.plugin.clone(),
            application: letter.application.clone(),
            stream: letter.stream.clone(),
            shard: letter.shard.clone(),
        }
    }
}
