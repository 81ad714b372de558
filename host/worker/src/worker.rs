//! The worker: looks at the fleet, leads it if it falls to it, plans, takes, and owns the grants that follow.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shardmill_core::fleet::{ApplicationStart, Incarnation, StreamIdentity};
use shardmill_core::ports::{
    Clock, Coordinator, DeadLetters, LeaseStore, ProcessorFactory, ReadError, Sink, StoreError, StreamReader,
    Subscriptions,
};
use shardmill_core::rollout::Quarantined;
use shardmill_core::stream::{LeaseKey, StreamName};
use shardmill_core::time::Moment;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::budget::ByteBudget;
use crate::fan_out::{ConsumerKeeper, FanOutView};
use crate::freezer::Freezer;
use crate::grant::{GrantEnd, KeeperHandle};
use crate::heart::{HeartWatch, Replaced};
use crate::metrics;
use crate::options::{InvalidOptions, WorkerOptions};
use crate::pipeline::PipelineEnd;
use crate::rollout::SharedRollout;
use crate::status::StatusBoard;

mod act;
mod heed;
mod lead;
mod leave;
mod look;
mod pass;
mod serve;
mod start;
mod versions;

use heed::Heeding;
use lead::Duties;
use look::Observed;
use serve::Serving;
use versions::FleetVersions;

/// What a worker needs of the world.
#[derive(Clone)]
pub struct Ports {
    /// The stream.
    pub reader: Arc<dyn StreamReader>,
    /// Enhanced fan-out on it; needed only where [`WorkerOptions::retrieval`] wants it.
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
    /// The host's byte budget.
    pub budget: ByteBudget,
    /// The version of the plugin to run; each new value is taken up between batches.
    pub versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
    /// Which of them each shard runs; one for all streams of a plugin.
    pub rollout: SharedRollout,
    /// Stops all tasks of this host in a simulation.
    pub freezer: Freezer,
}

/// Why a worker could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Its settings contradict each other.
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    /// The lease table cannot be used; an operator must act.
    #[error(transparent)]
    Table(StoreError),
    /// The application's checkpoints belong to another stream.
    #[error(
        "application {application} has checkpoints of stream {theirs}, but is configured to read {ours}: name another \
         application, or delete the tables {application} and {application}-coordinator if nothing needs them"
    )]
    OtherStream {
        /// The application.
        application: String,
        /// The configured stream.
        ours: StreamName,
        /// The stream that the checkpoints belong to.
        theirs: StreamName,
    },
    /// The stream was deleted and created again.
    #[error(
        "stream {stream} was deleted and created again: the checkpoints of application {application} belong to the old \
         one and mean nothing now; name another application, or delete the tables {application} and \
         {application}-coordinator to start anew"
    )]
    StreamRecreated {
        /// The application.
        application: String,
        /// The stream.
        stream: StreamName,
    },
    /// The table is that of a KCL in multi-stream mode.
    #[error(
        "table {application} has the lease {key}, of a KCL in multi-stream mode: shards of two streams have the same ids, \
         and would be taken for each other; copy the rows of this stream into a table of another name, with the shard id \
         alone as leaseKey, and name that application"
    )]
    MultiStream {
        /// The application.
        application: String,
        /// One such key.
        key: LeaseKey,
    },
    /// Another process runs under this worker's id.
    #[error("another process registered as worker {worker}: give each host its own worker-id, this one stops")]
    Replaced {
        /// The id.
        worker: String,
    },
}

/// Why a pass failed; the next one comes soon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot list shards: {0}")]
    Listing(#[from] ReadError),
    #[error("lease {0} is of a KCL in multi-stream mode")]
    MultiStream(LeaseKey),
    #[error("there is no stream {0}; its leases are kept, and work goes on when it is back")]
    NoStream(StreamName),
    #[error(
        "version {} is quarantined, found bad by {}: {}; drop a good version, or release it with `shardmill plugins \
         APPLICATION --release DIGEST`",
        .0.digest, .0.host, .0.reason
    )]
    Quarantined(Box<Quarantined>),
}

/// Serves one application on one host.
pub struct Worker {
    ports: Ports,
    options: Arc<WorkerOptions>,
    status: StatusBoard,
    /// This run of the worker.
    run: Incarnation,
    identity: StreamIdentity,
    /// Where the application began, as the table has it.
    start: ApplicationStart,
    /// When this run first looked at tables without a start, by the stream's clock: later tries go on from there.
    first_look_ms: Option<u64>,
    observed: Observed,
    duties: Duties,
    serving: Serving,
    heeding: Heeding,
    held: HashMap<LeaseKey, HeldLease>,
    /// Leases this host gave up, and until when it leaves them to others.
    avoided: HashMap<LeaseKey, Moment>,
    grants: JoinSet<GrantEnd>,
    /// Whether this run may have a registration in the table.
    is_registering: bool,
    heart: Option<HeartWatch>,
    heart_task: JoinSet<Replaced>,
    is_draining: watch::Sender<bool>,
    /// Whether each row is renewed, as a KCL that shares the table needs it.
    renews_rows: Arc<AtomicBool>,
    /// Something was changed that others should look at soon.
    has_news: bool,
    /// Told by readers when the stream may be another one.
    doubts: Arc<Notify>,
    versions: FleetVersions,
    /// Set if shards are subscribed to where that is possible.
    fan_out: Option<FanOutView>,
    consumer_keeper: Option<ConsumerKeeper>,
    keeper_task: JoinSet<()>,
}

/// A lease that this host holds.
struct HeldLease {
    /// Asks its pipeline to drain.
    drain: CancellationToken,
    keeper: KeeperHandle,
}

impl Worker {
    /// Checks the settings; touches nothing yet.
    pub fn new(ports: Ports, options: WorkerOptions, status: StatusBoard) -> Result<Self, InvalidOptions> {
        options.validate()?;
        let digest = ports.versions.borrow().digest().as_str().to_owned();
        status.update(|status| status.plugin_digest = Some(digest));
        let (consumer_keeper, fan_out) = fan_out(&ports, &options, &status)?.unzip();
        // Nothing is done before the table's own is known.
        let start = ApplicationStart { position: options.initial_position, looked_at_ms: 0, found_leases: true };
        let renews_rows = Arc::new(AtomicBool::new(options.leases.shared_with_kcl));
        Ok(Self {
            ports,
            options: Arc::new(options),
            status,
            run: Incarnation::from_random(fastrand::u64(..)),
            identity: StreamIdentity { created_at_ms: 0 },
            start,
            first_look_ms: None,
            observed: Observed::default(),
            duties: Duties::default(),
            serving: Serving::default(),
            heeding: Heeding::default(),
            held: HashMap::new(),
            avoided: HashMap::new(),
            grants: JoinSet::new(),
            is_registering: false,
            heart: None,
            heart_task: JoinSet::new(),
            is_draining: watch::channel(false).0,
            renews_rows,
            has_news: false,
            doubts: Arc::new(Notify::new()),
            versions: FleetVersions::default(),
            fan_out,
            consumer_keeper,
            keeper_task: JoinSet::new(),
        })
    }

    /// Runs until `stop`; then drains every pipeline, checkpoints and releases, for at most `drain_limit`.
    ///
    /// Dropping the future stops everything at once, as a crash would.
    pub async fn run(mut self, stop: CancellationToken, drain_limit: Duration) -> Result<(), WorkerError> {
        let served = match self.start(&stop).await {
            Ok(true) => self.serve(&stop).await,
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        // Whoever took this worker's name owns its leases too: nothing is left to drain.
        if !matches!(served, Err(WorkerError::Replaced { .. })) {
            self.leave(drain_limit).await;
        }
        served
    }

    async fn serve(&mut self, stop: &CancellationToken) -> Result<(), WorkerError> {
        let mut next_pass = Instant::now();
        let mut failures = 0;
        let doubts = Arc::clone(&self.doubts);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(Ok(Replaced)) = self.heart_task.join_next() => {
                    return Err(WorkerError::Replaced { worker: self.options.worker.to_string() });
                }
                Some(ended) = self.grants.join_next() => {
                    self.grant_ended(ended);
                    next_pass = Instant::now();
                }
                () = doubts.notified() => self.check_stream().await?,
                () = tokio::time::sleep_until(next_pass) => {
                    let wait = match self.pass(stop).await {
                        Ok(wait) => {
                            failures = 0;
                            self.status.update(|status| status.pass_error = None);
                            wait
                        }
                        Err(PassError::MultiStream(key)) => return Err(self.multi_stream(key)),
                        Err(error) => {
                            failures += 1;
                            self.pass_failed(&error, failures);
                            self.options.backoff.delay(failures, fastrand::f64())
                        }
                    };
                    next_pass = Instant::now() + wait;
                }
            }
        }
    }

    fn pass_failed(&self, error: &PassError, failures: u32) {
        if failures.is_power_of_two() {
            tracing::warn!(application = self.options.application, %error, failures, "cannot look at leases");
        }
        self.status.update(|status| status.pass_error = Some(error.to_string()));
    }

    fn grant_ended(&mut self, ended: Result<GrantEnd, tokio::task::JoinError>) {
        let Ok(GrantEnd { key, end }) = ended else {
            // Only this worker aborts grants, and then it does not wait for them.
            return;
        };
        self.held.remove(&key);
        self.count_leases();
        self.observed.look_at_once();
        // A free lease, or children to be taken: for this host or for another; unless the one that asked reads its row.
        self.has_news |= !self.heeding.is_open(&key);
        let plugin = self.options.plugin.to_string();
        match end {
            PipelineEnd::Ended => tracing::info!(lease = %key, "shard ended, its children are leased"),
            PipelineEnd::Released => tracing::info!(lease = %key, "lease released"),
            PipelineEnd::Lost(reason) => {
                tracing::warn!(lease = %key, %reason, "lease lost");
                ::metrics::counter!(metrics::LOSSES, "plugin" => plugin).increment(1);
            }
            PipelineEnd::GaveUp(reason) => {
                /// Others get this many lease durations to try before this host tries again.
                const LEAVE_TO_OTHERS_LEASES: u32 = 3;
                tracing::warn!(lease = %key, reason, "lease given up");
                ::metrics::counter!(metrics::GIVEN_UP, "plugin" => plugin).increment(1);
                let until = self.ports.clock.now() + self.options.leases.duration * LEAVE_TO_OTHERS_LEASES;
                self.avoided.insert(key, until);
            }
        }
    }

    fn count_leases(&self) {
        let plugin = self.options.plugin.to_string();
        ::metrics::gauge!(metrics::LEASES, "plugin" => plugin).set(self.held.len() as f64);
    }

    fn renews_rows(&self) -> bool {
        self.renews_rows.load(Ordering::Relaxed)
    }
}

/// What sees to the fan-out consumer, if shards are to be subscribed to.
fn fan_out(
    ports: &Ports,
    options: &WorkerOptions,
    status: &StatusBoard,
) -> Result<Option<(ConsumerKeeper, FanOutView)>, InvalidOptions> {
    let Some(wanted) = options.retrieval.fan_out() else { return Ok(None) };
    let Some(subscriptions) = &ports.subscriptions else {
        let problem = "enhanced fan-out needs a port for subscriptions".to_owned();
        return Err(InvalidOptions { setting: "reads.retrieval", problem });
    };
    let (subscriptions, consumer) = (Arc::clone(subscriptions), wanted.consumer.clone());
    Ok(Some(ConsumerKeeper::new(subscriptions, consumer, options.plugin.clone(), status.clone())))
}
