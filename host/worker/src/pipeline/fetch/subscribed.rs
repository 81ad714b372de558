//! Reading by enhanced fan-out: one subscription after the other, each from where the last one left
//! off.
//!
//! Nothing is pulled off the connection while the pipeline or the host's byte budget is behind, so
//! HTTP/2's own window holds Kinesis back. Nobody knows an event's size before it is there: a
//! reader has at most one in hand that is not in the budget yet, and lets go of it, and of its
//! connection with all that waits in its window, if there is no room for long.

use std::ops::ControlFlow;
use std::time::Duration;

use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::pipeline::{Renewals, SubscriptionEnd};
use shardmill_core::ports::{REPLY_BYTES_MAX, ShardEvent, SubscribeError, Subscription};
use shardmill_core::stream::ConsumerArn;

use super::poller::Poller;
use super::quiet::{Beside, Quiet};
use super::{Over, Place, ShardReader};
use crate::budget::Reservation;
use crate::fan_out::FanOutView;
use crate::metrics;
use crate::status::ShardRetrieval;

/// `SubscribeToShard` answers within seconds or not at all.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(40);
/// Kinesis sends an event every five seconds, records or not: four of them missing in a row are no
/// delay. (The KCL waits for 35 s.)
const STALLED_AFTER: Duration = Duration::from_secs(20);
/// What must be free in the budget before an event is pulled: a shard's second of fan-out is 2 MB
/// (AWS limit).
const ROOM_BYTES: usize = 2 << 20;
/// How long there may be no room before the subscription is let go of: longer than batches take,
/// far shorter than its five minutes. What a shard that is stuck holds is then in the budget, all
/// of it.
const HELD_BACK_MAX: Duration = Duration::from_secs(30);
/// Subscriptions refused in a row for another one's sake, before that is worth a warning: a lease
/// that moves costs one or two.
const CONTENDED_AFTER: u32 = 5;

/// How a subscription ended, and by which error if by one.
type Ended = Result<SubscriptionEnd, (SubscribeError, SubscriptionEnd)>;

impl ShardReader {
    /// Subscribes once and reads until that subscription ends.
    pub(super) async fn subscribe(
        &self,
        place: &mut Place,
        poller: &mut Poller,
        renewals: &mut Renewals,
        fan_out: &FanOutView,
        consumer: &ConsumerArn,
    ) -> Result<SubscriptionEnd, Over> {
        self.until_there_is_room(place).await?;
        let opening = self.shown_if_slow(self.open(place, fan_out, consumer));
        let opened = tokio::time::timeout(SUBSCRIBE_TIMEOUT, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(no_answer()));
        let ended = match opened {
            Ok(subscription) => {
                renewals.subscribed(self.context.now());
                // A polling iterator goes stale meanwhile.
                place.cursor.set_iterator(None);
                self.show_retrieval(ShardRetrieval::FanOut);
                self.follow(place, poller, renewals, subscription).await?
            }
            Err(error) => Err((error, SubscriptionEnd::Failed)),
        };
        Ok(match ended {
            Ok(end) => end,
            Err((error, otherwise)) => {
                if matches!(error, SubscribeError::ConsumerNotFound { .. }) {
                    fan_out.lost(consumer);
                }
                self.subscription_failed(place, renewals, &error, otherwise)
            }
        })
    }

    async fn open(
        &self,
        place: &mut Place,
        fan_out: &FanOutView,
        consumer: &ConsumerArn,
    ) -> Result<Box<dyn Subscription>, SubscribeError> {
        if place.is_stream_in_doubt {
            self.verify_stream().await?;
            place.is_stream_in_doubt = false;
        }
        let resume = place.cursor.subscribe_from(self.context.now());
        let subscription = fan_out
            .subscriptions
            .subscribe(consumer, self.context.shard(), &resume.from)
            .await?;
        place.cursor.resumed(resume);
        Ok(subscription)
    }

    /// Reads until the subscription ends: `Err(Over)` if reading is over with it.
    async fn follow(
        &self,
        place: &mut Place,
        poller: &mut Poller,
        renewals: &mut Renewals,
        mut subscription: Box<dyn Subscription>,
    ) -> Result<Ended, Over> {
        let mut quiet = Quiet::begins(self.context.now());
        loop {
            let event = match self.next_event(place, subscription.as_mut()).await? {
                ControlFlow::Continue(event) => event,
                ControlFlow::Break(ended) => return Ok(ended),
            };
            renewals.heard();
            let brings_records = !event.records.is_empty();
            subscription = match self.take_event(place, event, subscription).await? {
                ControlFlow::Continue(subscription) => subscription,
                ControlFlow::Break(ended) => return Ok(ended),
            };
            if brings_records {
                quiet.ends(self.context.now());
            } else if quiet.is_over(self.context.now())
                && self.read_beside(place, poller).await? == Beside::Records
            {
                tracing::warn!(
                    shard = %self.context.shard(),
                    code = "subscription-gap",
                    "the subscription missed records that exist, polling for now"
                );
                return Ok(Ok(SubscriptionEnd::Incomplete));
            }
        }
    }

    /// The next event, once there is room for it.
    async fn next_event(
        &self,
        place: &Place,
        subscription: &mut dyn Subscription,
    ) -> Result<ControlFlow<Ended, ShardEvent>, Over> {
        let Ok(room) = tokio::time::timeout(HELD_BACK_MAX, self.until_there_is_room(place)).await
        else {
            return Ok(ControlFlow::Break(Ok(SubscriptionEnd::HeldBack)));
        };
        room?;
        let ended = match tokio::time::timeout(STALLED_AFTER, subscription.next()).await {
            Err(_) => Err((no_event(), SubscriptionEnd::Stalled)),
            Ok(Err(error)) => Err((error, SubscriptionEnd::Cut)),
            Ok(Ok(None)) => Ok(SubscriptionEnd::Expired),
            Ok(Ok(Some(event))) => return Ok(ControlFlow::Continue(event)),
        };
        Ok(ControlFlow::Break(ended))
    }

    /// Takes in an event; gives the subscription back if it is to be followed further.
    async fn take_event(
        &self,
        place: &mut Place,
        event: ShardEvent,
        subscription: Box<dyn Subscription>,
    ) -> Result<ControlFlow<Ended, Box<dyn Subscription>>, Over> {
        let bytes = event.cost_bytes();
        let reserved = self.room(bytes.min(REPLY_BYTES_MAX));
        let Ok(reservation) = tokio::time::timeout(HELD_BACK_MAX, reserved).await else {
            // It will be as large when it is pulled again: not before there is room for it.
            place.refused_bytes = bytes.min(REPLY_BYTES_MAX);
            return Ok(ControlFlow::Break(Ok(SubscriptionEnd::HeldBack)));
        };
        place.refused_bytes = 0;
        let mut taking_in = std::pin::pin!(self.pushed(place, event, reservation));
        let in_time = tokio::time::timeout(HELD_BACK_MAX, &mut taking_in).await;
        let (taken, otherwise) = if let Ok(taken) = in_time {
            (taken, ControlFlow::Continue(subscription))
        } else {
            // Some of its opened aggregates wait for the pipeline still; what waits on the
            // connection is let go of.
            drop(subscription);
            (
                taking_in.await,
                ControlFlow::Break(Ok(SubscriptionEnd::HeldBack)),
            )
        };
        taken.map(|()| otherwise)
    }

    /// While the pipeline has a chunk in hand, or the host is full, nothing is pulled: what is
    /// pulled cannot be refused.
    async fn until_there_is_room(&self, place: &Place) -> Result<(), Over> {
        // Only this task sends, so that what is free now is free when the event is there.
        drop(self.chunks.reserve().await.map_err(|_| Over)?);
        drop(self.room(place.refused_bytes.max(ROOM_BYTES)).await);
        Ok(())
    }

    async fn pushed(
        &self,
        place: &mut Place,
        event: ShardEvent,
        reservation: Reservation,
    ) -> Result<(), Over> {
        self.context.count(metrics::EVENTS, 1);
        // It was not asked for.
        place.asked_ns = None;
        let taken = self.take_in(place, event, reservation).await?;
        if taken.bytes > 0 {
            // A polling iterator would go on before them.
            place.cursor.set_iterator(None);
        }
        place.cursor.set_continuation(Some(taken.next));
        self.context
            .update_status(|status| status.subscription_error = None);
        Ok(())
    }

    /// What the error means; `otherwise` if it says nothing of its own.
    fn subscription_failed(
        &self,
        place: &mut Place,
        renewals: &Renewals,
        error: &SubscribeError,
        otherwise: SubscriptionEnd,
    ) -> SubscriptionEnd {
        let end = match error {
            SubscribeError::InUse { .. } if otherwise == SubscriptionEnd::Failed => {
                SubscriptionEnd::InUse
            }
            SubscribeError::InUse { .. } => SubscriptionEnd::TakenOver,
            SubscribeError::ConsumerNotFound { .. } => SubscriptionEnd::ConsumerGone,
            SubscribeError::NotFound { .. } | SubscribeError::Refused { .. } => {
                // Kinesis may know the last record where it does not know the continuation.
                place.cursor.set_continuation(None);
                place.is_stream_in_doubt = true;
                self.context.ports().doubts.notify_one();
                otherwise
            }
            SubscribeError::ConsumerLimit { .. }
            | SubscribeError::Throttled { .. }
            | SubscribeError::Unavailable { .. } => otherwise,
        };
        self.log_end(end, error, renewals.fruitless());
        self.context.update_status(|status| {
            status.subscription_error = Some(error.to_string());
        });
        end
    }

    fn log_end(&self, end: SubscriptionEnd, error: &SubscribeError, fruitless: u32) {
        let (shard, code) = (self.context.shard(), end.code());
        if is_ordinary(end, fruitless) || !is_worth_a_line(fruitless.max(1)) {
            tracing::debug!(%shard, %error, fruitless, end = code, "subscription ended");
        } else {
            tracing::warn!(
                %shard,
                %error,
                fruitless,
                end = code,
                code = "subscription-ended", "subscription ended, trying again"
            );
        }
    }
}

fn is_ordinary(end: SubscriptionEnd, fruitless: u32) -> bool {
    match end {
        // Connections are cut every day; what was delivered is known.
        SubscriptionEnd::Expired
        | SubscriptionEnd::Cut
        | SubscriptionEnd::HeldBack
        | SubscriptionEnd::TakenOver => true,
        SubscriptionEnd::InUse => fruitless < CONTENDED_AFTER,
        SubscriptionEnd::Stalled
        | SubscriptionEnd::Incomplete
        | SubscriptionEnd::ConsumerGone
        | SubscriptionEnd::Failed => false,
    }
}

fn no_answer() -> SubscribeError {
    SubscribeError::Unavailable {
        message: format!("no answer within {SUBSCRIBE_TIMEOUT:?}"),
    }
}

fn no_event() -> SubscribeError {
    SubscribeError::Unavailable {
        message: format!("no event within {STALLED_AFTER:?}"),
    }
}
