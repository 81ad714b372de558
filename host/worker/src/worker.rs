//! The worker: looks at the fleet, leads it if it falls to it, plans, takes, and owns the holdings
//! that follow.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shardmill_core::fleet::{ApplicationStart, Incarnation, StreamIdentity};
use shardmill_core::lease::TableDeadlines;
use shardmill_core::plan::{KclWatch, OVERDUE_LEASES};
use shardmill_core::ports::{
    Clock, Coordinator, DeadLetters, LeaseStore, ProcessorFactory, Sink, StreamReader,
    Subscriptions,
};
use shardmill_core::stream::LeaseKey;
use shardmill_core::time::Moment;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::budget::ByteShare;
use crate::fan_out::{ConsumerKeeper, FanOutView};
use crate::freezer::Freezer;
use crate::heart::{HeartWatch, Replaced};
use crate::holding::{HoldingEnd, KeeperHandle};
use crate::metrics;
use crate::options::{InvalidOptions, WorkerOptions};
use crate::pipeline::{LogAllowance, PipelineEnd};
use crate::rollout::SharedRollout;
use crate::status::StatusBoard;
use crate::timed::{TimedCoordinator, TimedStore};

mod act;
mod audit;
mod begin;
mod error;
mod gauges;
mod heed;
mod lead;
mod leave;
mod look;
mod pass;
mod report;
mod second_look;
mod serve;
mod start;
mod survey;
mod take;
mod versions;
mod writes;

pub(crate) use error::PassError;
pub use error::WorkerError;
use gauges::PluginGauges;
use heed::Heeding;
use lead::Duties;
use look::Observed;
use serve::Serving;
use versions::FleetVersions;
use writes::Writes;

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
    /// The plugin's share of the host's byte budget.
    pub budget: ByteShare,
    /// The version of the plugin to run; each new value is taken up between batches.
    pub versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
    /// Which of them each shard runs; one for all streams of a plugin.
    pub rollout: SharedRollout,
    /// Stops all tasks of this host in a simulation.
    pub freezer: Freezer,
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
    /// When this run first looked at tables without a start, by the stream's clock: later tries go
    /// on from there.
    first_look_ms: Option<u64>,
    observed: Observed,
    duties: Duties,
    serving: Serving,
    heeding: Heeding,
    held: HashMap<LeaseKey, HeldLease>,
    /// Leases this host gave up, and until when it leaves them to others.
    avoided: HashMap<LeaseKey, Moment>,
    holdings: JoinSet<HoldingEnd>,
    /// Whether this run may have a registration in the table.
    is_registering: bool,
    heart: Option<HeartWatch>,
    heart_task: JoinSet<Replaced>,
    is_draining: watch::Sender<bool>,
    /// Why a lease's row cannot be written, if one cannot.
    cannot_write: watch::Sender<Option<String>>,
    /// Why passes fail, once that is no hiccup.
    cannot_look: watch::Sender<Option<String>>,
    /// Why others cannot be told that there is something to see, if the table refuses it.
    cannot_announce: Option<String>,
    writes: Writes,
    kcl: KclWatch,
    /// Whether each row is renewed, as a KCL that shares the table needs it.
    renews_rows: Arc<AtomicBool>,
    /// Something was changed that others should look at soon.
    has_news: bool,
    /// Told by readers when the stream may be another one.
    doubts: Arc<Notify>,
    /// What the log may get of records that are given up.
    given_up_lines: Arc<LogAllowance>,
    versions: FleetVersions,
    /// Set if shards are subscribed to where that is possible.
    fan_out: Option<FanOutView>,
    consumer_keeper: Option<ConsumerKeeper>,
    keeper_task: JoinSet<()>,
    /// Last: what sets them is dropped before.
    _gauges: PluginGauges,
}

/// A lease that this host holds.
struct HeldLease {
    /// Whether another worker asked for it and is to have it.
    is_handed_over: bool,
    /// Asks its pipeline to drain.
    drain: CancellationToken,
    /// Tells its keeper and its pipeline to give it up, and why.
    give_up: watch::Sender<Option<String>>,
    keeper: KeeperHandle,
}

impl Worker {
    /// Whether [`Self::new`] would make a worker of these.
    pub fn check(ports: &Ports, options: &WorkerOptions) -> Result<(), InvalidOptions> {
        options.validate()?;
        fan_out(ports, options, &StatusBoard::default()).map(|_| ())
    }

    /// Checks the settings; touches nothing yet.
    pub fn new(
        ports: Ports,
        options: WorkerOptions,
        status: StatusBoard,
    ) -> Result<Self, InvalidOptions> {
        options.validate()?;
        let deadlines = TableDeadlines::of(options.leases.duration);
        let ports = Ports {
            store: Arc::new(TimedStore::new(ports.store, deadlines)),
            coordinator: Arc::new(TimedCoordinator::new(ports.coordinator, deadlines)),
            ..ports
        };
        Self::assemble(ports, options, status)
    }

    /// A new run of a worker with these ports, whose calls have their deadlines.
    fn assemble(
        ports: Ports,
        options: WorkerOptions,
        status: StatusBoard,
    ) -> Result<Self, InvalidOptions> {
        let digest = ports.versions.borrow().digest().as_str().to_owned();
        status.update(|status| {
            status.plugin_digest = Some(digest);
            status.lease_duration = options.leases.duration;
        });
        let (consumer_keeper, fan_out) = fan_out(&ports, &options, &status)?.unzip();
        // Nothing is done before the table's own is known.
        let start = ApplicationStart {
            position: options.initial_position,
            looked_at_ms: 0,
            found_leases: true,
        };
        let shared_with_kcl = options.leases.shared_with_kcl;
        let renews_rows = Arc::new(AtomicBool::new(shared_with_kcl));
        let gauges = PluginGauges::of(options.plugin.clone());
        let given_up_lines = Arc::new(LogAllowance::new(ports.clock.now()));
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
            holdings: JoinSet::new(),
            is_registering: false,
            heart: None,
            heart_task: JoinSet::new(),
            is_draining: watch::channel(false).0,
            cannot_write: watch::channel(None).0,
            cannot_look: watch::channel(None).0,
            cannot_announce: None,
            writes: Writes::default(),
            kcl: KclWatch::new(shared_with_kcl),
            renews_rows,
            has_news: false,
            doubts: Arc::new(Notify::new()),
            given_up_lines,
            versions: FleetVersions::default(),
            fan_out,
            consumer_keeper,
            keeper_task: JoinSet::new(),
            _gauges: gauges,
        })
    }

    /// Runs until `stop`; then drains every pipeline, checkpoints and releases, for at most
    /// `drain_limit`.
    ///
    /// While lease rows cannot be written on this host, it is no part of the fleet. Dropping the
    /// future stops everything at once, as a crash would.
    pub async fn run(
        self,
        stop: CancellationToken,
        drain_limit: Duration,
    ) -> Result<(), WorkerError> {
        let (ports, options, status) = (
            self.ports.clone(),
            WorkerOptions::clone(&self.options),
            self.status.clone(),
        );
        let mut worker = self;
        loop {
            match worker.run_once(&stop, drain_limit).await {
                Err(error @ WorkerError::CannotWrite { .. }) => {
                    tracing::error!(%error, "leaving the fleet until lease rows can be written again");
                    worker = Self::assemble(ports.clone(), options.clone(), status.clone())?;
                }
                ended => return ended,
            }
        }
    }

    async fn run_once(
        mut self,
        stop: &CancellationToken,
        drain_limit: Duration,
    ) -> Result<(), WorkerError> {
        // From the start: who alerts on a figure must not wait for the first lease.
        self.count_leases();
        metrics::count_from_zero(&self.options.plugin, &self.options.failure);
        let served = match self.start(stop).await {
            Ok(true) => self.serve(stop).await,
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        match served {
            // Whoever took this worker's name owns its leases too: nothing is left to drain.
            Err(WorkerError::Replaced { .. }) => {}
            // Others wait for what cannot be released: no longer than for what a crash leaves
            // behind.
            Err(WorkerError::CannotWrite { .. }) => {
                let limit = drain_limit.min(self.options.leases.duration);
                self.leave(limit).await;
            }
            Ok(()) | Err(_) => self.leave(drain_limit).await,
        }
        served
    }

    async fn serve(&mut self, stop: &CancellationToken) -> Result<(), WorkerError> {
        let mut next_pass = Instant::now();
        let mut next_check = next_pass;
        let mut failures = 0;
        let doubts = Arc::clone(&self.doubts);
        let mut identities = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(ended) = self.heart_task.join_next() => return Err(self.heart_ended(ended)),
                Some(Err(error)) = self.keeper_task.join_next() => {
                    let what = "maintains the fan-out consumer";
                    return Err(WorkerError::TaskEnded { what, reason: error.to_string() });
                }
                Some(ended) = self.holdings.join_next() => {
                    self.holding_ended(ended);
                    next_pass = Instant::now();
                }
                Some(ended) = self.duties.surveys.next_ended() => {
                    self.survey_ended(ended);
                    next_pass = Instant::now();
                }
                Some(Ok(answer)) = identities.join_next() => self.check_stream(&answer)?,
                () = doubts.notified(), if identities.is_empty() => self.ask_identity(&mut identities),
                () = tokio::time::sleep_until(next_check) => {
                    self.show_buffer();
                    self.judge_writes().await?;
                    next_check = Instant::now() + self.check_writes_every();
                }
                () = tokio::time::sleep_until(next_pass) => {
                    let wait = match self.pass(stop).await {
                        Ok(pass) => {
                            if pass.has_looked {
                                failures = 0;
                                self.pass_went_well();
                            }
                            pass.wait
                        }
                        Err(PassError::MultiStream(key)) => return Err(self.multi_stream(key)),
                        Err(error) => {
                            failures += 1;
                            self.pass_failed(&error, failures);
                            // What was lost in an outage, and is this host's by name, must not wait
                            // for long after it.
                            self.options.backoff.delay(failures, fastrand::f64()).min(self.options.leases.duration)
                        }
                    };
                    next_pass = Instant::now() + wait;
                }
            }
        }
    }

    fn heart_ended(&self, ended: Result<Replaced, JoinError>) -> WorkerError {
        match ended {
            Ok(Replaced) => WorkerError::Replaced {
                worker: self.options.worker.to_string(),
            },
            Err(error) => WorkerError::TaskEnded {
                what: "writes heartbeats",
                reason: error.to_string(),
            },
        }
    }

    fn holding_ended(&mut self, ended: Result<HoldingEnd, JoinError>) {
        let Ok(HoldingEnd { key, end }) = ended else {
            // Only this worker aborts holdings, and then it does not wait for them.
            return;
        };
        let held = self.held.remove(&key);
        self.count_leases();
        if end == PipelineEnd::Released && held.is_some_and(|held| held.is_handed_over) {
            // The one that asked for it reads its row: to all others it is as good as held.
            self.observed.look_soon();
        } else {
            // A free lease, or children to be taken: for this host or for another.
            self.observed.look_at_once();
            self.has_news = true;
        }
        let plugin = self.options.plugin.to_string();
        match end {
            PipelineEnd::Ended => {
                tracing::info!(lease = %key, "shard ended, its children are leased");
            }
            PipelineEnd::Released => tracing::info!(lease = %key, "lease released"),
            PipelineEnd::Lost(reason) => {
                tracing::warn!(lease = %key, %reason, "lease lost");
                ::metrics::counter!(metrics::LOSSES, "plugin" => plugin).increment(1);
                self.heeding.follow_lost(key, self.ports.clock.now());
            }
            PipelineEnd::GaveUp(reason) => self.leave_to_others(key, &reason),
            // What makes it fail may make it fail again at once: it is given back, and this host
            // waits before it tries again.
            PipelineEnd::Failed(error) => {
                tracing::error!(lease = %key, error, "the pipeline failed, which is a mistake in shardmill");
                self.leave_to_others(key.clone(), "its pipeline failed");
                self.heeding.follow_lost(key, self.ports.clock.now());
            }
            PipelineEnd::Unreleased(reason) => {
                self.leave_to_others(key.clone(), &reason);
                self.writes.note_unreleased(key, reason);
            }
        }
    }

    fn leave_to_others(&mut self, key: LeaseKey, reason: &str) {
        /// Others get this many lease durations to try before this host tries again: longer than
        /// those that have their share wait until they take it all the same.
        const LEAVE_TO_OTHERS_LEASES: u32 = OVERDUE_LEASES + 1;
        tracing::warn!(lease = %key, reason, "lease given up");
        ::metrics::counter!(metrics::GIVEN_UP, "plugin" => self.options.plugin.to_string())
            .increment(1);
        let until = self.ports.clock.now() + self.options.leases.duration * LEAVE_TO_OTHERS_LEASES;
        self.avoided.insert(key, until);
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
    let Some(wanted) = options.retrieval.fan_out() else {
        return Ok(None);
    };
    let Some(subscriptions) = &ports.subscriptions else {
        let problem = "enhanced fan-out needs a port for subscriptions".to_owned();
        return Err(InvalidOptions {
            setting: "reads.retrieval",
            problem,
        });
    };
    let (subscriptions, consumer) = (Arc::clone(subscriptions), wanted.consumer.clone());
    Ok(Some(ConsumerKeeper::new(
        subscriptions,
        consumer,
        options.plugin.clone(),
        status.clone(),
    )))
}
