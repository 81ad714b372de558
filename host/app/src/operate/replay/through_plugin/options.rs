//! The options of a replay, and its ports.

use std::collections::HashMap;
use std::sync::Arc;

use shardmill_core::backoff::Backoff;
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::{GuestLimits, Permissions, PluginName};
use shardmill_core::ports::{
    Clock, DeadLetter, InstanceContext, PortFuture, ProcessorFactory, Sink, StartPosition,
};
use shardmill_worker::BatchLimits;

use super::source::Source;
use crate::operate::replay::remainder::Remainder;

/// The options of a replay.
pub(super) struct ReplayOptions {
    /// Only letters of this plugin; others are left out and counted.
    pub(super) only: Option<PluginName>,
    /// Deliveries of a letter before it is left; at least 1.
    pub(super) attempts: u32,
    /// Where the records begin, as the plugin is told.
    pub(super) start: StartPosition,
    /// Whether what is not processed is left when the replay ends early. Otherwise the next run has
    /// it again.
    pub(super) leaves_rest: bool,
    /// How batches are cut.
    pub(super) batches: BatchLimits,
    /// Waits between deliveries, and between tries to store output.
    pub(super) backoff: Backoff,
    /// The worker that the plugin sees.
    pub(super) worker: WorkerId,
    /// The epoch that the plugin sees. A replay holds no lease, so it has no epoch itself.
    pub(super) epoch: LeaseCounter,
    /// The sinks that plugins without options may emit to.
    pub(super) destinations: Vec<String>,
    /// The options of each plugin, by its name.
    pub(super) plugins: HashMap<String, PluginOptions>,
}

/// The options of a plugin.
pub(super) struct PluginOptions {
    /// The sinks that it may emit to.
    pub(super) destinations: Vec<String>,
    /// What each instance may use; `None` for the engine's defaults.
    pub(super) limits: Option<GuestLimits>,
    /// What it may use beyond that.
    pub(super) permissions: Arc<Permissions>,
    /// Its configuration values.
    pub(super) config: Vec<(String, String)>,
}

impl ReplayOptions {
    /// Whether a batch may grow by `letter`. A batch holds letters from one source, in rising
    /// order, as in a host.
    pub(super) fn may_join(&self, batch: &[DeadLetter], letter: &DeadLetter) -> bool {
        let Some(last) = batch.last() else {
            return true;
        };
        let bytes: usize = batch.iter().map(|letter| letter.record.cost_bytes()).sum();
        batch.len() < self.batches.records
            && bytes + letter.record.cost_bytes() <= self.batches.bytes
            && Source::of(last) == Source::of(letter)
            && last.record.position < letter.record.position
    }

    /// What an instance for `source` sees.
    pub(super) fn context(&self, source: &Source) -> InstanceContext {
        let own = self.plugins.get(source.plugin.plugin().as_str());
        let destinations = own.map_or(&self.destinations, |own| &own.destinations);
        InstanceContext {
            start: self.start.clone(),
            plugin: source.plugin.clone(),
            application: source.application.clone(),
            stream: source.stream.clone(),
            shard: source.shard.clone(),
            worker: self.worker.clone(),
            epoch: self.epoch,
            destinations: destinations.clone(),
            limits: own.and_then(|own| own.limits),
            permissions: own.map(|own| own.permissions.clone()).unwrap_or_default(),
            config: own.map(|own| own.config.clone()).unwrap_or_default(),
        }
    }
}

/// Where the code comes from.
pub(super) trait Versions: Send {
    /// The version of `plugin` to run.
    fn version<'a>(
        &'a mut self,
        plugin: &'a PluginName,
    ) -> PortFuture<'a, anyhow::Result<Arc<dyn ProcessorFactory>>>;
}

/// What a replay needs from outside.
pub(super) struct ReplayPorts {
    /// Loads the version that the letters of a plugin are replayed through.
    pub(super) versions: Box<dyn Versions>,
    /// Where output goes.
    pub(super) sink: Arc<dyn Sink>,
    /// For the time at which a letter fails again.
    pub(super) clock: Arc<dyn Clock>,
    /// The file of what is left.
    pub(super) remainder: Remainder,
}
