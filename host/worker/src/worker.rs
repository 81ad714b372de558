//! The worker: looks at the fleet, leads it if no other host does, plans, takes, and owns the
//! holdings that follow.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::control::Deed;
use shardmill_core::lease::TableDeadlines;
use shardmill_core::stream::LeaseKey;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::chronicle::ChronicleWriter;
use crate::heart::Replaced;
use crate::holding::HoldingEnd;
use crate::meters::WorkerMeters;
use crate::metrics;
use crate::options::{InvalidOptions, WorkerOptions};
use crate::pipeline::PipelineEnd;
use crate::status::StatusBoard;
use crate::timed::{TimedCoordinator, TimedStore};
use crate::timer::{Stopwatch, timer_now};

mod act;
mod audit;
mod control;
mod errands;
mod error;
mod finished;
mod gauges;
mod heed;
mod holdings;
mod kcl;
mod lead;
mod leave;
mod look;
mod next_look;
mod office;
mod origin;
mod pass;
mod ports;
mod registration;
mod reports;
mod rows;
mod run;
mod serve;
mod shard_list;
mod signing;
mod standalone;
mod start;
mod subscribing;
mod survey;
mod sync;
mod take;
mod versions;
mod wanted;
mod writes;

pub(crate) use error::PassError;
pub use error::WorkerError;
use gauges::PluginGauges;
use heed::Heeding;
use holdings::Holdings;
use lead::Duties;
use look::Lookout;
use office::Office;
pub use origin::refuse_other_stream;
use origin::{IdentityAnswer, Origin};
pub use ports::Ports;
use registration::Registration;
use reports::Reports;
use run::Run;
use serve::Serving;
use signing::Signing;
pub use standalone::Standalone;
use subscribing::{Subscribing, fan_out};
use survey::SurveyEnd;
use versions::FleetVersions;
use wanted::HostsWanted;
use writes::Writes;

/// Serves one application on one host.
pub struct Worker {
    run: Arc<Run>,
    origin: Origin,
    registration: Registration,
    lookout: Lookout,
    office: Office,
    duties: Duties,
    wanted: HostsWanted,
    serving: Serving,
    heeding: Heeding,
    holdings: Holdings,
    writes: Writes,
    reports: Reports,
    versions: FleetVersions,
    subscribing: Subscribing,
    signing: Signing,
    /// Whether an operator drains this host.
    is_drained: bool,
    /// Writes the history, once the worker runs.
    chronicler: Option<ChronicleWriter>,
    /// Last: what sets them is dropped before.
    _gauges: PluginGauges,
}

/// What a worker that serves waits for.
enum Event {
    Stopped,
    HeartEnded(Result<Replaced, JoinError>),
    FanOutEnded(JoinError),
    HoldingEnded(Result<HoldingEnd, JoinError>),
    SurveyEnded(SurveyEnd),
    StreamIdentified(IdentityAnswer),
    StreamDoubted,
    CheckDue,
    PassDue,
}

/// When a worker does what it does regularly.
struct Schedule {
    pass_at: Instant,
    /// When to check whether rows can be written: often enough to show it with the next heartbeat.
    check_at: Instant,
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
        let meters = WorkerMeters::new(&ports.meters, &options, &ports.store);
        let coordinator = TimedCoordinator::new(ports.coordinator, deadlines, meters.clone());
        let clock = Arc::clone(&ports.clock);
        let ports = Ports {
            store: Arc::new(TimedStore::new(ports.store, deadlines, clock, meters)),
            coordinator: Arc::new(coordinator),
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
        let (keeper, fan_out) = fan_out(&ports, &options, &status)?.unzip();
        let (run, chronicler) = Run::new(ports, options, status);
        let run = Arc::new(run);
        let lookout = Lookout::new(Arc::clone(&run));
        let renews_rows = lookout.kcl().switch();
        Ok(Self {
            origin: Origin::new(Arc::clone(&run)),
            registration: Registration::new(Arc::clone(&run)),
            lookout,
            office: Office::new(Arc::clone(&run)),
            duties: Duties::new(Arc::clone(&run)),
            wanted: HostsWanted::new(Arc::clone(&run)),
            serving: Serving::new(Arc::clone(&run)),
            heeding: Heeding::new(Arc::clone(&run)),
            holdings: Holdings::new(Arc::clone(&run), renews_rows, fan_out),
            writes: Writes::new(Arc::clone(&run)),
            reports: Reports::new(Arc::clone(&run)),
            versions: FleetVersions::new(Arc::clone(&run)),
            subscribing: Subscribing::new(Arc::clone(&run), keeper),
            signing: Signing::new(Arc::clone(&run)),
            is_drained: false,
            chronicler: Some(chronicler),
            _gauges: PluginGauges::of(run.plugin().clone()),
            run,
        })
    }

    /// Runs until `stop`; then drains every pipeline, checkpoints and releases, for at most
    /// `drain_limit`.
    ///
    /// While lease rows cannot be written on this host, it is not part of the fleet. Dropping the
    /// future stops everything at once, as a crash would.
    pub async fn run(
        self,
        stop: CancellationToken,
        drain_limit: Duration,
    ) -> Result<(), WorkerError> {
        let run = Arc::clone(&self.run);
        let mut worker = self;
        loop {
            match Box::pin(worker.run_once(&stop, drain_limit)).await {
                Err(error @ WorkerError::CannotWrite { .. }) => {
                    tracing::error!(
                        %error,
                        code = "left-fleet",
                        "leaving the fleet until lease rows can be written again"
                    );
                    let options = WorkerOptions::clone(&run.options);
                    worker = Self::assemble(run.ports.clone(), options, run.status.clone())?;
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
        let mut writing = JoinSet::new();
        if let Some(chronicler) = self.chronicler.take() {
            writing.spawn(self.run.guard(chronicler.run()));
        }
        // From the start: an alarm on a figure must not wait for the first lease.
        self.holdings.show_count();
        metrics::count_from_zero(self.run.plugin(), &self.run.options.failure);
        let served = match self.start(stop).await {
            Ok(true) => self.serve(stop).await,
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        match served {
            // The process that took this worker's name owns its leases too: nothing is left to
            // drain.
            Err(WorkerError::Replaced { .. }) => {}
            // Others wait for what cannot be released: no longer than for what a crash leaves
            // behind.
            Err(WorkerError::CannotWrite { .. }) => {
                let limit = drain_limit.min(self.run.lease_duration());
                self.leave(limit).await;
            }
            Ok(()) | Err(_) => self.leave(drain_limit).await,
        }
        served
    }

    async fn serve(&mut self, stop: &CancellationToken) -> Result<(), WorkerError> {
        let now = timer_now();
        let mut schedule = Schedule {
            pass_at: now,
            check_at: now,
        };
        loop {
            match self.next_event(stop, &schedule).await {
                Event::Stopped => return Ok(()),
                Event::HeartEnded(ended) => return Err(self.heart_ended(ended)),
                Event::FanOutEnded(error) => {
                    let what = "maintains the fan-out consumer";
                    return Err(task_ended(what, &error));
                }
                Event::HoldingEnded(ended) => {
                    self.holding_ended(ended);
                    schedule.pass_at = timer_now();
                }
                Event::SurveyEnded(ended) => {
                    self.duties.survey_ended(ended);
                    self.lookout.next().pass_at_once();
                    schedule.pass_at = timer_now();
                }
                Event::StreamIdentified(answer) => self.stream_identified(&answer)?,
                Event::StreamDoubted => self.origin.ask(),
                Event::CheckDue => {
                    self.run.show_buffer();
                    self.holdings.note_leases(0);
                    self.judge_writes().await?;
                    schedule.check_at = timer_now() + self.run.options.leases.renew_every;
                }
                Event::PassDue => {
                    let wait = self.try_pass(stop).await?;
                    schedule.pass_at = timer_now() + wait;
                }
            }
        }
    }

    /// Waits for what comes next. Cancel-safe.
    async fn next_event(&mut self, stop: &CancellationToken, schedule: &Schedule) -> Event {
        let doubts = self.origin.doubts();
        let can_ask = !self.origin.is_asking();
        tokio::select! {
            biased;
            () = stop.cancelled() => Event::Stopped,
            Some(ended) = self.registration.heart_ended() => Event::HeartEnded(ended),
            Some(Err(error)) = self.subscribing.ended() => Event::FanOutEnded(error),
            Some(ended) = self.holdings.next_ended() => Event::HoldingEnded(ended),
            Some(ended) = self.duties.next_survey() => Event::SurveyEnded(ended),
            Some(Ok(answer)) = self.origin.next_answer() => Event::StreamIdentified(answer),
            () = doubts.notified(), if can_ask => Event::StreamDoubted,
            () = tokio::time::sleep_until(schedule.check_at) => Event::CheckDue,
            () = tokio::time::sleep_until(schedule.pass_at) => Event::PassDue,
        }
    }

    /// Makes a pass. Returns how long to wait for the next one; fails only if none can succeed.
    async fn try_pass(&mut self, stop: &CancellationToken) -> Result<Duration, WorkerError> {
        let started = Stopwatch::start();
        let passed = self.pass(stop).await;
        self.note_pass(started.elapsed(), &passed);
        match passed {
            Ok(pass) => {
                if pass.has_looked {
                    self.reports.pass_went_well(self.duties.cannot_list());
                }
                Ok(pass.wait)
            }
            Err(PassError::MultiStream(key)) => Err(self.multi_stream(key)),
            // What was lost in an outage, and is this host's by name, must not wait for long after
            // it.
            Err(error) => Ok(self
                .reports
                .pass_failed(&error)
                .min(self.run.lease_duration())),
        }
    }

    fn multi_stream(&self, key: LeaseKey) -> WorkerError {
        WorkerError::MultiStream {
            application: self.run.options.application.clone(),
            key,
        }
    }

    fn heart_ended(&self, ended: Result<Replaced, JoinError>) -> WorkerError {
        match ended {
            Ok(Replaced) => WorkerError::Replaced {
                worker: self.run.me().to_string(),
            },
            Err(error) => task_ended("writes heartbeats", &error),
        }
    }

    /// Gives everything up if the stream is another one.
    fn stream_identified(&self, answer: &IdentityAnswer) -> Result<(), WorkerError> {
        match answer {
            Ok(Some(identity)) => self.origin.check(*identity),
            Ok(None) => {
                let stream = self.run.options.stream.clone();
                self.reports.failed(&PassError::NoStream(stream));
                Ok(())
            }
            // The readers ask again.
            Err(_) => Ok(()),
        }
    }

    fn holding_ended(&mut self, ended: Result<HoldingEnd, JoinError>) {
        let Ok(HoldingEnd { key, end }) = ended else {
            // Only this worker aborts holdings, and then it does not wait for them.
            return;
        };
        let is_handed_over = self.holdings.forget(&key);
        if end == PipelineEnd::Released && is_handed_over {
            // The host that claimed it reads its row: to all others it is as good as held.
            self.lookout.next().look_soon();
        } else {
            // A free lease, or children to be taken: for this host or for another.
            self.lookout.next().look_at_once();
            self.reports.set_news(true);
        }
        self.pipeline_ended(key, end);
    }

    fn pipeline_ended(&mut self, key: LeaseKey, end: PipelineEnd) {
        match end {
            PipelineEnd::Ended => {
                tracing::info!(lease = %key, "shard ended, its children are leased");
            }
            PipelineEnd::Released => tracing::info!(lease = %key, "lease released"),
            PipelineEnd::Lost(reason) => {
                tracing::warn!(lease = %key, %reason, code = "lease-lost", "lease lost");
                self.run.counter(metrics::LOSSES).increment(1);
                self.holdings.note_leases(1);
                self.heeding.errands_mut().follow_lost(key);
            }
            PipelineEnd::GaveUp(reason) => {
                let chronicle = &self.run.chronicle;
                chronicle.did(Deed::GaveUp, Some(&key.shard_id()), &reason);
                self.holdings.leave_to_others(key, &reason);
            }
            PipelineEnd::Failed(error) => self.pipeline_failed(key, &error),
            PipelineEnd::Unreleased(reason) => {
                self.holdings.leave_to_others(key.clone(), &reason);
                self.writes.note_unreleased(key, reason);
            }
        }
    }

    /// What makes a pipeline fail may make it fail again at once: its lease is given back, and this
    /// host waits before it tries again.
    fn pipeline_failed(&mut self, key: LeaseKey, error: &str) {
        tracing::error!(
            lease = %key,
            error,
            code = "pipeline-failed", "the pipeline failed, which is a bug in shardmill"
        );
        self.holdings
            .leave_to_others(key.clone(), "its pipeline failed");
        self.heeding.errands_mut().follow_lost(key);
    }
}

fn task_ended(what: &'static str, error: &JoinError) -> WorkerError {
    WorkerError::TaskEnded {
        what,
        reason: error.to_string(),
    }
}
