//! `shardmill:processor/context`: the instance's plugin, stream, shard and host.

use crate::bindings::shardmill::processor::{context, types};
use crate::instance::state::InstanceState;

impl types::Host for InstanceState {}

impl context::Host for InstanceState {
    fn get(&mut self) -> context::Context {
        let identity = &self.identity;
        context::Context {
            plugin: identity.plugin.to_string(),
            application: identity.application.clone(),
            stream: identity.stream.to_string(),
            shard: identity.shard.to_string(),
            worker: identity.worker.to_string(),
            grant_epoch: identity.epoch.0,
        }
    }
}
