//! The consumer of one shard: the task that owns its instance, its position and its progress.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::fleet::{ApplicationStart, StreamIdentity};
use shardmill_core::lease::{Checkpoint, LossReason};
use shardmill_core::pipeline::{Arrivals, HeldBack, Ledger, Retries, Unwritten};
use shardmill_core::ports::{
    CheckpointWrite, Clock, CloseReason, Coordinator, DeadLetters, InstanceContext, LeaseStore,
    ProcessorFactory, Progress, Sink, StreamReader,
};
use shardmill_core::rollout::Site;
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Position, ShardId};
use shardmill_core::time::Moment;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::buffer::Buffer;
use super::instance::Instance;
use super::log_allowance::LogAllowance;
use super::output::Output;
use super::reading::Reading;
use super::state::Saving;
use super::trial::Trial;
use crate::budget::ByteShare;
use crate::fan_out::FanOutView;
use crate::freezer::Freezer;
use crate::holding::{Gate, KeeperHandle, Stopped};
use crate::metrics;
use crate::options::WorkerOptions;
use crate::rollout::RolloutView;
use crate::signs::{Signs, Stage};
use crate::status::{ShardState, StatusBoard};

/// What a consumer needs of the world.
#[derive(Clone)]
pub(crate) struct ConsumerPorts {
    pub(crate) reader: Arc<dyn StreamReader>,
    /// Set if shards are subscribed to where that is possible.
    pub(crate) fan_out: Option<FanOutView>,
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) dead_letters: Arc<dyn DeadLetters>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) budget: ByteShare,
    pub(crate) versions: watch::Receiver<Arc<dyn ProcessorFactory>>,
    pub(crate) coordinator: Arc<dyn Coordinator>,
    pub(crate) freezer: Freezer,
    /// The stream whose checkpoints these are.
    pub(crate) identity: StreamIdentity,
    /// Where the application began on it.
    pub(crate) start: ApplicationStart,
    /// Told when the stream may be another one.
    pub(crate) doubts: Arc<Notify>,
    /// Which version each shard runs.
    pub(crate) rollout: RolloutView,
    /// What the log may get of records that are given up.
    pub(crate) given_up_lines: Arc<LogAllowance>,
}

/// How a pipeline ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PipelineEnd {
    /// The shard's end is checkpointed and its children have leases.
    Ended,
    /// Checkpointed and given back.
    Released,
    /// The lease is gone.
    Lost(LossReason),
    /// Given back, because the shard did not get on here.
    GaveUp(String),
    /// Given up, but the row cannot be written: it still names this worker.
    Unreleased(String),
    /// It panicked, a mistake of the host: the row still names this worker.
    Failed(String),
}

/// Serves one shard under one holding.
pub(crate) struct Consumer {
    pub(super) ports: ConsumerPorts,
    pub(super) options: Arc<WorkerOptions>,
    pub(super) status: StatusBoard,
    pub(super) signs: Signs,
    pub(super) shard: ShardId,
    pub(super) gate: Gate,
    pub(super) keeper: KeeperHandle,
    pub(super) instance: Instance,
    pub(super) output: Output,
    pub(super) buffer: Buffer,
    pub(super) headway: Headway,
    pub(super) retries: Retries,
    pub(super) saving: Saving,
    /// Why it does not get on, as the row says.
    pub(super) stuck: Option<String>,
    /// What the row says of the last record given up.
    pub(super) last_given_up: Option<String>,
    /// Calls of the plugin in a row that did not come back.
    pub(super) hangs: u32,
    /// This shard's part in the trial of versions.
    pub(super) trial: Trial,
    pub(super) reading: Reading,
    /// Since when it has made no progress.
    pub(super) failing_since: Option<Moment>,
    /// Whether the shard is shown as blocked.
    pub(super) is_blocked: bool,
}

/// How far this holding has come.
pub(super) struct Headway {
    /// The checkpoint in the row.
    pub(super) written: Checkpoint,
    /// What came of the records handed out.
    pub(super) ledger: Ledger,
    /// The last record that may be checkpointed once outputs are flushed, as the ledger has it.
    pub(super) settled: Option<Position>,
    pub(super) unwritten: Unwritten,
    pub(super) arrivals: Arrivals,
    pub(super) held_back: HeldBack,
}

impl Consumer {
    pub(crate) fn new(
        ports: ConsumerPorts,
        options: Arc<WorkerOptions>,
        (status, signs): (StatusBoard, Signs),
        context: Arc<InstanceContext>,
        (gate, keeper): (Gate, KeeperHandle),
        checkpoint: Checkpoint,
    ) -> Self {
        let shard = context.shard.clone();
        let output = Output {
            sink: Arc::clone(&ports.sink),
            dead_letters: Arc::clone(&ports.dead_letters),
            backoff: options.backoff,
            signs: signs.clone(),
            plugin: options.plugin.clone(),
            shard: shard.clone(),
            deadline: options.leases.checkpoint_deadline,
            unflushed: BTreeSet::new(),
        };
        let mut ports = ports;
        let version = Arc::clone(&ports.versions.borrow_and_update());
        let trial = Trial::new(
            ports.rollout.clone(),
            Site {
                plugin: options.plugin.clone(),
                shard: shard.clone(),
            },
        );
        let headway = Headway {
            written: checkpoint,
            ledger: if options.keeps_state {
                Ledger::with_state()
            } else {
                Ledger::default()
            },
            settled: None,
            unwritten: Unwritten::default(),
            arrivals: Arrivals::default(),
            held_back: HeldBack::default(),
        };
        let reading = Reading::new(ports.clock.now());
        let mut consumer = Self {
            instance: Instance::new(
                version,
                context,
                options.leases.plugin_deadline,
                options.keeps_state,
            ),
            buffer: Buffer::default(),
            ports,
            options,
            status,
            signs,
            shard,
            gate,
            keeper,
            output,
            headway,
            retries: Retries::default(),
            saving: Saving::default(),
            stuck: None,
            last_given_up: None,
            hangs: 0,
            trial,
            reading,
            failing_since: None,
            is_blocked: false,
        };
        consumer.rewind();
        consumer
    }

    /// Runs until the shard ends, the lease is lost, or the pipeline is told to drain.
    pub(crate) async fn run(mut self) -> PipelineEnd {
        match self.consume().await {
            Ok(()) => PipelineEnd::Ended,
            Err(Stopped::Draining) => self.drain().await,
            Err(Stopped::Stuck(reason)) => self.give_up(reason).await,
            Err(Stopped::Lost(reason)) => {
                // A courtesy to the guest; its output is dropped, since the shard is somebody
                // else's.
                let _ = self.instance.close(CloseReason::LeaseLost).await;
                PipelineEnd::Lost(reason)
            }
        }
    }

    async fn consume(&mut self) -> Result<(), Stopped> {
        self.take_up_version().await?;
        self.make_instance().await?;
        self.status
            .update_shard(&self.shard, |status| status.state = ShardState::Processing);
        loop {
            self.take_up_version().await?;
            self.make_room().await?;
            self.take_in_ready();
            self.show_unsettled();
            if self.must_save_again() {
                self.save_again().await?;
            } else if let Some(halt) = self.retries.halted().cloned() {
                self.stay_halted(halt).await?;
            } else if let Some(batch) = self.next_batch() {
                if SeededBug::CheckpointsBeforeDelivery.is_on() {
                    self.headway.settled = batch.last().map(|record| record.position.clone());
                    self.write_checkpoint().await?;
                }
                self.headway
                    .arrivals
                    .delivering(&batch, self.headway.settled.as_ref());
                let started = Instant::now();
                self.deliver(batch).await?;
                self.retries.took(started.elapsed(), self.ports.clock.now());
                self.checkpoint_if_due().await?;
                self.reading.was_left_alone(self.ports.clock.now());
            } else if self.is_finished() {
                if self.finish_shard().await? {
                    return Ok(());
                }
            } else {
                self.wait().await?;
            }
        }
    }

    /// Whether all of the shard was read, and nothing of it is to be delivered any more.
    fn is_finished(&self) -> bool {
        self.buffer.ended.is_some() && self.buffer.is_empty() && self.retries.parked().is_empty()
    }

    /// Waits for records, a full window, a record that is due again, a due checkpoint, a new
    /// version, or the end.
    async fn wait(&mut self) -> Result<(), Stopped> {
        let now = self.ports.clock.now();
        let checkpoint_in = self
            .headway
            .unwritten
            .due_in(&self.options.checkpoints, now);
        // While the shard waits for a record that is tried again, nothing is taken in: the reader
        // waits as well.
        let may_go_on = self.may_go_on();
        let window_in = self
            .buffer
            .due_in(&self.options.batches)
            .filter(|_| may_go_on);
        let retry_in = self.next_retry().map(|at| at.since(now));
        let holds_back = self.holds_back();
        let heard_within = self.options.heard_within();
        let is_reading = may_go_on && self.buffer.ended.is_none();
        if is_reading {
            self.read_on();
        }
        let stalled_in = self.reading.stalled_in(heard_within, now);
        self.signs.enter(if retry_in.is_some() && !may_go_on {
            Stage::Waiting
        } else {
            Stage::Reading
        });
        tokio::select! {
            biased;
            stopped = self.gate.stopped() => return Err(stopped),
            () = self.ports.version_news() => {}
            chunk = self.reading.chunks.recv(), if is_reading => match chunk {
                Some(chunk) => {
                    self.reading.free_since = self.ports.clock.now();
                    self.buffer.push(chunk);
                }
                // It never ends before the shard does. A mistake of the host, which another build
                // may not have: so no shard is owned and not read.
                None => return Err(Stopped::Stuck("its reader failed".to_owned())),
            },
            () = tokio::time::sleep(retry_in.unwrap_or_default()), if retry_in.is_some() => {}
            () = tokio::time::sleep(window_in.unwrap_or_default()), if window_in.is_some() => {}
            () = tokio::time::sleep(checkpoint_in.unwrap_or_default()), if checkpoint_in.is_some() => {
                self.write_checkpoint().await?;
            }
            () = self.instance.asked_for_room(), if !holds_back => {}
            Ok(()) = self.reading.told.changed() => self.keeper.note(self.progress()),
            () = tokio::time::sleep(stalled_in), if is_reading => self.reading_stalled()?,
        }
        if !is_reading {
            self.reading.free_since = self.ports.clock.now();
        }
        Ok(())
    }

    async fn checkpoint_if_due(&mut self) -> Result<(), Stopped> {
        match self
            .headway
            .unwritten
            .due(&self.options.checkpoints, self.ports.clock.now())
        {
            Some(reason) => {
                tracing::trace!(shard = %self.shard, %reason, "checkpoint due");
                self.write_checkpoint().await
            }
            None => Ok(()),
        }
    }

    /// Stores outputs, then writes what is settled, if that is news.
    pub(super) async fn write_checkpoint(&mut self) -> Result<(), Stopped> {
        self.save_state().await;
        let settled = self
            .headway
            .settled
            .clone()
            .map(|position| (Checkpoint::At(position.clone()), position));
        let Some((checkpoint, position)) =
            settled.filter(|(checkpoint, _)| *checkpoint > self.headway.written)
        else {
            self.nothing_to_write();
            return Ok(());
        };
        let Self {
            output,
            gate,
            reading,
            buffer,
            ..
        } = self;
        reading.unless_long(output.flush(gate), buffer).await?;
        self.gate.check_held()?;
        self.signs.enter(Stage::Checkpointing);
        let write = CheckpointWrite {
            position,
            progress: self.progress(),
            state: self.saving.unwritten.clone(),
        };
        if self.keeper.checkpoint(write).await.is_err() {
            return Err(self.why_refused());
        }
        self.saving.unwritten = None;
        self.headway.written = checkpoint.clone();
        self.headway.unwritten.clear();
        ::metrics::counter!(metrics::CHECKPOINTS, "plugin" => self.options.plugin.to_string())
            .increment(1);
        let now = Duration::from_millis(self.ports.clock.wall_ms()).as_secs_f64();
        self.signs.gauge(metrics::CHECKPOINTED, now);
        self.status
            .update_shard(&self.shard, |status| status.checkpoint = checkpoint);
        Ok(())
    }

    /// All of it is held back. Nothing is due until some of it is settled, or this would be asked
    /// for ever.
    fn nothing_to_write(&mut self) {
        if self.options.keeps_state && self.holds_back() {
            // What could not be saved now is to be saved as soon as it can be.
            self.headway.unwritten.postpone(self.ports.clock.now());
        } else {
            self.headway.unwritten.clear();
        }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            plugin_digest: Some(self.instance.digest().clone()),
            millis_behind_latest: self.millis_behind_latest(),
            settled_arrival_ms: self.settled_arrival_ms(),
            // The keeper measures it.
            bytes_per_second: None,
            stuck: self
                .stuck
                .clone()
                .or_else(|| self.signs.note())
                .or_else(|| self.reading.told.borrow().clone()),
            given_up: self.last_given_up.clone(),
        }
    }

    /// How far the tip was ahead of what is in delivery; of the last reply, an empty one too, once
    /// all is delivered. The reader may be at the tip long before: that is not where the plugin is.
    /// At least the age of what is not settled.
    fn millis_behind_latest(&self) -> Option<u64> {
        let (fetched, behind) = self.status.last_reply(&self.shard);
        let ledger = &self.headway.ledger;
        let is_all_delivered = ledger.handed_out() >= fetched.as_ref() && !ledger.is_busy();
        let behind = if is_all_delivered {
            behind
        } else {
            self.buffer.millis_behind_latest
        };
        behind.max(self.signs.age_ms())
    }

    /// Shows what is fetched and not settled.
    fn show_unsettled(&mut self) {
        let delivered = self
            .headway
            .arrivals
            .oldest_after(self.headway.settled.as_ref());
        let oldest_ms = delivered.or_else(|| self.buffer.first_arrival_ms());
        if !self.holds_back() {
            self.headway.held_back.clear();
        }
        self.signs
            .unsettled(oldest_ms, self.headway.held_back.records());
    }

    /// When the last settled record arrived, as Kinesis said.
    pub(super) fn settled_arrival_ms(&self) -> Option<u64> {
        self.headway.arrivals.up_to(self.headway.settled.as_ref()?)
    }

    /// Whether the guest holds back delivered records, so that a new instance must get them again.
    pub(super) fn holds_back(&self) -> bool {
        self.headway.ledger.holds_back()
    }
}
