//! A stream whose reads are shared, and plugins that walk through it.

use std::sync::Arc;
use std::time::Duration;

use harness::fake_stream::{FakeStream, ReadOp};
use harness::fleet::TokioClock;
use shardmill_core::ports::{Fetched, PacedBy, ReadError, ShardIterator, StreamReader};
use shardmill_core::stream::{ReadFrom, Record, SequenceNumber, ShardId, StreamRef};
use shardmill_worker::{ByteBudget, ReadLimits, RingBudget, SharedReader, SharedStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The budget of a host, unless a test has one of its own.
pub(crate) const BUFFER_BYTES: usize = 64 << 20;

pub(crate) struct Scene {
    pub(crate) stream: Arc<FakeStream>,
    pub(crate) shared: SharedStream,
    pub(crate) ring: RingBudget,
    pub(crate) shard: ShardId,
}

/// A plugin's way through a shard, as the pipeline makes it: turn, iterator, fetch, and again.
pub(crate) struct Walker {
    pub(crate) reader: SharedReader,
    pub(crate) shard: ShardId,
    pub(crate) from: ReadFrom,
    pub(crate) next: Option<ShardIterator>,
    pub(crate) seen: Vec<SequenceNumber>,
    pub(crate) behind: Option<u64>,
    pub(crate) has_ended: bool,
    pub(crate) is_in_doubt: bool,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with_buffer(BUFFER_BYTES, ReadLimits::default())
    }

    pub(crate) fn with_buffer(buffer_bytes: usize, limits: ReadLimits) -> Self {
        let stream = Arc::new(FakeStream::new(1));
        let ring = RingBudget::of(&ByteBudget::new(buffer_bytes).unwrap(), buffer_bytes);
        let name = StreamRef::parse("stream").unwrap();
        let shared = SharedStream::new(
            &name,
            Arc::clone(&stream) as Arc<dyn StreamReader>,
            Arc::new(TokioClock::default()),
            limits,
            ring.clone(),
        );
        let shard = stream.shards()[0].id.clone();
        Self {
            stream,
            shared,
            ring,
            shard,
        }
    }

    pub(crate) fn walker(&self, from: ReadFrom) -> Walker {
        let (reader, shard) = (self.shared.reader(), self.shard.clone());
        Walker {
            reader,
            shard,
            from,
            next: None,
            seen: Vec::new(),
            behind: None,
            has_ended: false,
            is_in_doubt: false,
        }
    }

    pub(crate) fn put(&self, records: usize) {
        for number in 0..records {
            self.stream.put_at(0, "key", format!("record {number}"));
        }
    }

    pub(crate) fn all(&self) -> Vec<SequenceNumber> {
        sequences(&self.stream.records(&self.shard))
    }

    pub(crate) fn calls(&self) -> usize {
        self.stream.calls(ReadOp::Fetch)
    }
}

pub(crate) fn sequences(records: &[Record]) -> Vec<SequenceNumber> {
    records
        .iter()
        .map(|record| record.position.sequence.clone())
        .collect()
}

impl Walker {
    pub(crate) async fn read(&mut self) -> Result<Fetched, ReadError> {
        assert_eq!(
            self.reader.turn(&self.shard, self.next.as_ref()).await,
            PacedBy::Reader
        );
        let iterator = if let Some(iterator) = self.next.take() {
            iterator
        } else {
            let from = match self.seen.last().cloned() {
                // As a reader asks that does not know whether it lost something.
                Some(last) if self.is_in_doubt => ReadFrom::AtSequenceNumber(last),
                Some(last) => ReadFrom::AfterSequenceNumber(last),
                None => self.from.clone(),
            };
            self.reader.iterator(&self.shard, &from).await?
        };
        // A call that fails for a moment leaves its iterator as it was.
        self.next = Some(iterator.clone());
        let fetched = self.reader.fetch(&iterator, 10).await;
        match &fetched {
            Ok(fetched) => {
                let last = self.seen.last().cloned();
                let new = sequences(&fetched.records)
                    .into_iter()
                    .filter(|sequence| Some(sequence) > last.as_ref());
                self.seen.extend(new);
                self.is_in_doubt = false;
                self.next.clone_from(&fetched.next);
                self.behind = fetched.millis_behind_latest;
                self.has_ended = fetched.next.is_none();
            }
            Err(ReadError::Throttled { .. } | ReadError::Unavailable { .. }) => {}
            Err(_) => {
                self.next = None;
                self.is_in_doubt = true;
            }
        }
        fetched
    }

    /// Reads until `count` records were seen, whatever fails in between.
    pub(crate) async fn read_to(&mut self, count: usize) {
        const READS_MAX: usize = 1_000;
        for _ in 0..READS_MAX {
            if self.seen.len() >= count {
                return;
            }
            if self.read().await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        panic!(
            "{} of {count} records after {READS_MAX} reads",
            self.seen.len()
        );
    }

    /// Reads for this long.
    pub(crate) async fn read_for(mut self, time: Duration) -> Self {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.has_ended {
            let _ = tokio::time::timeout_at(until, self.read()).await;
        }
        self
    }
}

/// All of them at once, each for itself.
pub(crate) async fn together(walkers: Vec<Walker>, time: Duration) -> Vec<Walker> {
    let mut tasks = JoinSet::new();
    for (index, walker) in walkers.into_iter().enumerate() {
        tasks.spawn(async move { (index, walker.read_for(time).await) });
    }
    let mut ended = tasks.join_all().await;
    ended.sort_by_key(|(index, _)| *index);
    ended.into_iter().map(|(_, walker)| walker).collect()
}
