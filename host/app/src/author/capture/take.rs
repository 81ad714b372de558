//! Reads a shard as far as it goes now.

use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::kpl::{Expansion, expand};
use shardmill_core::ports::{Fetched, ReadError, ShardIterator, StreamReader};
use shardmill_core::stream::{ReadFrom, Record, SequenceNumber, ShardId};
use tokio_util::sync::CancellationToken;

/// Between two calls on a shard: a fifth of its five calls a second is left to nobody else if hosts
/// poll as often as they may, so this takes few.
const CALL_EVERY: Duration = Duration::from_millis(400);
/// Records asked for in a call (AWS limit).
const CALL_RECORDS_MAX: u32 = 10_000;
/// Failed calls in a row before it is given up: with the default waits, about a minute.
const FAILURES_MAX: u32 = 10;

/// What is taken of a shard.
#[derive(Debug, Clone)]
pub(crate) struct Take {
    /// Where it starts.
    pub(crate) from: ReadFrom,
    /// Most user records.
    pub(crate) count: u64,
}

/// Hands all user records of `shard` to `write`, in order, until there are enough, the latest is
/// reached, or `stop`; gives their number. Errors are those of the last try, or of `write`.
pub(crate) async fn take(
    reader: &dyn StreamReader,
    shard: &ShardId,
    Take { from, count }: Take,
    stop: &CancellationToken,
    mut write: impl FnMut(Record) -> std::io::Result<()>,
) -> anyhow::Result<u64> {
    let (mut place, mut taken, mut failures) = (
        Place {
            from,
            last: None,
            iterator: None,
        },
        0,
        0,
    );
    loop {
        let reply = match place.read(reader, shard).await {
            Ok(reply) => reply,
            Err(ReadError::ExpiredIterator) => {
                place.iterator = None;
                continue;
            }
            Err(error @ (ReadError::Throttled { .. } | ReadError::Unavailable { .. }))
                if failures < FAILURES_MAX =>
            {
                failures += 1;
                tracing::warn!(%shard, %error, "trying again");
                pause(Backoff::standard().delay(failures, fastrand::f64()), stop).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        failures = 0;
        let is_latest = reply.millis_behind_latest == Some(0);
        for record in reply.records.into_iter().flat_map(opened) {
            if taken == count {
                return Ok(taken);
            }
            write(record)?;
            taken += 1;
        }
        if taken == count || is_latest || reply.next.is_none() || stop.is_cancelled() {
            return Ok(taken);
        }
        pause(CALL_EVERY, stop).await;
    }
}

struct Place {
    from: ReadFrom,
    last: Option<SequenceNumber>,
    iterator: Option<ShardIterator>,
}

impl Place {
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

/// User records: a plugin gets no others.
fn opened(record: Record) -> Vec<Record> {
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

    async fn taken(records: &[Record], take_: Take) -> Vec<Record> {
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
        let count = take(&reader, &shard, take_, &CancellationToken::new(), write)
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
            Take {
                from: ReadFrom::TrimHorizon,
                count: u64::MAX,
            },
        )
        .await;
        assert_eq!(all, records);
        let some = taken(
            &records,
            Take {
                from: ReadFrom::AtTimestamp(3),
                count: 12,
            },
        )
        .await;
        assert_eq!(some, records[3..15]);
    }
}
