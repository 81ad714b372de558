//! Reads a shard from a place on, without a lease, as a command does it: seldom and patiently.

use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::kpl::{Expansion, expand};
use shardmill_core::ports::{Fetched, ReadError, ShardIterator, StreamReader};
use shardmill_core::stream::{ReadFrom, Record, SequenceNumber, ShardId};
use tokio_util::sync::CancellationToken;

/// Between two calls on a shard. A shard allows five calls a second, and hosts that poll may need
/// them all, so this takes few.
pub(crate) const CALL_EVERY: Duration = Duration::from_millis(400);
/// Records asked for in a call (AWS limit).
const CALL_RECORDS_MAX: u32 = 10_000;
/// Failed calls in a row before giving up: with the default waits, about a minute.
const FAILURES_MAX: u32 = 10;

/// Where reading continues.
pub(crate) struct ShardCursor {
    from: ReadFrom,
    last: Option<SequenceNumber>,
    iterator: Option<ShardIterator>,
    /// Failed calls in a row.
    failures: u32,
}

impl ShardCursor {
    /// Starts at a place.
    pub(crate) fn at(from: ReadFrom) -> Self {
        Self {
            from,
            last: None,
            iterator: None,
            failures: 0,
        }
    }

    /// Reads once. After a failure that may pass, waits, and returns `None`. Errors are those of
    /// the last try.
    pub(crate) async fn read_patiently(
        &mut self,
        reader: &dyn StreamReader,
        shard: &ShardId,
        stop: &CancellationToken,
    ) -> Result<Option<Fetched>, ReadError> {
        match self.read(reader, shard).await {
            Ok(reply) => {
                self.failures = 0;
                Ok(Some(reply))
            }
            Err(ReadError::ExpiredIterator) => {
                self.iterator = None;
                Ok(None)
            }
            Err(error @ (ReadError::Throttled { .. } | ReadError::Unavailable { .. }))
                if self.failures < FAILURES_MAX =>
            {
                self.failures += 1;
                tracing::warn!(
                    %shard,
                    %error,
                    code = "cursor-failed",
                    "cannot read the shard, trying again"
                );
                let wait = Backoff::standard().delay(self.failures, fastrand::f64());
                pause(wait, stop).await;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn read(
        &mut self,
        reader: &dyn StreamReader,
        shard: &ShardId,
    ) -> Result<Fetched, ReadError> {
        let iterator = if let Some(iterator) = self.iterator.take() {
            iterator
        } else {
            let from = self
                .last
                .clone()
                .map_or_else(|| self.from.clone(), ReadFrom::AfterSequenceNumber);
            reader.iterator(shard, &from).await?
        };
        let reply = reader
            .fetch(&iterator, CALL_RECORDS_MAX)
            .await
            .inspect_err(|_| self.iterator = Some(iterator))?;
        self.iterator.clone_from(&reply.next);
        self.last = reply
            .records
            .last()
            .map(|record| record.position.sequence.clone())
            .or(self.last.take());
        Ok(reply)
    }
}

/// What a plugin would get: aggregates are unpacked.
pub(crate) fn user_records(record: Record) -> Vec<Record> {
    match expand(record) {
        Expansion::Plain(record) | Expansion::Damaged(record, _) => vec![record],
        Expansion::Aggregate(records) => records,
    }
}

/// Waits, unless a signal comes.
pub(crate) async fn pause(wait: Duration, stop: &CancellationToken) {
    let _ = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
}
