//! Who an instance is, where nothing depends on it: for benchmarks of calls into a component.

use std::sync::Arc;

use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{InstanceContext, StartPosition};
use shardmill_core::stream::{ShardId, StreamName};

/// The plugin `noop`, without limits of its own or permissions.
///
/// # Panics
///
/// Never: the names are valid.
pub fn instance_context() -> Arc<InstanceContext> {
    Arc::new(InstanceContext {
        start: StartPosition::default(),
        plugin: PluginName::new("noop").expect("valid"),
        application: "noop".to_owned(),
        stream: StreamName::new("stream").expect("valid"),
        shard: ShardId::new("shardId-000000000000").expect("valid"),
        worker: WorkerId::new("worker").expect("not empty"),
        epoch: LeaseCounter(1),
        destinations: vec!["stdout".to_owned()],
        limits: None,
        permissions: Arc::default(),
        config: Vec::new(),
    })
}
