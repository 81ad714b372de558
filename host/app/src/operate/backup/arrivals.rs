//! When the record of each checkpoint arrived: on another stream, that is all that is left of a
//! place. Rows say it too, of what was settled last, which may be after the checkpoint.

use futures_util::{StreamExt, stream};
use shardmill_aws::KinesisReader;
use shardmill_core::backup::BackedUpShard;
use shardmill_core::ports::{ReadError, StreamReader};
use shardmill_core::stream::{Position, ReadFrom, ShardId};

/// Asks Kinesis, with a call of GetRecords for each shard, of the five a second that it allows.
/// What it does not say stays as the rows have it. `at_once`: shards that are asked about at a
/// time.
pub(super) async fn find(
    shards: &mut [BackedUpShard],
    reader: &KinesisReader,
    at_once: usize,
    notes: &mut Vec<String>,
) {
    let mut unanswered = 0_usize;
    for (index, answer) in ask(shards, reader, at_once).await {
        match answer {
            Ok(Some(ms)) => shards[index].lease.settled_arrival_ms = Some(ms),
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(%error, "kinesis did not say when a checkpoint's record arrived");
                unanswered += 1;
            }
        }
    }
    if unanswered > 0 {
        notes.push(format!(
            "Kinesis did not say of {unanswered} shard(s) when the record of the checkpoint arrived: \
                their times are as hosts wrote them down, which may be a little too late"
        ));
    }
}

/// The answers, each with its shard's index.
async fn ask(
    shards: &[BackedUpShard],
    reader: &KinesisReader,
    at_once: usize,
) -> Vec<(usize, Result<Option<u64>, ReadError>)> {
    let asked: Vec<(usize, ShardId, Position)> = shards
        .iter()
        .enumerate()
        .filter_map(|(index, shard)| {
            let position = shard.lease.checkpoint.position()?.clone();
            Some((index, shard.lease.key.shard_id(), position))
        })
        .collect();
    let answers = stream::iter(asked)
        .map(async |(index, shard, position)| (index, arrival(reader, &shard, &position).await));
    answers.buffer_unordered(at_once).collect().await
}

/// `None` if retention took the record.
async fn arrival(
    reader: &KinesisReader,
    shard: &ShardId,
    position: &Position,
) -> Result<Option<u64>, ReadError> {
    let from = ReadFrom::AtSequenceNumber(position.sequence.clone());
    let iterator = reader.iterator(shard, &from).await?;
    let fetched = reader.fetch(&iterator, 1).await?;
    let first = fetched.records.into_iter().next();
    let found = first.filter(|record| record.position.sequence == position.sequence);
    Ok(found.map(|record| record.arrival_ms).filter(|ms| *ms > 0))
}
