//! What a worker needs of the world.

use std::sync::Arc;

use shardmill_core::ports::{
    Clock, Coordinator, DeadLetters, LeaseStore, ProcessorFactory, Sink, StreamReader,
    Subscriptions,
};
use tokio::sync::watch;

use crate::budget::ByteShare;
use crate::freezer::Freezer;
use crate::rollout::SharedRollout;

/// What a worker needs of the world.
#[derive(Clone)]
pub struct Ports {
    /// The stream.
    pub reader: Arc<dyn StreamReader>,
    /// Enhanced fan-out on it; needed only where [`crate::options::WorkerOptions::retrieval`] wants it.
    pub subscriptions: Option<Arc<dyn Subscriptions>>,
    /// The application's lease table.
    pub store: Arc<dyn LeaseStore>,
    /// The application's coordinator table.
    pub coordinator: Arc<dyn Coordinator>,
    /// Where outputs go.
    pub sink: Arc<dyn Sink>,
    /// Where records go that the failure policy gives up.
    pub dead_letters: Arc<dyn DeadLetters>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The plugin's share of the host's byte budget.
    pub budget: ByteShare,
    /// The version of the plugin to run; each new value is taken up between batches.
    pub versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
    /// Which of them each shard runs; one for all streams of a plugin.
    pub rollout: SharedRollout,
    /// Stops all tasks of this host in a simulation.
    pub freezer: Freezer,
}
