//! Delivers a batch until it is handled, however often that takes.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::pipeline::{Settlement, settle};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Commit, Outcome, Processed};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Batch, Position, Record};
use tokio::time::Instant;

use super::consumer::Consumer;
use crate::grant::Stopped;
use crate::metrics;
use crate::status::BlockedStatus;

/// One batch on its way.
struct Delivery {
    /// The batch as cut.
    records: Arc<Vec<Record>>,
    /// What is still to be handled.
    pending: Arc<Vec<Record>>,
    /// The furthest position that the guest let the host commit.
    ceiling: Option<Position>,
    failures: u32,
}

impl Delivery {
    /// The record before the one at `position`, or else `earlier`: the last one of the batches before.
    fn last_before(&self, position: &Position, earlier: Option<&Position>) -> Option<Position> {
        let positions = self.records.iter().map(|record| &record.position);
        positions.take_while(|before| *before < position).last().or(earlier).cloned()
    }
}

/// What follows from one attempt.
enum Attempt {
    /// All of the batch is handled.
    Handled,
    /// Some or all of it must be delivered again.
    Again { reason: String, kind: &'static str, wait: Option<Duration> },
    /// An instance died that held back earlier records: they must be read again.
    Rewind { reason: String, kind: &'static str },
}

impl Consumer {
    /// Returns once the batch is handled, or is to be read again from the last settled record.
    pub(super) async fn deliver(&mut self, records: Vec<Record>) -> Result<(), Stopped> {
        let records = Arc::new(records);
        let ceiling = records.last().map(|record| record.position.clone());
        let pending = Arc::clone(&records);
        let mut delivery = Delivery { records, pending, ceiling, failures: 0 };
        loop {
            self.gate.pass().await?;
            match self.attempt(&mut delivery).await? {
                Attempt::Handled => {
                    self.handled(&delivery);
                    return Ok(());
                }
                Attempt::Again { reason, kind, wait } => {
                    delivery.failures += 1;
                    self.blocked(delivery.failures, kind, reason);
                    self.wait_to_retry(delivery.failures, wait).await?;
                    if self.take_up_version().await? {
                        return Ok(());
                    }
                }
                Attempt::Rewind { reason, kind } => {
                    self.blocked(delivery.failures + 1, kind, reason);
                    self.wait_to_retry(delivery.failures + 1, None).await?;
                    self.rewind();
                    return Ok(());
                }
            }
        }
    }

    async fn attempt(&mut self, delivery: &mut Delivery) -> Result<Attempt, Stopped> {
        let batch = Batch {
            records: Arc::clone(&delivery.pending),
            attempt: delivery.failures + 1,
            millis_behind_latest: self.buffer.millis_behind_latest.unwrap_or(0),
        };
        let started = Instant::now();
        let result = self.call(batch).await?;
        ::metrics::histogram!(metrics::PROCESS_SECONDS, "plugin" => self.options.plugin.to_string())
            .record(started.elapsed().as_secs_f64());
        // The lease may have gone during the call: then nothing of it counts.
        self.gate.check_held()?;
        let judged = result.and_then(|processed| {
            let settlement = settle(&delivery.pending, &processed.outcome)?;
            Ok((processed, settlement))
        });
        match judged {
            Ok((processed, settlement)) => {
                self.output.write(processed.emitted, settlement.settled_through.clone(), &mut self.gate).await?;
                Ok(self.apply(delivery, &processed.outcome, settlement))
            }
            Err(_) if SeededBug::SkipsFailedBatch.is_on() => Ok(Attempt::Handled),
            Err(error) => Ok(self.failed(&error)),
        }
    }

    /// Calls the plugin, for at most its deadline: a call that never comes back must not keep the shard for ever.
    async fn call(&mut self, batch: Batch) -> Result<Result<Processed, ProcessorError>, Stopped> {
        let deadline = self.options.leases.plugin_deadline;
        if let Ok(result) = tokio::time::timeout(deadline, self.instance.process(batch)).await {
            self.hangs = 0;
            return Ok(result);
        }
        self.instance.kill();
        self.hangs += 1;
        let message = format!("the plugin did not come back within {deadline:?}");
        if self.hangs > 1 {
            return Err(Stopped::Stuck(format!("{message}, nor did a new instance of it")));
        }
        Ok(Err(ProcessorError::Host { message }))
    }

    fn apply(&mut self, delivery: &mut Delivery, outcome: &Outcome, settlement: Settlement) -> Attempt {
        let committed = match outcome.commit {
            _ if SeededBug::CheckpointCoversHeldBack.is_on() => delivery.ceiling.clone(),
            None => delivery.ceiling.clone(),
            Some(Commit::Nothing) => None,
            // Records between two pending ones were handled in an earlier attempt, whose own word on them stands.
            Some(Commit::Through(index)) => match delivery.pending.get(index as usize + 1) {
                Some(held_back) => delivery.last_before(&held_back.position, self.headway.delivered.as_ref()),
                None => delivery.ceiling.clone(),
            },
        };
        delivery.ceiling = delivery.ceiling.take().min(committed);
        let Some(first) = settlement.first_failure else {
            return Attempt::Handled;
        };
        // Before the first failed record everything is settled already, and may be checkpointed while the rest waits.
        // That may be what an earlier batch held back, and this one commits.
        let failed = &delivery.pending[first.index as usize].position;
        let before = delivery.last_before(failed, self.headway.delivered.as_ref());
        self.settle_through(before.min(delivery.ceiling.clone()));
        let count = settlement.deliver_again.len();
        let skipped = usize::from(SeededBug::RetrySkipsFailedRecord.is_on());
        let again: Vec<Record> =
            settlement.deliver_again.iter().skip(skipped).map(|index| delivery.pending[*index].clone()).collect();
        if SeededBug::RetrySkipsFailedRecord.is_on() && again.is_empty() {
            return Attempt::Handled;
        }
        let reason = format!("{count} record(s) failed, the first at {failed}: {}", first.message);
        delivery.pending = Arc::new(again);
        Attempt::Again { reason, kind: "records", wait: settlement.retry_after }
    }

    fn failed(&self, error: &ProcessorError) -> Attempt {
        let (reason, kind) = (error.to_string(), error.kind());
        if self.holds_back() && !self.instance.is_alive() {
            return Attempt::Rewind { reason, kind };
        }
        Attempt::Again { reason, kind, wait: None }
    }

    fn handled(&mut self, delivery: &Delivery) {
        let bytes: usize = delivery.records.iter().map(|record| record.data.len()).sum();
        let (count, bytes) = (delivery.records.len() as u64, bytes as u64);
        let plugin = self.options.plugin.to_string();
        ::metrics::counter!(metrics::RECORDS, "plugin" => plugin.clone()).increment(count);
        ::metrics::counter!(metrics::BYTES, "plugin" => plugin.clone()).increment(bytes);
        ::metrics::counter!(metrics::BATCHES, "plugin" => plugin).increment(1);
        self.buffer.settled(&delivery.records);
        self.headway.delivered = delivery.records.last().map(|record| record.position.clone());
        self.headway.unwritten.add(count, bytes, self.ports.clock.now());
        self.settle_through(delivery.ceiling.clone());
        let was_blocked = delivery.failures > 0;
        self.stuck = None;
        self.keeper.count_bytes(bytes);
        self.keeper.note(self.progress());
        if was_blocked {
            tracing::info!(shard = %self.shard, failures = delivery.failures, "the failing batch was handled");
            self.set_blocked_gauge(0.0);
        }
        self.status.update_shard(&self.shard, |status| {
            status.records += count;
            status.batches += 1;
            if was_blocked {
                status.blocked = None;
            }
        });
    }

    fn settle_through(&mut self, position: Option<Position>) {
        // A guest that commits less than before settles nothing; progress never goes back.
        if position <= self.headway.settled {
            return;
        }
        let text = position.as_ref().map(ToString::to_string);
        self.headway.settled = position;
        self.headway.unwritten.add(0, 0, self.ports.clock.now());
        let arrived_ms = self.settled_arrival_ms();
        if let Some(ms) = arrived_ms {
            let labels = [("plugin", self.options.plugin.to_string()), ("shard", self.shard.to_string())];
            ::metrics::gauge!(metrics::SETTLED_ARRIVAL, &labels).set(ms as f64 / 1_000.0);
        }
        self.status.update_shard(&self.shard, |status| {
            status.settled = text;
            status.settled_arrival_ms = arrived_ms.or(status.settled_arrival_ms);
        });
    }

    pub(super) fn blocked(&mut self, attempts: u32, kind: &'static str, reason: String) {
        /// From here on the row says it, for people; a single failure is not worth a write.
        const NOTED_FROM: u32 = 3;
        if attempts >= NOTED_FROM {
            self.stuck = Some(format!("attempt {attempts} failed: {reason}"));
            // Powers of two, as in the log: the row must not be written at every attempt.
            if attempts == NOTED_FROM || attempts.is_power_of_two() {
                self.keeper.note(self.progress());
            }
        }
        let plugin = self.options.plugin.to_string();
        ::metrics::counter!(metrics::FAILURES, "plugin" => plugin, "kind" => kind).increment(1);
        self.set_blocked_gauge(1.0);
        // Powers of two: a batch that fails for days must not fill the log.
        if attempts.is_power_of_two() {
            let digest = self.instance.digest();
            tracing::warn!(shard = %self.shard, attempts, %digest, reason, "delivery failed, trying again");
        }
        self.status.update_shard(&self.shard, |status| status.blocked = Some(BlockedStatus { attempts, reason }));
    }

    /// Waits between attempts, but not when there is something new to try.
    pub(super) async fn wait_to_retry(&mut self, failures: u32, asked: Option<Duration>) -> Result<(), Stopped> {
        /// A guest may not park its shard for longer than this at a time.
        const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);
        let wait = asked
            .map_or_else(|| self.options.backoff.delay(failures, fastrand::f64()), |asked| asked.min(RETRY_AFTER_MAX));
        let checkpoint_in = self.headway.unwritten.due_in(&self.options.checkpoints, self.ports.clock.now());
        let deadline = Instant::now() + wait;
        tokio::select! {
            biased;
            stopped = self.gate.stopped() => return Err(stopped),
            Ok(()) = self.ports.versions.changed() => {
                self.ports.versions.mark_changed();
                return Ok(());
            }
            () = tokio::time::sleep_until(deadline) => return Ok(()),
            () = tokio::time::sleep(checkpoint_in.unwrap_or_default()), if checkpoint_in.is_some() => {}
        }
        // What is settled below a failing record is written down while the record waits.
        self.write_checkpoint().await?;
        tokio::select! {
            stopped = self.gate.stopped() => Err(stopped),
            () = tokio::time::sleep_until(deadline) => Ok(()),
        }
    }

    fn set_blocked_gauge(&self, value: f64) {
        let labels = [("plugin", self.options.plugin.to_string()), ("shard", self.shard.to_string())];
        ::metrics::gauge!(metrics::BLOCKED, &labels).set(value);
    }
}
