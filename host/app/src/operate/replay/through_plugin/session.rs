//! Letters of one shard, through one instance at a time, judged as a host judges records.
//!
//! [`shardmill_core::pipeline::judge`] decides what follows from a delivery. Where a host would
//! read held-back records again, because the instance that held them died, the letters are kept
//! here and delivered again; where it would store a dead letter, the letter is left; and where it
//! would retry for ever, the replay stops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::pipeline::{
    Blame, FailurePolicy, Fate, GiveUp, Order, Ruling, Tried, Verdict, committed, judge,
};
use shardmill_core::plugin::{InstanceFate, ProcessorError};
use shardmill_core::ports::{
    CloseReason, DeadLetter, InstanceContext, LastOutput, Origin, Outcome, Processed,
    ProcessorFactory, RecordProcessor, Sink, SinkError,
};
use shardmill_core::stream::{Batch, Emitted, Position, Record};
use tokio_util::sync::CancellationToken;

use super::options::{ReplayOptions, ReplayPorts};
use crate::operate::replay::summary::ReplaySummary;

/// Tries to store output, and failed calls in a row for which no letter is to blame, before the
/// replay stops: with the default waits, about two minutes.
const TRIES_MAX: u32 = 12;

/// The replay, as far as its sessions use it.
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
    /// Batches to deliver, the next one last.
    pending: Vec<Vec<DeadLetter>>,
    /// Letters that failed, and are neither handled nor given up yet.
    tried: BTreeMap<Position, Tried>,
    /// Letters that are handled and not committed yet, in order.
    held_back: Vec<DeadLetter>,
    /// Calls in a row that failed and for which no letter is to blame.
    troubles: u32,
}

impl Run<'_> {
    fn is_stopped(&mut self) -> bool {
        self.summary.stop_if(self.stop);
        self.summary.stopped.is_some()
    }

    /// Leaves letters that were not delivered.
    pub(super) fn leave(&mut self, letters: &[DeadLetter]) -> anyhow::Result<()> {
        if !self.options.leaves_rest {
            return Ok(());
        }
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
        Self {
            version,
            context,
            processor: None,
            policy,
            pending: Vec::new(),
            tried: BTreeMap::new(),
            held_back: Vec::new(),
            troubles: 0,
        }
    }

    /// Delivers until every letter is processed, held back, or left.
    pub(super) async fn deliver(
        &mut self,
        letters: Vec<DeadLetter>,
        run: &mut Run<'_>,
    ) -> anyhow::Result<()> {
        self.pending.push(letters);
        while let Some(letters) = self.pending.pop() {
            if run.is_stopped() {
                run.leave(&letters)?;
            } else if !letters.is_empty() {
                self.deliver_once(letters, run).await?;
            }
        }
        Ok(())
    }

    async fn deliver_once(
        &mut self,
        letters: Vec<DeadLetter>,
        run: &mut Run<'_>,
    ) -> anyhow::Result<()> {
        let records: Arc<Vec<Record>> =
            Arc::new(letters.iter().map(|letter| letter.record.clone()).collect());
        let (outcome, emitted) = match self.call(Arc::clone(&records)).await {
            Ok(Processed { outcome, emitted }) => (Ok(outcome), emitted),
            Err(error) => (Err(error), Vec::new()),
        };
        let now_ms = run.ports.clock.wall_ms();
        let verdict = self.judge(&records, outcome.as_ref(), now_ms);
        if keeps_output(&verdict) {
            let through = records.last().map(|record| record.position.clone());
            if let Err(problem) = self.store(emitted, through, run).await {
                run.summary.stop(problem);
                self.pending.push(letters);
                return Ok(());
            }
        }
        let again = self.sort(letters, &verdict, run)?;
        self.deliver_again(again, &verdict, run.options);
        self.wait_after(&verdict, run).await;
        Ok(())
    }

    async fn call(&mut self, records: Arc<Vec<Record>>) -> Result<Processed, ProcessorError> {
        let attempt = self.deliveries(&records).saturating_add(1);
        let mut processor = match self.processor.take() {
            Some(processor) => processor,
            None => self.start().await?,
        };
        let result = processor
            .process(Batch {
                records,
                attempt,
                millis_behind_latest: 0,
                trace: None,
            })
            .await;
        let fate = result.as_ref().err().map(ProcessorError::fate);
        if fate.is_none_or(|fate| fate == InstanceFate::Usable) {
            self.processor = Some(processor);
        }
        result
    }

    /// The most deliveries that one of the records has had.
    fn deliveries(&self, records: &[Record]) -> u32 {
        let tried = records
            .iter()
            .filter_map(|record| self.tried.get(&record.position));
        tried
            .map(|tried| tried.deliveries)
            .max()
            .unwrap_or_default()
    }

    /// As in a host, if the plugin does not start, that counts against no letter.
    async fn start(&self) -> Result<Box<dyn RecordProcessor>, ProcessorError> {
        let started = self.version.instantiate(Arc::clone(&self.context), None);
        started.await.map_err(|error| ProcessorError::Host {
            message: error.to_string(),
        })
    }

    fn judge(
        &self,
        records: &[Record],
        outcome: Result<&Outcome, &ProcessorError>,
        now_ms: u64,
    ) -> Verdict {
        let tried = |position: &Position| self.tried.get(position).copied().unwrap_or_default();
        judge(records, &tried, outcome, &self.policy, now_ms)
    }

    /// Sorts letters by the result of their delivery. Returns those to deliver again.
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
            if let Some(ruling) = rulings.next_if(|ruling| ruling.index == index) {
                again.extend(self.rule(letter, ruling, run)?);
                continue;
            }
            self.tried.remove(&letter.record.position);
            if index < committed {
                run.summary.processed += 1;
            } else {
                self.held_back.push(letter);
            }
        }
        Ok(again)
    }

    /// Carries out the ruling about a letter that failed. Returns it if it is to be delivered
    /// again.
    fn rule(
        &mut self,
        letter: DeadLetter,
        ruling: &Ruling,
        run: &mut Run<'_>,
    ) -> anyhow::Result<Option<DeadLetter>> {
        let position = &letter.record.position;
        match ruling.fate {
            Fate::Again => {
                self.tried.insert(position.clone(), ruling.tried);
                Ok(Some(letter))
            }
            Fate::GivenUp(cause) => {
                self.tried.remove(position);
                run.summary.failed += 1;
                self.keep(letter, ruling.reason(cause), ruling.tried.deliveries, run)?;
                Ok(None)
            }
        }
    }

    /// Puts letters at the front of what is pending, in two batches if the verdict says so.
    fn deliver_again(
        &mut self,
        mut letters: Vec<DeadLetter>,
        verdict: &Verdict,
        options: &ReplayOptions,
    ) {
        if let Some(at) = verdict.split_at {
            self.pending.push(letters.split_off(at));
        }
        self.pending.push(letters);
        if self.processor.is_none() {
            self.deliver_held_back_again(options);
        }
    }

    /// What a dead instance held back is lost with it: a new instance must get that again, before
    /// anything that follows.
    fn deliver_held_back_again(&mut self, options: &ReplayOptions) {
        let first = self.pending.len();
        let mut batch: Vec<DeadLetter> = Vec::new();
        for letter in self.held_back.drain(..) {
            if !options.may_join(&batch, &letter) {
                self.pending.push(std::mem::take(&mut batch));
            }
            batch.push(letter);
        }
        self.pending.push(batch);
        self.pending[first..].reverse();
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
            run.summary.stop(failure.reason.clone());
        } else if verdict.has_again() {
            let backoff = run.options.backoff.delay(failure.in_a_row, fastrand::f64());
            run.pause(failure.retry_after.unwrap_or(backoff)).await;
        }
    }

    pub(super) async fn close(mut self, run: &mut Run<'_>) -> anyhow::Result<()> {
        if let Some(processor) = self.processor.take() {
            self.close_instance(processor, run).await;
        }
        if run.options.leaves_rest {
            self.leave_held_back(run)?;
        }
        Ok(())
    }

    /// Whether letters are handled and not committed yet.
    pub(super) fn holds_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Leaves what the plugin holds back: there is nothing more to come that would commit it.
    pub(super) fn leave_held_back(&mut self, run: &mut Run<'_>) -> anyhow::Result<()> {
        for letter in std::mem::take(&mut self.held_back) {
            run.summary.held_back += 1;
            let reason = "held back by the plugin to the end".to_owned();
            self.keep(letter, reason, 1, run)?;
        }
        Ok(())
    }

    async fn close_instance(&self, processor: Box<dyn RecordProcessor>, run: &mut Run<'_>) {
        match processor.close(CloseReason::Shutdown).await {
            Ok(last) => {
                // Held until the output is stored.
                let LastOutput {
                    emitted,
                    charges: _charges,
                } = last;
                if let Err(problem) = self.store(emitted, None, run).await {
                    run.summary.stop(problem);
                }
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    shard = %self.context.shard,
                    code = "replay-close-failed",
                    "the plugin failed in close"
                );
            }
        }
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
        let mut output = Output {
            origin: Arc::new(Origin {
                plugin: self.context.plugin.clone(),
                shard: self.context.shard.clone(),
                through,
                trace: None,
            }),
            emitted: Arc::new(emitted),
            is_written: false,
        };
        let mut tries = 0;
        while let Err(error) = output.store(&*run.ports.sink).await {
            tries += 1;
            // Once the replay is stopping, what an instance emits in close is tried once.
            if tries >= TRIES_MAX || run.is_stopped() {
                return Err(error.to_string());
            }
            tracing::warn!(
                %error,
                tries,
                code = "replay-output-failed",
                "output cannot be stored, trying again"
            );
            run.pause(run.options.backoff.delay(tries, fastrand::f64()))
                .await;
        }
        Ok(())
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

/// Whether the output of the delivery is stored: not if the call failed and the records are not to
/// blame.
fn keeps_output(verdict: &Verdict) -> bool {
    let blame = verdict.failure.as_ref().map(|failure| failure.of);
    matches!(blame, None | Some(Blame::Records))
}

/// What an instance emitted.
struct Output {
    origin: Arc<Origin>,
    emitted: Arc<Vec<Emitted>>,
    /// Whether the sink has taken it, and need only be flushed.
    is_written: bool,
}

impl Output {
    async fn store(&mut self, sink: &dyn Sink) -> Result<(), SinkError> {
        if !self.is_written {
            let (origin, emitted) = (Arc::clone(&self.origin), Arc::clone(&self.emitted));
            sink.write(origin, emitted).await?;
            self.is_written = true;
        }
        sink.flush().await
    }
}
