//! Hands a batch's output to the sink and waits for it to be stored, for as long as it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::ports::{DeadLetter, Origin, PortFuture, SinkError};
use shardmill_core::stream::{Emitted, Position};
use shardmill_core::trace::BatchTrace;

use super::context::ShardContext;
use crate::holding::{Gate, Stopped};
use crate::signs::Stage;
use crate::status::Why;
use crate::timer::Stopwatch;

/// The pipeline's side of the sink. A sink that fails blocks its shard, visibly; it loses nothing.
pub(super) struct Output {
    context: Arc<ShardContext>,
    /// Sinks that were given output since the last flush.
    unflushed: BTreeSet<String>,
}

/// What output comes of.
pub(super) struct Cause {
    /// The last record that the plugin had been given.
    pub(super) through: Option<Position>,
    /// The trace of the batch, if it is traced.
    pub(super) trace: Option<BatchTrace>,
}

/// A call that no record is behind, which is not traced.
impl From<Option<Position>> for Cause {
    fn from(through: Option<Position>) -> Self {
        Self {
            through,
            trace: None,
        }
    }
}

/// Failures in a row to store the same thing.
struct Failures {
    count: u32,
    since: Stopwatch,
}

impl Failures {
    fn none() -> Self {
        Self {
            count: 0,
            since: Stopwatch::start(),
        }
    }
}

impl Output {
    pub(super) fn new(context: Arc<ShardContext>) -> Self {
        Self {
            context,
            unflushed: BTreeSet::new(),
        }
    }

    /// Writes `emitted`, trying again until it works or the lease is lost.
    pub(super) async fn write(
        &mut self,
        emitted: Vec<Emitted>,
        cause: Cause,
        gate: &mut Gate,
    ) -> Result<(), Stopped> {
        if emitted.is_empty() {
            return Ok(());
        }
        let parts = by_destination(emitted);
        let sinks = parts.keys().cloned().collect();
        self.show_storing(&sinks);
        self.unflushed.extend(sinks);
        let origin = Arc::new(self.origin(cause));
        for part in parts.into_values() {
            self.write_part(Arc::new(part), &origin, gate).await?;
        }
        Ok(())
    }

    /// Writes what goes to one sink.
    async fn write_part(
        &self,
        part: Arc<Vec<Emitted>>,
        origin: &Arc<Origin>,
        gate: &mut Gate,
    ) -> Result<(), Stopped> {
        let sink = &self.context.ports().sink;
        let mut failures = Failures::none();
        while let Err(error) = self
            .answered(sink.write(Arc::clone(origin), Arc::clone(&part)), gate)
            .await?
        {
            self.failed(&error, &mut failures, gate).await?;
        }
        self.recovered(&failures);
        Ok(())
    }

    fn origin(&self, cause: Cause) -> Origin {
        Origin {
            plugin: self.context.options().plugin.clone(),
            shard: self.context.shard().clone(),
            through: cause.through,
            trace: cause.trace,
        }
    }

    /// Returns once all that was written is stored.
    pub(super) async fn flush(&mut self, gate: &mut Gate) -> Result<(), Stopped> {
        if !self.unflushed.is_empty() {
            self.show_storing(&self.unflushed);
        }
        let sink = &self.context.ports().sink;
        let mut failures = Failures::none();
        while let Err(error) = self.answered(sink.flush(), gate).await? {
            self.failed(&error, &mut failures, gate).await?;
        }
        self.recovered(&failures);
        self.unflushed.clear();
        Ok(())
    }

    /// Returns once the dead letters are stored in the sink named `target`.
    pub(super) async fn store(
        &self,
        target: &str,
        letters: Arc<Vec<DeadLetter>>,
        gate: &mut Gate,
    ) -> Result<(), Stopped> {
        let stage = Stage::Storing(format!("dead letters in {target}"));
        self.context.enter(stage);
        let dead_letters = &self.context.ports().dead_letters;
        let mut failures = Failures::none();
        while let Err(error) = self
            .answered(dead_letters.store(target, Arc::clone(&letters)), gate)
            .await?
        {
            self.failed(&error, &mut failures, gate).await?;
        }
        self.recovered(&failures);
        Ok(())
    }

    /// The answer, for which a lost lease does not wait, and nobody longer than the deadline.
    async fn answered(
        &self,
        call: PortFuture<'_, Result<(), SinkError>>,
        gate: &mut Gate,
    ) -> Result<Result<(), SinkError>, Stopped> {
        let deadline = self.deadline();
        tokio::select! {
            biased;
            answer = call => Ok(answer),
            lost = gate.lost() => Err(lost),
            () = tokio::time::sleep(deadline) => Err(Stopped::Stuck(format!("a sink did not \
                answer within {deadline:?}"))),
        }
    }

    /// How long outputs may fail to be stored before the lease is given up: another host may reach
    /// the sink.
    fn deadline(&self) -> Duration {
        self.context.options().leases.checkpoint_deadline
    }

    fn show_storing(&self, sinks: &BTreeSet<String>) {
        let sinks: Vec<&str> = sinks.iter().map(String::as_str).collect();
        let stage = Stage::Storing(format!("output in {}", sinks.join(", ")));
        self.context.enter(stage);
    }

    fn recovered(&self, failures: &Failures) {
        if failures.count > 0 {
            self.context.signs().clear(Why::Sink);
        }
    }

    /// Waits before the next try; fails if there is none.
    async fn failed(
        &self,
        error: &SinkError,
        failures: &mut Failures,
        gate: &mut Gate,
    ) -> Result<(), Stopped> {
        failures.count += 1;
        if failures.since.elapsed() >= self.deadline() {
            let deadline = self.deadline();
            return Err(Stopped::Stuck(format!(
                "output could not be stored for {deadline:?}: {error}"
            )));
        }
        let failures = failures.count;
        if is_worth_a_line(failures) {
            tracing::warn!(
                shard = %self.context.shard(),
                %error,
                failures,
                code = "output-failed",
                "output cannot be stored, trying again"
            );
        }
        let signs = self.context.signs();
        signs.failed(Why::Sink, failures, error.to_string());
        tokio::select! {
            () = tokio::time::sleep(self.context.back_off(failures)) => Ok(()),
            // The plugin has handled these records: if their output were dropped, they would repeat
            // after a hand-over in order, and a state saved then would count them twice.
            over = gate.over() => Err(over),
        }
    }
}

/// The pieces by sink, each in the order of the batch. They are moved: a copy would be of nobody's
/// memory for as long as a sink is down.
fn by_destination(emitted: Vec<Emitted>) -> BTreeMap<String, Vec<Emitted>> {
    let mut parts: BTreeMap<String, Vec<Emitted>> = BTreeMap::new();
    for piece in emitted {
        if let Some(part) = parts.get_mut(&piece.destination) {
            part.push(piece);
        } else {
            parts.insert(piece.destination.clone(), vec![piece]);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_several_sinks_is_divided_in_order_and_not_copied() {
        let piece = |destination: &str, key: &str| Emitted {
            destination: destination.to_owned(),
            key: key.to_owned(),
            data: key.to_owned().into(),
        };
        let emitted = vec![piece("b", "1"), piece("a", "2"), piece("b", "3")];
        let keys: Vec<_> = emitted.iter().map(|piece| piece.key.as_ptr()).collect();
        let parts = by_destination(emitted);
        let found: Vec<_> = parts
            .values()
            .flatten()
            .map(|piece| (piece.destination.as_str(), piece.key.as_ptr()))
            .collect();
        assert_eq!(found, [("a", keys[1]), ("b", keys[0]), ("b", keys[2])]);
    }
}
