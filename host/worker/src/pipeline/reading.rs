//! The consumer's side of reading: starts the reader, sees that it gets anywhere, and shuts it
//! while the shard does not.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::lease::Checkpoint;
use shardmill_core::time::Moment;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::buffer::Buffer;
use super::consumer::Consumer;
use super::fetch::{CHUNKS_MAX, Chunk, HeldUp, ShardReader, Start};
use crate::holding::Stopped;

/// From here on a shard whose records fail lets go of what it read ahead: longer than ordinary
/// hiccups.
const FAILS_FROM: Duration = Duration::from_secs(10);
/// The same for a shard that waits for a sink. Longer, since a sink may be slow and well: each
/// batch would be read again.
const STORES_LONG_FROM: Duration = Duration::from_secs(30);

/// What is being read, and whether the reader gets anywhere.
pub(super) struct Reading {
    pub(super) chunks: mpsc::Receiver<Chunk>,
    // Aborts the reader when the consumer is gone.
    task: JoinSet<()>,
    /// What was read ahead was let go of, and nothing is read.
    is_shut: bool,
    /// When Kinesis last gave a good reply, or a refusal that every host would get, or the host
    /// stopped holding it up.
    heard_at: Arc<watch::Sender<Moment>>,
    /// Why the shard cannot be read, once that lasts.
    trouble: Arc<watch::Sender<Option<String>>>,
    pub(super) told: watch::Receiver<Option<String>>,
    /// Whether the reader waits for this host.
    held_up: HeldUp,
    /// When the reader last had nothing to wait for but Kinesis.
    pub(super) free_since: Moment,
    /// When it was made anew because it did not get anywhere.
    restarted_at: Option<Moment>,
    /// When the plugin last handled something of what was read.
    handled_at: Moment,
}

impl Reading {
    /// Nothing is read yet.
    pub(super) fn new(now: Moment) -> Self {
        let (_, chunks) = mpsc::channel(CHUNKS_MAX);
        let (trouble, told) = watch::channel(None);
        Self {
            chunks,
            task: JoinSet::new(),
            is_shut: false,
            heard_at: Arc::new(watch::channel(now).0),
            trouble: Arc::new(trouble),
            told,
            held_up: HeldUp::default(),
            free_since: now,
            restarted_at: None,
            handled_at: now,
        }
    }

    /// The plugin handled something: the shard gets on, also while nothing more can be read.
    pub(super) fn note_handled(&mut self, now: Moment) {
        self.handled_at = now;
    }

    /// How long until nothing was heard for a whole `deadline`.
    pub(super) fn stalled_in(&self, deadline: Duration, now: Moment) -> Duration {
        let heard_at = *self.heard_at.borrow();
        (heard_at.max(self.free_since) + deadline).since(now)
    }

    /// Nothing was taken from the reader for a while. If it has no room for more, it waited for
    /// this consumer, and not for Kinesis; or else a shard that always has something to try again
    /// would never find that nothing can be read.
    pub(super) fn was_left_alone(&mut self, now: Moment) {
        if self.chunks.capacity() == 0 {
            self.free_since = now;
        }
    }

    /// Reads no more. What was read may still be delivered.
    pub(super) fn abort(&mut self) {
        self.task.abort_all();
    }

    /// Waits for `storing`; if that takes long, the shard lets go of what it read ahead in the
    /// meantime.
    pub(super) async fn unless_long<T>(
        &mut self,
        storing: impl Future<Output = T>,
        buffer: &mut Buffer,
    ) -> T {
        let mut storing = std::pin::pin!(storing);
        tokio::select! {
            biased;
            stored = &mut storing => return stored,
            () = tokio::time::sleep(STORES_LONG_FROM) => self.shut(buffer),
        }
        storing.await
    }

    /// Reads no more, and lets go of what was read and not handed out: nothing of it is
    /// acknowledged, and it is read again once the shard gets on.
    fn shut(&mut self, buffer: &mut Buffer) {
        self.task = JoinSet::new();
        self.chunks = mpsc::channel(CHUNKS_MAX).1;
        self.is_shut = true;
        buffer.forget_new();
    }
}

impl Consumer {
    /// Makes the reader anew. It goes on right after the last record that was handed out: what is
    /// tried again, or held back by the instance, is in hand, and nothing of it is read twice.
    pub(super) fn read_anew(&mut self) {
        self.reading.shut(&mut self.buffer);
        self.read_on();
    }

    /// Starts reading again right after what is settled, and forgets what was fetched since. No
    /// living instance holds any of it back.
    pub(super) fn rewind(&mut self) {
        let checkpoint = self
            .headway
            .settled
            .clone()
            .map_or_else(|| self.headway.written.clone(), Checkpoint::At);
        self.headway.ledger.rewind();
        self.retries.rewind();
        self.buffer = Buffer::default();
        self.read_after(&checkpoint);
    }

    /// If reading was shut: goes on right after the last record that was handed out.
    pub(super) fn read_on(&mut self) {
        if self.reading.is_shut {
            let last = self.headway.ledger.handed_out().cloned();
            self.read_after(&last.map_or_else(|| self.headway.written.clone(), Checkpoint::At));
            self.reading.free_since = self.ports.clock.now();
        }
    }

    /// Takes in what was read, if there is nothing new at hand: a shard that always has a key to
    /// try again never waits for it.
    pub(super) fn take_in_ready(&mut self) {
        let has_some =
            self.buffer.has_new() || self.buffer.has_again() || self.buffer.ended.is_some();
        if has_some || !self.may_go_on() {
            return;
        }
        self.read_on();
        if let Ok(chunk) = self.reading.chunks.try_recv() {
            self.reading.free_since = self.ports.clock.now();
            self.buffer.push(chunk);
        }
    }

    fn read_after(&mut self, checkpoint: &Checkpoint) {
        self.reading.task = JoinSet::new();
        self.reading.is_shut = false;
        // A finished lease is never taken; should it happen all the same, there is nothing to
        // read.
        let Some(from) = checkpoint.read_from(&self.ports.start) else {
            return;
        };
        let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
        let reader = ShardReader {
            reader: Arc::clone(&self.ports.reader),
            fan_out: self.ports.fan_out.clone(),
            clock: Arc::clone(&self.ports.clock),
            budget: self.ports.budget.clone(),
            options: Arc::clone(&self.options),
            status: self.status.clone(),
            signs: self.signs.clone(),
            shard: self.shard.clone(),
            chunks: sender,
            heard_at: Arc::clone(&self.reading.heard_at),
            trouble: Arc::clone(&self.reading.trouble),
            held_up: self.reading.held_up.clone(),
            identity: self.ports.identity,
            doubts: Arc::clone(&self.ports.doubts),
        };
        self.reading.chunks = chunks;
        let reading = reader.run(Start {
            from,
            settled: checkpoint.position().cloned(),
        });
        self.reading
            .task
            .spawn(self.ports.freezer.clone().guard(reading));
    }

    /// The shard does not get on: after some seconds of that, it holds no more than what it tries
    /// again.
    pub(super) fn hold_little(&mut self) {
        let now = self.ports.clock.now();
        let since = *self.failing_since.get_or_insert(now);
        if now.since(since) >= FAILS_FROM {
            self.let_go();
        }
    }

    /// Holds no more than what was handed out and is to be delivered again.
    pub(super) fn let_go(&mut self) {
        if !self.reading.is_shut {
            tracing::debug!(shard = %self.shard, "the shard makes no progress, dropping what was read ahead");
            self.reading.shut(&mut self.buffer);
        }
    }

    /// No good reply for a whole deadline: the reader is made anew once, which also makes a new
    /// iterator; if that does not help either, another host may reach what this one cannot. Not
    /// while the plugin still works off what was read before: that would be delivered again there.
    pub(super) fn reading_stalled(&mut self) -> Result<(), Stopped> {
        let deadline = self.options.heard_within();
        let now = self.ports.clock.now();
        if self.reading.held_up.is_set() {
            // It waits for room in the host's buffer, which says nothing of Kinesis.
            self.reading.free_since = now;
        }
        if !self.reading.stalled_in(deadline, now).is_zero() {
            return Ok(());
        }
        let heard_at = *self.reading.heard_at.borrow();
        if self.reading.restarted_at.is_some_and(|at| at >= heard_at) {
            if now.since(self.reading.handled_at) < deadline {
                self.reading.free_since = self.reading.handled_at;
                return Ok(());
            }
            return Err(Stopped::Stuck(format!(
                "nothing could be read for {:?}",
                deadline * 2
            )));
        }
        tracing::warn!(shard = %self.shard, ?deadline, "nothing could be read, replacing the reader");
        self.reading.restarted_at = Some(now);
        self.reading.free_since = now;
        self.read_anew();
        Ok(())
    }
}
