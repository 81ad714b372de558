//! A sink over a network: sends a batch's output request by request and returns once all of it is
//! acknowledged.
//!
//! Nothing is buffered between calls. So a sink that fails blocks only the shards that emit to it,
//! `flush` has nothing to wait for, and no output of a lost lease comes out later. What a request
//! holds is set by the batch: larger batches make fuller requests.
//!
//! Retries have one owner, the caller: it waits, shows the reason, and gives up in the end. Only
//! what a target throttles is sent again within a call, since a throttled target works and the call
//! makes progress. The next call continues where the last one ended.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Origin, PortFuture, Sink, SinkError};
use shardmill_core::stream::{Emitted, ShardId};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::metrics;
use super::unfinished::Unfinished;

/// Attempts in a row that stored nothing because the target throttled, before the caller gets an
/// error: under a second.
const FRUITLESS_ATTEMPTS_MAX: u32 = 4;
/// Kinesis counts by the second, so a first wait near a tenth of that and a cap of two fit.
const THROTTLED: Backoff = match Backoff::new(Duration::from_millis(100), Duration::from_secs(2)) {
    Some(backoff) => backoff,
    None => Backoff::standard(),
};
/// A target that asks for a longer pause than this is not waited for within a call.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// No target may silence a sink for longer than this at a time.
const HOLD_MAX: Duration = Duration::from_mins(5);

/// Talks to one kind of target. Decides what goes into a request and what an answer means; never
/// waits or repeats.
pub(super) trait Carrier: Send + Sync + 'static {
    /// A request, ready to be sent.
    type Request: Send + Sync + 'static;

    /// Makes a request of some of `left`, which is not empty: of the first ones that fit. Returns
    /// their indexes too. Called on a thread that may block: a body may take long to write down.
    fn request(
        &self,
        origin: &Origin,
        pieces: &[Emitted],
        left: &BTreeSet<usize>,
    ) -> Result<(Vec<usize>, Self::Request), String>;

    /// Sends the request once, without a retry.
    fn send(&self, request: &Self::Request) -> impl Future<Output = Attempt> + Send;
}

/// The result of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attempt {
    /// All of it is stored.
    Stored,
    /// A part was refused for now, by place in the request.
    Partly {
        /// Which were refused.
        refused: Vec<usize>,
        /// Why the last of them was.
        problem: String,
    },
    /// Nothing is stored, since the target is overloaded.
    Throttled {
        /// The reason, in its words.
        problem: String,
        /// How long it asks to wait.
        wait: Option<Duration>,
    },
    /// Nothing is known to be stored.
    Failed {
        /// Why, and how to fix it where that is known.
        problem: String,
        /// How long it asks to wait.
        wait: Option<Duration>,
    },
}

/// How much of a target a sink may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traffic {
    /// Requests at the same time, over all shards.
    pub(super) requests_max: usize,
    /// How long a request may wait for its turn: as long as one may take.
    pub(super) turn_max: Duration,
}

/// A sink over a network.
pub(super) struct NetworkSink<C> {
    name: String,
    carrier: Arc<C>,
    target: Arc<Target>,
    unfinished: Unfinished<(PluginName, ShardId), Emitted, BTreeSet<usize>>,
}

/// What all sinks of one target share.
struct Target {
    traffic: Traffic,
    turns: Semaphore,
    /// Until when it asked to wait, and why. Locked for a look, never across an await.
    hold: Mutex<Option<(Instant, String)>>,
}

/// Why a target refused some pieces for now.
#[derive(Default)]
struct Refusal {
    problem: String,
    /// How long the target asks to wait; zero if it does not ask.
    wait: Duration,
}

impl Attempt {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Partly { .. } => "partly",
            Self::Throttled { .. } => "throttled",
            Self::Failed { .. } => "failed",
        }
    }
}

impl Refusal {
    fn new(problem: String, wait: Option<Duration>) -> Self {
        Self {
            problem,
            wait: wait.unwrap_or_default(),
        }
    }
}

impl<C: Carrier> NetworkSink<C> {
    pub(super) fn new(name: &str, carrier: C, traffic: Traffic) -> Self {
        let turns = Semaphore::new(traffic.requests_max);
        let target = Arc::new(Target {
            traffic,
            turns,
            hold: Mutex::default(),
        });
        Self {
            name: name.to_owned(),
            carrier: Arc::new(carrier),
            target,
            unfinished: Unfinished::default(),
        }
    }

    /// Another sink of the same target that talks to it through `carrier`.
    pub(super) fn with_carrier(&self, carrier: C) -> Self {
        Self {
            name: self.name.clone(),
            carrier: Arc::new(carrier),
            target: Arc::clone(&self.target),
            unfinished: Unfinished::default(),
        }
    }

    pub(super) fn carrier(&self) -> &C {
        &self.carrier
    }

    /// Sends what is `left`, and takes out of it what is acknowledged.
    async fn send_all(
        &self,
        origin: &Arc<Origin>,
        pieces: &Arc<Vec<Emitted>>,
        left: &mut BTreeSet<usize>,
    ) -> Result<(), String> {
        let mut fruitless = 0;
        while !left.is_empty() {
            self.target.check_hold()?;
            let before = left.len();
            let (indexes, attempt) = self.attempt(origin, pieces, left).await?;
            let Some(refusal) = self.settle(&indexes, attempt, left)? else {
                fruitless = 0;
                continue;
            };
            let stored = before - left.len();
            fruitless = if stored > 0 { 0 } else { fruitless + 1 };
            if fruitless >= FRUITLESS_ATTEMPTS_MAX || refusal.wait > PAUSE_MAX {
                self.target.put_on_hold(refusal.wait, &refusal.problem);
                return Err(format!(
                    "{}; {} of {} pieces are left",
                    refusal.problem,
                    left.len(),
                    pieces.len()
                ));
            }
            let pause = THROTTLED.delay(fruitless.max(1), fastrand::f64());
            tokio::time::sleep(pause.max(refusal.wait)).await;
        }
        Ok(())
    }

    /// Takes out of `left` what an attempt at `indexes` stored; returns why the target refused the
    /// rest for now, if it did. An attempt that failed is an error.
    fn settle(
        &self,
        indexes: &[usize],
        attempt: Attempt,
        left: &mut BTreeSet<usize>,
    ) -> Result<Option<Refusal>, String> {
        let (refused, refusal) = match attempt {
            Attempt::Stored => (Vec::new(), Refusal::default()),
            Attempt::Partly { refused, problem } => {
                let refused = refused.iter().filter_map(|&at| indexes.get(at)).copied();
                (refused.collect(), Refusal::new(problem, None))
            }
            Attempt::Throttled { problem, wait } => (indexes.to_vec(), Refusal::new(problem, wait)),
            Attempt::Failed { problem, wait } => {
                self.target.put_on_hold(wait.unwrap_or_default(), &problem);
                return Err(problem);
            }
        };
        let refused = BTreeSet::from_iter(refused);
        let before = left.len();
        for index in indexes {
            if !refused.contains(index) {
                left.remove(index);
            }
        }
        self.count(before - left.len(), refused.len());
        Ok((!refused.is_empty()).then_some(refusal))
    }

    /// Sends some of what is `left`, once. The request is made only when it is its turn: shards
    /// that wait hold none.
    async fn attempt(
        &self,
        origin: &Arc<Origin>,
        pieces: &Arc<Vec<Emitted>>,
        left: &mut BTreeSet<usize>,
    ) -> Result<(Vec<usize>, Attempt), String> {
        let _turn = self.target.wait_for_turn().await?;
        let (indexes, request) = self.make(origin, pieces, left).await?;
        let started = Instant::now();
        let attempt = self.carrier.send(&request).await;
        self.record(&attempt, started.elapsed());
        if matches!(attempt, Attempt::Failed { .. }) {
            self.count(0, indexes.len());
        }
        Ok((indexes, attempt))
    }

    /// Makes a request on a thread that may block, since async threads renew leases.
    async fn make(
        &self,
        origin: &Arc<Origin>,
        pieces: &Arc<Vec<Emitted>>,
        left: &mut BTreeSet<usize>,
    ) -> Result<(Vec<usize>, C::Request), String> {
        let carrier = Arc::clone(&self.carrier);
        let origin = Arc::clone(origin);
        let all = Arc::clone(pieces);
        let lent = std::mem::take(left);
        let made = tokio::task::spawn_blocking(move || {
            let request = carrier.request(&origin, &all, &lent);
            (lent, request)
        });
        match made.await {
            Ok((returned, request)) => {
                *left = returned;
                request
            }
            Err(error) => {
                // The thread took with it which were stored, so all of them are sent again.
                *left = (0..pieces.len()).collect();
                Err(format!("a request could not be made: {error}"))
            }
        }
    }

    fn record(&self, attempt: &Attempt, took: Duration) {
        let sink = self.name.clone();
        let labels = [
            ("sink", sink.clone()),
            ("outcome", attempt.outcome().to_owned()),
        ];
        ::metrics::histogram!(metrics::REQUEST_SECONDS, "sink" => sink).record(took.as_secs_f64());
        ::metrics::counter!(metrics::REQUESTS, &labels).increment(1);
    }

    fn count(&self, stored: usize, again: usize) {
        ::metrics::counter!(metrics::STORED, "sink" => self.name.clone()).increment(stored as u64);
        ::metrics::counter!(metrics::RESENT, "sink" => self.name.clone()).increment(again as u64);
    }
}

impl Target {
    async fn wait_for_turn(&self) -> Result<SemaphorePermit<'_>, String> {
        let Traffic {
            requests_max,
            turn_max,
        } = self.traffic;
        match tokio::time::timeout(turn_max, self.turns.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(format!(
                "{requests_max} requests of other shards were in flight for {turn_max:?}"
            )),
        }
    }

    /// Sends nothing for so long; a `wait` of zero changes nothing.
    fn put_on_hold(&self, wait: Duration, problem: &str) {
        if wait.is_zero() {
            return;
        }
        let until = Instant::now() + wait.min(HOLD_MAX);
        *self.hold.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((until, problem.to_owned()));
    }

    /// An error while the target is on hold. The caller waits, since only the caller learns of a
    /// lost lease.
    fn check_hold(&self) -> Result<(), String> {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((until, problem)) = hold.as_ref() else {
            return Ok(());
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            *hold = None;
            return Ok(());
        }
        Err(format!(
            "{problem}; the target asked to wait {} s more",
            left.as_secs_f64().ceil()
        ))
    }
}

impl<C: Carrier> Sink for NetworkSink<C> {
    fn write(
        &self,
        origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            let source = (origin.plugin.clone(), origin.shard.clone());
            let left = self.unfinished.take(&source, &emitted);
            let mut left = left.unwrap_or_else(|| (0..emitted.len()).collect());
            let result = self.send_all(&origin, &emitted, &mut left).await;
            result.map_err(|message| {
                self.unfinished.keep(source, &emitted, left);
                SinkError {
                    sink: self.name.clone(),
                    message,
                }
            })
        })
    }

    /// Nothing is buffered: what was accepted is stored.
    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests;
