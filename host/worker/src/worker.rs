//! The worker: looks at the table, plans, takes, and owns the grants that follow.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::ports::{Clock, LeaseStore, ProcessorFactory, ReadError, Sink, StoreError, StreamReader};
use shardmill_core::stream::LeaseKey;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::budget::ByteBudget;
use crate::grant::GrantEnd;
use crate::metrics;
use crate::options::{InvalidOptions, WorkerOptions};
use crate::pipeline::PipelineEnd;
use crate::status::StatusBoard;

mod pass;

use pass::Observed;

/// What a worker needs of the world.
#[derive(Clone)]
pub struct Ports {
    /// The stream.
    pub reader: Arc<dyn StreamReader>,
    /// The application's lease table.
    pub store: Arc<dyn LeaseStore>,
    /// Where outputs go.
    pub sink: Arc<dyn Sink>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The host's byte budget.
    pub budget: ByteBudget,
    /// The version of the plugin to run; each new value is taken up between batches.
    pub versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
}

/// Why a worker could not start.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Its settings contradict each other.
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    /// The lease table cannot be used; an operator must act.
    #[error(transparent)]
    Table(StoreError),
}

/// Why a pass failed; the next one comes soon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot list shards: {0}")]
    Listing(#[from] ReadError),
}

/// Serves one application on one host.
pub struct Worker {
    ports: Ports,
    options: Arc<WorkerOptions>,
    status: StatusBoard,
    observed: Observed,
    drains: HashMap<LeaseKey, CancellationToken>,
    grants: JoinSet<GrantEnd>,
}

impl Worker {
    /// Checks the settings; touches nothing yet.
    pub fn new(ports: Ports, options: WorkerOptions, status: StatusBoard) -> Result<Self, InvalidOptions> {
        options.validate()?;
        let digest = ports.versions.borrow().digest().as_str().to_owned();
        status.update(|status| status.plugin_digest = Some(digest));
        Ok(Self {
            ports,
            options: Arc::new(options),
            status,
            observed: Observed::default(),
            drains: HashMap::new(),
            grants: JoinSet::new(),
        })
    }

    /// Runs until `stop`; then drains every pipeline, checkpoints and releases, for at most `drain_limit`.
    ///
    /// Dropping the future stops everything at once, as a crash would.
    pub async fn run(mut self, stop: CancellationToken, drain_limit: Duration) -> Result<(), WorkerError> {
        if self.prepare_table(&stop).await? {
            self.serve(&stop).await;
        }
        self.drain(drain_limit).await;
        Ok(())
    }

    /// Whether the table is ready; false if `stop` came first.
    async fn prepare_table(&self, stop: &CancellationToken) -> Result<bool, WorkerError> {
        let mut failures = 0;
        loop {
            let ensured = tokio::select! {
                () = stop.cancelled() => return Ok(false),
                ensured = self.ports.store.ensure_table() => ensured,
            };
            match ensured {
                Ok(()) => return Ok(true),
                Err(error @ StoreError::WrongTable { .. }) => return Err(WorkerError::Table(error)),
                Err(error) => {
                    failures += 1;
                    tracing::warn!(application = self.options.application, %error, failures, "lease table is not ready");
                    self.status.update(|status| status.pass_error = Some(error.to_string()));
                    let wait = self.options.backoff.delay(failures, fastrand::f64());
                    if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    async fn serve(&mut self, stop: &CancellationToken) {
        let mut next_pass = Instant::now();
        let mut failures = 0;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(ended) = self.grants.join_next() => {
                    if self.grant_ended(ended) {
                        next_pass = Instant::now();
                    }
                }
                () = tokio::time::sleep_until(next_pass) => {
                    let wait = match self.pass(stop).await {
                        Ok(wait) => {
                            failures = 0;
                            self.status.update(|status| status.pass_error = None);
                            wait
                        }
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

    /// Whether a new pass is called for at once.
    fn grant_ended(&mut self, ended: Result<GrantEnd, tokio::task::JoinError>) -> bool {
        let Ok(GrantEnd { key, end }) = ended else {
            // Only this worker aborts grants, and then it does not wait for them.
            return false;
        };
        self.drains.remove(&key);
        self.count_leases();
        let plugin = self.options.plugin.to_string();
        match end {
            PipelineEnd::Ended => {
                tracing::info!(lease = %key, "shard ended, its children are leased");
                self.observed.expect_children();
                true
            }
            PipelineEnd::Released => {
                tracing::info!(lease = %key, "lease released");
                false
            }
            PipelineEnd::Lost(reason) => {
                tracing::warn!(lease = %key, %reason, "lease lost");
                ::metrics::counter!(metrics::LOSSES, "plugin" => plugin).increment(1);
                false
            }
        }
    }

    fn count_leases(&self) {
        let plugin = self.options.plugin.to_string();
        ::metrics::gauge!(metrics::LEASES, "plugin" => plugin).set(self.drains.len() as f64);
    }

    async fn drain(mut self, limit: Duration) {
        for drain in self.drains.values() {
            drain.cancel();
        }
        let all_ended = async {
            while let Some(ended) = self.grants.join_next().await {
                let _ = ended.map(|ended| tracing::info!(lease = %ended.key, end = ?ended.end, "drained"));
            }
        };
        if tokio::time::timeout(limit, all_ended).await.is_err() {
            let left = self.grants.len();
            tracing::warn!(left, ?limit, "not all shards drained in time; their leases will expire and records repeat");
        }
        self.grants.abort_all();
    }
}
