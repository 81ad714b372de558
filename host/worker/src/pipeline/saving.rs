//! What of a shard is settled, and written down: output, checkpoint, and the plugin's state.
//!
//! One rule makes checkpoint and state agree: what was handled since the
//! state was saved counts as held back
//! ([`Headway::new`](shardmill_core::pipeline::Headway::new)), so an instance that goes without
//! saving takes the shard back to its checkpoint.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::hash;
use shardmill_core::lease::Checkpoint;
use shardmill_core::pipeline::{CheckpointReason, Headway, Verdict};
use shardmill_core::plugin::{ProcessorError, StateFill};
use shardmill_core::ports::{CheckpointWrite, DeadLetter, Progress, StartPosition};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Emitted, LeaseKey, Position, Record};

use super::context::ShardContext;
use super::filtered::Filtered;
use super::fullness::Fullness;
use super::output::{Cause, Output};
use crate::holding::{Gate, Stopped};
use crate::metrics;

/// See the module's description.
pub(super) struct Saving {
    context: Arc<ShardContext>,
    output: Output,
    headway: Headway,
    /// The checkpoint in the row.
    written: Checkpoint,
    /// When the record of the checkpoint arrived that this holding began at, as the row says.
    begun_arrival_ms: Option<u64>,
    state: State,
    fullness: Fullness,
}

/// The plugin's state.
#[derive(Debug, Default)]
struct State {
    /// Saved with what is settled, and not written yet.
    unwritten: Option<Bytes>,
    /// The hash of the one that is in the table, if this host wrote it.
    written: Option<u64>,
    /// Failures in a row to save it.
    failures: u32,
    /// Nothing is delivered before it was tried again: more records would only be repeated.
    is_due_again: bool,
}

impl State {
    /// Whether one was saved that is another than what is in the table. Of a plugin that ticks on a
    /// silent shard it mostly is not, and then it costs no write.
    fn is_news(&self) -> bool {
        let unwritten = self.unwritten.as_ref();
        unwritten.is_some_and(|state| self.written != Some(hash_of(state)))
    }

    fn written(&mut self) {
        let unwritten = self.unwritten.take();
        self.written = unwritten.as_ref().map(hash_of).or(self.written);
    }
}

fn hash_of(state: &Bytes) -> u64 {
    hash::stable(state.iter().copied())
}

impl Saving {
    /// `arrival_ms`: when the record of the checkpoint arrived, as the row says.
    pub(super) fn new(
        context: Arc<ShardContext>,
        checkpoint: Checkpoint,
        arrival_ms: Option<u64>,
    ) -> Self {
        Self {
            output: Output::new(Arc::clone(&context)),
            headway: Headway::new(context.options().keeps_state),
            fullness: Fullness::new(Arc::clone(&context)),
            context,
            written: checkpoint,
            begun_arrival_ms: arrival_ms,
            state: State::default(),
        }
    }

    // What was handed out, and what became of it.

    /// Where reading starts again so that what is not settled comes once more.
    pub(super) fn settled_checkpoint(&self) -> Checkpoint {
        let settled = self.headway.settled().cloned();
        settled.map_or_else(|| self.written.clone(), Checkpoint::At)
    }

    /// Where reading goes on so that nothing that was handed out comes again.
    pub(super) fn handed_out_checkpoint(&self) -> Checkpoint {
        let last = self.handed_out();
        last.map_or_else(|| self.written.clone(), Checkpoint::At)
    }

    /// The last record that was handed out.
    pub(super) fn handed_out(&self) -> Option<Position> {
        self.headway.ledger().handed_out().cloned()
    }

    /// Whether all records up to `fetched` were handed out, and none of them failed or is out of
    /// turn.
    pub(super) fn is_all_delivered(&self, fetched: Option<&Position>) -> bool {
        let ledger = self.headway.ledger();
        ledger.handed_out() >= fetched && !ledger.is_busy()
    }

    /// Whether each record must be looked at when it is handed out.
    pub(super) fn is_busy(&self) -> bool {
        self.headway.ledger().is_busy()
    }

    /// Whether the guest holds back delivered records, so that a new instance must get them again.
    pub(super) fn holds_back(&self) -> bool {
        self.headway.ledger().holds_back()
    }

    /// Hands out a new record apart from its batch. False if it was given up before.
    pub(super) fn hand_out(&mut self, position: &Position) -> bool {
        self.headway.hand_out(position, self.context.now())
    }

    /// Hands out the records of a run that go into strands.
    pub(super) fn hand_out_run(&mut self, run: &[Record]) {
        self.headway.hand_out_run(run);
    }

    /// A batch is about to be delivered.
    pub(super) fn delivering(&mut self, batch: &[Record]) {
        self.headway.delivering(batch);
    }

    /// Passes records that are not for the plugin. All new records before them were handed out.
    pub(super) fn pass(&mut self, filtered: &Filtered) {
        let now = self.context.now();
        self.headway
            .pass(&filtered.through, filtered.arrival_ms, now);
        self.count_filtered("no_match", filtered.no_match);
        self.count_filtered("not_json", filtered.not_json);
        self.context
            .update_status(|status| status.filtered_records += filtered.records());
    }

    fn count_filtered(&self, why: &'static str, records: u64) {
        let plugin = self.context.plugin();
        ::metrics::counter!(metrics::FILTERED, "plugin" => plugin, "why" => why).increment(records);
    }

    /// Takes in what came of a delivery.
    pub(super) fn report(&mut self, batch: &[Record], verdict: &Verdict) {
        let failed: Vec<usize> = verdict.rulings.iter().map(|ruling| ruling.index).collect();
        self.headway.report(batch, &failed, verdict.commit);
    }

    /// The output of a delivery was not stored: nothing of it may be settled, and no state saved
    /// that has it.
    pub(super) fn report_unstored(&mut self, batch: &[Record]) {
        let all: Vec<usize> = (0..batch.len()).collect();
        self.headway.report(batch, &all, None);
    }

    /// The plugin was called because time has passed: its state may be another now.
    pub(super) fn ticked(&mut self) {
        self.headway.ticked(self.context.now());
    }

    /// The plugin commits all that it holds back.
    pub(super) fn commit_held_back(&mut self) {
        self.headway.commit_held_back(self.context.now());
    }

    /// Counts handled records for the next checkpoint.
    pub(super) fn handled(&mut self, records: u64, bytes: u64) {
        self.headway.handled(records, bytes, self.context.now());
    }

    /// Settles a record that is given up.
    pub(super) fn give_up(&mut self, record: &Record) {
        self.headway.give_up(record, self.context.now());
    }

    /// Takes over how far everything is settled. The position, if that is further than before.
    pub(super) fn settle(&mut self) -> Option<Position> {
        let position = self.headway.settle(self.context.now())?.clone();
        let arrived_ms = self.headway.settled_arrival_ms();
        if let Some(ms) = arrived_ms {
            let signs = self.context.signs();
            signs.gauge(metrics::SETTLED_ARRIVAL, ms as f64 / 1_000.0);
        }
        self.context.update_status(|status| {
            status.settled = Some(position.to_string());
            status.settled_arrival_ms = arrived_ms.or(status.settled_arrival_ms);
        });
        Some(position)
    }

    /// The row has this checkpoint, and nothing is settled after it.
    pub(super) fn begin_at(&mut self, place: Checkpoint) {
        if SeededBug::OldPlaceIsWritten.is_on() {
            self.written = place;
            return;
        }
        self.headway = Headway::new(self.context.options().keeps_state);
        self.written = place;
        self.begun_arrival_ms = None;
        self.state = State::default();
        self.fullness.forget();
    }

    /// Everything handed out and not settled is delivered again.
    pub(super) fn rewind(&mut self) {
        self.headway.rewind();
    }

    /// When the last record arrived that was settled in this holding, as Kinesis said.
    pub(super) fn settled_arrival_ms(&self) -> Option<u64> {
        self.headway.settled_arrival_ms()
    }

    /// The same, or, if none was settled yet, when that of the checkpoint in the row arrived.
    pub(super) fn last_arrival_ms(&self) -> Option<u64> {
        self.settled_arrival_ms().or(self.begun_arrival_ms)
    }

    /// Shows how old the oldest record is that is fetched and not settled. `first_fetched_ms`: when
    /// the first one arrived that was not handed out.
    pub(super) fn show_unsettled(&mut self, first_fetched_ms: Option<u64>) {
        let oldest_ms = self.headway.oldest_unsettled_ms().or(first_fetched_ms);
        let held_back = self.headway.held_back();
        self.context.signs().unsettled(oldest_ms, held_back);
    }

    // Output.

    /// Stores what the plugin emitted because of `cause`.
    pub(super) async fn store_output(
        &mut self,
        emitted: Vec<Emitted>,
        cause: Cause,
        gate: &mut Gate,
    ) -> Result<(), Stopped> {
        self.output.write(emitted, cause, gate).await
    }

    /// Returns once all output is stored.
    pub(super) async fn flush(&mut self, gate: &mut Gate) -> Result<(), Stopped> {
        self.output.flush(gate).await
    }

    /// Stores dead letters in the sink named `target`.
    pub(super) async fn store_letters(
        &self,
        target: &str,
        letters: Vec<DeadLetter>,
        gate: &mut Gate,
    ) -> Result<(), Stopped> {
        self.output.store(target, Arc::new(letters), gate).await
    }

    // The checkpoint.

    /// Why a checkpoint is due now, if one is.
    pub(super) fn checkpoint_due(&self) -> Option<CheckpointReason> {
        let policy = &self.context.options().checkpoints;
        self.headway.checkpoint_due(policy, self.context.now())
    }

    /// How long until age alone makes a checkpoint due; `None` if there is nothing to write.
    pub(super) fn checkpoint_due_in(&self) -> Option<Duration> {
        let policy = &self.context.options().checkpoints;
        self.headway.checkpoint_due_in(policy, self.context.now())
    }

    /// What is settled, if it is not in the row, or if the state is another than the one that was
    /// written with it.
    pub(super) fn unwritten(&self) -> Option<Checkpoint> {
        let settled = self.settled_checkpoint();
        (settled > self.written || self.state.is_news()).then_some(settled)
    }

    /// All of it is held back, or the state is as it was written last. Nothing is due until some of
    /// it is settled, or this would be asked for ever.
    pub(super) fn nothing_to_write(&mut self) {
        self.state.unwritten = None;
        if self.context.options().keeps_state && self.holds_back() {
            // What could not be saved now is to be saved as soon as it can be.
            self.headway.postpone(self.context.now());
        } else {
            self.headway.written();
        }
    }

    /// The write of what is settled up to `checkpoint`.
    pub(super) fn write_of(&self, checkpoint: Checkpoint, progress: Progress) -> CheckpointWrite {
        CheckpointWrite {
            checkpoint,
            progress,
            state: self.state.unwritten.clone(),
        }
    }

    /// The row has this checkpoint now.
    pub(super) fn written(&mut self, checkpoint: Checkpoint) {
        self.state.written();
        self.written = checkpoint.clone();
        self.headway.written();
        self.context.count(metrics::CHECKPOINTS, 1);
        let now = Duration::from_millis(self.context.at().wall_ms).as_secs_f64();
        self.context.signs().gauge(metrics::CHECKPOINTED, now);
        self.context
            .update_status(|status| status.checkpoint = checkpoint);
    }

    /// Replaces what is settled. Only seeded bugs do that.
    pub(super) fn misjudge(&mut self, settled: Option<Position>) {
        self.headway.misjudge(settled);
    }

    // The plugin's state.

    /// What an instance starts from that is made now: the state written with the checkpoint.
    pub(super) async fn state_to_load(&self) -> Result<Option<Bytes>, ProcessorError> {
        if !self.context.options().keeps_state {
            return Ok(None);
        }
        let key = LeaseKey::of_shard(self.context.shard());
        let saved = match self.context.store().state(&key).await {
            Ok(Some(saved)) => saved,
            Ok(None) => return Ok(None),
            Err(error) => {
                let message = format!("cannot be read: {error}");
                return Err(ProcessorError::State { message });
            }
        };
        if saved.checkpoint == self.written {
            return Ok(Some(saved.bytes));
        }
        let message = format!(
            "was saved at {}, but the shard's checkpoint is {}: something else moved the \
                checkpoint. Move it back, or delete the shard's row from table {}-state to start \
                without state",
            saved.checkpoint,
            self.written,
            self.context.options().application,
        );
        Err(ProcessorError::State { message })
    }

    /// Where the records begin of an instance that is made now.
    pub(super) fn start_position(&self) -> StartPosition {
        let start = &self.context.ports().start;
        StartPosition::after(&self.settled_checkpoint(), start)
    }

    /// Whether a state saved now would be that of all records handed out.
    pub(super) fn may_save_state(&self) -> bool {
        self.headway.ledger().may_save()
    }

    /// The state of all records handed out: they are settled by it. How often saving had failed in
    /// a row.
    pub(super) fn state_saved(&mut self, state: Bytes) -> u32 {
        ::metrics::histogram!(metrics::STATE_BYTES, "plugin" => self.context.plugin())
            .record(state.len() as f64);
        self.fullness.saved(state.len());
        let failures = self.state.failures;
        self.state = State {
            unwritten: Some(state),
            written: self.state.written,
            ..State::default()
        };
        self.headway.saved();
        failures
    }

    /// How much of its limit the state takes that was saved last, if any was.
    pub(super) fn state_fill(&self) -> Option<StateFill> {
        self.fullness.fill()
    }

    /// Saving failed: nothing is delivered before it was tried again. How often it failed in a row.
    pub(super) fn save_failed(&mut self) -> u32 {
        self.state.failures += 1;
        self.state.is_due_again = true;
        self.state.failures
    }

    /// Whether saving failed and is to be tried again before anything else.
    pub(super) fn must_save_again(&self) -> bool {
        self.state.is_due_again
    }

    /// Saving is tried again now. How often it failed in a row.
    pub(super) fn save_again(&mut self) -> u32 {
        self.state.is_due_again = false;
        self.state.failures
    }

    /// Another version has taken over: what the one before saved, or failed to, is not its own. How
    /// often that had failed in a row.
    pub(super) fn forget_state(&mut self) -> u32 {
        std::mem::take(&mut self.state).failures
    }
}
