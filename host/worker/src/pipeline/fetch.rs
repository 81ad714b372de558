//! Reads one shard ahead of the consumer, within the shard's rates and the host's byte budget.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::fleet::StreamIdentity;
use shardmill_core::ports::{Clock, Fetched, PacedBy, ReadError, ShardIterator, StreamReader};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Position, ReadFrom, Record, SequenceNumber, Shard, ShardId};
use shardmill_core::time::Moment;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::opening::Opener;
use crate::budget::{ByteBudget, REPLY_BYTES_MAX, Reservation};
use crate::metrics;
use crate::options::WorkerOptions;
use crate::pace::Pace;
use crate::status::StatusBoard;

/// Replies waiting for the consumer: one, so that reading and processing overlap, and no more is held than needed.
pub(super) const CHUNKS_MAX: usize = 1;
/// A read that takes longer is given up and tried again: `GetRecords` answers within seconds or not at all.
const READ_TIMEOUT: Duration = Duration::from_secs(40);

/// One reply, in order, without what was fetched before, its aggregates opened; or a part of it, always of whole Kinesis
/// records.
pub(super) struct Chunk {
    pub(super) records: Vec<Record>,
    pub(super) millis_behind_latest: Option<u64>,
    /// Holds the records' bytes in the host's budget.
    pub(super) reservation: Reservation,
    /// Set on the last chunk of a shard: Kinesis' word that it has ended, with the children if it named them.
    pub(super) ended: Option<Vec<Shard>>,
}

/// Where a reader starts.
#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) from: ReadFrom,
    /// Records up to and including this one are settled and are dropped.
    pub(super) settled: Option<Position>,
}

/// Reads one shard.
pub(super) struct ShardReader {
    pub(super) reader: Arc<dyn StreamReader>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) budget: ByteBudget,
    pub(super) options: Arc<WorkerOptions>,
    pub(super) status: StatusBoard,
    pub(super) shard: ShardId,
    pub(super) chunks: mpsc::Sender<Chunk>,
    /// When the last good reply came.
    pub(super) heard_at: Arc<watch::Sender<Moment>>,
    /// The stream whose checkpoints these are.
    pub(super) identity: StreamIdentity,
    /// Told when the stream may be another one.
    pub(super) doubts: Arc<Notify>,
}

impl ShardReader {
    /// Reads until the shard ends or nobody listens. Every wait ends when the consumer is gone, since the task is
    /// aborted with it.
    pub(super) async fn run(self, start: Start) {
        let Start { from, settled } = start;
        let mut opener = Opener::new(self.options.plugin.to_string(), self.shard.clone(), settled.clone());
        let mut place = Place { from, iterator: None, last: None, settled, is_stream_in_doubt: false };
        let mut pace = Pace::new(&self.options.reads);
        let mut failures = 0_u32;
        loop {
            // In this order: a shard that waits for its turn must not keep bytes from those whose turn it is.
            if self.reader.turn(&self.shard, place.iterator.as_ref()).await == PacedBy::Caller {
                pace.wait().await;
            }
            let mut reservation = self.budget.reserve(REPLY_BYTES_MAX).await;
            pace.calling(Instant::now());
            let reply = tokio::time::timeout(READ_TIMEOUT, self.read(&mut place)).await;
            let reply = reply.unwrap_or_else(|_| Err(ReadError::Unavailable { message: "no answer".to_owned() }));
            match reply.and_then(|fetched| place.accept(fetched)) {
                Ok((fetched, repeats)) => {
                    self.heard_at.send_replace(self.clock.now());
                    if repeats > 0 {
                        let plugin = self.options.plugin.to_string();
                        ::metrics::counter!(metrics::REPEATS, "plugin" => plugin).increment(repeats);
                    }
                    if failures > 0 {
                        failures = 0;
                        self.status.update_shard(&self.shard, |status| status.read_error = None);
                    }
                    let bytes: usize = fetched.records.iter().map(Record::cost_bytes).sum();
                    reservation.shrink_to(bytes);
                    pace.replied(bytes, Pace::is_idle(&fetched));
                    if self.hand_over(fetched, reservation, &mut opener).await.is_err() {
                        return;
                    }
                }
                Err(ReadError::ExpiredIterator) => place.expired(),
                Err(error) => {
                    failures += 1;
                    drop(reservation);
                    if SeededBug::NotFoundEndsShard.is_on() && matches!(error, ReadError::NotFound { .. }) {
                        let reservation = self.budget.reserve(0).await;
                        let _ = self.hand_over(Fetched::default(), reservation, &mut opener).await;
                        return;
                    }
                    // A throttled or unanswered call changed nothing: its iterator still stands.
                    if !matches!(error, ReadError::Throttled { .. } | ReadError::Unavailable { .. }) {
                        place.iterator = None;
                        place.is_stream_in_doubt = true;
                        self.doubts.notify_one();
                    }
                    self.failed(&error, failures).await;
                }
            }
        }
    }

    async fn read(&self, place: &mut Place) -> Result<Fetched, ReadError> {
        if place.is_stream_in_doubt {
            self.verify_stream().await?;
            place.is_stream_in_doubt = false;
        }
        if place.iterator.is_none() {
            let asked_at_ms = self.clock.wall_ms();
            place.iterator = Some(self.reader.iterator(&self.shard, &place.read_from()).await?);
            place.pin_latest(asked_at_ms);
        }
        let Some(iterator) = &place.iterator else { return Err(ReadError::ExpiredIterator) };
        let fetched = self.reader.fetch(iterator, self.options.reads.records_per_call).await;
        let outcome = if fetched.is_ok() { "ok" } else { "failed" };
        ::metrics::counter!(metrics::READS, "plugin" => self.options.plugin.to_string(), "outcome" => outcome)
            .increment(1);
        fetched
    }

    /// A shard that Kinesis does not know, or a place that it refuses, may mean that the stream was deleted and created
    /// again: old checkpoints mean nothing there, and must not be read from.
    async fn verify_stream(&self) -> Result<(), ReadError> {
        match self.reader.identity().await? {
            Some(identity) if identity == self.identity || SeededBug::IgnoresStreamIdentity.is_on() => Ok(()),
            Some(_) => Err(ReadError::NotFound { message: "the stream was created again under its name".to_owned() }),
            None => Err(ReadError::NotFound { message: "the stream is gone".to_owned() }),
        }
    }

    /// `Err` when reading is over: nobody listens, or the shard has ended.
    async fn hand_over(&self, fetched: Fetched, mut reservation: Reservation, opener: &mut Opener) -> Result<(), ()> {
        let Fetched { records, next, millis_behind_latest, children } = fetched;
        if let Some(behind) = millis_behind_latest {
            let labels = [("plugin", self.options.plugin.to_string()), ("shard", self.shard.to_string())];
            ::metrics::gauge!(metrics::BEHIND, &labels).set(behind as f64);
        }
        self.status.update_shard(&self.shard, |status| {
            status.millis_behind_latest = millis_behind_latest;
            status.is_at_tip = records.is_empty() && millis_behind_latest.unwrap_or(0) == 0;
        });
        let mut closed = records.into_iter();
        let mut opened = opener.open_some(&mut closed);
        while closed.len() > 0 {
            let share = reservation.split(opened.closed_bytes).ok_or(())?;
            self.send(opened.records, millis_behind_latest, share, None).await?;
            opened = opener.open_some(&mut closed);
        }
        let ended = next.is_none().then_some(children);
        let is_last = ended.is_some();
        self.send(opened.records, millis_behind_latest, reservation, ended).await?;
        if is_last { Err(()) } else { Ok(()) }
    }

    /// Waits until the consumer has room. `Err` if there is none.
    async fn send(
        &self,
        records: Vec<Record>,
        millis_behind_latest: Option<u64>,
        mut reservation: Reservation,
        ended: Option<Vec<Shard>>,
    ) -> Result<(), ()> {
        if let Some(last) = records.last() {
            self.status.update_shard(&self.shard, |status| status.fetched = Some(last.position.clone()));
        } else if ended.is_none() {
            return Ok(());
        }
        reservation.fit_to(records.iter().map(Record::cost_bytes).sum());
        self.chunks.send(Chunk { records, millis_behind_latest, reservation, ended }).await.map_err(|_| ())
    }

    async fn failed(&self, error: &ReadError, failures: u32) {
        // The first failure of a row is shown; a throttle is ordinary on a shared shard and is shown only if it lasts.
        let is_ordinary = matches!(error, ReadError::Throttled { .. }) && failures < 8;
        if is_ordinary {
            tracing::debug!(shard = %self.shard, %error, failures, "read throttled");
        } else if failures.is_power_of_two() {
            tracing::warn!(shard = %self.shard, %error, failures, "cannot read, trying again");
        }
        self.status.update_shard(&self.shard, |status| status.read_error = Some(error.to_string()));
        tokio::time::sleep(self.options.backoff.delay(failures, fastrand::f64())).await;
    }
}

/// Where the reader is in its shard.
struct Place {
    from: ReadFrom,
    iterator: Option<ShardIterator>,
    /// The last record taken from a reply.
    last: Option<SequenceNumber>,
    settled: Option<Position>,
    /// The last call failed in a way that a stream created anew would explain.
    is_stream_in_doubt: bool,
}

impl Place {
    /// The iterator is too old, because nobody read for five minutes or the clock of the service says so.
    fn expired(&mut self) {
        self.iterator = None;
        if SeededBug::ExpiredIteratorGoesToLatest.is_on() {
            self.from = ReadFrom::Latest;
            self.last = None;
        }
        if SeededBug::ExpiredIteratorGoesToTrimHorizon.is_on() {
            self.from = ReadFrom::TrimHorizon;
            self.last = None;
        }
    }

    fn read_from(&self) -> ReadFrom {
        match &self.last {
            Some(last) => ReadFrom::AfterSequenceNumber(last.clone()),
            None => self.from.clone(),
        }
    }

    /// Once a LATEST iterator was made, "latest" is that moment: asking for LATEST again after a failure would skip what
    /// arrived in between. Some seconds early, since this host's clock may be ahead; nothing was delivered before.
    fn pin_latest(&mut self, asked_at_ms: u64) {
        const CLOCK_ERROR_MS: u64 = 5_000;
        if self.from == ReadFrom::Latest {
            self.from = ReadFrom::AtTimestamp(asked_at_ms.saturating_sub(CLOCK_ERROR_MS));
        }
    }

    /// Drops what was fetched or settled before; refuses a reply whose records are out of order, which is then read
    /// again from the last good record. Also gives how many were dropped.
    fn accept(&mut self, mut fetched: Fetched) -> Result<(Fetched, u64), ReadError> {
        if !fetched.records.is_sorted_by(|a, b| a.position <= b.position) {
            self.iterator = None;
            let message = "a reply's records are out of order".to_owned();
            return Err(ReadError::Unavailable { message });
        }
        let received = fetched.records.len();
        fetched.records.dedup_by(|later, earlier| later.position == earlier.position);
        let (last, settled) = (self.last.take(), &self.settled);
        if SeededBug::DeliversSettledAgain.is_on() {
            self.last = fetched.records.last().map(|record| record.position.sequence.clone()).or(last);
            self.iterator.clone_from(&fetched.next);
            return Ok((fetched, 0));
        }
        fetched.records.retain(|record| {
            last.as_ref().is_none_or(|last| record.position.sequence > *last)
                && settled
                    .as_ref()
                    .is_none_or(|settled| record.position > *settled || Opener::may_reach_beyond(settled, record))
        });
        if SeededBug::SkipsFirstRecord.is_on()
            && last.is_none()
            && self.settled.is_some()
            && !fetched.records.is_empty()
        {
            fetched.records.remove(0);
        }
        self.last = fetched.records.last().map(|record| record.position.sequence.clone()).or(last);
        self.iterator.clone_from(&fetched.next);
        let repeats = (received - fetched.records.len()) as u64;
        Ok((fetched, repeats))
    }
}
