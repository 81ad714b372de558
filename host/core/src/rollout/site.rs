use crate::plugin::PluginName;
use crate::stream::ShardId;

/// A shard that a plugin serves on this host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The plugin's name on the shard's stream.
    pub plugin: PluginName,
    /// The shard's id on that stream.
    pub shard: ShardId,
}
