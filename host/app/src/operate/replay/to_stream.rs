//! `shardmill replay --to-stream`: the records back into a stream, as they were put.

use anyhow::Context;
use shardmill_aws::{AwsClients, PutEntry, PutTarget, StreamWriter};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::DeadLetter;
use shardmill_sinks::letters::{Item, LetterInput};
use tokio_util::sync::CancellationToken;

use super::remainder::Remainder;
use super::summary::ReplaySummary;

/// Letters of one call of the writer, which cuts them into requests. What it could not put is tried
/// no further, so this is also what may be stored and still be in the file of what is left.
const CHUNK_LETTERS: usize = 500;
/// Bytes after which a call is made even with fewer letters.
const CHUNK_BYTES: usize = 5 << 20;

pub(super) async fn put(
    mut input: LetterInput,
    only: Option<&PluginName>,
    clients: &AwsClients,
    target: PutTarget,
    mut remainder: Remainder,
    stop: &CancellationToken,
) -> anyhow::Result<ReplaySummary> {
    let writer = StreamWriter::to(clients.kinesis.clone(), target).speaking(clients.wire.clone());
    let mut summary = ReplaySummary::default();
    loop {
        let read = tokio::task::spawn_blocking(move || next_chunk(input)).await;
        let (chunk, is_end);
        (input, chunk, is_end) = read.context("the reader of the letters panicked")??;
        let mut letters = Vec::new();
        for item in chunk {
            match item {
                Item::Letter(letter) if only.is_none_or(|only| *only == letter.plugin) => {
                    letters.push(*letter);
                }
                Item::Letter(_) => summary.left_out += 1,
                Item::Damaged { problem, line } => {
                    tracing::warn!(problem, "kept as it is");
                    summary.damaged += 1;
                    remainder.keep_line(&line)?;
                }
            }
        }
        if stop.is_cancelled() {
            summary
                .stopped
                .get_or_insert_with(|| "by a signal".to_owned());
        }
        if summary.stopped.is_none() {
            match writer.put_all(letters.iter().map(entry), |_, _| {}).await {
                Ok(_) => {
                    summary.processed += letters.len() as u64;
                    letters.clear();
                }
                Err(error) => summary.stopped = Some(error.to_string()),
            }
        }
        summary.not_tried += letters.len() as u64;
        letters
            .iter()
            .try_for_each(|letter| remainder.keep(letter))?;
        if is_end {
            break;
        }
    }
    remainder.keep_incomplete(&mut input, &mut summary)?;
    summary.remainder = remainder.finish()?;
    Ok(summary)
}

fn next_chunk(mut input: LetterInput) -> anyhow::Result<(LetterInput, Vec<Item>, bool)> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    while chunk.len() < CHUNK_LETTERS && bytes < CHUNK_BYTES {
        let Some(item) = input.next_item()? else {
            return Ok((input, chunk, true));
        };
        if let Item::Letter(letter) = &item {
            bytes += letter.record.data.len();
        }
        chunk.push(item);
    }
    Ok((input, chunk, false))
}

fn entry(letter: &DeadLetter) -> PutEntry {
    let record = &letter.record;
    let explicit_hash_key = record
        .explicit_hash_key
        .as_ref()
        .and_then(|key| key.parse().ok());
    PutEntry {
        partition_key: record.partition_key.clone(),
        explicit_hash_key,
        data: record.data.clone(),
    }
}
