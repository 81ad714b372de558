//! Whose lines those are that a guest logs.

use shardmill_core::plugin::PluginName;
use shardmill_core::stream::ShardId;

/// See the module's description.
pub(crate) struct GuestIdentity {
    /// What the log calls the plugin.
    pub(crate) label: PluginName,
    pub(crate) application: String,
    pub(crate) shard: ShardId,
    /// Whether it runs in the plugin's shadow: whoever watches is to see which lines are whose.
    pub(crate) is_shadow: bool,
}
