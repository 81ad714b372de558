//! One read of a shard for all plugins of a host that read it at close positions.
//!
//! ```text
//!   plugin A ─┐                      ┌ chain: reply, reply, reply ─ iterator ─┐
//!   plugin B ─┼─ SharedReader ─ shard┤                                        ├─ one rate ─> the stream's own reader
//!   plugin C ─┘   (a place each)     └ chain of one that lags ─── iterator ───┘
//! ```
//!
//! A caller's iterator says which record it follows, nothing else. If what comes after that record
//! is kept, it is served from there; at the end of what is kept, one call serves all readers that
//! wait; elsewhere, the caller reads with its own iterator, until it meets the others again. So no
//! reader waits for another, and a plugin that lags costs what it would alone.
//!
//! The shard's rates are kept here, since all readers share them. Errors, the end and the children
//! are passed on as they came, to all readers that waited for the call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_core::fleet::StreamIdentity;
use shardmill_core::ports::{
    Clock, Fetched, PacedBy, PortFuture, REPLY_RECORDS_MAX, ReadError, ShardIterator, StreamReader,
};
use shardmill_core::shared_read::{ChainPlace, Source, decode, encode};
use shardmill_core::stream::{ReadFrom, Shard, ShardId, StreamRef};
use shardmill_core::time::Moment;
use tokio::sync::Mutex as AsyncMutex;

use crate::metrics;
use crate::options::ReadLimits;

mod ring;
mod shard;

pub use ring::RingBudget;
use shard::{Call, Caller, Poll, SharedShard, Step, TurnWait};

/// Rounds of one fetch: an iterator, a call, the reply; more only if what was read is trimmed away
/// at once, by a ring without room.
const ROUNDS_MAX: usize = 8;
/// How often all shards are searched for what serves no reader any more.
const PRUNE_EVERY: Duration = Duration::from_secs(1);

/// A stream whose reads are shared. One for each stream of a host; cheap to clone.
#[derive(Clone)]
pub struct SharedStream {
    inner: Arc<Inner>,
}

/// One plugin's reader of a shared stream.
pub struct SharedReader {
    inner: Arc<Inner>,
}

struct Inner {
    stream: String,
    reader: Arc<dyn StreamReader>,
    clock: Arc<dyn Clock>,
    limits: ReadLimits,
    ring: RingBudget,
    /// Readers that live.
    readers: AtomicUsize,
    // Never held across an await.
    state: Mutex<State>,
}

struct State {
    shards: HashMap<ShardId, SharedShard>,
    identity: Option<StreamIdentity>,
    pruned_at: Moment,
}

/// The result of a call for a chain.
enum Polled {
    /// The chain is forgotten; the caller that made the last call knows why.
    Gone,
    /// Another caller made it, and its reply is kept.
    ByOther,
    /// Its reply is kept.
    Kept,
    /// The chain was forgotten meanwhile: the reply cannot be kept, and goes to the caller
    /// unchanged.
    NotKept(Fetched),
}

impl SharedStream {
    /// Shares the reads of `reader`, within `limits` for each shard; `stream` is for metrics.
    pub fn new(
        stream: &StreamRef,
        reader: Arc<dyn StreamReader>,
        clock: Arc<dyn Clock>,
        limits: ReadLimits,
        ring: RingBudget,
    ) -> Self {
        let state = State {
            shards: HashMap::new(),
            identity: None,
            pruned_at: clock.now(),
        };
        let (readers, state) = (AtomicUsize::new(0), Mutex::new(state));
        Self {
            inner: Arc::new(Inner {
                stream: stream.to_string(),
                reader,
                clock,
                limits,
                ring,
                readers,
                state,
            }),
        }
    }

    /// A reader for one more plugin. Replies are kept only while there are several.
    pub fn reader(&self) -> SharedReader {
        self.inner.readers.fetch_add(1, Ordering::AcqRel);
        SharedReader {
            inner: Arc::clone(&self.inner),
        }
    }

    /// Whether no reader is left.
    pub fn is_unused(&self) -> bool {
        self.inner.readers.load(Ordering::Acquire) == 0
    }
}

impl Drop for SharedReader {
    fn drop(&mut self) {
        self.inner.readers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl StreamReader for SharedReader {
    fn identity(&self) -> PortFuture<'_, Result<Option<StreamIdentity>, ReadError>> {
        Box::pin(self.inner.identity())
    }

    fn list_shards(&self) -> PortFuture<'_, Result<Vec<Shard>, ReadError>> {
        self.inner.reader.list_shards()
    }

    fn list_shards_since(
        &self,
        since_ms: u64,
    ) -> PortFuture<'_, Result<Option<Vec<Shard>>, ReadError>> {
        self.inner.reader.list_shards_since(since_ms)
    }

    fn now_ms(&self) -> PortFuture<'_, Result<Option<u64>, ReadError>> {
        self.inner.reader.now_ms()
    }

    fn iterator<'a>(
        &'a self,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<ShardIterator, ReadError>> {
        Box::pin(async move {
            Ok(encode(
                shard,
                &self.inner.find_or_open(shard, from, false).await?,
            ))
        })
    }

    /// What this host read of a shard long ago says nothing about it.
    fn knows<'a>(&'a self, shard: &'a ShardId) -> PortFuture<'a, Result<bool, ReadError>> {
        self.inner.reader.knows(shard)
    }

    fn fetch<'a>(
        &'a self,
        iterator: &'a ShardIterator,
        limit: u32,
    ) -> PortFuture<'a, Result<Fetched, ReadError>> {
        Box::pin(self.inner.fetch(iterator, limit))
    }

    fn turn<'a>(
        &'a self,
        shard: &'a ShardId,
        next: Option<&'a ShardIterator>,
    ) -> PortFuture<'a, PacedBy> {
        Box::pin(async move {
            let place = next.and_then(decode).map(|(_, place)| place);
            self.inner.turn(shard, place.as_ref()).await;
            PacedBy::Reader
        })
    }
}

impl Inner {
    /// A stream that was created again under its name has nothing in common with what was read of
    /// the old one.
    async fn identity(&self) -> Result<Option<StreamIdentity>, ReadError> {
        let identity = self.reader.identity().await?;
        let mut state = self.lock();
        if state.identity.is_some() && state.identity != identity {
            state.shards.clear();
        }
        state.identity = identity;
        Ok(identity)
    }

    /// `is_anchored`: `from` is after a record that must still be there.
    async fn find_or_open(
        &self,
        shard: &ShardId,
        from: &ReadFrom,
        is_anchored: bool,
    ) -> Result<ChainPlace, ReadError> {
        let opening = self.with_shard(shard, |shared| match shared.find(from) {
            Some(place) => Err(place),
            None => Ok(Arc::clone(&shared.opening)),
        });
        let opening: Arc<AsyncMutex<()>> = match opening {
            Ok(opening) => opening,
            Err(place) => return Ok(place),
        };
        let _opening = opening.lock().await;
        if let Some(place) = self.with_shard(shard, |shared| shared.find(from)) {
            return Ok(place);
        }
        let iterator = match from {
            ReadFrom::AfterSequenceNumber(sequence) if is_anchored => {
                self.reader
                    .iterator(shard, &ReadFrom::AtSequenceNumber(sequence.clone()))
                    .await?
            }
            from => self.reader.iterator(shard, from).await?,
        };
        Ok(self.with_shard(shard, |shared| {
            shared.open(from.clone(), is_anchored, iterator, self.clock.now())
        }))
    }

    async fn fetch(&self, iterator: &ShardIterator, limit: u32) -> Result<Fetched, ReadError> {
        let (shard, mut place) = decode(iterator).ok_or(ReadError::ExpiredIterator)?;
        let mut has_called = false;
        let mut has_polled = false;
        for _ in 0..ROUNDS_MAX {
            match self.step(&shard, &place, limit, has_polled) {
                Step::Ready(served) => {
                    self.count_read(has_called);
                    self.trim(&shard);
                    return Ok(served.map_next(|place| encode(&shard, &place)));
                }
                Step::Expired => return Err(ReadError::ExpiredIterator),
                Step::OpenBehind(sequence) => {
                    let from = ReadFrom::AfterSequenceNumber(sequence);
                    place = self.find_or_open(&shard, &from, true).await?;
                    has_polled = false;
                }
                Step::Open(from) => {
                    place = self.find_or_open(&shard, &from, false).await?;
                    has_polled = false;
                }
                Step::Poll(poll) => match self.poll_once(&shard, &poll, limit).await? {
                    Polled::Gone => has_polled = false,
                    Polled::ByOther => has_polled = true,
                    Polled::Kept => (has_polled, has_called) = (true, true),
                    Polled::NotKept(reply) => return Ok(reply),
                },
            }
        }
        Err(ReadError::Unavailable {
            message: "records of a shared read were dropped before they could be served".to_owned(),
        })
    }

    fn step(&self, shard: &ShardId, place: &ChainPlace, limit: u32, has_polled: bool) -> Step {
        let caller = Caller {
            readers: self.readers.load(Ordering::Acquire),
            has_polled,
        };
        let now = self.clock.now();
        self.with_shard(shard, |shared| shared.step(place, limit, caller, now))
    }

    fn count_read(&self, has_called: bool) {
        let outcome = if has_called { "called" } else { "shared" };
        ::metrics::counter!(metrics::SHARED_READS, "stream" => self.stream.clone(), "outcome" => outcome)
            .increment(1);
    }

    /// Makes a call for the chain, unless others have made one since the caller was to.
    async fn poll_once(
        &self,
        shard: &ShardId,
        poll: &Poll,
        limit: u32,
    ) -> Result<Polled, ReadError> {
        let _flight = poll.flight.lock().await;
        let known = self.with_shard(shard, |shared| {
            let calls = shared.chain(poll.chain)?.calls();
            Some((calls.finished(), calls.outcome()))
        });
        match known {
            None => Ok(Polled::Gone),
            Some((polls, outcome)) if polls != poll.polls => outcome.map(|()| Polled::ByOther),
            Some(_) => Ok(match self.poll(shard, poll.chain, limit).await? {
                Some(reply) => Polled::NotKept(reply),
                None => Polled::Kept,
            }),
        }
    }

    /// One call for a chain, in its turn. `Some` if the reply cannot be kept and is the caller's as
    /// it is: its iterator means nothing here, so the caller asks for a new one.
    async fn poll(
        &self,
        shard: &ShardId,
        chain: u64,
        limit: u32,
    ) -> Result<Option<Fetched>, ReadError> {
        let iterator = self.iterator_of(shard, chain).await?;
        let now = self.clock.now();
        let slot = self.with_shard(shard, |shared| shared.take_slot(now));
        tokio::time::sleep(slot.since(now)).await;
        let call = Call {
            chain,
            sent_at: self.clock.now(),
        };
        let asked = self.records_to_ask_for(shard, chain, limit);
        let reply = self.reader.fetch(&iterator, asked).await;
        let now = self.clock.now();
        self.with_shard(shard, |shared| shared.polled(&call, reply, now, &self.ring))
    }

    /// The record that only proves that nothing was trimmed takes no place: with one record a call,
    /// half of all calls would bring nothing, and the shard be trimmed faster than it is read.
    fn records_to_ask_for(&self, shard: &ShardId, chain: u64, limit: u32) -> u32 {
        let is_anchored = self.with_shard(shard, |shared| {
            shared.chain(chain).is_some_and(|chain| chain.is_anchored())
        });
        if is_anchored {
            limit.saturating_add(1).min(REPLY_RECORDS_MAX)
        } else {
            limit
        }
    }

    /// The iterator that the chain reads on with: a new one, if it has none.
    async fn iterator_of(&self, shard: &ShardId, chain: u64) -> Result<ShardIterator, ReadError> {
        let known = self.with_shard(shard, |shared| {
            let chain = shared.chain(chain)?;
            Some((chain.source().clone(), chain.resume_from()))
        });
        let from = match known {
            Some((Source::Iterator(iterator), _)) => return Ok(iterator),
            Some((Source::Anew, Some(from))) => from,
            Some((Source::Anew, None) | (Source::Ended(_), _)) | None => {
                return Err(ReadError::ExpiredIterator);
            }
        };
        let iterator = self.reader.iterator(shard, &from).await?;
        self.with_shard(shard, |shared| {
            if let Some(chain) = shared.chain(chain) {
                chain.resume(iterator.clone());
            }
        });
        Ok(iterator)
    }

    /// Waits until a caller at `place` has something to come for, or a call for it may be made, or
    /// another has made one. That it found nothing the caller must hear too: where the same plugin
    /// makes every call, the others would take the stream for silent.
    async fn turn(&self, shard: &ShardId, place: Option<&ChainPlace>) {
        let now = self.clock.now();
        let known = self.with_shard(shard, |shared| shared.fresh_answer(place, now));
        let mut wait = TurnWait::default();
        loop {
            let now = self.clock.now();
            let waits = self.with_shard(shard, |shared| {
                let fresh = shared.fresh_answer(place, now);
                if fresh.is_some() && fresh != known {
                    return None;
                }
                Some((shared.turn_at(place, &mut wait, now)?, shared.changes()))
            });
            let Some((at, mut changes)) = waits else {
                return;
            };
            tokio::select! {
                () = tokio::time::sleep(at.since(now)) => {}
                // Also when the shard was forgotten in between.
                _ = changes.changed() => {}
            }
        }
    }

    fn trim(&self, shard: &ShardId) {
        let readers = self.readers.load(Ordering::Acquire);
        let mut state = self.lock();
        let now = self.clock.now();
        if state.pruned_at + PRUNE_EVERY <= now {
            state.pruned_at = now;
            state.shards.retain(|_, shared| shared.prune(now, readers));
        } else if let Some(shared) = state.shards.get_mut(shard) {
            shared.prune(now, readers);
        }
    }

    fn with_shard<T>(&self, shard: &ShardId, act: impl FnOnce(&mut SharedShard) -> T) -> T {
        let mut state = self.lock();
        if let Some(shared) = state.shards.get_mut(shard) {
            return act(shared);
        }
        act(state
            .shards
            .entry(shard.clone())
            .or_insert_with(|| SharedShard::new(self.limits.rate(), self.clock.now())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
