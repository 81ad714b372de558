//! `shardmill replay --to-stream`: puts the records into a stream, as their producers did.

use anyhow::Context;
use shardmill_aws::{AwsClients, PutEntry, PutTarget, StreamWriter};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::DeadLetter;
use shardmill_sinks::letters::{Item, LetterInput};
use tokio_util::sync::CancellationToken;

use super::remainder::Remainder;
use super::summary::ReplaySummary;

/// Letters of one call of the writer, which cuts them into requests. If a call fails, all its
/// letters are left, so this many may be stored and left at the same time.
const CHUNK_LETTERS: usize = 500;
/// Bytes after which a call is made with fewer letters.
const CHUNK_BYTES: usize = 5 << 20;

/// A replay into a stream.
pub(super) struct ToStream {
    writer: StreamWriter,
    /// Only letters of this plugin.
    only: Option<PluginName>,
    remainder: Remainder,
    summary: ReplaySummary,
}

/// Some items of an input.
struct Chunk {
    items: Vec<Item>,
    is_last: bool,
}

impl ToStream {
    pub(super) fn new(
        clients: &AwsClients,
        target: PutTarget,
        only: Option<PluginName>,
        remainder: Remainder,
    ) -> Self {
        Self {
            writer: StreamWriter::to(clients.kinesis.clone(), target)
                .speaking(clients.wire.clone()),
            only,
            remainder,
            summary: ReplaySummary::default(),
        }
    }

    /// Puts the records of all letters into the stream. Stops at the first error, or at a signal;
    /// the letters that follow are left.
    pub(super) async fn run(
        mut self,
        mut input: LetterInput,
        stop: &CancellationToken,
    ) -> anyhow::Result<ReplaySummary> {
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let chunk = Chunk::read(&mut input);
                chunk.map(|chunk| (input, chunk))
            });
            let chunk;
            (input, chunk) = read.await.context("the reader of the letters panicked")??;
            let is_last = chunk.is_last;
            self.put(chunk, stop).await?;
            if is_last {
                break;
            }
        }
        self.remainder
            .keep_incomplete(&mut input, &mut self.summary)?;
        self.summary.remainder = self.remainder.finish()?;
        Ok(self.summary)
    }

    async fn put(&mut self, chunk: Chunk, stop: &CancellationToken) -> anyhow::Result<()> {
        let only = self.only.as_ref();
        let mut letters = Vec::new();
        for item in chunk.items {
            letters.extend(self.remainder.wanted(item, only, &mut self.summary)?);
        }
        self.summary.stop_if(stop);
        if self.summary.stopped.is_none() {
            let put = self.writer.put_all(letters.iter().map(entry), |_, _| {});
            match put.await {
                Ok(_) => {
                    self.summary.processed += letters.len() as u64;
                    return Ok(());
                }
                Err(error) => self.summary.stop(error.to_string()),
            }
        }
        self.summary.not_tried += letters.len() as u64;
        letters
            .iter()
            .try_for_each(|letter| self.remainder.keep(letter))
    }
}

impl Chunk {
    fn read(input: &mut LetterInput) -> anyhow::Result<Self> {
        let mut items = Vec::new();
        let mut bytes = 0;
        while items.len() < CHUNK_LETTERS && bytes < CHUNK_BYTES {
            let Some(item) = input.next_item()? else {
                return Ok(Self {
                    items,
                    is_last: true,
                });
            };
            if let Item::Letter(letter) = &item {
                bytes += letter.record.data.len();
            }
            items.push(item);
        }
        Ok(Self {
            items,
            is_last: false,
        })
    }
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
