//! `shardmill:processor/context`: the instance's plugin, stream, shard and host.

use shardmill_core::ports::StartPosition;

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

    fn start(&mut self) -> context::StartPosition {
        match &self.identity.start {
            StartPosition::Oldest => context::StartPosition::Oldest,
            StartPosition::Time(ms) => context::StartPosition::Time(*ms),
            StartPosition::At(number) => context::StartPosition::At(number.to_string()),
            StartPosition::After(position) => context::StartPosition::After(context::Place {
                sequence_number: position.sequence.to_string(),
                sub_sequence_number: position.sub_sequence,
            }),
        }
    }
}
