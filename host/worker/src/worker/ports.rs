//! What a worker needs of the world.

use std::sync::Arc;

use shardmill_core::ports::{
    Clock, Coordinator, DeadLetters, LeaseStore, ProcessorFactory, Sink, StreamReader,
    Subscriptions, Tracer,
};
use tokio::sync::watch;

use crate::budget::ByteShare;
use crate::freezer::Freezer;
use crate::host_bell::HostBell;
use crate::load::Scaling;
use crate::meters::Meters;
use crate::recordings::Recordings;
use crate::rollout::SharedRollout;
use crate::tap::Tap;
use crate::tick_clock::TickClock;
use crate::worker::Standalone;

/// What a worker needs of the world.
#[derive(Clone)]
pub struct Ports {
    /// The stream that the plugin reads, by polling.
    pub reader: Arc<dyn StreamReader>,
    /// Enhanced fan-out on it; needed only where [`crate::options::WorkerOptions::retrieval`] wants
    /// it.
    pub subscriptions: Option<Arc<dyn Subscriptions>>,
    /// The application's lease table.
    pub store: Arc<dyn LeaseStore>,
    /// The application's coordinator table.
    pub coordinator: Arc<dyn Coordinator>,
    /// The list of standalone hosts, if this is one: then both tables show only its own rows.
    pub standalone: Option<Standalone>,
    /// The sinks that the plugin's output goes to.
    pub sink: Arc<dyn Sink>,
    /// Where records go that the failure policy gives up.
    pub dead_letters: Arc<dyn DeadLetters>,
    /// The clock that all decisions of this worker go by.
    pub clock: Arc<dyn Clock>,
    /// The time by which plugins are called because time has passed, and that they are told: the
    /// same, but where a dry run lets time pass.
    pub tick_clock: TickClock,
    /// The plugin's share of the host's byte budget.
    pub budget: ByteShare,
    /// The version of the plugin to run; each new value is taken up between batches.
    pub versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
    /// Which of them each shard runs; one for all streams of a plugin.
    pub rollout: SharedRollout,
    /// Where batches that failed are kept.
    pub recordings: Recordings,
    /// Shows what goes through the plugin to whoever watches.
    pub tap: Tap,
    /// Where it is noted what happens here, for the KCL's metrics.
    pub meters: Meters,
    /// Takes the traces of batches, if any are traced.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// How the application is scaled, if the host says how many hosts are wanted.
    pub scaling: Option<Scaling>,
    /// Passes on what is wanted of the process.
    pub bell: HostBell,
    /// Stops all tasks of this host in a simulation.
    pub freezer: Freezer,
}
