//! Reading by `GetRecords`, within the shard's rates.

use std::time::Duration;

use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::kcl_metrics::Observation;
use shardmill_core::pipeline::{
    ReadPace, is_lasting, is_told_to_all, is_trouble, read_again_after,
};
use shardmill_core::ports::{Fetched, PacedBy, REPLY_BYTES_MAX, ReadError, ShardIterator};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::ReadFrom;

use super::poller::Poller;
use super::{Over, Place, ShardReader};
use crate::budget::Reservation;
use crate::metrics;
use crate::timer::Stopwatch;

/// A read that takes longer is given up and tried again: `GetRecords` answers within seconds or not
/// at all.
const READ_TIMEOUT: Duration = Duration::from_secs(40);

impl ShardReader {
    /// Polls until `until`, which cuts waits and calls short but never the taking in of a reply.
    pub(super) async fn poll(
        &self,
        place: &mut Place,
        poller: &mut Poller,
        until: impl Future<Output = ()>,
    ) -> Result<(), Over> {
        let mut until = std::pin::pin!(until);
        loop {
            let answer = tokio::select! {
                biased;
                () = &mut until => return Ok(()),
                answer = self.ask(place, poller.pace()) => answer,
            };
            let error = match answer {
                Ok((fetched, reservation)) => {
                    self.polled(place, poller, fetched, reservation).await?;
                    continue;
                }
                Err(error) => error,
            };
            let Some(wait) = self.read_failed(place, poller, &error).await? else {
                continue;
            };
            tokio::select! {
                biased;
                () = &mut until => return Ok(()),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// One call, in its turn.
    pub(super) async fn ask(
        &self,
        place: &mut Place,
        pace: &mut ReadPace,
    ) -> Result<(Fetched, Reservation), ReadError> {
        // In this order: a shard that waits for its turn must not keep bytes from those whose turn
        // it is.
        if self
            .context
            .ports()
            .reader
            .turn(self.context.shard(), place.cursor.iterator())
            .await
            == PacedBy::Caller
        {
            tokio::time::sleep(pace.call_in(self.context.now())).await;
        }
        // Reserved before the call, since nobody knows before how large the reply is.
        let reservation = self.room(REPLY_BYTES_MAX).await;
        pace.calling(self.context.now());
        place.asked_ns = self.context.span_ns();
        let reply = tokio::time::timeout(READ_TIMEOUT, self.shown_if_slow(self.read(place))).await;
        let reply = reply.unwrap_or_else(|_| {
            Err(ReadError::Unavailable {
                message: "no answer".to_owned(),
            })
        });
        reply.map(|fetched| (fetched, reservation))
    }

    async fn read(&self, place: &mut Place) -> Result<Fetched, ReadError> {
        if place.is_stream_in_doubt {
            self.verify_stream().await?;
            place.is_stream_in_doubt = false;
        }
        if place.cursor.iterator().is_none() {
            let resume = place.cursor.poll_from(self.context.now());
            let iterator = self.iterator(&resume.from).await?;
            place.cursor.set_iterator(Some(iterator));
            place.cursor.resumed(resume);
        }
        let Some(iterator) = place.cursor.iterator() else {
            return Err(ReadError::ExpiredIterator);
        };
        let started = Stopwatch::start();
        let fetched = self
            .context
            .ports()
            .reader
            .fetch(
                iterator,
                place
                    .cursor
                    .records_wanted(self.context.options().reads.records_per_call),
            )
            .await;
        self.count_read(&fetched, started.elapsed());
        fetched
    }

    async fn iterator(&self, from: &ReadFrom) -> Result<ShardIterator, ReadError> {
        let (started, reader) = (Stopwatch::start(), &self.context.ports().reader);
        let iterator = reader.iterator(self.context.shard(), from).await;
        self.context.meter().note(&Observation::Iterator {
            took: started.elapsed(),
            is_ok: iterator.is_ok(),
        });
        iterator
    }

    fn count_read(&self, fetched: &Result<Fetched, ReadError>, took: Duration) {
        let meter = self.context.meter();
        let is_ok = fetched.is_ok();
        meter.note(&Observation::Read { took, is_ok });
        if matches!(fetched, Err(ReadError::ExpiredIterator)) {
            meter.note(&Observation::IteratorExpired);
        }
        let outcome = match fetched {
            Ok(_) => "ok",
            Err(ReadError::Throttled { .. }) => "throttled",
            Err(_) => "failed",
        };
        ::metrics::counter!(metrics::READS, "plugin" => self.context.options().plugin.to_string(), "outcome" => outcome)
            .increment(1);
    }

    async fn polled(
        &self,
        place: &mut Place,
        poller: &mut Poller,
        fetched: Fetched,
        reservation: Reservation,
    ) -> Result<(), Over> {
        let taken = self.take_in(place, fetched, reservation).await?;
        place.cursor.set_iterator(Some(taken.next));
        place.cursor.set_continuation(None);
        poller.recovered();
        poller.pace().replied(taken.bytes, taken.is_idle);
        Ok(())
    }

    /// How long to wait before the next try; `None` for none.
    async fn read_failed(
        &self,
        place: &mut Place,
        poller: &mut Poller,
        error: &ReadError,
    ) -> Result<Option<Duration>, Over> {
        if *error == ReadError::ExpiredIterator {
            place.cursor.expired();
            return Ok(None);
        }
        if SeededBug::NotFoundEndsShard.is_on() && matches!(error, ReadError::NotFound { .. }) {
            return Err(self.end_by_mistake(place).await);
        }
        // A call that was throttled, not answered, or stopped by the key changed nothing: its
        // iterator is still good.
        if matches!(
            error,
            ReadError::NotFound { .. } | ReadError::Refused { .. }
        ) {
            place.cursor.set_iterator(None);
            place.is_stream_in_doubt = true;
            self.context.ports().doubts.notify_one();
        }
        if is_told_to_all(error) {
            // Kinesis answers, so this reader works: neither a new one nor another host would be
            // told more.
            self.word.heard(self.context.now());
        }
        let (failures, failing_for) = poller.failed(self.context.now());
        self.show_failure(error, failures, failing_for);
        let (backoff, roll) = (self.context.options().backoff, fastrand::f64());
        Ok(Some(read_again_after(error, failures, backoff, roll)))
    }

    fn show_failure(&self, error: &ReadError, failures: u32, failing_for: Duration) {
        let shard = self.context.shard();
        if is_trouble(error, failing_for) {
            if is_worth_a_line(failures) {
                tracing::warn!(
                    %shard,
                    %error,
                    failures,
                    code = "read-failed",
                    "cannot read, trying again"
                );
            }
            self.show_read_error(Some(error), failures);
        } else {
            tracing::debug!(%shard, %error, failures, "read throttled");
        }
        if is_lasting(failing_for) {
            self.word
                .set_trouble(Some(format!("cannot be read: {error}")));
        }
    }

    /// What [`SeededBug::NotFoundEndsShard`] does.
    async fn end_by_mistake(&self, place: &mut Place) -> Over {
        let reservation = self.context.ports().budget.reserve(0).await;
        let end = Fetched::<ShardIterator>::default();
        let _ = self
            .hand_over(&mut place.opener, end, reservation, None)
            .await;
        Over
    }
}
