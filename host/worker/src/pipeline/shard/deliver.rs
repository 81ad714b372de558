//! Delivers a batch once, and sees to what is handled, what is given up, and what goes again.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::control::{Deed, Skip};
use shardmill_core::kcl_metrics::Observation;
use shardmill_core::pipeline::{Blame, Failure, GiveUp, Halt, Verdict};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{DeadLetter, Outcome};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Emitted, Record};
use shardmill_core::trace::BatchTrace;

use super::ShardPipeline;
use crate::holding::Stopped;
use crate::metrics;
use crate::pipeline::call::Called;
use crate::pipeline::delivery::Handled;
use crate::pipeline::give_up::GivenUp;
use crate::pipeline::output::Cause;
use crate::pipeline::traces::TracedCall;
use crate::signs::Stage;
use crate::status::{ShardState, Why};
use crate::timer::Stopwatch;

/// What came of a call, besides its outcome.
struct CallOutput {
    emitted: Vec<Emitted>,
    trace: Option<BatchTrace>,
}

impl ShardPipeline {
    /// Delivers a batch once, and waits for that. What of it is not handled is given up, or
    /// delivered again when it is due.
    pub(super) async fn deliver(&mut self, records: Vec<Record>) -> Result<(), Stopped> {
        if !self.deliveries.first().instance().is_alive() {
            let restarts = self.intake.restarts();
            self.make_instance(0).await?;
            if self.intake.restarts() != restarts {
                // While none could be made, the shard was sent elsewhere, or got another state:
                // what of these records still counts is read again.
                return Ok(());
            }
        }
        self.gate.pass().await?;
        let records = Arc::new(records);
        let behind = self.intake.millis_behind_latest();
        let traced = self.trace_call(0, &records);
        let trace = traced.as_ref().map(|call| call.context());
        let delivery = self.deliveries.first_mut();
        match delivery.call(&records, behind, trace).await {
            Ok(called) => self.delivered(0, &records, called, traced).await,
            Err(stopped) => {
                self.traces.hung(traced);
                Err(stopped)
            }
        }
    }

    /// Does what follows from a call of strand `at`.
    pub(super) async fn delivered(
        &mut self,
        at: usize,
        records: &[Record],
        called: Called,
        traced: Option<Box<TracedCall>>,
    ) -> Result<(), Stopped> {
        let trace = self
            .traces
            .called(traced, &called.result, called.notes.took);
        // The lease may have gone during the call: then nothing of it counts.
        self.gate.check_held()?;
        let (started, in_plugin) = (Stopwatch::start(), called.notes.took);
        let (verdict, emitted) = self.judge(at, records, called);
        let output = CallOutput { emitted, trace };
        let handled = self.follow(at, records, &verdict, output).await?;
        self.context.meter().note(&Observation::Delivered {
            took: in_plugin + started.elapsed(),
            is_ok: verdict.failure.is_none(),
            records: handled.records,
            bytes: handled.bytes,
        });
        Ok(())
    }

    fn judge(&mut self, at: usize, records: &[Record], called: Called) -> (Verdict, Vec<Emitted>) {
        let Called { result, notes } = called;
        let (outcome, emitted) = match result {
            Ok(processed) => (Ok(processed.outcome), processed.emitted),
            Err(_) if SeededBug::SkipsFailedBatch.is_on() => (Ok(Outcome::default()), Vec::new()),
            Err(error) => (Err(error), Vec::new()),
        };
        let outcome: Result<&Outcome, &ProcessorError> = outcome.as_ref();
        let delivery = self.deliveries.one_mut(at);
        let verdict = delivery.judge(records, outcome);
        let attempt = delivery.attempt(records, &verdict, notes);
        let report = self.versions.report(&attempt);
        if report.ends_instance {
            delivery.instance_mut().kill();
        }
        let mut verdict = delivery.hold_against(verdict, records, &report.held_against);
        if report.ends_instance {
            self.deliveries.overtake();
        }
        seeded(&mut verdict);
        (verdict, emitted)
    }

    async fn follow(
        &mut self,
        at: usize,
        records: &[Record],
        verdict: &Verdict,
        output: CallOutput,
    ) -> Result<Handled, Stopped> {
        let blame = verdict.failure.as_ref().map(|failure| failure.of);
        if matches!(blame, None | Some(Blame::Records)) {
            self.store_output(records, output).await?;
        }
        self.saving.report(records, verdict);
        let handled = self.deliveries.one_mut(at).note(records, verdict);
        if handled.records > 0 {
            self.count_handled(&handled, verdict);
        }
        // Also if all of them failed: the commit may release what was held back before them.
        self.settle();
        if let Some(failure) = &verdict.failure {
            self.count_failure(failure.kind);
            self.give_up_records(at, records, verdict).await?;
        }
        self.put_back(at, records, verdict);
        if self.deliveries.have_lost(&self.saving) {
            // What it held back died with it, and must be read again.
            self.rewind();
        }
        self.show_progress();
        Ok(handled)
    }

    async fn store_output(
        &mut self,
        records: &[Record],
        output: CallOutput,
    ) -> Result<(), Stopped> {
        let CallOutput { emitted, trace } = output;
        let through = records.last().map(|record| record.position.clone());
        let cause = Cause { through, trace };
        let storing = self.saving.store_output(emitted, cause, &mut self.gate);
        let stored = self.intake.unless_long(storing).await;
        if stored.is_err() {
            // Not even a plugin that handled them may save a state that has them.
            self.saving.report_unstored(records);
        }
        stored
    }

    fn count_handled(&mut self, handled: &Handled, verdict: &Verdict) {
        self.context.count(metrics::RECORDS, handled.records);
        self.context.count(metrics::BYTES, handled.bytes);
        if verdict.rulings.is_empty() {
            self.context.count(metrics::BATCHES, 1);
        }
        self.intake.settled(handled.cost_bytes);
        self.saving.handled(handled.records, handled.bytes);
        self.intake.note_handled();
        self.context.keeper().count(handled.records, handled.bytes);
        self.show_end_to_end(handled.oldest_ms);
        self.context.update_status(|status| {
            status.records += handled.records;
            status.batches += 1;
        });
    }

    /// How long the oldest record of a batch was on its way, from its arrival in the stream until
    /// it was processed and its output stored.
    fn show_end_to_end(&self, oldest_ms: Option<u64>) {
        let Some(oldest_ms) = oldest_ms else { return };
        let wall_ms = self.context.at().wall_ms;
        let took = Duration::from_millis(wall_ms.saturating_sub(oldest_ms));
        ::metrics::histogram!(metrics::END_TO_END_SECONDS, "plugin" => self.context.plugin())
            .record(took.as_secs_f64());
    }

    // What goes again.

    /// Puts what goes again where it waits for that: the whole shard, or only its partition key.
    fn put_back(&mut self, at: usize, records: &[Record], verdict: &Verdict) {
        let is_lost = self.deliveries.have_lost(&self.saving);
        let delivery = self.deliveries.one_mut(at);
        let lane = delivery.lane_of(records);
        if verdict.split_at.is_none() && !self.saving.holds_back() {
            delivery.end_reached(records);
        }
        let again = delivery.going_again(records, verdict);
        if let Some(failure) = &verdict.failure
            && !again.is_empty()
        {
            if delivery.split(records, verdict) {
                self.context.count(metrics::SPLITS, 1);
            }
            let waits = delivery.wait(verdict, failure, lane.is_some(), is_lost);
            self.show_retry(verdict, failure, again.len());
            let delivery = self.deliveries.one_mut(at);
            delivery.put_back(again, waits, &mut self.intake);
        }
        if let Some(lane) = lane {
            let delivery = self.deliveries.one_mut(at);
            delivery.leave_lane(&lane, &mut self.intake);
        }
    }

    fn show_retry(&mut self, verdict: &Verdict, failure: &Failure, records: usize) {
        if self.deliveries.halted().is_some() {
            return;
        }
        self.context.count(metrics::RETRIES, records as u64);
        let rulings = verdict.rulings.iter();
        let deliveries = rulings.map(|ruling| ruling.tried.deliveries).max();
        self.show_records_failed(
            deliveries.unwrap_or_default(),
            failure.kind,
            failure.reason.clone(),
        );
        if !self.may_go_on() {
            self.hold_little();
        }
    }

    // What is given up.

    /// Gives up those of `records` that are ruled so: stored before they are settled, if they are
    /// to be stored.
    async fn give_up_records(
        &mut self,
        at: usize,
        records: &[Record],
        verdict: &Verdict,
    ) -> Result<(), Stopped> {
        let Some(then) = self.context.options().failure.then.clone() else {
            return Ok(());
        };
        self.give_up_as(at, records, verdict, &then).await
    }

    /// The same, and does `then` with them.
    pub(super) async fn give_up_as(
        &mut self,
        at: usize,
        records: &[Record],
        verdict: &Verdict,
        then: &GiveUp,
    ) -> Result<(), Stopped> {
        let given_up = GivenUp::of(records, verdict);
        let Some(first) = given_up.first() else {
            return Ok(());
        };
        match then {
            GiveUp::DeadLetter(sink) => {
                self.store_letters(sink, &given_up, None).await?;
            }
            GiveUp::Skip => {}
            GiveUp::Halt => {
                let halt = first.halt(&self.context);
                self.deliveries.one_mut(at).halt(halt);
                return Ok(());
            }
        }
        self.settle_all_given_up(at, &given_up, then);
        self.record_given_up(&given_up, then);
        Ok(())
    }

    fn record_given_up(&self, given_up: &[GivenUp<'_>], then: &GiveUp) {
        let Some(last) = given_up.last() else { return };
        let (records, what) = (given_up.len(), last.summary(then));
        let details = format!("{records} record(s); the last: {what}");
        let shard = self.context.shard();
        let chronicle = &self.context.ports().chronicle;
        chronicle.did(Deed::GaveUpRecords, Some(shard), &details);
    }

    pub(super) fn settle_all_given_up(
        &mut self,
        at: usize,
        given_up: &[GivenUp<'_>],
        then: &GiveUp,
    ) {
        let epoch = self.deliveries.first().instance().epoch();
        for one in given_up {
            one.log(&self.context, epoch, then);
            self.settle_given_up(at, one, then);
        }
        self.settle();
    }

    /// Should it take long, the row says what is waited for. Whether they are stored: not if they
    /// are those of a command, and it is taken back meanwhile.
    pub(super) async fn store_letters(
        &mut self,
        sink: &str,
        given_up: &[GivenUp<'_>],
        by_command: Option<&Skip>,
    ) -> Result<bool, Stopped> {
        let digest = self.deliveries.digest();
        let letters: Vec<_> = given_up
            .iter()
            .map(|one| one.letter(&self.context, digest))
            .collect();
        let waits = format!(
            "{} record(s) are waiting to be stored as dead letters in sink {sink}",
            letters.len()
        );
        let earlier = self.trouble.set_stuck(Some(waits));
        self.note_progress();
        let is_stored = if SeededBug::GivesUpUnstored.is_on() {
            true
        } else {
            self.store_unless_taken_back(sink, letters, by_command)
                .await?
        };
        self.trouble.set_stuck(earlier);
        self.note_progress();
        Ok(is_stored)
    }

    async fn store_unless_taken_back(
        &mut self,
        sink: &str,
        letters: Vec<DeadLetter>,
        by_command: Option<&Skip>,
    ) -> Result<bool, Stopped> {
        let storing = self.saving.store_letters(sink, letters, &mut self.gate);
        let storing = self.intake.unless_long(storing);
        match by_command {
            None => storing.await.map(|()| true),
            Some(skip) => tokio::select! {
                biased;
                stored = storing => stored.map(|()| true),
                () = self.directions.takes_back(skip) => {
                    // Nothing is stored any more, so nothing of it can fail, or work again.
                    self.context.signs().clear(Why::Sink);
                    Ok(false)
                }
            },
        }
    }

    /// The one place where a record leaves without having been handled.
    fn settle_given_up(&mut self, at: usize, given_up: &GivenUp<'_>, then: &GiveUp) {
        let record = given_up.record();
        self.saving.give_up(record);
        self.intake.note_handled();
        self.deliveries.one_mut(at).give_up(&record.position);
        self.intake.settled(record.cost_bytes());
        let note = given_up.show(&self.context, then);
        self.trouble.set_last_given_up(note);
    }

    /// Delivers nothing until another version of the plugin is at work. The lease is kept all the
    /// while.
    pub(super) async fn stay_halted(&mut self, halt: Halt) -> Result<(), Stopped> {
        self.intake.drop_read_ahead();
        self.write_checkpoint().await?;
        self.show_halted(halt);
        while self.deliveries.halted().is_some() {
            tokio::select! {
                biased;
                stopped = self.gate.stopped() => return Err(stopped),
                () = self.directions.news() => {}
                () = self.versions.news() => {}
            }
            self.obey().await?;
            self.take_up_version().await?;
        }
        tracing::info!(
            shard = %self.context.shard(),
            digest = %self.deliveries.digest(),
            "the halted shard continues"
        );
        self.context.signs().gauge(metrics::HALTED, 0.0);
        self.show_state(ShardState::Processing);
        Ok(())
    }

    /// Says in the row, the metrics, the status and the history that the shard is halted.
    fn show_halted(&mut self, halt: Halt) {
        let Halt { deliveries, why } = halt;
        self.trouble.set_stuck(Some(why.clone()));
        self.note_progress();
        self.context.signs().gauge(metrics::HALTED, 1.0);
        self.context.enter(Stage::Waiting);
        self.trouble.show_halt(deliveries, &why);
        self.show_state(ShardState::Halted);
        let shard = self.context.shard();
        let chronicle = &self.context.ports().chronicle;
        chronicle.did(Deed::Halted, Some(shard), &why);
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
