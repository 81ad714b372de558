//! What a pipeline needs of the world.

use std::sync::Arc;

use shardmill_core::fleet::{ApplicationStart, StreamIdentity};
use shardmill_core::ports::{
    Clock, Coordinator, DeadLetters, LeaseStore, ProcessorFactory, Sink, StreamReader, Tracer,
};
use tokio::sync::{Notify, watch};

use super::log_allowance::LogAllowance;
use crate::budget::ByteShare;
use crate::chronicle::Chronicle;
use crate::fan_out::FanOutView;
use crate::freezer::Freezer;
use crate::recordings::Recordings;
use crate::rollout::RolloutView;
use crate::tap::Tap;
use crate::tick_clock::TickClock;

/// See the module's description.
#[derive(Clone)]
pub(crate) struct PipelinePorts {
    pub(crate) reader: Arc<dyn StreamReader>,
    /// Set if shards are subscribed to where that is possible.
    pub(crate) fan_out: Option<FanOutView>,
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) dead_letters: Arc<dyn DeadLetters>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tick_clock: TickClock,
    pub(crate) budget: ByteShare,
    pub(crate) versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
    pub(crate) coordinator: Arc<dyn Coordinator>,
    /// The application's history.
    pub(crate) chronicle: Arc<Chronicle>,
    pub(crate) freezer: Freezer,
    /// The stream that the checkpoints belong to.
    pub(crate) identity: StreamIdentity,
    /// Where the application began on it.
    pub(crate) start: ApplicationStart,
    /// Notified when the stream may be another one.
    pub(crate) doubts: Arc<Notify>,
    /// Which version each shard runs.
    pub(crate) rollout: RolloutView,
    /// How much the log may get about records that are given up.
    pub(crate) given_up_lines: Arc<LogAllowance>,
    /// Where batches that failed are kept.
    pub(crate) recordings: Recordings,
    /// Shows what goes through the plugin to whoever watches.
    pub(crate) tap: Tap,
    /// Takes the traces of batches, if any are traced.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}
