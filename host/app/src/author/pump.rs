//! Puts a feed into a stream, with progress.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use serde::Serialize;
use shardmill_aws::{PutEntry, PutError, PutReport, RECORD_TOO_LARGE, StreamWriter};
use shardmill_sinks::letters::input_name;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::author::feed::{Feed, FeedError, FeedLine, KeySource};

/// Lines read ahead: some requests' worth, so that reading and putting overlap. What is there goes,
/// however little.
const CHUNK_LINES: usize = 2_000;
/// Bytes read ahead: more than one record may have.
const AHEAD_BYTES: usize = 16 << 20;
/// How long the request that is under way at a stop may take; what it stored is not counted if it
/// takes longer.
const LAST_REQUEST_WITHIN: Duration = Duration::from_secs(3);
/// Where nobody watches a progress bar, progress is a log line this often.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What was put.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct PumpSummary {
    /// Records stored.
    pub(crate) records: u64,
    /// Their bytes, keys included.
    pub(crate) bytes: u64,
    /// Records that were sent again.
    pub(crate) retries: u64,
    /// Seconds it took.
    pub(crate) seconds: f64,
    /// Records a second.
    pub(crate) records_per_second: f64,
    /// The last sequence number given out, by shard.
    pub(crate) last_sequence_numbers: BTreeMap<String, String>,
    /// What the writer reported, with positions as values.
    #[serde(skip)]
    pub(crate) report: PutReport,
    /// Whether it was stopped before the end.
    pub(crate) was_stopped: bool,
}

/// Where records go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PutKeys {
    /// Their partition keys.
    pub(crate) source: KeySource,
    /// What stands in place of the partition key's hash, for all of them.
    pub(crate) explicit_hash: Option<u128>,
}

impl From<KeySource> for PutKeys {
    fn from(source: KeySource) -> Self {
        Self {
            source,
            explicit_hash: None,
        }
    }
}

/// Puts all lines of `path`, each as soon as it is there; on `stop`, ends after the request in
/// flight.
pub(crate) async fn pump(
    writer: &StreamWriter,
    path: &Path,
    keys: PutKeys,
    stop: &CancellationToken,
) -> anyhow::Result<PumpSummary> {
    let (sender, mut lines) = mpsc::channel(CHUNK_LINES);
    let handle = Handle::current();
    // Opening may block as well: who looks whether it is gzip waits for the first bytes of a pipe.
    let opened = path.to_owned();
    let reader = tokio::task::spawn_blocking(move || {
        let feed = Feed::open(&opened, keys.source)?;
        read_lines(feed, keys.explicit_hash, &sender, &handle)
    });
    let progress = Progress::start();
    let mut total = PutReport::default();
    let mut chunk = Vec::with_capacity(CHUNK_LINES);
    while let Some(1..) = stop
        .run_until_cancelled(lines.recv_many(&mut chunk, CHUNK_LINES))
        .await
    {
        let largest = largest_of(&chunk);
        let (entries, _room): (Vec<_>, Vec<_>) = chunk
            .drain(..)
            .map(|line: ReadLine| (line.entry, line.room))
            .unzip();
        let (records, bytes) = (total.records, total.bytes);
        let putting = writer.put_all(entries, |more, more_bytes| {
            progress.at(records + more, bytes + more_bytes);
        });
        let Some(put) = unless_left(putting, stop).await else {
            break;
        };
        match put {
            Ok(report) => add(&mut total, report),
            Err(mut error) => {
                error.stored.records += records;
                return Err(with_line(error, path, largest));
            }
        }
    }
    drop(lines);
    if stop.is_cancelled() {
        // Who reads a pipe that says nothing does not notice.
        return Ok(progress.finish(total, true));
    }
    // A bad line ends the feed, but what stood before it is stored.
    let read = reader.await.context("the reader of the feed panicked")?;
    let summary = progress.finish(total, false);
    match read {
        Ok(()) => Ok(summary),
        Err(error) if summary.records == 0 => Err(error.into()),
        Err(error) => Err(anyhow::Error::new(error)
            .context(format!("stored {} records, then stopped", summary.records))),
    }
}

/// `None` if `work` was not done within a while of the stop: requests that fail are tried again for
/// minutes.
async fn unless_left<T>(work: impl Future<Output = T>, stop: &CancellationToken) -> Option<T> {
    let left = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST_REQUEST_WITHIN).await;
    };
    tokio::select! {
        done = work => Some(done),
        () = left => None,
    }
}

/// The record that is refused first for its size, if any is.
#[derive(Debug, Clone, Copy)]
struct Largest {
    line: u64,
    bytes: usize,
}

fn largest_of(lines: &[ReadLine]) -> Option<Largest> {
    let sizes = lines.iter().map(|line| Largest {
        line: line.line,
        bytes: line.entry.data.len(),
    });
    sizes.max_by_key(|largest| largest.bytes)
}

/// Kinesis counts the records of a request, which nobody can find in a file.
fn with_line(error: PutError, path: &Path, largest: Option<Largest>) -> anyhow::Error {
    match largest {
        Some(Largest { line, bytes }) if error.cause.to_string().contains(RECORD_TOO_LARGE) => {
            let place = format!("{}, line {line}, of {bytes} bytes", input_name(path));
            anyhow::Error::new(error).context(place)
        }
        _ => error.into(),
    }
}

fn add(total: &mut PutReport, report: PutReport) {
    total.records += report.records;
    total.bytes += report.bytes;
    total.retries += report.retries;
    total.last_sequence.extend(report.last_sequence);
}

/// A line that was read ahead, and its room among those.
struct ReadLine {
    line: u64,
    entry: PutEntry,
    room: OwnedSemaphorePermit,
}

/// Reads ahead of the requests until the end of the feed, or until nobody listens.
fn read_lines(
    mut feed: Feed,
    explicit_hash_key: Option<u128>,
    lines: &mpsc::Sender<ReadLine>,
    handle: &Handle,
) -> Result<(), FeedError> {
    let room = Arc::new(Semaphore::new(AHEAD_BYTES));
    while let Some(FeedLine {
        data,
        partition_key,
    }) = feed.next_line()?
    {
        let line = feed.line();
        let entry = PutEntry {
            partition_key,
            explicit_hash_key,
            data: Bytes::from(data),
        };
        let bytes = u32::try_from(entry.cost_bytes().min(AHEAD_BYTES)).unwrap_or(u32::MAX);
        let taking = async {
            tokio::select! {
                room = Arc::clone(&room).acquire_many_owned(bytes) => room.ok(),
                () = lines.closed() => None,
            }
        };
        let Some(room) = handle.block_on(taking) else {
            return Ok(());
        };
        if lines.blocking_send(ReadLine { line, entry, room }).is_err() {
            return Ok(());
        }
    }
    Ok(())
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
        Self {
            bar,
            started: now,
            logged: std::cell::Cell::new(now),
        }
    }

    fn at(&self, records: u64, bytes: u64) {
        let rate = records as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
        match &self.bar {
            Some(bar) => {
                bar.tick();
                bar.set_message(format!(
                    "{} records, {}, {rate:.0}/s",
                    HumanCount(records),
                    HumanBytes(bytes)
                ));
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

#[cfg(test)]
mod tests {
    use shardmill_core::ports::ReadError;

    use super::*;
    use crate::output::in_one_line;

    #[test]
    fn a_record_that_is_too_large_is_told_with_its_file_and_line() {
        let room = Arc::new(Semaphore::new(9));
        let line = |line: u64, bytes: usize| ReadLine {
            line,
            entry: PutEntry {
                partition_key: String::new(),
                explicit_hash_key: None,
                data: vec![0; bytes].into(),
            },
            room: Arc::clone(&room).try_acquire_owned().unwrap(),
        };
        let largest = largest_of(&[line(1, 5), line(7, 900), line(8, 6)]);
        let told = |message: &str| {
            let cause = ReadError::Refused {
                message: message.to_owned(),
            };
            let stored = PutReport {
                records: 3,
                ..PutReport::default()
            };
            in_one_line(&with_line(
                PutError {
                    stored,
                    attempts: 1,
                    cause,
                },
                Path::new("a.ndjson"),
                largest,
            ))
        };
        let expected = "a.ndjson, line 7, of 900 bytes: stored 3 records, then kinesis refused \
            the request: a record is larger than the stream takes";
        assert_eq!(told(RECORD_TOO_LARGE), expected);
        assert_eq!(
            told("no"),
            "stored 3 records, then kinesis refused the request: no"
        );
    }
}
