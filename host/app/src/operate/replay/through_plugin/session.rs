//! Letters of one shard, through one instance at a time, judged as a host judges records.
//!
//! What follows from a delivery is for [`shardmill_core::pipeline::judge`]. Where a host would read
//! held-back records again, because the instance that held them died, the letters are kept here and
//! delivered again; where it would store a dead letter, the letter is left; and where it would go
//! on for ever, the replay stops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::pipeline::{
    Blame, FailurePolicy, Fate, GiveUp, Order, Tried, Verdict, committed, judge,
};
use shardmill_core::plugin::{InstanceFate, ProcessorError};
use shardmill_core::ports::{
    CloseReason, DeadLetter, InstanceContext, Origin, Processed, ProcessorFactory, RecordProcessor,
};
use shardmill_core::stream::{Batch, Emitted, Position, Record};
use tokio_util::sync::CancellationToken;

use super::options::{ReplayOptions, ReplayPorts};
use crate::operate::replay::summary::ReplaySummary;

/// Tries to store output, and calls in a row that fail and say nothing of the letters, before the
/// replay stops: with the default waits, about two minutes.
const TRIES_MAX: u32 = 12;

/// What a replay goes by, and what it writes to.
pub(super) struct Run<'a> {
    pub(super) options: &'a ReplayOptions,
    pub(super) ports: &'a mut ReplayPorts,
    pub(super) summary: &'a mut ReplaySummary,
    pub(super) stop: &'a CancellationToken,
}

/// An instance, and what is known of its letters.
pub(super) struct Session {
    version: Arc<dyn ProcessorFactory>,
    context: Arc<InstanceContext>,
    processor: Option<Box<dyn RecordProcessor>>,
    policy: FailurePolicy,
    /// Letters that failed, and are neither handled nor given up yet.
    tried: BTreeMap<Position, Tried>,
    /// Handled, and not committed yet, in order.
    held_back: Vec<DeadLetter>,
    /// Calls in a row that failed and say nothing of the letters.
    troubles: u32,
}

impl Run<'_> {
    fn end(&mut self, why: String) {
        self.summary.stopped.get_or_insert(why);
    }

    fn is_stopped(&mut self) -> bool {
        if self.stop.is_cancelled() {
            self.end("by a signal".to_owned());
        }
        self.summary.stopped.is_some()
    }

    /// Keeps letters that are not delivered, as they are.
    pub(super) fn leave(&mut self, letters: &[DeadLetter]) -> anyhow::Result<()> {
        self.summary.not_tried += letters.len() as u64;
        letters
            .iter()
            .try_for_each(|letter| self.ports.remainder.keep(letter))
    }

    async fn pause(&self, wait: Duration) {
        let _ = self
            .stop
            .run_until_cancelled(tokio::time::sleep(wait))
            .await;
    }
}

impl Session {
    pub(super) fn new(
        version: Arc<dyn ProcessorFactory>,
        context: Arc<InstanceContext>,
        attempts: u32,
    ) -> Self {
        let policy = FailurePolicy {
            attempts: Some(attempts),
            bisect: true,
            then: Some(GiveUp::DeadLetter("what is left".to_owned())),
            order: Order::Shard,
            ..FailurePolicy::default()
        };
        let (tried, held_back) = (BTreeMap::new(), Vec::new());
        Self {
            version,
            context,
            processor: None,
            policy,
            tried,
            held_back,
            troubles: 0,
        }
    }

    /// Delivers until every letter is processed, held back, or left.
    pub(super) async fn deliver(
        &mut self,
        letters: Vec<DeadLetter>,
        run: &mut Run<'_>,
    ) -> anyhow::Result<()> {
        // The batch to deliver next is last.
        let mut batches = vec![letters];
        while let Some(letters) = batches.pop() {
            if run.is_stopped() {
                run.leave(&letters)?;
            } else if !letters.is_empty() {
                self.deliver_once(letters, &mut batches, run).await?;
            }
        }
        Ok(())
    }

    async fn deliver_once(
        &mut self,
        letters: Vec<DeadLetter>,
        batches: &mut Vec<Vec<DeadLetter>>,
        run: &mut Run<'_>,
    ) -> anyhow::Result<()> {
        let records: Arc<Vec<Record>> =
            Arc::new(letters.iter().map(|letter| letter.record.clone()).collect());
        let (outcome, emitted) = match self.call(Arc::clone(&records)).await {
            Ok(Processed { outcome, emitted }) => (Ok(outcome), emitted),
            Err(error) => (Err(error), Vec::new()),
        };
        let tried = |position: &Position| self.tried.get(position).copied().unwrap_or_default();
        let verdict = judge(
            &records,
            &tried,
            outcome.as_ref(),
            &self.policy,
            run.ports.clock.wall_ms(),
        );
        let is_kept = matches!(
            verdict.failure.as_ref().map(|failure| failure.of),
            None | Some(Blame::Records)
        );
        if is_kept {
            let through = records.last().map(|record| record.position.clone());
            if let Err(problem) = self.store(emitted, through, run).await {
                run.end(problem);
                batches.push(letters);
                return Ok(());
            }
        }
        let mut again = self.sort(letters, &verdict, run)?;
        if let Some(second) = verdict.split_at.map(|at| again.split_off(at)) {
            batches.push(second);
        }
        batches.push(again);
        if self.processor.is_none() {
            self.deliver_held_back_again(batches, run.options);
        }
        self.wait_after(&verdict, run).await;
        Ok(())
    }

    async fn call(&mut self, records: Arc<Vec<Record>>) -> Result<Processed, ProcessorError> {
        let deliveries = records
            .iter()
            .filter_map(|record| self.tried.get(&record.position));
        let attempt = deliveries
            .map(|tried| tried.deliveries)
            .max()
            .unwrap_or_default()
            .saturating_add(1);
        let mut processor = match self.processor.take() {
            Some(processor) => processor,
            // As in a host, a plugin that does not start is no letter's failure.
            None => match self
                .version
                .instantiate(Arc::clone(&self.context), None)
                .await
            {
                Ok(processor) => processor,
                Err(error) => {
                    return Err(ProcessorError::Host {
                        message: error.to_string(),
                    });
                }
            },
        };
        let result = processor
            .process(Batch {
                records,
                attempt,
                millis_behind_latest: 0,
            })
            .await;
        if result
            .as_ref()
            .err()
            .is_none_or(|error| error.fate() == InstanceFate::Usable)
        {
            self.processor = Some(processor);
        }
        result
    }

    /// Sorts letters by what became of them. Returns those that are to be delivered again.
    fn sort(
        &mut self,
        letters: Vec<DeadLetter>,
        verdict: &Verdict,
        run: &mut Run<'_>,
    ) -> anyhow::Result<Vec<DeadLetter>> {
        let committed = committed(verdict.commit, letters.len());
        if committed > 0 {
            run.summary.processed += self.held_back.drain(..).len() as u64;
        }
        let mut rulings = verdict.rulings.iter().peekable();
        let mut again = Vec::new();
        for (index, letter) in letters.into_iter().enumerate() {
            let Some(ruling) = rulings.next_if(|ruling| ruling.index == index) else {
                self.tried.remove(&letter.record.position);
                if index < committed {
                    run.summary.processed += 1;
                } else {
                    self.held_back.push(letter);
                }
                continue;
            };
            match ruling.fate {
                Fate::Again => {
                    self.tried
                        .insert(letter.record.position.clone(), ruling.tried);
                    again.push(letter);
                }
                Fate::GivenUp(cause) => {
                    self.tried.remove(&letter.record.position);
                    run.summary.failed += 1;
                    self.keep(letter, ruling.reason(cause), ruling.tried.deliveries, run)?;
                }
            }
        }
        Ok(again)
    }

    /// What a dead instance held back died with it: a new one must get it again, before anything
    /// that follows.
    fn deliver_held_back_again(
        &mut self,
        batches: &mut Vec<Vec<DeadLetter>>,
        options: &ReplayOptions,
    ) {
        let first = batches.len();
        let mut batch: Vec<DeadLetter> = Vec::new();
        for letter in self.held_back.drain(..) {
            if !options.may_join(&batch, &letter) {
                batches.push(std::mem::take(&mut batch));
            }
            batch.push(letter);
        }
        batches.push(batch);
        batches[first..].reverse();
    }

    async fn wait_after(&mut self, verdict: &Verdict, run: &mut Run<'_>) {
        let Some(failure) = &verdict.failure else {
            self.troubles = 0;
            return;
        };
        self.troubles = if failure.is_of_nobody() {
            self.troubles + 1
        } else {
            0
        };
        if self.troubles >= TRIES_MAX {
            run.end(failure.reason.clone());
        } else if verdict.has_again() {
            let backoff = run.options.backoff.delay(failure.in_a_row, fastrand::f64());
            run.pause(failure.retry_after.unwrap_or(backoff)).await;
        }
    }

    pub(super) async fn close(mut self, run: &mut Run<'_>) -> anyhow::Result<()> {
        if let Some(processor) = self.processor.take() {
            match processor.close(CloseReason::Shutdown).await {
                Ok(emitted) => {
                    if let Err(problem) = self.store(emitted, None, run).await {
                        run.end(problem);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, shard = %self.context.shard, "the plugin failed in close");
                }
            }
        }
        for letter in std::mem::take(&mut self.held_back) {
            run.summary.held_back += 1;
            self.keep(
                letter,
                "held back by the plugin to the end".to_owned(),
                1,
                run,
            )?;
        }
        Ok(())
    }

    /// Returns once all is stored. A replay has no lease to give up, so it stops after some tries.
    async fn store(
        &self,
        emitted: Vec<Emitted>,
        through: Option<Position>,
        run: &mut Run<'_>,
    ) -> Result<(), String> {
        if emitted.is_empty() {
            return Ok(());
        }
        let InstanceContext { plugin, shard, .. } = &*self.context;
        let origin = Arc::new(Origin {
            plugin: plugin.clone(),
            shard: shard.clone(),
            through,
        });
        let emitted = Arc::new(emitted);
        let (mut tries, mut is_written) = (0, false);
        loop {
            let result = if is_written {
                Ok(())
            } else {
                run.ports
                    .sink
                    .write(Arc::clone(&origin), Arc::clone(&emitted))
                    .await
            };
            let result = match result {
                Ok(()) => {
                    is_written = true;
                    run.ports.sink.flush().await
                }
                Err(error) => Err(error),
            };
            let Err(error) = result else { return Ok(()) };
            tries += 1;
            // Once the replay is stopping, what an instance emits in close is tried once.
            if tries >= TRIES_MAX || run.is_stopped() {
                return Err(error.to_string());
            }
            tracing::warn!(%error, tries, "output cannot be stored, trying again");
            run.pause(run.options.backoff.delay(tries, fastrand::f64()))
                .await;
        }
    }

    /// Keeps the letter as it failed now: with this version's digest, and all deliveries counted.
    fn keep(
        &self,
        letter: DeadLetter,
        reason: String,
        deliveries: u32,
        run: &mut Run<'_>,
    ) -> anyhow::Result<()> {
        run.ports.remainder.keep(&DeadLetter {
            digest: self.version.digest().clone(),
            reason,
            attempts: letter.attempts.saturating_add(deliveries),
            failed_at_ms: run.ports.clock.wall_ms(),
            ..letter
        })
    }
}
