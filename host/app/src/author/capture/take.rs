//! Reads a shard up to its latest record.

use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::kpl::{Expansion, expand};
use shardmill_core::ports::{Fetched, ReadError, ShardIterator, StreamReader};
use shardmill_core::stream::{ReadFrom, Record, SequenceNumber, ShardId};
use tokio_util::sync::CancellationToken;

/// Between two calls on a shard. A shard allows five calls a second, and hosts that poll may need
/// them all, so this takes few.
const CALL_EVERY: Duration = Duration::from_millis(400);
/// Records asked for in a call (AWS limit).
const CALL_RECORDS_MAX: u32 = 10_000;
/// Failed calls in a row before giving up: with the default waits, about a minute.
const FAILURES_MAX: u32 = 10;

/// What is taken of a shard.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// Where it starts.
    pub(crate) from: ReadFrom,
    /// Most user records.
    pub(crate) count: u64,
}

/// Passes all user records of `shard` to `write`, in order, until there are enough, the latest is
/// reached, or `stop` is set. Returns their number. Errors are those of the last try, or of
/// `write`.
pub(crate) async fn take(
    reader: &dyn StreamReader,
    shard: &ShardId,
    part: Part,
    stop: &CancellationToken,
    mut write: impl FnMut(Record) -> std::io::Result<()>,
) -> anyhow::Result<u64> {
    let mut place = Place {
        from: part.from,
        last: None,
        iterator: None,
        failures: 0,
    };
    let mut taken = 0;
    loop {
        let Some(reply) = place.read_patiently(reader, shard, stop).await? else {
            continue;
        };
        let is_latest = reply.millis_behind_latest == Some(0);
        for record in reply.records.into_iter().flat_map(user_records) {
            if taken == part.count {
                return Ok(taken);
            }
            write(record)?;
            taken += 1;
        }
        if taken == part.count || is_latest || reply.next.is_none() || stop.is_cancelled() {
            return Ok(taken);
        }
        pause(CALL_EVERY, stop).await;
    }
}

/// Where reading continues.
struct Place {
    from: ReadFrom,
    last: Option<SequenceNumber>,
    iterator: Option<ShardIterator>,
    /// Failed calls in a row.
    failures: u32,
}

impl Place {
    /// Reads once. After a failure that may pass, waits, and returns `None`.
    async fn read_patiently(
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
                tracing::warn!(%shard, %error, "trying again");
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
fn user_records(record: Record) -> Vec<Record> {
    match expand(record) {
        Expansion::Plain(record) | Expansion::Damaged(record, _) => vec![record],
        Expansion::Aggregate(records) => records,
    }
}

async fn pause(wait: Duration, stop: &CancellationToken) {
    let _ = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
}

#[cfg(feature = "local")]
#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shardmill_core::stream::{Position, StreamName};

    use super::*;
    use crate::author::captured::Captured;
    use crate::author::dry_run::CapturedStream;

    fn record(n: u64, size: usize) -> Record {
        Record {
            data: Bytes::from(vec![b'x'; size]),
            partition_key: format!("key-{n}"),
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse(&(n + 1).to_string()).unwrap()),
            arrival_ms: n,
        }
    }

    async fn taken(records: &[Record], part: Part) -> Vec<Record> {
        let (stream, shard) = (
            StreamName::new("orders").unwrap(),
            ShardId::new("shardId-0").unwrap(),
        );
        let captured = records.iter().map(|record| Captured {
            stream: stream.clone(),
            shard: shard.clone(),
            record: record.clone(),
        });
        let reader = CapturedStream::new(captured.collect()).unwrap();
        reader.release(usize::MAX);
        let mut written = Vec::new();
        let write = |record| {
            written.push(record);
            Ok(())
        };
        let count = take(&reader, &shard, part, &CancellationToken::new(), write)
            .await
            .unwrap();
        assert_eq!(count, written.len() as u64);
        written
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_is_read_to_its_latest_record_over_several_replies() {
        // A reply holds 10 MiB.
        let records: Vec<_> = (0..25).map(|n| record(n, 1 << 20)).collect();
        let all = taken(
            &records,
            Part {
                from: ReadFrom::TrimHorizon,
                count: u64::MAX,
            },
        )
        .await;
        assert_eq!(all, records);
        let some = taken(
            &records,
            Part {
                from: ReadFrom::AtTimestamp(3),
                count: 12,
            },
        )
        .await;
        assert_eq!(some, records[3..15]);
    }
}
