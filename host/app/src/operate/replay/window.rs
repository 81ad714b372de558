//! Records of a stream between two times, as letters for the engine: shard after shard, parents
//! before their children, each from where an earlier run of the same replay has come.

mod order;
mod progress;

use anyhow::Context;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::{DeadLetter, Fetched, StreamReader};
use shardmill_core::stream::{Position, ReadFrom, Record, ShardId, StreamName};
use tokio_util::sync::CancellationToken;

pub(super) use self::order::WindowOrder;
use self::progress::Progress;
use crate::shard_cursor::{CALL_EVERY, ShardCursor, pause, user_records};

/// The records that one call brought.
pub(super) struct Portion {
    /// Their shard.
    pub(super) shard: ShardId,
    /// In order; none that was processed before, or that the plugin's filter keeps out.
    pub(super) letters: Vec<DeadLetter>,
    /// How many the filter kept out.
    pub(super) filtered: u64,
    /// Whether the window has no more of this shard.
    pub(super) is_last: bool,
}

/// Whether the plugin gets a record.
pub(super) type Passes = Box<dyn Fn(&Record) -> bool + Send>;

/// See the module's description.
pub(super) struct Window {
    reader: Box<dyn StreamReader>,
    order: WindowOrder,
    passes: Passes,
    digest: PluginDigest,
    progress: Progress,
    /// The shards that are left, the next one last.
    left: Vec<ShardId>,
    /// Of the next one.
    cursor: Option<ShardCursor>,
}

impl Window {
    /// Takes up what an earlier run has left. The progress file is this run's alone until it ends.
    pub(super) async fn open(
        reader: Box<dyn StreamReader>,
        order: WindowOrder,
        digest: PluginDigest,
        passes: Passes,
    ) -> anyhow::Result<Self> {
        let progress = Progress::open(&order, &digest)?;
        let mut left = order.shards(reader.as_ref()).await?;
        left.retain(|shard| !progress.is_done(shard));
        left.reverse();
        // By this file the next run knows that what is left is of this replay, however early this
        // one dies.
        progress.save()?;
        Ok(Self {
            reader,
            order,
            passes,
            digest,
            progress,
            left,
            cursor: None,
        })
    }

    /// What comes next; `None` at the end of the window, or if a signal came.
    pub(super) async fn next(
        &mut self,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<Portion>> {
        while let Some(shard) = self.left.last().cloned() {
            if stop.is_cancelled() {
                return Ok(None);
            }
            let is_first = self.cursor.is_none();
            let from = self.start_in(&shard);
            let cursor = self.cursor.get_or_insert_with(|| ShardCursor::at(from));
            if !is_first {
                pause(CALL_EVERY, stop).await;
            }
            let reply = cursor.read_patiently(self.reader.as_ref(), &shard, stop);
            let reply = reply
                .await
                .with_context(|| format!("cannot read {shard} of {}", self.order.stream))?;
            if let Some(reply) = reply {
                return Ok(Some(self.portion(shard, reply)));
            }
        }
        Ok(None)
    }

    fn start_in(&self, shard: &ShardId) -> ReadFrom {
        match self.progress.position(shard) {
            // The rest of an aggregate may be left.
            Some(position) => ReadFrom::AtSequenceNumber(position.sequence.clone()),
            None => ReadFrom::AtTimestamp(self.order.from_ms),
        }
    }

    fn portion(&self, shard: ShardId, reply: Fetched) -> Portion {
        let is_last = self.is_last(&reply);
        let done = self.progress.position(&shard);
        let records = reply.records.into_iter();
        let records = records.take_while(|record| !self.is_past(record));
        let news = records
            .flat_map(user_records)
            .filter(|record| done.is_none_or(|done| record.position > *done));
        let (passing, filtered): (Vec<Record>, Vec<Record>) =
            news.partition(|record| (self.passes)(record));
        let passing = passing.into_iter();
        Portion {
            letters: passing.map(|record| self.letter(&shard, record)).collect(),
            filtered: filtered.len() as u64,
            shard,
            is_last,
        }
    }

    fn is_last(&self, reply: &Fetched) -> bool {
        let is_at_tip = reply.records.is_empty() && reply.millis_behind_latest == Some(0);
        is_at_tip || reply.next.is_none() || reply.records.iter().any(|record| self.is_past(record))
    }

    fn is_past(&self, record: &Record) -> bool {
        record.arrival_ms >= self.order.to_ms
    }

    fn letter(&self, shard: &ShardId, record: Record) -> DeadLetter {
        let order = &self.order;
        DeadLetter {
            record,
            stream: order.stream.clone(),
            shard: shard.clone(),
            application: order.application.clone(),
            plugin: order.plugin.clone(),
            digest: self.digest.clone(),
            reason: "not tried".to_owned(),
            attempts: 0,
            failed_at_ms: 0,
        }
    }

    /// Everything of the shard up to here is processed, or stored among what is left.
    pub(super) fn settled(&mut self, shard: &ShardId, position: Position) {
        self.progress.settled(shard, position);
    }

    /// The window has no more of the shard that `next` gave last.
    pub(super) fn ended(&mut self, shard: &ShardId) {
        self.progress.ended(shard);
        self.left.retain(|other| other != shard);
        self.cursor = None;
    }

    /// Stores how far the replay has come.
    pub(super) fn save(&self) -> anyhow::Result<()> {
        self.progress.save()
    }

    /// Shards that the window has more of.
    pub(super) fn shards_left(&self) -> usize {
        self.left.len()
    }

    pub(super) fn stream(&self) -> &StreamName {
        &self.order.stream
    }
}

#[cfg(feature = "local")]
#[cfg(test)]
mod tests;
