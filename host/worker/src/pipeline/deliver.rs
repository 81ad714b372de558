//! Delivers a batch once, and sees to what is handled and what goes again.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::pipeline::{
    Blame, Failure, Fate, OpenBatch, Order, Others, Turn, Verdict, committed, judge,
};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{Outcome, Processed};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Batch, Emitted, Record};
use shardmill_core::time::Moment;
use tokio::time::Instant;

use super::consumer::Consumer;
use super::trial::HeldAgainst;
use crate::holding::Stopped;
use crate::metrics;
use crate::signs::Stage;

impl Consumer {
    /// The records to deliver now, if any are due: of a parked key, or else what failed and then
    /// new ones.
    pub(super) fn next_batch(&mut self) -> Option<Vec<Record>> {
        self.retries.end_wait(self.ports.clock.now());
        loop {
            let now = self.ports.clock.now();
            match self.retries.next_turn(self.others(), now)? {
                Turn::Lane => return self.retries.take_parked(&self.options.batches, now),
                Turn::Others => {
                    let batch = self.take_batch();
                    if !batch.is_empty() {
                        return Some(batch);
                    }
                }
            }
        }
    }

    /// What there is to deliver that is not parked.
    fn others(&self) -> Others {
        if !self.may_go_on() {
            return Others::None;
        }
        if self.buffer.has_again() || self.buffer.is_batch_due(&self.options.batches) {
            return Others::Due;
        }
        let is_behind = self.buffer.ended.is_none() && !self.status.is_at_tip(&self.shard);
        if is_behind || !self.buffer.is_empty() {
            Others::Coming
        } else {
            Others::None
        }
    }

    /// When something that failed is to be tried next; may be past, since time goes on between two
    /// looks.
    pub(super) fn next_retry(&self) -> Option<Moment> {
        self.retries.next_retry(self.others())
    }

    /// Whether records may go out that are not parked: nothing of the shard waits for its next
    /// attempt.
    pub(super) fn may_go_on(&self) -> bool {
        !self.retries.is_waiting() && (self.buffer.has_again() || !self.retries.parked().is_full())
    }

    fn take_batch(&mut self) -> Vec<Record> {
        let is_plain = self.retries.is_idle() && !self.headway.ledger.is_busy();
        if is_plain && !self.buffer.has_again() {
            return self.buffer.take_batch(&self.options.batches);
        }
        self.take_one_by_one()
    }

    /// The next batch, of what came back if there is any and else of new records, without those
    /// that were given up before and those that wait behind others of their key. May be empty.
    fn take_one_by_one(&mut self) -> Vec<Record> {
        let is_new = !self.buffer.has_again();
        let limits = &self.options.batches;
        let mut batch = OpenBatch::default();
        let mut passed_bytes = 0;
        while let Some(record) = self
            .buffer
            .take_record_if(is_new, |record| batch.has_room_for(record, limits))
        {
            let is_end = self.retries.is_end(&record.position);
            if is_new && !self.headway.ledger.hand_out(&record.position) {
                passed_bytes += record.cost_bytes();
            } else if let Some(record) = self.retries.join(record) {
                batch.push(record);
            }
            if is_end {
                break;
            }
        }
        if passed_bytes > 0 {
            self.buffer.settled(passed_bytes);
            // With state, what was given up before is settled by the next save only, which must be
            // due then.
            self.headway.unwritten.add(0, 0, self.ports.clock.now());
            self.settle();
        }
        batch.into_records()
    }

    /// Delivers a batch once. What of it is not handled is given up, or delivered again when it is
    /// due.
    pub(super) async fn deliver(&mut self, records: Vec<Record>) -> Result<(), Stopped> {
        if !self.instance.is_alive() {
            self.make_instance().await?;
        }
        self.gate.pass().await?;
        let records = Arc::new(records);
        let batch = Batch {
            records: Arc::clone(&records),
            attempt: self.retries.attempt(&records),
            millis_behind_latest: self.buffer.millis_behind_latest.unwrap_or(0),
        };
        self.signs.enter(Stage::InPlugin);
        let started = Instant::now();
        let result = self.call(batch).await?;
        let took = started.elapsed();
        ::metrics::histogram!(metrics::PROCESS_SECONDS, "plugin" => self.options.plugin.to_string())
            .record(took.as_secs_f64());
        // The lease may have gone during the call: then nothing of it counts.
        self.gate.check_held()?;
        let (outcome, emitted) = match result {
            Ok(processed) => (Ok(processed.outcome), processed.emitted),
            Err(_) if SeededBug::SkipsFailedBatch.is_on() => (Ok(Outcome::default()), Vec::new()),
            Err(error) => (Err(error), Vec::new()),
        };
        let mut verdict = self.judge(&records, outcome.as_ref());
        let held_against = self.report_to_rollout(&records, &verdict, took);
        let tried = |position: &_| self.retries.tried(position);
        verdict = match held_against {
            HeldAgainst::Records => verdict,
            HeldAgainst::Only(counted) => verdict.held_against(&counted, &records, &tried),
            HeldAgainst::Nothing => verdict.without_blame(&records, &tried),
        };
        seeded(&mut verdict);
        self.follow(&records, &verdict, emitted).await
    }

    fn judge(&self, records: &[Record], outcome: Result<&Outcome, &ProcessorError>) -> Verdict {
        let retries = &self.retries;
        let tried = |position: &_| retries.tried(position);
        judge(
            records,
            &tried,
            outcome,
            &self.options.failure,
            self.ports.clock.wall_ms(),
        )
    }

    /// Calls the plugin, for at most its deadline: a call that never comes back must not keep the
    /// shard for ever.
    async fn call(&mut self, batch: Batch) -> Result<Result<Processed, ProcessorError>, Stopped> {
        let deadline = self.options.leases.plugin_deadline;
        if let Ok(result) = tokio::time::timeout(deadline, self.instance.process(batch)).await {
            self.hangs = 0;
            return Ok(result);
        }
        self.instance.kill();
        self.hangs += 1;
        // A component has a deadline of its own, far below: this is the host's trouble, and no
        // record's.
        let message = format!("the plugin did not return within {deadline:?}");
        if self.hangs > 1 {
            return Err(Stopped::Stuck(format!(
                "{message}, nor did a new instance of it"
            )));
        }
        Ok(Err(ProcessorError::Host { message }))
    }

    async fn follow(
        &mut self,
        records: &[Record],
        verdict: &Verdict,
        emitted: Vec<Emitted>,
    ) -> Result<(), Stopped> {
        let blame = verdict.failure.as_ref().map(|failure| failure.of);
        if matches!(blame, None | Some(Blame::Records)) {
            let through = records.last().map(|record| record.position.clone());
            let Self {
                output,
                gate,
                reading,
                buffer,
                ..
            } = self;
            if let Err(over) = reading
                .unless_long(output.write(emitted, through, gate), buffer)
                .await
            {
                // Not even a plugin that handled them may save a state that has them.
                let all: Vec<usize> = (0..records.len()).collect();
                self.headway.ledger.report(records, &all, None);
                return Err(over);
            }
        }
        let failed: Vec<usize> = verdict.rulings.iter().map(|ruling| ruling.index).collect();
        self.headway.ledger.report(records, &failed, verdict.commit);
        if let Some(last) = records.last() {
            let committed = committed(verdict.commit, records.len());
            let failed_beyond = failed.iter().filter(|index| **index >= committed).count();
            let held_back = records.len() - committed - failed_beyond;
            self.headway
                .held_back
                .add(last.position.clone(), held_back as u64);
        }
        for ruling in &verdict.rulings {
            self.retries
                .note(&records[ruling.index].position, ruling.tried);
        }
        if failed.len() < records.len() {
            self.handled(records, &failed);
        }
        // Also if all of them failed: the commit may release what was held back before them.
        self.settle();
        if let Some(failure) = &verdict.failure {
            let plugin = self.options.plugin.to_string();
            ::metrics::counter!(metrics::FAILURES, "plugin" => plugin, "kind" => failure.kind)
                .increment(1);
            self.give_up_records(records, &verdict.rulings).await?;
        }
        self.put_back(records, verdict);
        if !self.instance.is_alive() && self.holds_back() {
            // What it held back died with it, and must be read again.
            self.rewind();
        }
        self.show_progress();
        Ok(())
    }

    fn handled(&mut self, records: &[Record], failed: &[usize]) {
        let (mut bytes, mut cost_bytes) = (0, 0);
        let mut failed_indexes = failed.iter().peekable();
        for (index, record) in records.iter().enumerate() {
            if failed_indexes.next_if_eq(&&index).is_some() {
                continue;
            }
            bytes += record.data.len();
            cost_bytes += record.cost_bytes();
            if !self.retries.is_clear() {
                self.retries.forget(&record.position);
            }
        }
        let (count, bytes) = ((records.len() - failed.len()) as u64, bytes as u64);
        let plugin = self.options.plugin.to_string();
        ::metrics::counter!(metrics::RECORDS, "plugin" => plugin.clone()).increment(count);
        ::metrics::counter!(metrics::BYTES, "plugin" => plugin.clone()).increment(bytes);
        if failed.is_empty() {
            ::metrics::counter!(metrics::BATCHES, "plugin" => plugin).increment(1);
        }
        self.buffer.settled(cost_bytes);
        let now = self.ports.clock.now();
        self.headway.unwritten.add(count, bytes, now);
        self.reading.note_handled(now);
        self.keeper.count_bytes(bytes);
        self.status.update_shard(&self.shard, |status| {
            status.records += count;
            status.batches += u64::from(count > 0);
        });
    }

    /// Puts what goes again where it waits for that: the whole shard, or only its partition key.
    fn put_back(&mut self, records: &[Record], verdict: &Verdict) {
        let lane = self.retries.lane_of(records);
        if let Some(last) = records.last()
            && verdict.split_at.is_none()
            && !self.holds_back()
        {
            self.retries.end_reached(last);
        }
        let again = self.going_again(records, verdict);
        if let (Some(failure), Some(last)) = (&verdict.failure, again.last()) {
            let retry_at = self.ports.clock.now() + self.wait_after(failure);
            if let Some(at) = verdict.split_at {
                self.retries.end_at(&records[at - 1]);
                self.count(metrics::SPLITS, 1);
            }
            let is_by_key = self.is_retried_by_key(verdict, failure, lane.is_some());
            let is_lost = !self.instance.is_alive() && self.holds_back();
            if !is_by_key || is_lost {
                self.retries.wait_until(retry_at);
            }
            if self.retries.halted().is_none() {
                self.show_retry(verdict, failure, again.len());
            }
            if is_by_key {
                self.retries.park(again, retry_at);
            } else {
                self.retries.end_at(last);
                self.buffer.put_back(again);
            }
        }
        if let Some(lane) = lane {
            self.buffer.put_back(self.retries.leave(&lane));
        }
    }

    /// The records that are to be delivered again: all of them on a shard that is halted.
    fn going_again(&self, records: &[Record], verdict: &Verdict) -> Vec<Record> {
        let is_halted = self.retries.halted().is_some();
        let rulings = verdict.rulings.iter();
        let again = rulings.filter(|ruling| is_halted || ruling.fate == Fate::Again);
        again.map(|ruling| records[ruling.index].clone()).collect()
    }

    /// Whether only the records' key waits. Of a batch that failed as a whole and is cut in two
    /// nobody knows which key it is: the shard waits, shortly.
    fn is_retried_by_key(&self, verdict: &Verdict, failure: &Failure, is_of_lane: bool) -> bool {
        let is_key_known = is_of_lane || (!failure.is_of_nobody() && verdict.split_at.is_none());
        self.options.failure.order == Order::Key && is_key_known
    }

    fn show_retry(&mut self, verdict: &Verdict, failure: &Failure, records: usize) {
        self.count(metrics::RETRIES, records as u64);
        let deliveries = verdict
            .rulings
            .iter()
            .map(|ruling| ruling.tried.deliveries)
            .max();
        let deliveries = deliveries.unwrap_or_default();
        self.blocked(self.why(failure.kind), deliveries, failure.reason.clone());
        if !self.may_go_on() {
            self.hold_little();
        }
    }

    fn wait_after(&self, failure: &Failure) -> Duration {
        match failure.retry_after {
            Some(asked) => asked,
            None => self
                .options
                .backoff
                .delay(failure.in_a_row, fastrand::f64()),
        }
    }

    /// Takes over from the ledger how far everything is settled.
    pub(super) fn settle(&mut self) {
        let position = self.headway.ledger.settled();
        if position <= self.headway.settled.as_ref() {
            return;
        }
        let Some(position) = position.cloned() else {
            return;
        };
        self.retries.settled(&position);
        self.headway.held_back.settled(&position);
        let text = position.to_string();
        self.headway.settled = Some(position);
        let now = self.ports.clock.now();
        self.headway.unwritten.add(0, 0, now);
        self.reading.note_handled(now);
        let arrived_ms = self.settled_arrival_ms();
        if let Some(ms) = arrived_ms {
            self.signs
                .gauge(metrics::SETTLED_ARRIVAL, ms as f64 / 1_000.0);
        }
        self.status.update_shard(&self.shard, |status| {
            status.settled = Some(text);
            status.settled_arrival_ms = arrived_ms.or(status.settled_arrival_ms);
        });
    }

    pub(super) fn count(&self, metric: &'static str, by: u64) {
        ::metrics::counter!(metric, "plugin" => self.options.plugin.to_string()).increment(by);
    }
}

/// The bugs that the simulator must find.
fn seeded(verdict: &mut Verdict) {
    let is_partial = verdict
        .failure
        .as_ref()
        .is_some_and(|failure| failure.of == Blame::Records);
    if SeededBug::CheckpointCoversHeldBack.is_on() && (verdict.is_clean() || is_partial) {
        verdict.commit = None;
    }
    if SeededBug::RetrySkipsFailedRecord.is_on() && is_partial {
        verdict.rulings.remove(0);
    }
}
