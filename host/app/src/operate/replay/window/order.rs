//! What a window is of.

use std::path::PathBuf;

use anyhow::Context;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::StreamReader;
use shardmill_core::stream::{ShardId, StreamName, parents_first};

/// Which records are replayed, through which plugin, and where its progress is kept.
#[derive(Debug, Clone)]
pub(crate) struct WindowOrder {
    pub(crate) stream: StreamName,
    /// The first record of a shard is the first that arrived then or later, in milliseconds since
    /// the Unix epoch.
    pub(crate) from_ms: u64,
    /// The first that arrived then or later is not replayed, and nothing after it.
    pub(crate) to_ms: u64,
    /// Whose settings apply.
    pub(crate) plugin: PluginName,
    /// As the plugin sees it.
    pub(crate) application: String,
    pub(crate) progress: PathBuf,
}

impl WindowOrder {
    /// The shards that may hold records of the window, parents before their children.
    pub(super) async fn shards(&self, reader: &dyn StreamReader) -> anyhow::Result<Vec<ShardId>> {
        let cannot_list = || format!("cannot list the shards of {}", self.stream);
        let since = reader.list_shards_since(self.from_ms).await;
        let shards = match since.with_context(cannot_list)? {
            Some(shards) => shards,
            None => reader.list_shards().await.with_context(cannot_list)?,
        };
        let order = parents_first(&shards).into_iter();
        Ok(order.map(|shard| shard.id.clone()).collect())
    }
}
