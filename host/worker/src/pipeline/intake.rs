//! What of a shard is read and free to deliver: starts the reader, sees that it makes progress, and
//! shuts it while the shard does not.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::lease::Checkpoint;
use shardmill_core::pipeline::{Others, ReadStall, ReadWatch};
use shardmill_core::stream::{Position, Record, Shard};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::buffer::Buffer;
use super::context::ShardContext;
use super::fetch::{CHUNKS_MAX, Chunk, ReaderWord, ShardReader, Start};
use super::filtered::Filtered;
use super::receptions::{Received, Receptions};

/// From here on a shard that waits for a sink drops what it read ahead. Longer than for one whose
/// records fail, since a sink may be slow and well: each batch would be read again.
const STORES_LONG_FROM: Duration = Duration::from_secs(30);

/// See the module's description.
pub(super) struct Intake {
    context: Arc<ShardContext>,
    buffer: Buffer,
    /// `None` if nothing is read, and what was read ahead was dropped.
    feed: Option<Feed>,
    word: ReaderWord,
    watch: ReadWatch,
    receptions: Receptions,
    restarts: u64,
}

/// A reader at work.
struct Feed {
    chunks: mpsc::Receiver<Chunk>,
    // Aborts the reader when it is dropped.
    task: JoinSet<()>,
}

impl Intake {
    /// Starts reading after `checkpoint`.
    pub(super) fn new(context: Arc<ShardContext>, checkpoint: &Checkpoint) -> Self {
        let now = context.now();
        let word = ReaderWord::new(now);
        let mut intake = Self {
            context,
            buffer: Buffer::default(),
            feed: None,
            word,
            watch: ReadWatch::new(now),
            receptions: Receptions::default(),
            restarts: 0,
        };
        intake.read_after(checkpoint);
        intake
    }

    /// Reads again after `checkpoint`, and forgets what was fetched before.
    pub(super) fn restart(&mut self, checkpoint: &Checkpoint) {
        self.buffer = Buffer::default();
        self.restarts += 1;
        self.read_after(checkpoint);
    }

    /// How often reading was restarted: what was handed out before the last time is not to be
    /// delivered any more.
    pub(super) fn restarts(&self) -> u64 {
        self.restarts
    }

    pub(super) fn is_shut(&self) -> bool {
        self.feed.is_none()
    }

    /// Reads on after `checkpoint`, once reading was shut.
    pub(super) fn reopen(&mut self, checkpoint: &Checkpoint) {
        self.read_after(checkpoint);
        self.watch.free(self.context.now());
    }

    /// Replaces the reader by one that reads after `checkpoint`: what is tried again, or held back
    /// by the instance, is in hand, and nothing of it is read twice.
    pub(super) fn replace_reader(&mut self, checkpoint: &Checkpoint) {
        self.shut();
        self.reopen(checkpoint);
    }

    /// Drops what was read and not handed out, and reads no more: nothing of it is acknowledged,
    /// and it is read again once the shard makes progress.
    fn shut(&mut self) {
        self.feed = None;
        self.buffer.forget_new();
    }

    /// Holds no more than what was handed out and is to be delivered again.
    pub(super) fn drop_read_ahead(&mut self) {
        if !self.is_shut() {
            tracing::debug!(
                shard = %self.context.shard(),
                "the shard makes no progress, dropping what was read ahead"
            );
            self.shut();
        }
    }

    /// Stops the reader. What was read may still be delivered.
    pub(super) fn stop(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.task.abort_all();
        }
    }

    /// Waits for `storing`; if that takes long, drops what was read ahead in the meantime.
    pub(super) async fn unless_long<T>(&mut self, storing: impl Future<Output = T>) -> T {
        let mut storing = std::pin::pin!(storing);
        tokio::select! {
            biased;
            stored = &mut storing => return stored,
            () = tokio::time::sleep(STORES_LONG_FROM) => self.shut(),
        }
        storing.await
    }

    /// The next chunk, to be handed to [`Intake::take_in`]; `None` if there is no reader any more,
    /// which never ends before the shard does. Cancel-safe.
    pub(super) async fn next_chunk(&mut self) -> Option<Chunk> {
        self.feed.as_mut()?.chunks.recv().await
    }

    pub(super) fn take_in(&mut self, chunk: Chunk) {
        self.reader_is_free();
        if let Some(received) = chunk.received
            && let (Some(first), Some(last)) = (chunk.records.first(), chunk.records.last())
        {
            let (first, last) = (first.position.clone(), last.position.clone());
            self.receptions.note(first, last, received);
        }
        self.buffer.push(chunk, self.context.now());
    }

    /// When the record at `position` came, if batches are traced and that was not long ago.
    pub(super) fn received(&self, position: &Position) -> Option<Received> {
        self.receptions.of(position)
    }

    /// Takes in what was read, if there is something.
    pub(super) fn take_ready(&mut self) {
        let ready = self.feed.as_mut().map(|feed| feed.chunks.try_recv());
        if let Some(Ok(chunk)) = ready {
            self.take_in(chunk);
        }
    }

    /// The reader has nothing to wait for but Kinesis, or need not read: its deadline begins again.
    pub(super) fn reader_is_free(&mut self) {
        self.watch.free(self.context.now());
    }

    /// Nothing was taken from the reader for a while. If it has no room for more, it waited for
    /// this pipeline, and not for Kinesis; or else a shard that always has something to try again
    /// would never find that nothing can be read.
    pub(super) fn was_left_alone(&mut self) {
        let is_full = |feed: &Feed| feed.chunks.capacity() == 0;
        if self.feed.as_ref().is_some_and(is_full) {
            self.reader_is_free();
        }
    }

    /// The plugin handled something: the shard makes progress, also while nothing more can be read.
    pub(super) fn note_handled(&mut self) {
        self.watch.handled(self.context.now());
    }

    /// How long until nothing was heard of Kinesis for a whole read deadline.
    pub(super) fn stalled_in(&self) -> Duration {
        let deadline = self.context.options().heard_within();
        self.watch
            .stalled_in(self.word.heard_at(), deadline, self.context.now())
    }

    /// What to do once nothing was heard of Kinesis for a whole read deadline.
    pub(super) fn judge_stall(&mut self) -> ReadStall {
        let now = self.context.now();
        if self.word.is_held_up() {
            // It waits for room in the host's buffer, which says nothing of Kinesis.
            self.watch.free(now);
        }
        let deadline = self.context.options().heard_within();
        self.watch.judge(self.word.heard_at(), deadline, now)
    }

    /// Why the shard cannot be read, once that lasts.
    pub(super) fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.word.trouble()
    }

    /// Whether something is at hand: records, or the shard's end.
    pub(super) fn has_something(&self) -> bool {
        !self.buffer.is_empty() || self.is_at_end()
    }

    /// Whether all of the shard was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.buffer.is_at_end()
    }

    /// Whether all of the shard was read and handed out.
    pub(super) fn is_finished(&self) -> bool {
        self.is_at_end() && self.buffer.is_empty()
    }

    /// The children that Kinesis named at the shard's end.
    pub(super) fn children(&self) -> Vec<Shard> {
        self.buffer.children()
    }

    /// Whether records came back to be delivered again.
    pub(super) fn has_again(&self) -> bool {
        self.buffer.has_again()
    }

    /// Whether a batch can go now.
    pub(super) fn is_batch_due(&self) -> bool {
        let limits = &self.context.options().batches;
        self.has_again() || self.buffer.is_batch_due(limits, self.context.now())
    }

    /// What there is to deliver that is not parked.
    pub(super) fn others(&self) -> Others {
        if self.is_batch_due() {
            return Others::Due;
        }
        let is_behind = !self.is_at_end() && !self.context.is_at_tip();
        if is_behind || !self.buffer.is_empty() {
            Others::Coming
        } else {
            Others::None
        }
    }

    /// How long until the window alone makes a batch due; `None` without records.
    pub(super) fn batch_due_in(&self) -> Option<Duration> {
        let limits = &self.context.options().batches;
        self.buffer.due_in(limits, self.context.now())
    }

    /// What is not for the plugin, if it comes before all new records at hand.
    pub(super) fn take_filtered(&mut self) -> Option<Filtered> {
        self.buffer.take_filtered()
    }

    /// The next batch of new records.
    pub(super) fn take_batch(&mut self) -> Vec<Record> {
        let limits = &self.context.options().batches;
        self.buffer.take_batch(limits, self.context.now())
    }

    /// The next record, of those that came back if there are any and else a new one, if it `fits`.
    pub(super) fn take_record_if(
        &mut self,
        is_new: bool,
        fits: impl FnOnce(&Record) -> bool,
    ) -> Option<Record> {
        self.buffer.take_record_if(is_new, self.context.now(), fits)
    }

    /// Puts records back that were handed out.
    pub(super) fn put_back(&mut self, records: impl IntoIterator<Item = Record>) {
        self.buffer.put_back(records);
    }

    /// Gives back the budget that settled records held.
    pub(super) fn settled(&mut self, bytes: usize) {
        self.buffer.settled(bytes);
    }

    /// When the first record at hand arrived, in milliseconds since the Unix epoch, if that is
    /// known.
    pub(super) fn first_arrival_ms(&self) -> Option<u64> {
        self.buffer.first_arrival_ms()
    }

    /// How far the tip was ahead of the last reply that was taken in; `None` before the first.
    pub(super) fn millis_behind_latest(&self) -> Option<u64> {
        self.buffer.millis_behind_latest()
    }

    fn read_after(&mut self, checkpoint: &Checkpoint) {
        // One reader at a time: the old one ends before the new one begins.
        self.feed = None;
        let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
        let mut task = JoinSet::new();
        // A finished lease is never taken; should it happen, there is nothing to read.
        if let Some(from) = checkpoint.read_from(&self.context.ports().start) {
            let reader = ShardReader::new(Arc::clone(&self.context), sender, self.word.clone());
            let start = Start {
                from,
                settled: checkpoint.position().cloned(),
            };
            let freezer = self.context.ports().freezer.clone();
            task.spawn(freezer.guard(reader.run(start)));
        }
        self.feed = Some(Feed { chunks, task });
    }
}
