//! Reads one shard ahead of its pipeline, within the host's byte budget: polled within the shard's
//! rates, or pushed by enhanced fan-out. What comes either way goes one way from here:
//! [`ShardReader::take_in`].

mod poller;
mod polling;
mod quiet;
mod room;
mod subscribed;
mod word;

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::kcl_metrics::Observation;
use shardmill_core::pipeline::{
    Accepted, ReadCursor, ReadPace, Renewal, Renewals, SubscriptionEnd,
};
use shardmill_core::ports::{Fetched, ReadError};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Gap, Position, ReadFrom, Record, Shard};
use tokio::sync::mpsc;

use self::poller::Poller;
pub(super) use self::word::ReaderWord;
use super::context::ShardContext;
use super::filtered::Filtered;
use super::opening::{Opened, Opener};
use super::receptions::Received;
use crate::budget::Reservation;
use crate::fan_out::FanOutView;
use crate::metrics;
use crate::status::{ShardRetrieval, Why};

/// Replies waiting for the pipeline: one, so that reading and processing overlap, and no more is
/// held than needed.
pub(super) const CHUNKS_MAX: usize = 1;

/// From here on a call is slow, and shown: a full reply over a slow link takes as long, a healthy
/// call some milliseconds.
const ANSWER_SLOW: Duration = Duration::from_secs(10);

/// One reply or event, in order, without what was fetched before, its aggregates opened; or a part
/// of it, always of whole Kinesis records.
pub(super) struct Chunk {
    pub(super) records: Vec<Record>,
    /// What the records cost.
    pub(super) bytes: usize,
    /// What of the reply is not among the records, since the plugin does not get it.
    pub(super) filtered: Option<Filtered>,
    pub(super) millis_behind_latest: Option<u64>,
    /// When it came, if batches are traced.
    pub(super) received: Option<Received>,
    /// Holds the records' bytes in the host's budget.
    pub(super) reservation: Reservation,
    /// Set on the last chunk of a shard: Kinesis' word that it has ended, with the children if it
    /// named them.
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
    context: Arc<ShardContext>,
    chunks: mpsc::Sender<Chunk>,
    word: ReaderWord,
}

/// Where a reader is, and what it does on the way.
struct Place {
    cursor: ReadCursor,
    /// Opens what is taken in.
    opener: Opener,
    /// Bytes of a pushed event that the host had no room for.
    refused_bytes: usize,
    /// Whether the last call failed in a way that a stream created again would explain.
    is_stream_in_doubt: bool,
    /// When the last reply was asked for, if batches are traced.
    asked_ns: Option<u64>,
}

/// What holds for all chunks of a reply.
#[derive(Clone, Copy)]
struct About {
    millis_behind_latest: Option<u64>,
    /// When it was asked for, and when it was there, if batches are traced.
    came_ns: Option<(u64, u64)>,
}

/// What was taken in of a reply or an event.
struct TakenIn<N> {
    /// Where reading goes on.
    next: N,
    /// Bytes of the records that are new.
    bytes: usize,
    /// Whether nothing was there to read: see [`ReadPace::is_idle`].
    is_idle: bool,
}

/// Reading is over: nobody listens, or the shard has ended.
struct Over;

impl ShardReader {
    /// A reader that hands what it reads to `chunks`, and lets its pipeline know the rest by
    /// `word`.
    pub(super) fn new(
        context: Arc<ShardContext>,
        chunks: mpsc::Sender<Chunk>,
        word: ReaderWord,
    ) -> Self {
        Self {
            context,
            chunks,
            word,
        }
    }

    /// Reads until the shard ends or nobody listens. Every wait ends when the pipeline is gone,
    /// since the task is aborted with it.
    pub(super) async fn run(self, start: Start) {
        let opener = Opener::new(Arc::clone(&self.context), start.settled.clone());
        let mut place = Place {
            cursor: ReadCursor::new(start.from, start.settled),
            opener,
            refused_bytes: 0,
            is_stream_in_doubt: false,
            asked_ns: None,
        };
        let mut poller = Poller::new(self.context.options().reads.rate(), self.context.now());
        let Over = if let Some(fan_out) = &self.context.ports().fan_out {
            self.alternate(&mut place, &mut poller, fan_out).await
        } else {
            self.show_retrieval(ShardRetrieval::Polling);
            match self
                .poll(&mut place, &mut poller, std::future::pending())
                .await
            {
                Ok(()) | Err(Over) => Over,
            }
        };
    }

    /// Subscribes wherever that is possible, and polls wherever it is not: a shard never rests for
    /// want of a subscription.
    async fn alternate(
        &self,
        place: &mut Place,
        poller: &mut Poller,
        fan_out: &FanOutView,
    ) -> Over {
        let mut renewals = Renewals::default();
        loop {
            let Some(consumer) = fan_out.usable() else {
                self.show_retrieval(ShardRetrieval::PollingForNow);
                match self.poll(place, poller, fan_out.until_usable()).await {
                    Ok(()) => continue,
                    Err(over) => return over,
                }
            };
            let end = match self
                .subscribe(place, poller, &mut renewals, fan_out, &consumer)
                .await
            {
                Ok(end) => end,
                Err(over) => return over,
            };
            self.count_end(end);
            let (backoff, roll) = (self.context.options().backoff, fastrand::f64());
            match renewals.after(end, self.context.now(), backoff, roll) {
                Renewal::AtOnce => {}
                Renewal::AfterResting(wait) => tokio::time::sleep(wait).await,
                Renewal::AfterPolling(wait) => {
                    self.show_retrieval(ShardRetrieval::PollingForNow);
                    if let Err(over) = self.poll(place, poller, tokio::time::sleep(wait)).await {
                        return over;
                    }
                }
            }
        }
    }

    /// Waits for `call`, which fails only after 40 seconds if it hangs: shown before. That lasts
    /// until something is read.
    async fn shown_if_slow<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let mut call = std::pin::pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = tokio::time::sleep(ANSWER_SLOW) => {}
        }
        let reason = format!("no answer from kinesis for more than {ANSWER_SLOW:?}");
        self.context.signs().report(Why::Reading, 0, &reason);
        let answer = call.await;
        if answer.is_ok() {
            self.context.signs().clear(Why::Reading);
        }
        answer
    }

    fn count_end(&self, end: SubscriptionEnd) {
        let labels = [
            ("plugin", self.context.plugin()),
            ("reason", end.code().into()),
        ];
        ::metrics::counter!(metrics::SUBSCRIPTION_ENDS, &labels).increment(1);
    }

    /// The one way of everything that is read, polled or pushed: repeats are dropped, gaps are
    /// shown, aggregates are opened, what is new goes to the pipeline. Not to be cut off half-way:
    /// what is accepted counts as fetched.
    async fn take_in<N>(
        &self,
        place: &mut Place,
        mut fetched: Fetched<N>,
        mut reservation: Reservation,
    ) -> Result<TakenIn<N>, Over> {
        let now = self.context.now();
        let Accepted { repeats, gap } = place.cursor.accept(&mut fetched, now);
        self.word.heard(now);
        // Also what a reader before this one left there, or a subscription that was waited for in
        // vain.
        self.show_read_error(None, 0);
        if let Some(gap) = gap {
            self.note_gap(&gap);
        }
        if repeats > 0 {
            self.context.count(metrics::REPEATS, repeats);
        }
        let bytes = fetched.cost_bytes();
        let is_idle = ReadPace::is_idle(&fetched.records, fetched.millis_behind_latest);
        reservation.shrink_to(bytes);
        let came_ns = self.came_ns(place);
        let next = self
            .hand_over(&mut place.opener, fetched, reservation, came_ns)
            .await?;
        Ok(TakenIn {
            next,
            bytes,
            is_idle,
        })
    }

    /// When the reply was asked for, and when it was there: the same, if it was pushed.
    fn came_ns(&self, place: &mut Place) -> Option<(u64, u64)> {
        let ended_ns = self.context.span_ns()?;
        Some((place.asked_ns.take().unwrap_or(ended_ns), ended_ns))
    }

    /// Where reading goes on; `Err` also if that is nowhere, since the shard has ended.
    async fn hand_over<N>(
        &self,
        opener: &mut Opener,
        fetched: Fetched<N>,
        mut reservation: Reservation,
        came_ns: Option<(u64, u64)>,
    ) -> Result<N, Over> {
        let Fetched {
            records,
            next,
            millis_behind_latest,
            children,
        } = fetched;
        self.show_behind(millis_behind_latest, records.is_empty());
        let about = About {
            millis_behind_latest,
            came_ns,
        };
        let mut closed = records.into_iter();
        let mut opened = opener.open_some(&mut closed).await;
        while closed.len() > 0 {
            let share = reservation.split(opened.closed_bytes);
            self.send(opened, about, share, None).await?;
            opened = opener.open_some(&mut closed).await;
        }
        let ended = next.is_none().then_some(children);
        self.send(opened, about, reservation, ended).await?;
        next.ok_or(Over)
    }

    /// Says how far behind the tip of the shard a reply was.
    fn show_behind(&self, millis_behind_latest: Option<u64>, is_empty: bool) {
        if let Some(millis) = millis_behind_latest {
            self.context.meter().note(&Observation::Behind { millis });
            let seconds = millis as f64 / 1_000.0;
            self.context.signs().gauge(metrics::BEHIND, seconds);
        }
        self.context.signs().behind(millis_behind_latest);
        let now = self.context.now();
        self.context.update_status(|status| {
            status.millis_behind_latest = millis_behind_latest;
            status.is_at_tip = is_empty && millis_behind_latest.unwrap_or(0) == 0;
            status.tip_at = status.is_at_tip.then_some(now);
        });
    }

    /// Waits until the pipeline has room. `Err` if there is none.
    async fn send(
        &self,
        opened: Opened,
        about: About,
        mut reservation: Reservation,
        ended: Option<Vec<Shard>>,
    ) -> Result<(), Over> {
        let Opened {
            records,
            bytes,
            filtered,
            ..
        } = opened;
        let last_kept = records.last().map(|record| &record.position);
        let last = last_kept.max(filtered.as_ref().map(|filtered| &filtered.through));
        if let Some(last) = last {
            self.context.update_status(|status| {
                status.fetched = Some(last.clone());
            });
        } else if ended.is_none() {
            return Ok(());
        }
        reservation.fit_to(bytes);
        let received = about.came_ns.map(|(started_ns, ended_ns)| Received {
            started_ns,
            ended_ns,
            records: records.len(),
        });
        self.chunks
            .send(Chunk {
                received,
                records,
                bytes,
                filtered,
                millis_behind_latest: about.millis_behind_latest,
                reservation,
                ended,
            })
            .await
            .map_err(|_| Over)
    }

    /// A shard that Kinesis does not know, or a place that it refuses, may mean that the stream was
    /// deleted and created again: old checkpoints mean nothing there, and must not be read from.
    async fn verify_stream(&self) -> Result<(), ReadError> {
        match self.context.ports().reader.identity().await? {
            Some(identity)
                if identity == self.context.ports().identity
                    || SeededBug::IgnoresStreamIdentity.is_on() =>
            {
                Ok(())
            }
            Some(_) => Err(ReadError::NotFound {
                message: "the stream was created again under its name".to_owned(),
            }),
            None => Err(ReadError::NotFound {
                message: "the stream is gone".to_owned(),
            }),
        }
    }

    /// Records may have been lost before they were read: never silently.
    fn note_gap(&self, gap: &Gap) {
        let plugin = &self.context.options().plugin;
        self.context.count(metrics::GAPS, 1);
        tracing::warn!(
            %plugin,
            shard = %self.context.shard(),
            %gap,
            code = "retention-near", "records may be lost to retention"
        );
        self.context.update_status(|status| {
            status.gaps.count += 1;
            status.gaps.last = Some(gap.to_string());
        });
    }

    /// The error that came `failures` times in a row, or that there is none any more.
    fn show_read_error(&self, error: Option<&ReadError>, failures: u32) {
        let text = error.map(ToString::to_string);
        match &text {
            Some(text) => self
                .context
                .signs()
                .failed(Why::Reading, failures, text.clone()),
            None => self.context.signs().clear(Why::Reading),
        }
        if error.is_none() {
            self.word.set_trouble(None);
        }
        let mut has_changed = false;
        self.context.update_status(|status| {
            has_changed = status.read_error.is_some() != text.is_some();
            status.read_error = text;
        });
        if has_changed || error.is_some() {
            self.set_unreadable(error.is_some());
        }
    }

    fn set_unreadable(&self, is_unreadable: bool) {
        self.context
            .signs()
            .gauge(metrics::UNREADABLE, if is_unreadable { 1.0 } else { 0.0 });
    }

    fn show_retrieval(&self, retrieval: ShardRetrieval) {
        self.context
            .update_status(|status| status.retrieval = retrieval);
    }
}

impl Drop for ShardReader {
    /// Whoever reads the shard next says whether it can be read.
    fn drop(&mut self) {
        self.set_unreadable(false);
        self.context.signs().clear(Why::Reading);
        self.context.signs().clear(Why::Buffer);
    }
}
