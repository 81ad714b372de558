//! Reads a shard up to its latest record.

use shardmill_core::ports::StreamReader;
use shardmill_core::stream::{ReadFrom, Record, ShardId};
use tokio_util::sync::CancellationToken;

use crate::shard_cursor::{CALL_EVERY, ShardCursor, pause, user_records};

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
    let mut cursor = ShardCursor::at(part.from);
    let mut taken = 0;
    loop {
        let Some(reply) = cursor.read_patiently(reader, shard, stop).await? else {
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

#[cfg(feature = "local")]
#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shardmill_core::stream::{Position, SequenceNumber, StreamName};

    use super::*;
    use crate::author::dry_run::CapturedStream;
    use shardmill_sinks::Captured;

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
