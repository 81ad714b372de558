//! The loop of one shard: selects what is next, and applies what came of it.
//!
//! What is read is the intake's, what is delivered the delivery's, what is settled and written the
//! saving's. What concerns several of them is decided here: one delivery in `deliver.rs`, several
//! at a time in `parallel.rs`, a call because time has passed in `tick.rs`, another version in
//! `swap.rs`, what operators want in `obey.rs`, the end of the shard or of the holding in `end.rs`,
//! and what people see of it in `show.rs`.

mod deliver;
mod end;
mod obey;
mod parallel;
mod show;
mod swap;
mod tick;
mod tracing_calls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::control::Directed;
use shardmill_core::lease::{Lease, LossReason};
use shardmill_core::pipeline::{ReadStall, Ticks};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{CloseReason, InstanceContext};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Record, ShardId};
use tokio::sync::watch;

use super::call::{Calls, Returned};
use super::context::ShardContext;
use super::deliveries::Deliveries;
use super::directions::Directions;
use super::fetch::Chunk;
use super::history::History;
use super::instance::Instance;
use super::intake::Intake;
use super::saving::Saving;
use super::shadowing::{ShadowSettings, Shadowing};
use super::terms::Terms;
use super::traces::Traces;
use super::trouble::Trouble;
use super::versions::Versions;
use crate::holding::{Gate, Stopped};
use crate::signs::Stage;
use crate::status::ShardState;
use crate::timer::Stopwatch;

/// How a pipeline ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PipelineEnd {
    /// The shard's end is checkpointed and its children have leases.
    Ended,
    /// Checkpointed and released.
    Released,
    /// The lease is gone.
    Lost(LossReason),
    /// Released, because the shard made no progress here.
    GaveUp(String),
    /// Given up, but the row cannot be written: it still names this worker.
    Unreleased(String),
    /// It panicked, a mistake of the host: the row still names this worker.
    Failed(String),
}

/// Serves one shard under one holding of its lease.
pub(crate) struct ShardPipeline {
    context: Arc<ShardContext>,
    gate: Gate,
    intake: Intake,
    deliveries: Deliveries,
    /// With parallel keys, the calls under way.
    calls: Calls,
    /// A strand whose instance could not be made beside the calls of others.
    lacking_instance: Option<usize>,
    saving: Saving,
    ticks: Ticks,
    versions: Versions,
    trouble: Trouble,
    directions: Directions,
    traces: Traces,
    /// The shards that this one follows.
    parents: Vec<ShardId>,
}

/// What ended a wait.
enum Event {
    /// The pipeline must stop.
    Stopped(Stopped),
    /// A record, a batch, a tick or another version is due, or others need the instance's memory.
    Due,
    /// Read; `None` if there is no reader any more.
    Chunk(Option<Chunk>),
    CheckpointDue,
    /// A call has ended that ran beside others.
    Returned(Returned),
    /// It has changed why the shard cannot be read.
    ReadTrouble,
    /// Nothing was heard of Kinesis for a whole read deadline.
    ReadStalled,
}

impl ShardPipeline {
    /// Serves the shard from the checkpoint on that the row has. `directed`: what operators want of
    /// it, as the worker reads it.
    pub(crate) fn new(
        context: ShardContext,
        instance: Arc<InstanceContext>,
        gate: Gate,
        lease: Lease,
        directed: watch::Receiver<Directed>,
    ) -> Self {
        let Lease {
            checkpoint,
            settled_arrival_ms,
            parents,
            ..
        } = lease;
        let context = Arc::new(context);
        let mut versions = Versions::new(Arc::clone(&context));
        let options = context.options();
        let history = History::new(context.ports().recordings.clone(), options.filter.is_some());
        let terms = Terms {
            deadline: options.leases.plugin_deadline,
            keeps_state: options.keeps_state,
            is_alone: !options.parallelism.is_parallel(),
        };
        let shadowing = Shadowing::new(ShadowSettings {
            shadow: context.ports().rollout.shadow().clone(),
            tap: context.ports().tap.clone(),
            terms,
        });
        let (newest, meter) = (versions.newest(), context.meter().clone());
        let instance = Instance::new(newest, instance, terms, history, shadowing, meter);
        let ticks = Ticks::new(options.tick, context.tick_now());
        let traces = Traces::of(&context);
        let intake = Intake::new(Arc::clone(&context), &checkpoint);
        Self {
            gate,
            deliveries: Deliveries::new(Arc::clone(&context), instance),
            calls: Calls::default(),
            lacking_instance: None,
            trouble: Trouble::new(Arc::clone(&context), intake.trouble()),
            intake,
            saving: Saving::new(Arc::clone(&context), checkpoint, settled_arrival_ms),
            ticks,
            versions,
            directions: Directions::new(directed),
            traces,
            parents,
            context,
        }
    }

    /// Runs until the shard ends, the lease is lost, or the pipeline is asked to drain.
    pub(crate) async fn run(mut self) -> PipelineEnd {
        match self.serve().await {
            Ok(()) => PipelineEnd::Ended,
            Err(Stopped::Draining) => self.drain().await,
            Err(Stopped::Stuck(reason)) => self.give_up(reason).await,
            Err(Stopped::Lost(reason)) => {
                // A courtesy to the guest; its output is dropped, since the shard is somebody
                // else's.
                self.calls_back().await;
                let _ = self.close_all(CloseReason::LeaseLost).await;
                PipelineEnd::Lost(reason)
            }
        }
    }

    async fn serve(&mut self) -> Result<(), Stopped> {
        self.obey().await?;
        self.take_up_version().await?;
        self.make_instance(0).await?;
        self.show_state(ShardState::Processing);
        if self.deliveries.parallelism().is_parallel() {
            return self.serve_strands().await;
        }
        loop {
            self.obey().await?;
            self.take_up_version().await?;
            self.make_room(0).await?;
            self.take_in_ready();
            self.pass_filtered();
            self.saving.show_unsettled(self.intake.first_arrival_ms());
            if self.saving.must_save_again() {
                self.save_again().await?;
            } else if let Some(halt) = self.deliveries.halted().cloned() {
                self.stay_halted(halt).await?;
            } else if self.is_tick_due() {
                self.tick().await?;
            } else if let Some(batch) = self.next_batch() {
                self.take_turn(batch).await?;
            } else if self.is_finished() {
                if self.finish_shard().await? {
                    return Ok(());
                }
            } else {
                self.wait().await?;
            }
        }
    }

    fn next_batch(&mut self) -> Option<Vec<Record>> {
        let delivery = self.deliveries.first_mut();
        delivery.next_batch(&mut self.intake, &mut self.saving)
    }

    /// Delivers a batch once, and does what is due after it.
    async fn take_turn(&mut self, batch: Vec<Record>) -> Result<(), Stopped> {
        if SeededBug::CheckpointsBeforeDelivery.is_on() {
            let last = batch.last().map(|record| record.position.clone());
            self.saving.misjudge(last);
            self.write_checkpoint().await?;
        }
        self.saving.delivering(&batch);
        if let Some(batch) = self.skip_some(0, batch).await? {
            let started = Stopwatch::start();
            self.deliver(batch).await?;
            self.deliveries.first_mut().took(started.elapsed());
        }
        self.write_if_due().await
    }

    /// Writes a checkpoint if one is due after a delivery.
    async fn write_if_due(&mut self) -> Result<(), Stopped> {
        if let Some(reason) = self.saving.checkpoint_due() {
            tracing::trace!(shard = %self.context.shard(), %reason, "checkpoint due");
            self.write_checkpoint().await?;
        }
        self.intake.was_left_alone();
        Ok(())
    }

    /// Whether all of the shard was read, and nothing of it is to be delivered any more.
    fn is_finished(&self) -> bool {
        self.intake.is_finished() && self.deliveries.have_nothing_waiting()
    }

    // Waiting.

    /// Waits for records, a full window, a record that is due again, a due tick or checkpoint, a
    /// new version, or the end.
    async fn wait(&mut self) -> Result<(), Stopped> {
        // While the shard waits for a record that is tried again, nothing is taken in: the reader
        // waits as well.
        let is_reading = self.may_go_on() && !self.intake.is_at_end();
        if is_reading {
            self.read_on();
        }
        let event = self.next_event(is_reading).await;
        self.apply(event).await?;
        if !is_reading {
            self.intake.reader_is_free();
        }
        Ok(())
    }

    async fn next_event(&mut self, is_reading: bool) -> Event {
        let may_go_on = self.may_go_on();
        let retry_in = self.retry_in();
        let batch_in = self.intake.batch_due_in();
        let checkpoint_in = self.saving.checkpoint_due_in();
        // Before it is asked when a tick is due: a step after that is noticed.
        let tick_clock_steps = self.context.ports().tick_clock.next_step();
        let tick_in = self.tick_in();
        let stalled_in = self.intake.stalled_in();
        let holds_back = self.saving.holds_back();
        self.context.enter(if retry_in.is_some() && !may_go_on {
            Stage::Waiting
        } else {
            Stage::Reading
        });
        tokio::select! {
            biased;
            stopped = self.gate.stopped() => Event::Stopped(stopped),
            () = self.directions.news() => Event::Due,
            () = self.versions.news() => Event::Due,
            chunk = self.intake.next_chunk(), if is_reading => Event::Chunk(chunk),
            () = after(retry_in) => Event::Due,
            () = after(batch_in), if may_go_on => Event::Due,
            () = after(tick_in) => Event::Due,
            () = tick_clock_steps => Event::Due,
            () = after(checkpoint_in) => Event::CheckpointDue,
            () = self.deliveries.first().instance().asked_for_room(), if !holds_back => Event::Due,
            () = self.trouble.reading_changed() => Event::ReadTrouble,
            () = tokio::time::sleep(stalled_in), if is_reading => Event::ReadStalled,
        }
    }

    async fn apply(&mut self, event: Event) -> Result<(), Stopped> {
        match event {
            Event::Stopped(stopped) => return Err(stopped),
            Event::Due => {}
            Event::Chunk(Some(chunk)) => self.intake.take_in(chunk),
            // It never ends before the shard does. A mistake of the host, which another build may
            // not have: so no shard is owned and not read.
            Event::Chunk(None) => return Err(Stopped::Stuck("its reader failed".to_owned())),
            Event::CheckpointDue => self.write_checkpoint().await?,
            Event::Returned(returned) => self.returned(returned).await?,
            Event::ReadTrouble => self.note_progress(),
            Event::ReadStalled => self.reading_stalled()?,
        }
        Ok(())
    }

    fn may_go_on(&self) -> bool {
        self.deliveries.first().may_go_on(&self.intake)
    }

    fn retry_in(&self) -> Option<Duration> {
        let at = self.deliveries.first().next_retry(&self.intake)?;
        Some(at.since(self.context.now()))
    }

    /// Waits between tries, but not when there is something new to try.
    async fn wait_to_retry(&mut self, failures: u32) -> Result<(), Stopped> {
        self.context.enter(Stage::Waiting);
        let wait = self.context.back_off(failures);
        let checkpoint_in = self.saving.checkpoint_due_in();
        let mut waited = std::pin::pin!(tokio::time::sleep(wait));
        tokio::select! {
            biased;
            stopped = self.gate.stopped() => return Err(stopped),
            () = self.versions.news() => return Ok(()),
            () = self.directions.news() => return Ok(()),
            () = &mut waited => return Ok(()),
            () = after(checkpoint_in) => {}
        }
        // What is settled below a failing record is written down while the record waits.
        self.write_checkpoint().await?;
        self.context.enter(Stage::Waiting);
        tokio::select! {
            stopped = self.gate.stopped() => Err(stopped),
            () = self.directions.news() => Ok(()),
            () = waited => Ok(()),
        }
    }

    // Reading.

    /// If reading was shut: goes on right after the last record that was handed out.
    fn read_on(&mut self) {
        if self.intake.is_shut() {
            self.intake.reopen(&self.saving.handed_out_checkpoint());
        }
    }

    /// Takes in what was read, if there is nothing new at hand: a shard that always has a key to
    /// try again never waits for it.
    fn take_in_ready(&mut self) {
        let may_go_on = if self.deliveries.parallelism().is_parallel() {
            self.deliveries.have_room()
        } else {
            self.may_go_on()
        };
        if !self.intake.has_something() && may_go_on {
            self.read_on();
            self.intake.take_ready();
        }
    }

    /// Passes what the plugin does not get, in its turn. Only between two deliveries: records of a
    /// batch count as handed out once it is reported.
    fn pass_filtered(&mut self) {
        while let Some(filtered) = self.intake.take_filtered() {
            self.saving.pass(&filtered);
            self.settle();
        }
    }

    /// Starts reading again right after what is settled, and forgets what was fetched since. No
    /// living instance holds any of it back.
    fn rewind(&mut self) {
        let checkpoint = self.saving.settled_checkpoint();
        self.saving.rewind();
        self.deliveries.rewind();
        self.intake.restart(&checkpoint);
    }

    /// The reader is replaced once; if that does not help either, another host may reach what this
    /// one cannot.
    fn reading_stalled(&mut self) -> Result<(), Stopped> {
        let deadline = self.context.options().heard_within();
        match self.intake.judge_stall() {
            ReadStall::GoOn => Ok(()),
            ReadStall::Replace => {
                let shard = self.context.shard();
                tracing::warn!(%shard, ?deadline, code = "reader-replaced",
                    "nothing could be read, replacing the reader");
                let last = self.saving.handed_out_checkpoint();
                self.intake.replace_reader(&last);
                Ok(())
            }
            ReadStall::GiveUp => Err(Stopped::Stuck(format!(
                "nothing could be read for {:?}",
                deadline * 2
            ))),
        }
    }

    // Checkpoint and state.

    /// Stores outputs, then writes what is settled, if that is news.
    async fn write_checkpoint(&mut self) -> Result<(), Stopped> {
        self.save_state().await;
        let Some(checkpoint) = self.saving.unwritten() else {
            self.saving.nothing_to_write();
            return Ok(());
        };
        let flush = self.saving.flush(&mut self.gate);
        self.intake.unless_long(flush).await?;
        self.gate.check_held()?;
        self.context.enter(Stage::Checkpointing);
        let started_ns = self.traces.settling();
        let write = self.saving.write_of(checkpoint.clone(), self.progress());
        if self.context.keeper().checkpoint(write).await.is_err() {
            return Err(self.why_refused());
        }
        self.traces.settled(&checkpoint, started_ns);
        self.saving.written(checkpoint);
        Ok(())
    }

    /// Has the instance save its state, if that is the state of all records handed out; they are
    /// settled by it.
    ///
    /// If it fails, nothing is settled, and nothing more is delivered until it has worked or a new
    /// instance has taken over.
    async fn save_state(&mut self) {
        // A dead instance took with it what was not saved.
        if !self.saving.may_save_state() || self.deliveries.have_lost(&self.saving) {
            return;
        }
        match self.state_to_save().await {
            Ok(state) => {
                let failures = self.saving.state_saved(state);
                self.settle();
                self.works_again(failures);
            }
            Err(error) => {
                let failures = self.saving.save_failed();
                let reason = format!("cannot save the plugin's state: {error}");
                self.failed(failures, error.code(), reason);
                if self.deliveries.have_lost(&self.saving) {
                    self.rewind();
                }
            }
        }
    }

    async fn state_to_save(&mut self) -> Result<Bytes, ProcessorError> {
        let instance = self.deliveries.first_mut().instance_mut();
        if !instance.is_alive() {
            // All that came since was given up: the state is the one that was saved last.
            let state = self.saving.state_to_load().await?;
            instance.ensure(state, self.saving.start_position()).await?;
        }
        let saved = instance.save().await;
        if let Err(error) = &saved
            && !error.is_hosts()
            && self.versions.did_not_save(instance.digest(), error)
        {
            instance.kill();
        }
        saved
    }

    /// Waits, and saves the plugin's state again.
    async fn save_again(&mut self) -> Result<(), Stopped> {
        let failures = self.saving.save_again();
        self.wait_to_retry(failures).await?;
        self.write_checkpoint().await
    }

    /// Takes over how far everything is settled.
    fn settle(&mut self) {
        self.deliveries.settle(&mut self.intake, &mut self.saving);
    }

    /// The keeper refuses only once the lease is gone, or to be given up.
    fn why_refused(&self) -> Stopped {
        let held = self.gate.check_held();
        held.err()
            .unwrap_or(Stopped::Lost(LossReason::DeadlinePassed))
    }
}

/// Returns after `wait`; never if there is none.
async fn after(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
