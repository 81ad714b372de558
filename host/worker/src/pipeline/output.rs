//! Hands a batch's output to the sink and waits for it to be stored, for as long as it takes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{DeadLetter, DeadLetters, Origin, PortFuture, Sink, SinkError};
use shardmill_core::stream::{Emitted, Position, ShardId};
use tokio::time::Instant;

use crate::holding::{Gate, Stopped};
use crate::signs::{Signs, Stage};
use crate::status::Why;

/// The pipeline's side of the sink. A sink that fails blocks its shard, visibly; it loses nothing.
pub(super) struct Output {
    pub(super) sink: Arc<dyn Sink>,
    pub(super) dead_letters: Arc<dyn DeadLetters>,
    pub(super) backoff: Backoff,
    pub(super) signs: Signs,
    pub(super) plugin: PluginName,
    pub(super) shard: ShardId,
    /// How long outputs may fail to be stored before the lease is given up: another host may reach
    /// the sink.
    pub(super) deadline: Duration,
    /// Sinks that were given output since the last flush.
    pub(super) unflushed: BTreeSet<String>,
}

impl Output {
    /// Writes `emitted`, trying again until it works or the lease is lost.
    pub(super) async fn write(
        &mut self,
        emitted: Vec<Emitted>,
        through: Option<Position>,
        gate: &mut Gate,
    ) -> Result<(), Stopped> {
        if emitted.is_empty() {
            return Ok(());
        }
        let sinks: BTreeSet<String> = emitted
            .iter()
            .map(|piece| piece.destination.clone())
            .collect();
        self.storing(&sinks);
        self.unflushed.extend(sinks);
        let emitted = Arc::new(emitted);
        let origin = Arc::new(Origin {
            plugin: self.plugin.clone(),
            shard: self.shard.clone(),
            through,
        });
        let (mut failures, since) = (0, Instant::now());
        loop {
            match self
                .answered(
                    self.sink.write(Arc::clone(&origin), Arc::clone(&emitted)),
                    gate,
                )
                .await?
            {
                Ok(()) => {
                    self.recovered(failures);
                    return Ok(());
                }
                Err(error) => self.failed(&error, (&mut failures, since), gate).await?,
            }
        }
    }

    /// Returns once all that was written is stored.
    pub(super) async fn flush(&mut self, gate: &mut Gate) -> Result<(), Stopped> {
        if !self.unflushed.is_empty() {
            self.storing(&self.unflushed);
        }
        let (mut failures, since) = (0, Instant::now());
        loop {
            match self.answered(self.sink.flush(), gate).await? {
                Ok(()) => {
                    self.recovered(failures);
                    self.unflushed.clear();
                    return Ok(());
                }
                Err(error) => self.failed(&error, (&mut failures, since), gate).await?,
            }
        }
    }

    /// Returns once the dead letters are stored in the sink named `target`.
    pub(super) async fn store(
        &self,
        target: &str,
        letters: Arc<Vec<DeadLetter>>,
        gate: &mut Gate,
    ) -> Result<(), Stopped> {
        self.signs
            .enter(Stage::Storing(format!("dead letters in {target}")));
        let (mut failures, since) = (0, Instant::now());
        loop {
            match self
                .answered(self.dead_letters.store(target, Arc::clone(&letters)), gate)
                .await?
            {
                Ok(()) => {
                    self.recovered(failures);
                    return Ok(());
                }
                Err(error) => self.failed(&error, (&mut failures, since), gate).await?,
            }
        }
    }

    /// The answer, for which a lost lease does not wait, and nobody longer than the deadline.
    async fn answered(
        &self,
        call: PortFuture<'_, Result<(), SinkError>>,
        gate: &mut Gate,
    ) -> Result<Result<(), SinkError>, Stopped> {
        let deadline = self.deadline;
        tokio::select! {
            biased;
            answer = call => Ok(answer),
            lost = gate.lost() => Err(lost),
            () = tokio::time::sleep(deadline) => Err(Stopped::Stuck(format!("a sink did not \
                answer within {deadline:?}"))),
        }
    }

    fn storing(&self, sinks: &BTreeSet<String>) {
        let sinks = sinks
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        self.signs
            .enter(Stage::Storing(format!("output in {sinks}")));
    }

    fn recovered(&self, failures: u32) {
        if failures > 0 {
            self.signs.clear(Why::Sink);
        }
    }

    async fn failed(
        &self,
        error: &SinkError,
        (failures, since): (&mut u32, Instant),
        gate: &mut Gate,
    ) -> Result<(), Stopped> {
        *failures += 1;
        if since.elapsed() >= self.deadline {
            let deadline = self.deadline;
            return Err(Stopped::Stuck(format!(
                "output could not be stored for {deadline:?}: {error}"
            )));
        }
        if failures.is_power_of_two() {
            tracing::warn!(shard = %self.shard, %error, failures, "output cannot be stored, \
                trying again");
        }
        self.signs.failed(Why::Sink, *failures, error.to_string());
        let wait = self.backoff.delay(*failures, fastrand::f64());
        tokio::select! {
            () = tokio::time::sleep(wait) => Ok(()),
            // The plugin has handled these records: if their output were dropped, they would repeat
            // after a hand-over in order, and a state saved then would count them twice.
            over = gate.over() => Err(over),
        }
    }
}
