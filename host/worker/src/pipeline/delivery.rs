//! Delivers records to the plugin: what goes next, the call, what its outcome means, and what waits
//! to be tried again.

mod deadline;
mod flight;
mod noting;
mod tick;

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::control::Skip;
use shardmill_core::pipeline::{
    Failure, Fate, Halt, LaneKey, OpenBatch, Order, Others, Retries, Strand, Turn, Verdict, judge,
    skip_records,
};
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::Outcome;
use shardmill_core::rollout::{Attempt, HeldAgainst};
use shardmill_core::stream::{Batch, Position, Record};
use shardmill_core::time::Moment;
use shardmill_core::trace::TraceContext;

use super::call::{CallNotes, Called, Flight};
use super::context::ShardContext;
use super::instance::Instance;
use super::intake::Intake;
use super::saving::Saving;
use crate::holding::Stopped;
use crate::signs::Stage;
use crate::status::Parking;
use crate::timer::Stopwatch;

pub(super) use tick::TickCalled;

/// See the module's description.
pub(super) struct Delivery {
    context: Arc<ShardContext>,
    instance: Instance,
    /// What waits to be tried again. With parallel keys, also what waits for its first try.
    strand: Strand,
    /// The call under way beside those of other strands.
    flight: Option<Flight>,
    /// Calls of the plugin in a row that did not come back.
    hangs: u32,
}

/// What was handled of a batch.
pub(super) struct Handled {
    pub(super) records: u64,
    /// Of their data.
    pub(super) bytes: u64,
    /// When the first of them arrived in the stream, in milliseconds since the Unix epoch, if
    /// Kinesis said so.
    pub(super) oldest_ms: Option<u64>,
    /// What they held of the host's buffer.
    pub(super) cost_bytes: usize,
}

impl Handled {
    /// A record arrived then; 0 if Kinesis did not say.
    fn note_arrival(&mut self, arrival_ms: u64) {
        let oldest_ms = self.oldest_ms.unwrap_or(u64::MAX);
        if (1..oldest_ms).contains(&arrival_ms) {
            self.oldest_ms = Some(arrival_ms);
        }
    }
}

/// What of a shard waits for the next attempt at a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// The record's key, until then.
    Key(Moment),
    /// Everything that comes after it.
    Shard,
}

impl Delivery {
    pub(super) fn new(context: Arc<ShardContext>, instance: Instance) -> Self {
        Self {
            context,
            instance,
            strand: Strand::default(),
            flight: None,
            hangs: 0,
        }
    }

    /// Whether it is one of several for the shard, and has its own share of the records.
    fn is_parallel(&self) -> bool {
        self.context.options().parallelism.is_parallel()
    }

    // The instance.

    pub(super) fn instance(&self) -> &Instance {
        &self.instance
    }

    pub(super) fn instance_mut(&mut self) -> &mut Instance {
        &mut self.instance
    }

    pub(super) fn digest(&self) -> &PluginDigest {
        self.instance.digest()
    }

    /// Puts another version's instance to work, and gives back the one before.
    pub(super) fn replace_instance(&mut self, instance: Instance) -> Instance {
        std::mem::replace(&mut self.instance, instance)
    }

    // What goes next.

    /// The records to deliver now, if any are due: of a parked key, or else what failed and then
    /// new ones.
    pub(super) fn next_batch(
        &mut self,
        intake: &mut Intake,
        saving: &mut Saving,
    ) -> Option<Vec<Record>> {
        self.strand.retries_mut().end_wait(self.context.now());
        loop {
            let now = self.context.now();
            let others = self.others(intake);
            match self.strand.retries_mut().next_turn(others, now)? {
                Turn::Lane => {
                    let limits = &self.context.options().batches;
                    return self.strand.retries_mut().take_parked(limits, now);
                }
                Turn::Others => {
                    let batch = self.take_batch(intake, saving);
                    if !batch.is_empty() {
                        return Some(batch);
                    }
                }
            }
        }
    }

    /// What there is to deliver that is not parked.
    fn others(&self, intake: &Intake) -> Others {
        if self.may_go_on(intake) {
            intake.others()
        } else {
            Others::None
        }
    }

    /// When something that failed is to be tried next; may be past, since time goes on between two
    /// looks.
    pub(super) fn next_retry(&self, intake: &Intake) -> Option<Moment> {
        self.strand.retries().next_retry(self.others(intake))
    }

    /// Whether records may go out that are not parked: nothing of the shard waits for its next
    /// attempt.
    pub(super) fn may_go_on(&self, intake: &Intake) -> bool {
        !self.strand.retries().is_waiting()
            && (intake.has_again() || !self.strand.retries().parked().is_full())
    }

    fn take_batch(&mut self, intake: &mut Intake, saving: &mut Saving) -> Vec<Record> {
        let is_plain = self.strand.retries().is_idle() && !saving.is_busy();
        if is_plain && !intake.has_again() {
            return intake.take_batch();
        }
        self.take_one_by_one(intake, saving)
    }

    /// The next batch, of what came back if there is any and else of new records, without those
    /// that were given up before and those that wait behind others of their key. May be empty.
    fn take_one_by_one(&mut self, intake: &mut Intake, saving: &mut Saving) -> Vec<Record> {
        let is_new = !intake.has_again();
        let limits = &self.context.options().batches;
        let mut batch = OpenBatch::default();
        let mut passed_bytes = 0;
        while let Some(record) =
            intake.take_record_if(is_new, |record| batch.has_room_for(record, limits))
        {
            let is_end = self.strand.retries().is_end(&record.position);
            if is_new && !saving.hand_out(&record.position) {
                passed_bytes += record.cost_bytes();
            } else if let Some(record) = self.strand.retries_mut().join(record) {
                batch.push(record);
            }
            if is_end {
                break;
            }
        }
        if passed_bytes > 0 {
            intake.settled(passed_bytes);
            self.settle(intake, saving);
        }
        batch.into_records()
    }

    // The call.

    /// Calls the plugin, for at most its deadline: a call that never comes back must not keep the
    /// shard for ever.
    pub(super) async fn call(
        &mut self,
        records: &Arc<Vec<Record>>,
        millis_behind_latest: Option<u64>,
        trace: Option<TraceContext>,
    ) -> Result<Called, Stopped> {
        let batch = self.batch_of(records, millis_behind_latest, trace);
        let given = batch.clone();
        self.context.enter(Stage::InPlugin);
        let started = Stopwatch::start();
        let deadline = self.context.options().leases.plugin_deadline;
        let call = tokio::time::timeout(deadline, self.instance.process(batch));
        let returned = call.await;
        let result = self.in_time(returned)?;
        let took = started.elapsed();
        self.observe(took);
        self.note_call(given, &result, took);
        let notes = CallNotes {
            took,
            is_overtaken: false,
        };
        Ok(Called { result, notes })
    }

    fn batch_of(
        &self,
        records: &Arc<Vec<Record>>,
        millis_behind_latest: Option<u64>,
        trace: Option<TraceContext>,
    ) -> Batch {
        Batch {
            records: Arc::clone(records),
            attempt: self.strand.retries().attempt(records),
            millis_behind_latest: millis_behind_latest.unwrap_or(0),
            trace,
        }
    }

    /// Counts the time that a batch's turn took, until now.
    pub(super) fn took(&mut self, took: Duration) {
        self.strand.retries_mut().took(took, self.context.now());
    }

    // What its outcome means.

    /// What follows from a call's outcome, by the failure policy.
    pub(super) fn judge(
        &self,
        records: &[Record],
        outcome: Result<&Outcome, &ProcessorError>,
    ) -> Verdict {
        judge(
            records,
            &|position| self.strand.retries().tried(position),
            outcome,
            &self.context.options().failure,
            self.context.at().wall_ms,
        )
    }

    /// Those of the records that are to be skipped are given up, and the others go again.
    pub(super) fn skipping(&self, records: &[Record], skip: &Skip) -> Verdict {
        skip_records(records, skip, &|position| {
            self.strand.retries().tried(position)
        })
    }

    /// What the rollout is to know of the call that just ended.
    pub(super) fn attempt<'a>(
        &'a self,
        records: &'a [Record],
        verdict: &'a Verdict,
        notes: CallNotes,
    ) -> Attempt<'a> {
        Attempt {
            digest: self.instance.digest(),
            records,
            verdict,
            took: notes.took,
            memory_bytes: self.instance.memory_bytes(),
            is_deadly: !self.instance.is_alive(),
            is_overtaken: notes.is_overtaken,
        }
    }

    /// The verdict, held against no more than that.
    pub(super) fn hold_against(
        &self,
        verdict: Verdict,
        records: &[Record],
        held_against: &HeldAgainst,
    ) -> Verdict {
        match held_against {
            HeldAgainst::Records => verdict,
            HeldAgainst::Only(counted) => verdict.held_against(counted, records, &|position| {
                self.strand.retries().tried(position)
            }),
            HeldAgainst::Nothing => {
                verdict.without_blame(records, &|position| self.strand.retries().tried(position))
            }
        }
    }

    /// Counts the deliveries of what failed. What of the batch was handled counts as failed no
    /// more.
    pub(super) fn note(&mut self, records: &[Record], verdict: &Verdict) -> Handled {
        for ruling in &verdict.rulings {
            let position = &records[ruling.index].position;
            self.strand.retries_mut().note(position, ruling.tried);
        }
        let mut handled = Handled {
            records: (records.len() - verdict.rulings.len()) as u64,
            bytes: 0,
            oldest_ms: None,
            cost_bytes: 0,
        };
        let mut failed = verdict.rulings.iter().map(|ruling| ruling.index).peekable();
        for (index, record) in records.iter().enumerate() {
            if failed.next_if_eq(&index).is_some() {
                continue;
            }
            handled.bytes += record.data.len() as u64;
            handled.note_arrival(record.arrival_ms);
            handled.cost_bytes += record.cost_bytes();
            if !self.strand.retries().is_clear() {
                self.strand.retries_mut().forget(&record.position);
            }
        }
        handled
    }

    /// Everything up to and including `position` is settled.
    pub(super) fn settled(&mut self, position: &Position) {
        self.strand.retries_mut().settled(position);
    }

    /// Takes over how far everything is settled, where it is the only one for the shard.
    fn settle(&mut self, intake: &mut Intake, saving: &mut Saving) {
        if let Some(position) = saving.settle() {
            self.settled(&position);
            intake.note_handled();
        }
    }

    /// The record is given up: it counts as failed no more.
    pub(super) fn give_up(&mut self, position: &Position) {
        self.strand.retries_mut().forget(position);
    }

    // What waits to be tried again.

    pub(super) fn retries(&self) -> &Retries {
        self.strand.retries()
    }

    /// Why nothing is delivered any more, if the policy says so.
    pub(super) fn halted(&self) -> Option<&Halt> {
        self.strand.retries().halted()
    }

    pub(super) fn halt(&mut self, halt: Halt) {
        self.strand.retries_mut().halt(halt);
    }

    /// Whether no record that was handed out waits to be tried again.
    pub(super) fn is_clear(&self) -> bool {
        self.strand.retries().is_clear()
    }

    /// Whether nothing waits here, for its first delivery or another.
    pub(super) fn has_nothing_waiting(&self) -> bool {
        self.strand.is_empty()
    }

    /// What is parked.
    pub(super) fn parked(&self) -> Parking {
        let parked = self.strand.retries().parked();
        Parking {
            keys: parked.keys(),
            records: parked.records(),
            bytes: parked.bytes(),
        }
    }

    /// The shard goes on at another place: nothing of what was handed out counts any more.
    pub(super) fn forget_all(&mut self) {
        self.strand = Strand::default();
        self.hangs = 0;
    }

    /// Reading starts again: what was handed out and waits is forgotten.
    pub(super) fn rewind(&mut self) {
        self.strand.retries_mut().rewind();
    }

    /// Another version of the plugin is at work for good: what failed gets all its attempts.
    pub(super) fn start_over(&mut self) {
        self.strand.retries_mut().start_over(self.context.now());
    }

    /// Another version of the plugin is at work: what failed goes to it at once.
    pub(super) fn try_at_once(&mut self) {
        self.strand.retries_mut().try_at_once(self.context.now());
    }

    /// The parked key whose turn the batch was, if it was one's.
    pub(super) fn lane_of(&self, batch: &[Record]) -> Option<LaneKey> {
        self.strand.retries().lane_of(batch)
    }

    /// The turn of a parked key is over. If nothing of it waits any more, what waited behind goes
    /// again.
    pub(super) fn leave_lane(&mut self, lane: &LaneKey, intake: &mut Intake) {
        let behind = self.strand.retries_mut().leave(lane);
        self.return_to_queue(behind, intake);
    }

    /// The batch was delivered whole: it need not end here any more.
    pub(super) fn end_reached(&mut self, batch: &[Record]) {
        if let Some(last) = batch.last() {
            self.strand.retries_mut().end_reached(last);
        }
    }

    /// The records that are to be delivered again: all of them on a shard that is halted.
    pub(super) fn going_again(&self, records: &[Record], verdict: &Verdict) -> Vec<Record> {
        let is_halted = self.strand.retries().halted().is_some();
        let rulings = verdict.rulings.iter();
        let again = rulings.filter(|ruling| is_halted || ruling.fate == Fate::Again);
        again.map(|ruling| records[ruling.index].clone()).collect()
    }

    /// Cuts the batch where the verdict says so. Whether it says so.
    pub(super) fn split(&mut self, records: &[Record], verdict: &Verdict) -> bool {
        if let Some(at) = verdict.split_at {
            self.strand.retries_mut().end_at(&records[at - 1]);
        }
        verdict.split_at.is_some()
    }

    /// Decides what waits for the next attempt after a failure. `is_of_lane`: the batch was of a
    /// parked key. `is_lost`: what the plugin held back must be read again.
    pub(super) fn wait(
        &mut self,
        verdict: &Verdict,
        failure: &Failure,
        is_of_lane: bool,
        is_lost: bool,
    ) -> Waits {
        let retry_at = self.context.now() + self.wait_after(failure);
        let is_by_key = self.is_retried_by_key(verdict, failure, is_of_lane);
        if !is_by_key || is_lost {
            self.strand.retries_mut().wait_until(retry_at);
        }
        if is_by_key {
            Waits::Key(retry_at)
        } else {
            Waits::Shard
        }
    }

    /// Puts what goes `again` where it waits for that.
    pub(super) fn put_back(&mut self, again: Vec<Record>, waits: Waits, intake: &mut Intake) {
        match waits {
            Waits::Key(retry_at) => self.strand.retries_mut().park(again, retry_at),
            Waits::Shard => {
                if let Some(last) = again.last() {
                    self.strand.retries_mut().end_at(last);
                }
                self.return_to_queue(again, intake);
            }
        }
    }

    fn return_to_queue(&mut self, records: impl IntoIterator<Item = Record>, intake: &mut Intake) {
        if self.is_parallel() {
            self.strand.put_back(records);
        } else {
            intake.put_back(records);
        }
    }

    /// Whether only the records' key waits. Of a batch that failed as a whole and is cut in two
    /// nobody knows which key it is: the shard waits, shortly.
    fn is_retried_by_key(&self, verdict: &Verdict, failure: &Failure, is_of_lane: bool) -> bool {
        let is_key_known = is_of_lane || (!failure.is_of_nobody() && verdict.split_at.is_none());
        self.context.options().failure.order == Order::Key && is_key_known
    }

    fn wait_after(&self, failure: &Failure) -> Duration {
        let asked = failure.retry_after;
        asked.unwrap_or_else(|| self.context.back_off(failure.in_a_row))
    }
}
