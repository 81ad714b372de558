//! What a replay goes by, and what it needs of the world.

use std::collections::HashMap;
use std::sync::Arc;

use shardmill_core::backoff::Backoff;
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::{GuestLimits, Permissions, PluginName};
use shardmill_core::ports::{Clock, PortFuture, ProcessorFactory, Sink};
use shardmill_worker::BatchLimits;

use crate::operate::replay::remainder::Remainder;

/// How a replay goes about it.
pub(crate) struct ReplayOptions {
    /// Only letters of this plugin; others are left out and counted.
    pub(crate) only: Option<PluginName>,
    /// Deliveries of a letter before it is left for another day; at least 1.
    pub(crate) attempts: u32,
    /// How batches are cut.
    pub(crate) batches: BatchLimits,
    /// Waits between deliveries, and between tries to store output.
    pub(crate) backoff: Backoff,
    /// Who the plugin is told that it runs on.
    pub(crate) worker: WorkerId,
    /// The epoch that the plugin is told. A replay holds no lease, so it has none of its own.
    pub(crate) epoch: LeaseCounter,
    /// The sinks that the plugin may emit to.
    pub(crate) destinations: Vec<String>,
    /// Each plugin's own configuration values.
    pub(crate) config: HashMap<String, Vec<(String, String)>>,
    /// What instances of each plugin may use.
    pub(crate) limits: HashMap<String, GuestLimits>,
    /// What each plugin is given beyond that.
    pub(crate) permissions: HashMap<String, Arc<Permissions>>,
    /// The sinks that a plugin may emit to, where it does not get all.
    pub(crate) own_destinations: HashMap<String, Vec<String>>,
}

/// Where the code comes from.
pub(crate) trait Versions: Send {
    /// The version of `plugin` to run.
    fn version<'a>(
        &'a mut self,
        plugin: &'a PluginName,
    ) -> PortFuture<'a, anyhow::Result<Arc<dyn ProcessorFactory>>>;
}

/// What a replay needs of the world.
pub(crate) struct ReplayPorts {
    /// The code.
    pub(crate) versions: Box<dyn Versions>,
    /// Where output goes.
    pub(crate) sink: Arc<dyn Sink>,
    /// For the time at which a letter fails again.
    pub(crate) clock: Arc<dyn Clock>,
    /// Where what is left goes.
    pub(crate) remainder: Remainder,
}
