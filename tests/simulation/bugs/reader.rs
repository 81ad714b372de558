//! A stream reader with a bug.

use std::sync::{Arc, Mutex};

use shardmill_core::fleet::StreamIdentity;
use shardmill_core::ports::{Fetched, PortFuture, ReadError, ShardIterator, StreamReader};
use shardmill_core::stream::{ReadFrom, Shard, ShardId};

use super::PortBug;
use crate::world::lock;

/// The decorator.
pub struct WrongReader {
    reader: Arc<dyn StreamReader>,
    bug: PortBug,
    listed: Mutex<Option<Vec<Shard>>>,
}

impl WrongReader {
    /// `reader` with `bug`.
    pub fn new(reader: Arc<dyn StreamReader>, bug: PortBug) -> Self {
        Self {
            reader,
            bug,
            listed: Mutex::default(),
        }
    }

    async fn list(&self) -> Result<Vec<Shard>, ReadError> {
        if self.bug == PortBug::ListsShardsFromCache
            && let Some(listed) = &*lock(&self.listed)
        {
            return Ok(listed.clone());
        }
        let mut shards = self.reader.list_shards().await?;
        match self.bug {
            PortBug::ListsFirstPageOnly => {
                shards.sort_by(|one, other| one.id.cmp(&other.id));
                shards.truncate(2);
            }
            PortBug::ListsOpenShardsOnly => shards.retain(Shard::is_open),
            PortBug::ListsWithoutParents => {
                for shard in &mut shards {
                    shard.parents.clear();
                }
            }
            PortBug::ListsShardsFromCache => *lock(&self.listed) = Some(shards.clone()),
            _ => {}
        }
        Ok(shards)
    }

    fn from(&self, from: &ReadFrom) -> ReadFrom {
        match (self.bug, from) {
            (PortBug::AtIsAfter, ReadFrom::AtSequenceNumber(at)) => {
                ReadFrom::AfterSequenceNumber(at.clone())
            }
            (PortBug::AtIsLatest, ReadFrom::AtSequenceNumber(_))
            | (PortBug::OldestIsLatest, ReadFrom::TrimHorizon)
            | (PortBug::StartIsNow, ReadFrom::AtTimestamp(_)) => ReadFrom::Latest,
            _ => from.clone(),
        }
    }

    fn wrong(&self, iterator: &ShardIterator, mut fetched: Fetched) -> Fetched {
        let records = &mut fetched.records;
        match self.bug {
            PortBug::ReplyLacksLast => drop(records.pop()),
            PortBug::ReplyLacksFirst if !records.is_empty() => drop(records.remove(0)),
            PortBug::ReplyLacksMiddle if records.len() > 2 => {
                drop(records.remove(records.len() / 2));
            }
            PortBug::ReplyOutOfOrder => records.reverse(),
            PortBug::EmptyReplyEnds if records.is_empty() => fetched.next = None,
            PortBug::EndIsNotTold if fetched.next.is_none() => {
                fetched.next = Some(iterator.clone());
            }
            PortBug::EndNamesOneChild => fetched.children.truncate(1),
            _ => {}
        }
        fetched
    }
}

impl StreamReader for WrongReader {
    fn identity(&self) -> PortFuture<'_, Result<Option<StreamIdentity>, ReadError>> {
        self.reader.identity()
    }

    fn list_shards(&self) -> PortFuture<'_, Result<Vec<Shard>, ReadError>> {
        Box::pin(self.list())
    }

    fn list_shards_since(
        &self,
        since_ms: u64,
    ) -> PortFuture<'_, Result<Option<Vec<Shard>>, ReadError>> {
        self.reader.list_shards_since(since_ms)
    }

    fn now_ms(&self) -> PortFuture<'_, Result<Option<u64>, ReadError>> {
        Box::pin(async move {
            let now_ms = self.reader.now_ms().await?;
            let ahead_ms = if self.bug == PortBug::TellsTimeAhead {
                30_000
            } else {
                0
            };
            Ok(now_ms.map(|now_ms| now_ms + ahead_ms))
        })
    }

    fn iterator<'a>(
        &'a self,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<ShardIterator, ReadError>> {
        let from = self.from(from);
        Box::pin(async move { self.reader.iterator(shard, &from).await })
    }

    fn fetch<'a>(
        &'a self,
        iterator: &'a ShardIterator,
        limit: u32,
    ) -> PortFuture<'a, Result<Fetched, ReadError>> {
        Box::pin(async move {
            let fetched = self.reader.fetch(iterator, limit).await?;
            self.wrong(iterator, fetched).in_order()
        })
    }
}
