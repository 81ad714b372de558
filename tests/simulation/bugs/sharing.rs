//! Several plugins of one host with a bug between them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use shardmill_core::fleet::{ApplicationStart, StreamIdentity};
use shardmill_core::ports::{Fetched, PacedBy, PortFuture, ReadError, ShardIterator, StreamReader};
use shardmill_core::stream::{ReadFrom, SequenceNumber, Shard, ShardId};
use shardmill_worker::ByteShare;

use super::PortBug;
use crate::plugins::PluginPlan;
use crate::world::lock;

/// The start of the application of a process that was first known, and its plugin.
pub(crate) type FirstStart = Arc<Mutex<Option<(String, ApplicationStart)>>>;

/// What plugins of one process have in common by mistake.
#[derive(Default)]
pub(crate) struct Mixed {
    pub(crate) share: Option<ByteShare>,
    pub(crate) reads: Arc<Mutex<Reads>>,
    pub(crate) start: FirstStart,
}

/// A stream's number, and one of its shards.
type Of = (usize, ShardId);

/// What was read by which plugin, as far as a bug asks.
#[derive(Default)]
pub(crate) struct Reads {
    /// The last record that was handed out of each shard, and to whom.
    last: BTreeMap<Of, (String, SequenceNumber)>,
    /// Who was told of a shard's end.
    ends: BTreeMap<Of, String>,
}

/// One plugin's reader: the decorator of what it shares.
pub(crate) struct WrongSharing {
    reader: Arc<dyn StreamReader>,
    bug: PortBug,
    plugin: String,
    stream: usize,
    reads: Arc<Mutex<Reads>>,
}

impl WrongSharing {
    /// The `reader` of `plan`'s plugin with `bug`.
    pub(crate) fn new(
        reader: Arc<dyn StreamReader>,
        bug: PortBug,
        plan: &PluginPlan,
        reads: Arc<Mutex<Reads>>,
    ) -> Self {
        Self {
            reader,
            bug,
            plugin: plan.name().to_owned(),
            stream: plan.stream,
            reads,
        }
    }

    /// Whether another plugin was told that the shard has ended.
    fn is_ended_for_another(&self, shard: &ShardId, fetched: &Fetched) -> bool {
        let mut reads = lock(&self.reads);
        let first = || self.plugin.clone();
        fetched.next.is_none()
            && *reads
                .ends
                .entry((self.stream, shard.clone()))
                .or_insert_with(first)
                != self.plugin
    }

    /// Where a plugin begins that asks for `from`.
    fn from(&self, shard: &ShardId, from: &ReadFrom) -> ReadFrom {
        match lock(&self.reads).last.get(&(self.stream, shard.clone())) {
            Some((other, last))
                if self.bug == PortBug::BeginsWhereAnotherIs && *other != self.plugin =>
            {
                ReadFrom::AfterSequenceNumber(last.clone())
            }
            _ => from.clone(),
        }
    }

    fn wrong(&self, shard: &ShardId, mut fetched: Fetched) -> Fetched {
        let of = (self.stream, shard.clone());
        let mut reads = lock(&self.reads);
        let last = fetched
            .records
            .last()
            .map(|record| record.position.sequence.clone());
        let is_anothers = last.as_ref().is_some_and(|last| {
            let known = reads.last.get(&of);
            known.is_some_and(|(other, known)| *other != self.plugin && known == last)
        });
        if self.bug == PortBug::ReplyForOneOnly && is_anothers {
            fetched.records.clear();
        } else if let Some(last) = last {
            reads.last.insert(of.clone(), (self.plugin.clone(), last));
        }
        fetched
    }
}

/// The product's iterators of shared reads begin with their shard.
fn shard_of(iterator: &ShardIterator) -> Option<ShardId> {
    ShardId::new(iterator.0.split(':').next()?).ok()
}

impl StreamReader for WrongSharing {
    fn identity(&self) -> PortFuture<'_, Result<Option<StreamIdentity>, ReadError>> {
        self.reader.identity()
    }

    fn list_shards(&self) -> PortFuture<'_, Result<Vec<Shard>, ReadError>> {
        self.reader.list_shards()
    }

    fn list_shards_since(
        &self,
        since_ms: u64,
    ) -> PortFuture<'_, Result<Option<Vec<Shard>>, ReadError>> {
        self.reader.list_shards_since(since_ms)
    }

    fn now_ms(&self) -> PortFuture<'_, Result<Option<u64>, ReadError>> {
        self.reader.now_ms()
    }

    fn iterator<'a>(
        &'a self,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<ShardIterator, ReadError>> {
        let from = self.from(shard, from);
        Box::pin(async move { self.reader.iterator(shard, &from).await })
    }

    fn knows<'a>(&'a self, shard: &'a ShardId) -> PortFuture<'a, Result<bool, ReadError>> {
        self.reader.knows(shard)
    }

    fn fetch<'a>(
        &'a self,
        iterator: &'a ShardIterator,
        limit: u32,
    ) -> PortFuture<'a, Result<Fetched, ReadError>> {
        Box::pin(async move {
            let fetched = self.reader.fetch(iterator, limit).await?;
            let Some(shard) = shard_of(iterator) else {
                return Ok(fetched);
            };
            let is_over = self.is_ended_for_another(&shard, &fetched);
            if self.bug == PortBug::EndForOneOnly && is_over {
                return Err(ReadError::Unavailable {
                    message: "another plugin has read the end".to_owned(),
                });
            }
            Ok(self.wrong(&shard, fetched))
        })
    }

    fn turn<'a>(
        &'a self,
        shard: &'a ShardId,
        next: Option<&'a ShardIterator>,
    ) -> PortFuture<'a, PacedBy> {
        self.reader.turn(shard, next)
    }
}
