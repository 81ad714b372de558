//! Puts a feed into a stream, with progress.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde::{Serialize, Serializer};
use shardmill_aws::{PutEntry, PutError, PutReport, RECORD_TOO_LARGE, StreamWriter};
use shardmill_core::stream::{SequenceNumber, ShardId};
use shardmill_sinks::letters::input_name;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::author::feed::{Feed, FeedError, KeySource};
use crate::output::spinner;

/// Lines read ahead: enough for several requests, so that reading and putting overlap. A request
/// does not wait for more lines.
const CHUNK_LINES: usize = 2_000;
/// Bytes read ahead: more than one record may have.
const AHEAD_BYTES: usize = 16 << 20;
/// How long the request in flight at a stop may take. If it takes longer, what it stored is not
/// counted.
const LAST_REQUEST_WITHIN: Duration = Duration::from_secs(3);
/// Without a progress bar, progress is logged this often.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What was put.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct PumpSummary {
    /// Records that Kinesis acknowledged.
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
    #[serde(serialize_with = "as_text")]
    pub(crate) last_sequence_numbers: BTreeMap<ShardId, SequenceNumber>,
    /// Whether it was stopped before the end.
    pub(crate) was_stopped: bool,
}

fn as_text<S: Serializer>(
    numbers: &BTreeMap<ShardId, SequenceNumber>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let numbers = numbers.iter();
    serializer.collect_map(numbers.map(|(shard, last)| (shard.to_string(), last.to_string())))
}

/// Where records go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PutKeys {
    /// Their partition keys.
    pub(crate) source: KeySource,
    /// Replaces the hash of the partition key, for all records.
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
    let reader = read_ahead(path.to_owned(), keys, sender);
    let mut putting = Putting {
        writer,
        path,
        progress: Progress::start(),
        total: PutReport::default(),
        under_way: UnderWay::default(),
    };
    putting.put_all(&mut lines, stop).await?;
    drop(lines);
    if stop.is_cancelled() {
        // The reader may wait for a silent pipe, so do not wait for the reader.
        return Ok(putting.finish(true));
    }
    let read = reader.await.context("the reader of the feed panicked")?;
    conclude(read, putting.finish(false))
}

/// A bad line ends the feed, but the lines before it are stored.
fn conclude(read: Result<(), FeedError>, summary: PumpSummary) -> anyhow::Result<PumpSummary> {
    match read {
        Ok(()) => Ok(summary),
        Err(error) if summary.records == 0 => Err(error.into()),
        Err(error) => Err(anyhow::Error::new(error)
            .context(format!("stored {} records, then stopped", summary.records))),
    }
}

/// What was put so far.
struct Putting<'a> {
    writer: &'a StreamWriter,
    path: &'a Path,
    progress: Progress,
    total: PutReport,
    under_way: UnderWay,
}

/// What is put already of the lines that are being put. They may be left before all of them are.
#[derive(Default)]
struct UnderWay {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Putting<'_> {
    async fn put_all(
        &mut self,
        lines: &mut mpsc::Receiver<ReadLine>,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut chunk = Vec::with_capacity(CHUNK_LINES);
        while let Some(1..) = stop
            .run_until_cancelled(lines.recv_many(&mut chunk, CHUNK_LINES))
            .await
        {
            let put = self.put(std::mem::take(&mut chunk));
            match unless_left(put, stop).await {
                Some(put) => put?,
                None => break,
            }
        }
        Ok(())
    }

    async fn put(&mut self, lines: Vec<ReadLine>) -> anyhow::Result<()> {
        let largest = largest_of(&lines);
        // The room is kept until the lines are put.
        let (entries, _room): (Vec<_>, Vec<_>) = lines
            .into_iter()
            .map(|line| (line.entry, line.room))
            .unzip();
        let (records, bytes) = (self.total.records, self.total.bytes);
        let (progress, under_way) = (&self.progress, &self.under_way);
        let put = self.writer.put_all(entries, |more, more_bytes| {
            progress.at(records + more, bytes + more_bytes);
            under_way.records.store(more, Ordering::Relaxed);
            under_way.bytes.store(more_bytes, Ordering::Relaxed);
        });
        match put.await {
            Ok(report) => {
                self.under_way = UnderWay::default();
                add(&mut self.total, report);
                Ok(())
            }
            Err(mut error) => {
                error.stored.records += records;
                Err(with_line(error, self.path, largest))
            }
        }
    }

    fn finish(mut self, was_stopped: bool) -> PumpSummary {
        self.total.records += self.under_way.records.into_inner();
        self.total.bytes += self.under_way.bytes.into_inner();
        self.progress.finish(self.total, was_stopped)
    }
}

/// `None` if `work` was not done within a while of the stop: requests that fail are tried again for
/// minutes.
pub(super) async fn unless_left<T>(
    work: impl Future<Output = T>,
    stop: &CancellationToken,
) -> Option<T> {
    let left = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST_REQUEST_WITHIN).await;
    };
    tokio::select! {
        done = work => Some(done),
        () = left => None,
    }
}

/// The record that Kinesis refuses first if one is too large.
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

/// Names the line in the file: Kinesis only counts the records of a request.
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

/// Reads the feed on a separate thread, ahead of the requests. Opening it may block too: the first
/// bytes show whether it is gzip or text, and a pipe may not have them yet.
fn read_ahead(
    path: PathBuf,
    keys: PutKeys,
    lines: mpsc::Sender<ReadLine>,
) -> JoinHandle<Result<(), FeedError>> {
    let ahead = ReadAhead {
        explicit_hash_key: keys.explicit_hash,
        room: Arc::new(Semaphore::new(AHEAD_BYTES)),
        lines,
        runtime: Handle::current(),
    };
    tokio::task::spawn_blocking(move || ahead.read(Feed::open(&path, keys.source)?))
}

struct ReadAhead {
    explicit_hash_key: Option<u128>,
    /// The bytes that may still be read ahead.
    room: Arc<Semaphore>,
    lines: mpsc::Sender<ReadLine>,
    runtime: Handle,
}

impl ReadAhead {
    /// Reads until the end of the feed, or until the receiver of the lines is gone.
    fn read(&self, mut feed: Feed) -> Result<(), FeedError> {
        while let Some(line) = feed.next_line()? {
            let entry = PutEntry {
                partition_key: line.partition_key,
                explicit_hash_key: self.explicit_hash_key,
                data: Bytes::from(line.data),
            };
            let Some(room) = self.room_for(&entry) else {
                return Ok(());
            };
            let line = feed.line();
            let sent = self.lines.blocking_send(ReadLine { line, entry, room });
            if sent.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for room; `None` if the receiver of the lines is gone.
    fn room_for(&self, entry: &PutEntry) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(entry.cost_bytes().min(AHEAD_BYTES)).unwrap_or(u32::MAX);
        self.runtime.block_on(async {
            tokio::select! {
                room = Arc::clone(&self.room).acquire_many_owned(bytes) => room.ok(),
                () = self.lines.closed() => None,
            }
        })
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
        let now = Instant::now();
        Self {
            bar: spinner(),
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
            last_sequence_numbers: report.last_sequence,
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
    fn a_record_that_is_too_large_is_reported_with_its_file_and_line() {
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
