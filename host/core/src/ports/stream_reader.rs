use super::PortFuture;
use crate::fleet::StreamIdentity;
use crate::stream::{ReadFrom, Record, Shard, ShardId};

/// Bytes that a reply of [`StreamReader::fetch`] may hold (AWS limit: 10 MB).
pub const REPLY_BYTES_MAX: usize = 10 << 20;
/// Records that a reply of [`StreamReader::fetch`] may hold (AWS limit); a request for more would
/// be refused.
pub const REPLY_RECORDS_MAX: u32 = 10_000;

/// One stream: its shards and their records.
pub trait StreamReader: Send + Sync {
    /// What distinguishes this stream from a later one with the same name; `None` if the stream
    /// does not exist.
    fn identity(&self) -> PortFuture<'_, Result<Option<StreamIdentity>, ReadError>>;

    /// Every shard, open and closed, all pages. Never a partial list: a page that fails fails the
    /// call.
    fn list_shards(&self) -> PortFuture<'_, Result<Vec<Shard>, ReadError>>;

    /// Shards that may hold records that arrived at `since_ms` or later, in milliseconds since the
    /// Unix epoch: all that are open, and those that were closed since. It may name more, and never
    /// less. `None` if the stream cannot say: it does not accept the time, or does not support such
    /// a listing. A missing permission is an error.
    fn list_shards_since(
        &self,
        _since_ms: u64,
    ) -> PortFuture<'_, Result<Option<Vec<Shard>>, ReadError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The stream's own time in milliseconds since the Unix epoch, the clock of arrival times:
    /// records that are put from now on arrive at this time or later. May be some seconds late.
    /// `None` if the stream does not provide its time.
    fn now_ms(&self) -> PortFuture<'_, Result<Option<u64>, ReadError>>;

    /// Asks the stream for an iterator at a place of the shard.
    fn iterator<'a>(
        &'a self,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<ShardIterator, ReadError>>;

    /// Whether Kinesis knows `shard`. Always asks Kinesis: a remembered answer would keep a shard
    /// that is gone.
    fn knows<'a>(&'a self, shard: &'a ShardId) -> PortFuture<'a, Result<bool, ReadError>> {
        Box::pin(async move {
            match self.iterator(shard, &ReadFrom::TrimHorizon).await {
                Ok(_) => Ok(true),
                Err(ReadError::NotFound { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// One `GetRecords` call, at most `limit` records, [in order](Fetched::in_order). Pacing is up
    /// to the caller, unless [`StreamReader::turn`] says otherwise.
    fn fetch<'a>(
        &'a self,
        iterator: &'a ShardIterator,
        limit: u32,
    ) -> PortFuture<'a, Result<Fetched, ReadError>>;

    /// Waits until a `fetch` is worthwhile, and returns which side keeps within the shard's rates.
    /// Called before memory is reserved for a reply, so that a shard that waits for its turn holds
    /// none. `next` is where the fetch would read, if that is known.
    fn turn<'a>(
        &'a self,
        _shard: &'a ShardId,
        _next: Option<&'a ShardIterator>,
    ) -> PortFuture<'a, PacedBy> {
        Box::pin(std::future::ready(PacedBy::Caller))
    }
}

/// Which side keeps calls and bytes within a shard's rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacedBy {
    /// Each caller.
    Caller,
    /// The reader, for all its callers, which share the shard's rates.
    Reader,
}

/// An opaque position to continue from; expires after five minutes (AWS limit).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIterator(pub String);

/// What Kinesis gave of a shard at once: one reply of `GetRecords`, after which an iterator
/// continues, or one event of a subscription, after which a sequence number does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched<N = ShardIterator> {
    /// The records, in the order of the shard: see [`Fetched::in_order`].
    pub records: Vec<Record>,
    /// Where to continue; `None` means that Kinesis says the shard has ended.
    pub next: Option<N>,
    /// How far the tip is ahead, in milliseconds, if Kinesis said.
    pub millis_behind_latest: Option<u64>,
    /// The shards that follow, given with the last reply of a closed shard.
    pub children: Vec<Shard>,
}

impl<N> Fetched<N> {
    /// The one check of the order of records, made where they come in: an adapter passes on what
    /// this returns, and all that reads records relies on it.
    ///
    /// # Errors
    ///
    /// If the records are out of order. Nothing of them may be used, and they are to be read again.
    pub fn in_order(self) -> Result<Self, ReadError> {
        if self.is_in_order() {
            return Ok(self);
        }
        Err(ReadError::Unavailable {
            message: "a reply's records are out of order".to_owned(),
        })
    }

    pub(crate) fn is_in_order(&self) -> bool {
        self.records.is_sorted_by(|a, b| a.position <= b.position)
    }

    /// What the records cost the host's buffer.
    pub fn cost_bytes(&self) -> usize {
        self.records.iter().map(Record::cost_bytes).sum()
    }

    /// The same, with another name for where to continue.
    pub fn map_next<M>(self, name: impl FnOnce(N) -> M) -> Fetched<M> {
        Fetched {
            records: self.records,
            next: self.next.map(name),
            millis_behind_latest: self.millis_behind_latest,
            children: self.children,
        }
    }
}

impl<N> Default for Fetched<N> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            next: None,
            millis_behind_latest: None,
            children: Vec::new(),
        }
    }
}

/// Why a read failed. All but [`ReadError::ExpiredIterator`] are retried with back-off, forever: a
/// read error is never the end of a shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The iterator is older than five minutes; ask for a new one after the last record held.
    #[error("the shard iterator expired")]
    ExpiredIterator,
    /// The shard's or the account's rate was exceeded.
    #[error("kinesis throttled the request: {message}")]
    Throttled {
        /// Kinesis' message.
        message: String,
    },
    /// Stream or shard is unknown; possibly only for a moment.
    #[error("kinesis does not know the stream or shard: {message}")]
    NotFound {
        /// Kinesis' message.
        message: String,
    },
    /// Rights or keys are missing; an operator must act.
    #[error("kinesis refused the request: {message}")]
    Refused {
        /// Kinesis' message.
        message: String,
    },
    /// The key that the stream is encrypted with cannot be used: no right to it, disabled, deleted.
    /// An operator must act.
    #[error("the stream's encryption key cannot be used: {message}")]
    KeyUnusable {
        /// Kinesis' message.
        message: String,
    },
    /// Anything else: timeouts, 5xx, replies that cannot be read.
    #[error("kinesis is unavailable: {message}")]
    Unavailable {
        /// What happened.
        message: String,
    },
}
