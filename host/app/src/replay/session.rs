//! Letters of one shard, through one instance at a time.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::plugin::{InstanceFate, ProcessorError};
use shardmill_core::ports::{
    CloseReason, Commit, DeadLetter, FailureKind, InstanceContext, Origin, Outcome, Processed, ProcessorFactory,
    RecordProcessor,
};
use shardmill_core::stream::{Batch, Emitted, Position, Record};
use tokio_util::sync::CancellationToken;

use super::{ReplayOptions, ReplayPorts, ReplaySummary};

/// Tries to store output before the replay stops: with the default waits, about two minutes.
const STORE_TRIES_MAX: u32 = 12;
/// A guest may not hold a replay up for longer than this at a time.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// An instance, and what it holds back.
pub(super) struct Session {
    version: Arc<dyn ProcessorFactory>,
    context: Arc<InstanceContext>,
    processor: Option<Box<dyn RecordProcessor>>,
    /// Delivered without failing, and not committed yet.
    held_back: Vec<DeadLetter>,
}

/// What is not delivered yet, and how often it was.
struct Pending {
    letters: Vec<DeadLetter>,
    attempts: u32,
}

/// A delivery of several letters that failed as a whole leaves open which of them is to blame.
enum Judged {
    Handled { processed: Processed, failed: Vec<(usize, FailureKind, String)> },
    Failed(ProcessorError),
}

type World<'a> = (&'a ReplayOptions, &'a mut ReplayPorts, &'a mut ReplaySummary, &'a CancellationToken);

impl Session {
    pub(super) fn new(version: Arc<dyn ProcessorFactory>, context: Arc<InstanceContext>) -> Self {
        Self { version, context, processor: None, held_back: Vec::new() }
    }

    /// Delivers until every letter is processed, held back, or left.
    pub(super) async fn deliver(
        &mut self,
        letters: Vec<DeadLetter>,
        options: &ReplayOptions,
        ports: &mut ReplayPorts,
        summary: &mut ReplaySummary,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        // The first is delivered first: halves of a failed batch are put back in order.
        let mut stack = vec![Pending { letters, attempts: 0 }];
        while let Some(mut pending) = stack.pop() {
            if pending.letters.is_empty() {
                continue;
            }
            if summary.stopped.is_some() || stop.is_cancelled() {
                summary.stopped.get_or_insert_with(|| "by a signal".to_owned());
                summary.not_tried += pending.letters.len() as u64;
                pending.letters.iter().try_for_each(|letter| ports.remainder.keep(letter))?;
                continue;
            }
            pending.attempts += 1;
            match self.attempt(&pending).await {
                Judged::Handled { processed, failed } => {
                    let again = self.handled(pending, processed, failed, (options, ports, summary, stop)).await?;
                    stack.extend(again);
                }
                Judged::Failed(error) => {
                    self.abandon_held_back(&error, (options, ports, summary, stop))?;
                    stack.extend(self.failed(pending, &error, (options, ports, summary, stop)).await?);
                }
            }
        }
        Ok(())
    }

    async fn attempt(&mut self, pending: &Pending) -> Judged {
        let records: Arc<Vec<Record>> = Arc::new(pending.letters.iter().map(|letter| letter.record.clone()).collect());
        let batch = Batch { records: Arc::clone(&records), attempt: pending.attempts, millis_behind_latest: 0 };
        let result = match self.ensure().await {
            Ok(processor) => processor.process(batch).await,
            Err(error) => Err(error),
        };
        if result.as_ref().is_err_and(|error| error.fate() == InstanceFate::Dead) {
            self.processor = None;
        }
        let judged = result.and_then(|processed| check(&processed.outcome, records.len()).map(|()| processed));
        match judged {
            Ok(processed) => {
                let failed = processed.outcome.failures.iter();
                let failed = failed.map(|failure| (failure.index as usize, failure.kind, failure.message.clone()));
                Judged::Handled { failed: failed.collect(), processed }
            }
            Err(error) => Judged::Failed(error),
        }
    }

    async fn ensure(&mut self) -> Result<&mut Box<dyn RecordProcessor>, ProcessorError> {
        if self.processor.is_none() {
            self.processor = Some(self.version.instantiate(Arc::clone(&self.context), None).await?);
        }
        self.processor.as_mut().ok_or_else(|| ProcessorError::Host { message: "no instance".to_owned() })
    }

    /// Stores the output, and sorts the letters. Returns those that are to be delivered again.
    async fn handled(
        &mut self,
        pending: Pending,
        processed: Processed,
        failed: Vec<(usize, FailureKind, String)>,
        (options, ports, summary, stop): World<'_>,
    ) -> anyhow::Result<Option<Pending>> {
        let Processed { outcome, emitted } = processed;
        let through = pending.letters.last().map(|letter| letter.record.position.clone());
        if let Err(problem) = self.store(emitted, through, (options, ports, summary, stop)).await {
            summary.stopped.get_or_insert(problem);
            return Ok(Some(pending));
        }
        let committed = committed(&outcome, pending.letters.len());
        if committed > 0 {
            summary.processed += self.held_back.drain(..).len() as u64;
        }
        let mut failed = failed.into_iter().peekable();
        let mut again = Vec::new();
        for (index, letter) in pending.letters.into_iter().enumerate() {
            match failed.next_if(|(at, ..)| *at == index) {
                Some((_, FailureKind::Retry, _)) if pending.attempts < options.attempts => again.push(letter),
                Some((_, _, message)) => {
                    summary.failed += 1;
                    ports.remainder.keep(&self.given_up(letter, message, pending.attempts, ports.clock.wall_ms()))?;
                }
                None if index < committed => summary.processed += 1,
                None => self.held_back.push(letter),
            }
        }
        if again.is_empty() {
            return Ok(None);
        }
        let wait = outcome.retry_after.map(|wait| wait.min(RETRY_AFTER_MAX));
        pause(wait.unwrap_or_else(|| options.backoff.delay(pending.attempts, fastrand::f64())), stop).await;
        Ok(Some(Pending { letters: again, attempts: pending.attempts }))
    }

    /// Halves what failed as a whole, so that one bad letter does not keep the others; the second half lies below.
    async fn failed(
        &mut self,
        pending: Pending,
        error: &ProcessorError,
        (options, ports, summary, stop): World<'_>,
    ) -> anyhow::Result<Vec<Pending>> {
        let Pending { mut letters, attempts } = pending;
        if letters.len() > 1 {
            let second = letters.split_off(letters.len() / 2);
            return Ok(vec![Pending { letters: second, attempts: 0 }, Pending { letters, attempts: 0 }]);
        }
        if attempts < options.attempts {
            pause(options.backoff.delay(attempts, fastrand::f64()), stop).await;
            return Ok(vec![Pending { letters, attempts }]);
        }
        for letter in letters {
            summary.failed += 1;
            ports.remainder.keep(&self.given_up(letter, error.to_string(), attempts, ports.clock.wall_ms()))?;
        }
        Ok(Vec::new())
    }

    /// What a dead instance held back is gone with it: it was not committed, so it is left.
    fn abandon_held_back(&mut self, error: &ProcessorError, (_, ports, summary, _): World<'_>) -> anyhow::Result<()> {
        if self.processor.is_some() {
            return Ok(());
        }
        for letter in std::mem::take(&mut self.held_back) {
            summary.held_back += 1;
            let reason = format!("held back by an instance that died: {error}");
            ports.remainder.keep(&self.given_up(letter, reason, 1, ports.clock.wall_ms()))?;
        }
        Ok(())
    }

    pub(super) async fn close(
        mut self,
        options: &ReplayOptions,
        ports: &mut ReplayPorts,
        summary: &mut ReplaySummary,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        if let Some(processor) = self.processor.take() {
            match processor.close(CloseReason::Shutdown).await {
                Ok(emitted) => {
                    if let Err(problem) = self.store(emitted, None, (options, ports, summary, stop)).await {
                        summary.stopped.get_or_insert(problem);
                    }
                }
                Err(error) => tracing::warn!(%error, shard = %self.context.shard, "the plugin failed in close"),
            }
        }
        for letter in std::mem::take(&mut self.held_back) {
            summary.held_back += 1;
            let reason = "held back by the plugin to the end".to_owned();
            ports.remainder.keep(&self.given_up(letter, reason, 1, ports.clock.wall_ms()))?;
        }
        Ok(())
    }

    /// Returns once all is stored. A replay has no lease to give up, so it stops after some tries.
    async fn store(
        &self,
        emitted: Vec<Emitted>,
        through: Option<Position>,
        (options, ports, summary, stop): World<'_>,
    ) -> Result<(), String> {
        if emitted.is_empty() {
            return Ok(());
        }
        let InstanceContext { plugin, shard, .. } = &*self.context;
        let origin = Arc::new(Origin { plugin: plugin.clone(), shard: shard.clone(), through });
        let emitted = Arc::new(emitted);
        let (mut tries, mut is_written) = (0, false);
        loop {
            let result =
                if is_written { Ok(()) } else { ports.sink.write(Arc::clone(&origin), Arc::clone(&emitted)).await };
            let result = match result {
                Ok(()) => {
                    is_written = true;
                    ports.sink.flush().await
                }
                Err(error) => Err(error),
            };
            let Err(error) = result else { return Ok(()) };
            tries += 1;
            // Once the replay is stopping, what an instance emits in close is tried once.
            if tries >= STORE_TRIES_MAX || summary.stopped.is_some() || stop.is_cancelled() {
                return Err(error.to_string());
            }
            tracing::warn!(%error, tries, "output cannot be stored, trying again");
            pause(options.backoff.delay(tries, fastrand::f64()), stop).await;
        }
    }

    /// The letter as it failed now: with this version's digest, and all deliveries counted.
    fn given_up(&self, letter: DeadLetter, reason: String, attempts: u32, now_ms: u64) -> DeadLetter {
        DeadLetter {
            digest: self.version.digest().clone(),
            reason,
            attempts: letter.attempts.saturating_add(attempts),
            failed_at_ms: now_ms,
            ..letter
        }
    }
}

/// Nothing that the guest says can speak of a letter that it did not get.
fn check(outcome: &Outcome, count: usize) -> Result<(), ProcessorError> {
    let invalid = |message: String| Err(ProcessorError::InvalidOutcome { message });
    let indexes: Vec<usize> = outcome.failures.iter().map(|failure| failure.index as usize).collect();
    if !indexes.is_sorted_by(|one, next| one < next) || indexes.last().is_some_and(|last| *last >= count) {
        return invalid(format!("failure indexes must rise and stay below {count}"));
    }
    match outcome.commit {
        Some(Commit::Through(index)) if index as usize >= count => {
            invalid(format!("commit index {index} in a batch of {count}"))
        }
        _ => Ok(()),
    }
}

/// How many letters from the first on are committed.
fn committed(outcome: &Outcome, count: usize) -> usize {
    match outcome.commit {
        None => count,
        Some(Commit::Nothing) => 0,
        Some(Commit::Through(index)) => index as usize + 1,
    }
}

async fn pause(wait: Duration, stop: &CancellationToken) {
    let _ = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
}
