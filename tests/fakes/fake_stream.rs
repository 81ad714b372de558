//! A stream in memory that can be put to, split, merged, closed and trimmed, with faults to order.
//!
//! Time stands still unless told otherwise; sequence numbers rise over the whole stream.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use shardmill_core::fleet::StreamIdentity;
use shardmill_core::ports::{Fetched, PortFuture, ReadError, ShardIterator, StreamReader};
use shardmill_core::stream::{
    HashKeyRange, Position, ReadFrom, Record, SequenceNumber, Shard, ShardId,
};
use tokio::sync::watch;

use crate::faults::{Fault, Faults};

mod retention;

/// An operation of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadOp {
    /// `identity`
    Identity,
    /// `list_shards`
    ListShards,
    /// `list_shards_since`
    ListShardsSince,
    /// `now_ms`
    Now,
    /// `iterator`
    Iterator,
    /// `fetch`
    Fetch,
}

/// The fake.
pub struct FakeStream {
    /// What goes wrong.
    pub faults: Faults<ReadOp>,
    state: Mutex<State>,
    news: watch::Sender<()>,
}

struct State {
    shards: Vec<FakeShard>,
    shards_made: usize,
    last_sequence: u64,
    now_ms: u64,
    /// Whether it says so.
    tells_time: bool,
    /// The stream's creation time; `None` while there is no stream.
    created_at_ms: Option<u64>,
    /// Iterators of an earlier generation have expired.
    generation: u64,
    calls: Vec<ReadOp>,
    /// What becomes of the next good replies, as on their way from a server that is wrong.
    changes: VecDeque<Change>,
}

/// Makes another reply of a good one.
type Change = Box<dyn FnOnce(&mut Fetched) + Send>;

struct FakeShard {
    shard: Shard,
    records: Vec<Record>,
    /// Index of the oldest record still kept.
    horizon: usize,
    /// When it was closed, by the stream's clock.
    closed_at_ms: Option<u64>,
}

impl FakeStream {
    /// A stream of `shards` open shards of equal ranges.
    pub fn new(shards: u32) -> Self {
        let width = u128::MAX / u128::from(shards.max(1));
        let mut state = State {
            shards: Vec::new(),
            shards_made: 0,
            last_sequence: 0,
            now_ms: 1,
            tells_time: true,
            created_at_ms: Some(1_000_000),
            generation: 0,
            calls: Vec::new(),
            changes: VecDeque::new(),
        };
        for index in 0..u128::from(shards) {
            let end = if index + 1 == u128::from(shards) {
                u128::MAX
            } else {
                (index + 1) * width - 1
            };
            state.add_shard(Vec::new(), index * width, end);
        }
        Self {
            faults: Faults::default(),
            state: Mutex::new(state),
            news: watch::Sender::new(()),
        }
    }

    /// Sets the stream's clock, in milliseconds since the Unix epoch.
    pub fn set_now_ms(&self, now_ms: u64) {
        self.state().now_ms = now_ms;
    }

    /// From now on the stream does not tell its time.
    pub fn hide_time(&self) {
        self.state().tells_time = false;
    }

    /// Moves the stream's clock on; gives the new time.
    pub fn advance_ms(&self, by: u64) -> u64 {
        let mut state = self.state();
        state.now_ms += by;
        state.now_ms
    }

    /// Puts a record to the open shard that `hash_key` falls in.
    ///
    /// # Panics
    ///
    /// If no open shard covers it.
    pub fn put_at(
        &self,
        hash_key: u128,
        partition_key: &str,
        data: impl Into<Bytes>,
    ) -> (ShardId, SequenceNumber) {
        let mut state = self.state();
        let (sequence, arrival_ms) = (state.next_sequence(), state.now_ms);
        let covers = |s: &FakeShard| {
            s.shard.is_open()
                && (s.shard.hash_range.start()..=s.shard.hash_range.end()).contains(&hash_key)
        };
        let shard = state
            .shards
            .iter_mut()
            .find(|shard| covers(shard))
            .expect("no open shard covers the hash key");
        shard.records.push(Record {
            data: data.into(),
            partition_key: partition_key.to_owned(),
            explicit_hash_key: None,
            position: Position::plain(sequence.clone()),
            arrival_ms,
        });
        let id = shard.shard.id.clone();
        drop(state);
        self.news.send_replace(());
        (id, sequence)
    }

    /// Puts a record by a hash of its key. Not the hash that Kinesis uses, but as even.
    pub fn put(&self, partition_key: &str, data: impl Into<Bytes>) -> (ShardId, SequenceNumber) {
        // FNV-1a, 128 bits.
        let hash = partition_key.bytes().fold(
            0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128,
            |hash, byte| {
                (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
            },
        );
        self.put_at(hash, partition_key, data)
    }

    /// Closes `shard` and opens two children, the second starting at hash key `at`.
    pub fn split(&self, shard: &ShardId, at: u128) -> [ShardId; 2] {
        let mut state = self.state();
        let range = state.close(shard);
        let left = state.add_shard(vec![shard.clone()], range.start(), at - 1);
        let right = state.add_shard(vec![shard.clone()], at, range.end());
        drop(state);
        self.news.send_replace(());
        [left, right]
    }

    /// Closes two adjacent shards and opens their child.
    pub fn merge(&self, left: &ShardId, right: &ShardId) -> ShardId {
        let mut state = self.state();
        let (low, high) = (state.close(left), state.close(right));
        let (start, end) = (low.start().min(high.start()), low.end().max(high.end()));
        let child = state.add_shard(vec![left.clone(), right.clone()], start, end);
        drop(state);
        self.news.send_replace(());
        child
    }

    /// Closes a shard without children.
    pub fn close(&self, shard: &ShardId) {
        self.state().close(shard);
        self.news.send_replace(());
    }

    /// Changes with everything that is put, and with the shards; counts as changed at first.
    pub fn news(&self) -> watch::Receiver<()> {
        let mut news = self.news.subscribe();
        news.mark_changed();
        news
    }

    /// Deletes the stream, or creates it again at this time: shards and records stay, for what a
    /// reader must not do.
    pub fn set_created_at(&self, created_at_ms: Option<u64>) {
        let mut state = self.state();
        state.created_at_ms = created_at_ms;
        state.generation += 1;
    }

    /// Every iterator given out so far has expired.
    pub fn expire_iterators(&self) {
        self.state().generation += 1;
    }

    /// The next good reply to a fetch, for which no change is queued yet, becomes another one.
    pub fn change_next(&self, change: impl FnOnce(&mut Fetched) + Send + 'static) {
        self.state().changes.push_back(Box::new(change));
    }

    /// Everything ever put to a shard, trimmed or not.
    pub fn records(&self, shard: &ShardId) -> Vec<Record> {
        self.state().find_mut(shard).records.clone()
    }

    /// The last record put to a shard.
    pub fn last(&self, shard: &ShardId) -> Option<Position> {
        self.state()
            .find_mut(shard)
            .records
            .last()
            .map(|record| record.position.clone())
    }

    /// An iterator without a call, for [`Self::look_on`].
    pub fn place(&self, shard: &ShardId, from: &ReadFrom) -> Result<ShardIterator, ReadError> {
        self.state().iterator(shard, from)
    }

    /// What lies at `iterator`, without a call.
    pub fn look_on(&self, iterator: &ShardIterator, limit: u32) -> Result<Fetched, ReadError> {
        self.state().fetch(iterator, limit)
    }

    /// The last sequence number given out in any shard.
    pub fn last_sequence(&self) -> SequenceNumber {
        SequenceNumber::parse(&self.state().last_sequence.to_string()).expect("digits")
    }

    /// All shards, without a call.
    pub fn shards(&self) -> Vec<Shard> {
        self.state()
            .shards
            .iter()
            .map(|kept| kept.shard.clone())
            .collect()
    }

    /// How often `op` was called, faults included.
    pub fn calls(&self, op: ReadOp) -> usize {
        self.state()
            .calls
            .iter()
            .filter(|called| **called == op)
            .count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<T>(
        &self,
        op: ReadOp,
        act: impl FnOnce(&mut State) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        // As a network call would: other tasks get their turn.
        tokio::task::yield_now().await;
        self.state().calls.push(op);
        let message = format!("fault on {op:?}");
        match self.faults.next(op) {
            None => act(&mut self.state()),
            Some(Fault::Throttle) => Err(ReadError::Throttled { message }),
            Some(Fault::Refuse) => Err(ReadError::Refused { message }),
            Some(Fault::KeyUnusable) => Err(ReadError::KeyUnusable { message }),
            Some(Fault::NotFound) => Err(ReadError::NotFound { message }),
            Some(Fault::ExpiredIterator) if op == ReadOp::Fetch => Err(ReadError::ExpiredIterator),
            Some(Fault::ExpiredIterator | Fault::UnknownApplied | Fault::UnknownNotApplied) => {
                Err(ReadError::Unavailable { message })
            }
            Some(Fault::AnswersAfter(time)) => {
                let answer = act(&mut self.state());
                tokio::time::sleep(time).await;
                answer
            }
            Some(Fault::Hang) => std::future::pending().await,
        }
    }
}

impl State {
    fn next_sequence(&mut self) -> SequenceNumber {
        self.last_sequence += 1;
        SequenceNumber::parse(&self.last_sequence.to_string()).expect("digits")
    }

    fn add_shard(&mut self, parents: Vec<ShardId>, start: u128, end: u128) -> ShardId {
        let id = ShardId::new(format!("shardId-{:012}", self.shards_made)).expect("a valid id");
        self.shards_made += 1;
        let hash_range = HashKeyRange::new(start, end).expect("a range that is not empty");
        let shard = Shard {
            id: id.clone(),
            parents,
            hash_range,
            ending_sequence: None,
        };
        self.shards.push(FakeShard {
            shard,
            records: Vec::new(),
            horizon: 0,
            closed_at_ms: None,
        });
        id
    }

    fn close(&mut self, shard: &ShardId) -> HashKeyRange {
        let (ending, now_ms) = (self.next_sequence(), self.now_ms);
        let FakeShard {
            shard,
            closed_at_ms,
            ..
        } = self.find_mut(shard);
        *closed_at_ms = Some(now_ms);
        assert!(shard.is_open(), "shard {} is closed already", shard.id);
        shard.ending_sequence = Some(ending);
        shard.hash_range
    }

    fn find_mut(&mut self, shard: &ShardId) -> &mut FakeShard {
        self.shards
            .iter_mut()
            .find(|kept| kept.shard.id == *shard)
            .expect("a known shard")
    }

    fn find(&self, shard: &str) -> Result<&FakeShard, ReadError> {
        let found = self
            .shards
            .iter()
            .find(|kept| kept.shard.id.as_str() == shard);
        found.ok_or_else(|| ReadError::NotFound {
            message: format!("no shard {shard}"),
        })
    }

    fn iterator(&self, shard: &ShardId, from: &ReadFrom) -> Result<ShardIterator, ReadError> {
        let kept = self.find(shard.as_str())?;
        let first = |is_wanted: &dyn Fn(&Record) -> bool| {
            kept.records
                .iter()
                .position(is_wanted)
                .unwrap_or(kept.records.len())
        };
        let index = match from {
            ReadFrom::TrimHorizon => 0,
            ReadFrom::Latest => kept.records.len(),
            ReadFrom::AtTimestamp(ms) => first(&|record| record.arrival_ms >= *ms),
            ReadFrom::AtSequenceNumber(sequence) => {
                first(&|record| record.position.sequence >= *sequence)
            }
            ReadFrom::AfterSequenceNumber(sequence) => {
                first(&|record| record.position.sequence > *sequence)
            }
        };
        Ok(self.iterator_at(shard.as_str(), index))
    }

    fn iterator_at(&self, shard: &str, index: usize) -> ShardIterator {
        ShardIterator(format!("{}/{shard}/{index}", self.generation))
    }

    fn fetch(&self, iterator: &ShardIterator, limit: u32) -> Result<Fetched, ReadError> {
        let mut parts = iterator.0.split('/');
        let (Some(generation), Some(shard), Some(Ok(index))) = (
            parts.next(),
            parts.next(),
            parts.next().map(str::parse::<usize>),
        ) else {
            return Err(ReadError::Refused {
                message: format!("not an iterator: {}", iterator.0),
            });
        };
        if generation != self.generation.to_string() {
            return Err(ReadError::ExpiredIterator);
        }
        let kept = self.find(shard)?;
        let start = index.max(kept.horizon).min(kept.records.len());
        let end = start.saturating_add(limit as usize).min(kept.records.len());
        let records = kept.records[start..end].to_vec();
        let has_more = end < kept.records.len();
        let is_over = !has_more && !kept.shard.is_open();
        let children = self.shards.iter().map(|kept| &kept.shard);
        let lag = match records.last() {
            Some(last) if has_more => self.now_ms.saturating_sub(last.arrival_ms),
            Some(_) | None => 0,
        };
        Ok(Fetched {
            records,
            next: (!is_over).then(|| self.iterator_at(shard, end)),
            millis_behind_latest: Some(lag),
            children: if is_over {
                let of_parent =
                    children.filter(|child| child.parents.iter().any(|id| id.as_str() == shard));
                // As in the real reply, which does not say whether a child is closed by now.
                of_parent
                    .map(|child| Shard {
                        ending_sequence: None,
                        ..child.clone()
                    })
                    .collect()
            } else {
                Vec::new()
            },
        })
    }
}

impl StreamReader for FakeStream {
    fn identity(&self) -> PortFuture<'_, Result<Option<StreamIdentity>, ReadError>> {
        Box::pin(self.call(ReadOp::Identity, |state| {
            Ok(state
                .created_at_ms
                .map(|created_at_ms| StreamIdentity { created_at_ms }))
        }))
    }

    fn list_shards(&self) -> PortFuture<'_, Result<Vec<Shard>, ReadError>> {
        let all =
            |state: &mut State| Ok(state.shards.iter().map(|kept| kept.shard.clone()).collect());
        Box::pin(self.call(ReadOp::ListShards, all))
    }

    fn list_shards_since(
        &self,
        since_ms: u64,
    ) -> PortFuture<'_, Result<Option<Vec<Shard>>, ReadError>> {
        Box::pin(self.call(ReadOp::ListShardsSince, move |state| {
            Ok(Some(
                state
                    .since(since_ms)
                    .map(|kept| kept.shard.clone())
                    .collect(),
            ))
        }))
    }

    fn now_ms(&self) -> PortFuture<'_, Result<Option<u64>, ReadError>> {
        Box::pin(self.call(ReadOp::Now, |state| {
            Ok(state.tells_time.then_some(state.now_ms))
        }))
    }

    fn iterator<'a>(
        &'a self,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<ShardIterator, ReadError>> {
        Box::pin(self.call(ReadOp::Iterator, move |state| state.iterator(shard, from)))
    }

    fn fetch<'a>(
        &'a self,
        iterator: &'a ShardIterator,
        limit: u32,
    ) -> PortFuture<'a, Result<Fetched, ReadError>> {
        Box::pin(self.call(ReadOp::Fetch, move |state| {
            let mut fetched = state.fetch(iterator, limit)?;
            if let Some(change) = state.changes.pop_front() {
                change(&mut fetched);
            }
            fetched.in_order()
        }))
    }
}
