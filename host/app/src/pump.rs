//! Puts a feed into a stream, with progress.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use serde::Serialize;
use shardmill_aws::{PutEntry, PutReport, StreamWriter};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::feed::{Feed, FeedError, FeedLine, KeySource};

/// Lines read ahead at once: some requests' worth, so that reading and putting overlap.
const CHUNK_LINES: usize = 2_000;
/// Bytes after which a chunk goes even with fewer lines.
const CHUNK_BYTES: usize = 8 << 20;
/// Where nobody watches a progress bar, progress is a log line this often.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What was put.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PumpSummary {
    /// Records stored.
    pub records: u64,
    /// Their bytes, keys included.
    pub bytes: u64,
    /// Records that were sent again.
    pub retries: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Records a second.
    pub records_per_second: f64,
    /// The last sequence number given out, by shard.
    pub last_sequence_numbers: BTreeMap<String, String>,
    /// What the writer reported, with positions as values.
    #[serde(skip)]
    pub report: PutReport,
    /// Whether it was stopped before the end.
    pub was_stopped: bool,
}

/// Puts all lines of `path`; on `stop`, ends after the request in flight.
pub async fn pump(
    writer: &StreamWriter,
    path: &Path,
    key: KeySource,
    stop: &CancellationToken,
) -> anyhow::Result<PumpSummary> {
    let feed = Feed::open(path, key)?;
    let (sender, mut chunks) = mpsc::channel(2);
    let reader = tokio::task::spawn_blocking(move || read_chunks(feed, &sender));
    let progress = Progress::start();
    let mut total = PutReport::default();
    let mut was_stopped = false;
    while let Some(chunk) = chunks.recv().await {
        if stop.is_cancelled() {
            was_stopped = true;
            break;
        }
        let (records, bytes) = (total.records, total.bytes);
        let put = writer.put_all(chunk, |more, more_bytes| progress.at(records + more, bytes + more_bytes)).await;
        let report = put.with_context(|| format!("after {records} records of earlier requests"))?;
        add(&mut total, report);
    }
    drop(chunks);
    // A bad line ends the feed, but what stood before it is stored.
    let read = reader.await.context("the reader of the feed panicked")?;
    let summary = progress.finish(total, was_stopped);
    match read {
        Ok(()) => Ok(summary),
        Err(error) => {
            Err(anyhow::Error::new(error).context(format!("stored {} records, then stopped", summary.records)))
        }
    }
}

fn add(total: &mut PutReport, report: PutReport) {
    total.records += report.records;
    total.bytes += report.bytes;
    total.retries += report.retries;
    total.last_sequence.extend(report.last_sequence);
}

fn read_chunks(mut feed: Feed, chunks: &mpsc::Sender<Vec<PutEntry>>) -> Result<(), FeedError> {
    loop {
        let (mut chunk, mut bytes) = (Vec::with_capacity(CHUNK_LINES), 0);
        let mut ended = Ok(());
        while chunk.len() < CHUNK_LINES && bytes < CHUNK_BYTES {
            match feed.next_line() {
                Ok(Some(FeedLine { data, partition_key })) => {
                    bytes += data.len();
                    chunk.push(PutEntry { partition_key, explicit_hash_key: None, data: Bytes::from(data) });
                }
                Ok(None) => break,
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
        }
        let is_last = ended.is_err() || chunk.len() < CHUNK_LINES && bytes < CHUNK_BYTES;
        let is_heard = chunk.is_empty() || chunks.blocking_send(chunk).is_ok();
        if is_last || !is_heard {
            return ended;
        }
    }
}

/// A bar for people, lines for logs.
struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    logged: std::cell::Cell<Instant>,
}

impl Progress {
    fn start() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        let now = Instant::now();
        Self { bar, started: now, logged: std::cell::Cell::new(now) }
    }

    fn at(&self, records: u64, bytes: u64) {
        let rate = records as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
        match &self.bar {
            Some(bar) => {
                bar.tick();
                bar.set_message(format!("{} records, {}, {rate:.0}/s", HumanCount(records), HumanBytes(bytes)));
            }
            None if self.logged.get().elapsed() >= LOG_EVERY => {
                tracing::info!(records, bytes, rate, "putting records");
                self.logged.set(Instant::now());
            }
            None => {}
        }
    }

    fn finish(self, report: PutReport, was_stopped: bool) -> PumpSummary {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        let seconds = self.started.elapsed().as_secs_f64();
        PumpSummary {
            records: report.records,
            bytes: report.bytes,
            retries: report.retries,
            seconds,
            records_per_second: report.records as f64 / seconds.max(1e-3),
            last_sequence_numbers: report
                .last_sequence
                .iter()
                .map(|(id, last)| (id.to_string(), last.to_string()))
                .collect(),
            report,
            was_stopped,
        }
    }
}
